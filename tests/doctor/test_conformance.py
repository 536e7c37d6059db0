"""`doctor --conformance`: the evidence for Kubernetes' AI conformance, held to the form that a platform hands in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.doctor.conformance import judge
from tests.support.demo import demo
from tests.support.doctor_here import doctor_here
from tests.support.places import ROOT
from tests.support.waiting import wait_until

FORM = yaml.safe_load((ROOT / "tests" / "data" / "conformance.yaml").read_text())
JUDGED = {"dra_support", "gpu_sharing", "accelerator_metrics", "secure_accelerator_access"}


def faults(product: dict[str, Any], version: str, folder: Path) -> Iterator[str]:
    """What the form's reader finds wrong with a PRODUCT.yaml in `folder`."""
    for name in FORM["metadata"]["needed"]:
        text = product["metadata"].get(name)
        if not isinstance(text, str) or not text or (text.startswith("[") and text.endswith("]")):
            yield f"metadata {name}"
    for category, levels in FORM["requirements"][version].items():
        entries = {entry["id"]: entry for entry in product["spec"].get(category, [])}
        for name, level in levels.items():
            yield from (f"{fault} {name}" for fault in faults_of(entries.get(name), level, folder))


def faults_of(entry: dict[str, Any] | None, level: str, folder: Path) -> Iterator[str]:
    if entry is None:
        yield "missing"
        return
    if any(not isinstance(entry[name], str) for name in ("id", "description", "level", "status", "notes")):
        yield "not text"
    if level == "SHOULD" and not entry["status"] and not entry["evidence"]:
        return
    if entry["status"] not in FORM["statuses"]:
        yield "status"
    elif level == "MUST" and entry["status"] != "Implemented":
        yield entry["status"]
    if entry["status"] == "N/A" and not entry["notes"]:
        yield "notes"
    yield from ("evidence" for link in entry["evidence"] if not (folder / link).exists())


def doctor(url: str, evidence: Path) -> tuple[int, str]:
    """Exit code and report."""
    address = url.removeprefix("http://")
    done = doctor_here(f"--conformance={evidence}", POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS=address)
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def of_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The address at which the demo answered, and the file with its evidence."""
    evidence = tmp_path_factory.mktemp("demo") / "evidence.yaml"
    with demo("--dra=on", "--collect-interval=0") as url:
        # claims come and go between its three requests
        wait_until(lambda: doctor(url, evidence)[0] == 0, why=evidence.read_text)
    return url, evidence


# issue 19, line 5
@pytest.mark.parametrize("version", FORM["requirements"])
def test_the_evidence_of_the_demo_has_the_form(of_demo: tuple[str, Path], version: str) -> None:
    url, evidence = of_demo
    folder = evidence.parent
    seen = yaml.safe_load(evidence.read_text())
    entries = {entry["id"]: (category, entry) for category, of in seen["spec"].items() for entry in of}
    assert entries.keys() == JUDGED
    levels = {
        name: level for of in FORM["requirements"].values() for each in of.values() for name, level in each.items()
    }
    assert {name: entry["level"] for name, (_, entry) in entries.items()} == {name: levels[name] for name in JUDGED}
    statuses = {name: entry["status"] for name, (_, entry) in entries.items()}
    assert statuses == dict.fromkeys(JUDGED, "Implemented") | {"secure_accelerator_access": ""}
    assert {*FORM["metadata"]["needed"], *FORM["metadata"]["optional"]} == seen["metadata"].keys()

    # what is left to the platform is all that the form misses; with that, it is whole
    asked = {name for of in FORM["requirements"][version].values() for name, level in of.items()}
    lacks = {f"missing {name}" for name in asked - JUDGED} | {"status secure_accelerator_access"}
    assert {*faults(seen, version, folder)} == lacks | {f"metadata {name}" for name in FORM["metadata"]["needed"]}
    product = {
        "metadata": dict.fromkeys(FORM["metadata"]["needed"], "ours"),
        "spec": {
            category: [
                entries[name][1]
                if statuses.get(name)
                else {**entries["gpu_sharing"][1], "id": name, "level": level, "status": "Implemented"}
                for name, level in of.items()
            ]
            for category, of in FORM["requirements"][version].items()
        },
    }
    assert [*faults(product, version, folder)] == []
    assert [*faults(product, version, folder / "elsewhere")] != []

    (observed,) = [each for each in seen["observed"]["requirements"] if each["id"] == "accelerator_metrics"]
    assert observed["pass"] is True
    assert observed["seen"]["url"] == f"{url}/gpu/metrics"
    assert any(line.startswith("DCGM_FI_DEV_POWER_USAGE{") for line in observed["seen"]["excerpt"])


# issue 19, line 5
def test_what_fails_on_the_demo_is_named(tmp_path: Path) -> None:
    evidence = tmp_path / "evidence.yaml"
    lines = (
        "accelerator_metrics: missing: power draw (14 of 14 accelerators)",
        "secure_accelerator_access: used by containers that do not hold them: ",
    )

    def are_named() -> bool:
        code, report = doctor(url, evidence)
        return code == 1 and all(f"problem  {line}" in report for line in lines)

    with demo("--collect-interval=0", "--families.deny=DCGM_FI_DEV_POWER_USAGE", "--strangers=1") as url:
        wait_until(are_named, why=evidence.read_text)
    faulty = {*faults(yaml.safe_load(evidence.read_text()), "1.36", tmp_path)}
    for name in (line.partition(":")[0] for line in lines):
        assert {fault for fault in faulty if fault.endswith(name)} < {f"{status} {name}" for status in FORM["statuses"]}


FAMILIES = (
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_PROF_PCIE_TX_BYTES",
)  # fmt: skip


def page(*labels: str, without: str = "", blank: str = "") -> str:
    """A page with one sample of each of `FAMILIES` for each device."""
    return "".join(
        f"{family}{{{each}}} {9223372036854775794 if family == blank else 1}\n"
        for family in FAMILIES
        if family != without
        for each in labels
    )


def device(uuid: str, instance: str = "") -> dict[str, str]:
    return {"uuid": uuid, "gpu_i_id": instance, "gpu": "0", "device": "nvidia0"}


def judged(text: str, *seen: dict[str, str], metrics: str = "", **mapping: object) -> dict[str, tuple[str, str]]:
    """Status and reason of each requirement."""
    whole = {"seen": seen, "assigned": [], "inventory": {"gpus": []}, "processes_of_nobody": {}, **mapping}
    pages = {"mapping.json": json.dumps(whole), "gpu-metrics.prom": text, "metrics.prom": metrics}
    of_pages = judge("http://x", {name: body.encode() for name, body in pages.items()})
    return {each.id: (each.status, each.why) for each in of_pages}


ONE, OTHER = 'UUID="GPU-1"', 'UUID="GPU-2"'
FIRST, SECOND = (f'UUID="GPU-1",GPU_I_ID="{number}"' for number in (1, 2))
HELD = {"device_id": "gpu-0", "resource": "r", "uuid": "GPU-1", "gpu_i_id": "", "matched": True, "reason": ""}
CLAIMED = {**HELD, "shared": False, "claim": "ml/c"}


# issue 19, line 5
@pytest.mark.parametrize(
    ("text", "seen", "inventory", "status", "says"),
    [
        (page(ONE), [device("GPU-1")], [], "Implemented", "1 accelerators have"),
        (page(ONE, without="DCGM_FI_DEV_GPU_UTIL"), [device("GPU-1")], [], "Not Implemented", "utilization (1 of 1"),
        (page(ONE, without="DCGM_FI_DEV_FB_USED"), [device("GPU-1")], [], "Not Implemented", "memory usage (1 of 1"),
        (page(ONE, without="DCGM_FI_DEV_GPU_TEMP"), [device("GPU-1")], [], "Partially Implemented", "temperature (1"),
        (page(ONE, blank="DCGM_FI_DEV_POWER_USAGE"), [device("GPU-1")], [], "Partially Implemented", "power draw (1"),
        (page(ONE), [device("GPU-1"), device("GPU-2")], [], "Not Implemented", "utilization (1 of 2"),
        # a GPU without any sample is known to the driver alone
        (page(ONE), [device("GPU-1")], [{"uuid": "GPU-2", "mig": []}], "Not Implemented", "utilization (1 of 2"),
        (page(ONE, OTHER), [device("GPU-1"), device("GPU-2")], [], "Implemented", "2 accelerators"),
        # of a GPU that is cut each instance has its use, and one row has what is the whole GPU's
        (page(FIRST, SECOND), [device("GPU-1", "1"), device("GPU-1", "2")], [], "Implemented", "2 accelerators"),
        (page(FIRST), [device("GPU-1", "1"), device("GPU-1", "2")], [], "Not Implemented", "utilization (1 of 2"),
        ("all upstreams fail\n", [], [], "Not Implemented", "0 accelerators, and 1 lines that are no metric"),
        ("", [], [], "Not Implemented", "0 accelerators"),
    ],
)
def test_each_accelerator_needs_its_metrics(
    text: str, seen: list[dict[str, str]], inventory: list[object], status: str, says: str
) -> None:
    got, why = judged(text, *seen, inventory={"gpus": inventory})["accelerator_metrics"]
    assert got == status
    assert says in why


@pytest.mark.parametrize(
    ("mapping", "metrics", "name", "status"),
    [
        ({}, "", "dra_support", ""),
        ({"assigned": [CLAIMED]}, "", "dra_support", "Implemented"),
        ({"assigned": [{**CLAIMED, "matched": False, "reason": "vfio"}]}, "", "dra_support", "Implemented"),
        (
            {"assigned": [CLAIMED, {**CLAIMED, "matched": False, "reason": "claim_unresolved"}]},
            "",
            "dra_support",
            "Partially Implemented",
        ),
        ({"assigned": [{**HELD, "claim": "", "shared": False}]}, "", "gpu_sharing", ""),
        ({"assigned": [{**HELD, "claim": "", "shared": True}]}, "", "gpu_sharing", "Implemented"),
        ({"assigned": [{**HELD, "claim": "", "shared": False, "gpu_i_id": "1"}]}, "", "gpu_sharing", "Implemented"),
        ({}, 'pod_gpu_memory_used_bytes{pod="a",holds="false"} 1e6\n', "secure_accelerator_access", ""),
        ({}, 'pod_gpu_memory_used_bytes{pod="a"} 1e11\n', "secure_accelerator_access", ""),
        ({}, 'pod_gpu_memory_used_bytes{pod="a",holds="false"} 1e11\n', "secure_accelerator_access", "Not Implemented"),
        ({}, 'pod_gpu_utilization_ratio{pod="a",holds="false"} 0.5\n', "secure_accelerator_access", "Not Implemented"),
    ],
)
def test_the_neighbours_are_judged_by_what_is_seen(
    mapping: dict[str, object], metrics: str, name: str, status: str
) -> None:
    assert judged(page(ONE), device("GPU-1"), metrics=metrics, **mapping)[name][0] == status


def test_access_is_not_judged_where_use_is_not_measured() -> None:
    why = judged(page(ONE), device("GPU-1"), processes_of_nobody=None)["secure_accelerator_access"][1]
    assert "not measured here" in why


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    done = doctor_here(f"--conformance={tmp_path}/none/evidence.yaml", "--dcgm.url=http://127.0.0.1:1/metrics")
    assert done.returncode == 1
    assert "--conformance:" in done.stderr
    assert "cannot be written: No such file or directory" in done.stderr
