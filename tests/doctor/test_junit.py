"""The JUnit file beside the evidence of `doctor --conformance`, held to what readers of such files take."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

from exporter.doctor.as_tested import QuestionOfTest
from exporter.doctor.conformance import JudgedRequirement
from exporter.doctor.junit import as_junit
from tests.doctor.test_conformance import JUDGED, doctor
from tests.support.demo import demo
from tests.support.doctor_here import doctor_here
from tests.support.waiting import wait_until

# Of each element: its children, its attributes, and those of them that it must have. What Jenkins' xUnit plugin takes
# (junit-10.xsd), gotestsum writes, and GitLab and Azure read; none of them minds what it does not know but the first.
SCHEMA: Mapping[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": ({"testsuite"}, {"name", "tests", "failures", "errors", "time"}, set()),
    "testsuite": (
        {"properties", "testcase", "system-out", "system-err"},
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname", "id", "package"},
        {"name", "tests", "failures", "errors"},
    ),
    "properties": ({"property"}, set(), set()),
    "property": (set(), {"name", "value"}, {"name", "value"}),
    "testcase": ({"failure", "skipped", "system-out"}, {"name", "classname", "time"}, {"name", "classname"}),
    "failure": (set(), {"type", "message"}, set()),
    "skipped": (set(), {"type", "message"}, set()),
    "system-out": (set(), set(), set()),
}


def faults(root: ET.Element) -> Iterator[str]:
    if root.tag != "testsuites":
        yield f"root {root.tag}"
    for each in root.iter():
        children, attributes, needed = SCHEMA.get(each.tag, (set(), set(), set()))
        if each.tag not in SCHEMA:
            yield f"element {each.tag}"
        yield from (f"{child.tag} in {each.tag}" for child in each if child.tag not in children)
        yield from (f"attribute {name} of {each.tag}" for name in {*each.keys()} - attributes)
        yield from (f"no {name} of {each.tag}" for name in needed - {*each.keys()})
    for each in (root, *root.iter("testsuite")):
        cases = [*each.iter("testcase")]
        counts = {"tests": len(cases), "errors": 0}
        counts |= {name: sum(case.find(one) is not None for case in cases) for name, one in COUNTED.items()}
        yield from (f"{name} of {each.tag}" for name, n in counts.items() if each.get(name, str(n)) != str(n))
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    if len({*names}) != len(names):
        yield "two cases of one name"


COUNTED = {"failures": "failure", "skipped": "skipped"}


def results(root: ET.Element) -> dict[str, str]:
    """By the name of a case: "failure", "skipped" or ""."""
    return {
        str(case.get("name")): next((child.tag for child in case if child.tag != "system-out"), "")
        for case in root.iter("testcase")
    }


# issue 22, line 38
def test_the_file_beside_the_evidence_is_a_junit_file(tmp_path: Path) -> None:
    evidence = tmp_path / "evidence.yaml"
    with demo("--dra=on", "--collect-interval=0", "--families.deny=DCGM_FI_DEV_POWER_USAGE") as url:
        wait_until(lambda: "power draw" in doctor(url, evidence)[1], why=evidence.read_text)
    root = ET.fromstring((tmp_path / "evidence.xml").read_bytes())  # noqa: S314 - our own
    assert [*faults(root)] == []
    got = results(root)
    assert got.keys() > JUDGED
    assert got["accelerator_metrics"] == "failure"
    assert got["gpu_sharing"] == ""
    assert got["secure_accelerator_access"] == "skipped"
    assert got["accelerator_metrics/utilization as tested"] == ""
    (entry,) = [each for of in yaml.safe_load(evidence.read_text())["spec"].values() for each in of][2:3]
    assert entry["id"] == "accelerator_metrics"
    assert entry["evidence"] == ["evidence.yaml", "evidence.xml"]


ASKED = (
    QuestionOfTest("utilization", ("util",), is_required=True, families={}, flag='-metrics-utilization-metric="x"'),
    QuestionOfTest("memory", ("fb_used",), is_required=True, families={"fb_used": 1}),
    QuestionOfTest("temperature", ("temp",), is_required=False, families={}),
)


REQUIREMENT = JudgedRequirement(
    "accelerator_metrics", "Not Implemented", "<why> & \x00\x1b[31m \ud800 ]]>", "a\nb", {}, ASKED
)


# issue 22, line 38
def test_any_text_makes_a_well_formed_file() -> None:
    body = as_junit([REQUIREMENT], where="http://x/\x07", version="1", moment="2026-01-01T00:00:00Z")
    root = ET.fromstring(body)  # noqa: S314 - our own
    assert [*faults(root)] == []
    assert results(root) == {
        "accelerator_metrics": "failure",
        "accelerator_metrics/utilization as tested": "failure",
        "accelerator_metrics/memory as tested": "",
        "accelerator_metrics/temperature as tested": "skipped",
    }
    failures = [case.find("failure") for case in root.iter("testcase")]
    assert failures[0] is not None
    assert str(failures[0].get("message")).startswith("<why> & \\x00\\x1b[31m")
    assert failures[1] is not None
    assert '-metrics-utilization-metric="x"' in str(failures[1].text)


# issue 22, line 38
@pytest.mark.parametrize("name", ["evidence.xml", "evidence.XML"])
def test_the_evidence_cannot_have_the_name_of_its_junit_file(tmp_path: Path, name: str) -> None:
    code, report = refused(tmp_path / name)
    assert code == 1
    assert "--conformance: " in report
    assert "give it another name, such as evidence.yaml" in report
    assert not (tmp_path / name).exists()


def refused(path: Path) -> tuple[int, str]:
    done = doctor_here(f"--conformance={path}")
    return done.returncode, done.stderr
