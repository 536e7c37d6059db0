"""docs/operator.md as somebody would follow it, and its reasons, events and objects held to the program."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from exporter.operator.exporters.desired import desired
from exporter.operator.objects.kinds import CUSTOM, Key
from exporter.operator.objects.kinds import labels as labels_of
from exporter.operator.objects.resources import GPUExporterSpec
from tests.operator.specs import CRDS, SCHEMAS
from tests.support import quick_yaml
from tests.support.components import real
from tests.support.operator import Api, OperatorProcess, until
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "operator.md").read_text()
CODE = ROOT / "exporter" / "operator"
NODES = ("gpu-node-1", "gpu-node-2", "gpu-node-3")
EXPORTER = Key("GPUExporter", "pod-gpu-metrics", "pod-gpu-metrics-exporter")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(text: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for kind, block in found if kind == language]


@pytest.mark.real
@pytest.mark.kubernetes
def test_the_first_minute_goes_as_it_is_written(tmp_path: Path) -> None:
    """Every command of it, with a real kubectl, before a real operator."""
    program, api = real("kubectl"), Api()
    api.start()
    api.set_nodes(NODES)
    process = OperatorProcess(api, tmp_path)
    said: dict[str, str] = {}
    try:
        for line in "".join(blocks(section("The first minute"), "sh")).splitlines():
            command, *arguments = shlex.split(line)
            assert command == "kubectl"
            flags = [f"--server={api.url}", "--token=admin", "--insecure-skip-tls-verify"]
            ended = subprocess.run(
                [program, *flags, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30,
                env={"HOME": str(tmp_path), "KUBECONFIG": "/dev/null"},
            )  # fmt: skip
            assert ended.returncode == 0, (line, ended.stderr, process.told)
            said[line] = ended.stdout
        until(lambda: not api.made_in(EXPORTER.namespace), why=lambda: api.made_in(EXPORTER.namespace))
    finally:
        code = process.end()
        api.stop()
    assert code == 0, process.told
    shown = blocks(section("The first minute"), "")[0].splitlines()
    heads, row = (line.split() for line in said["kubectl get gpux -A"].splitlines())
    assert heads == shown[0].split()
    assert row[:4] == shown[1].split()[:4]
    (objects,) = (text for line, text in said.items() if "daemonsets,services" in line)
    assert {"daemonset.apps", "service", "configmap", "serviceaccount"} == set(
        re.findall(r"^(\S+)/", objects, re.MULTILINE)
    )


def test_the_first_minute_names_what_there_is() -> None:
    """Its commands go on a real API server (above); this is what can be said without one."""
    text = section("The first minute")
    words = shlex.split("".join(blocks(text, "sh")))
    assert [(ROOT / word).is_file() for word in words if word.startswith("deploy/")] == [True] * 3
    definition = CRDS[EXPORTER.kind]["spec"]
    assert {word.partition("/")[0] for word in words if word.startswith("gpu")} == {*definition["names"]["shortNames"]}
    (label,) = (words[place + 1] for place, word in enumerate(words) if word == "-l")
    name, _, value = label.partition("=")
    assert labels_of(EXPORTER.name)[name] == value
    head, row = (line.split() for line in blocks(text, "")[0].splitlines())
    columns = [column["name"].upper() for column in definition["versions"][0]["additionalPrinterColumns"]]
    assert head == ["NAMESPACE", "NAME", *columns]
    assert row[:2] == [EXPORTER.namespace, EXPORTER.name]


@pytest.mark.parametrize("kind", CRDS)
def test_kubectl_get_shows_fields_that_there_are(kind: str) -> None:
    for column in CRDS[kind]["spec"]["versions"][0]["additionalPrinterColumns"]:
        if column["jsonPath"].startswith(".metadata."):
            continue  # of which the API server tells by itself
        schema = SCHEMAS[kind]
        for name in re.sub(r"\[.*\]", "", column["jsonPath"]).split(".")[1:]:
            schema = schema.get("items", schema)["properties"][name]
        assert schema["type"] == column["type"] or schema.get("x-kubernetes-int-or-string"), column


def test_the_lines_shown_are_the_minimal_example() -> None:
    (shown,) = blocks(section("The first minute"), "yaml")
    example = (ROOT / "deploy" / "operator" / "examples" / "minimal.yaml").read_text()
    assert shown == "".join(line for line in example.splitlines(keepends=True) if not line.startswith("#"))


def test_every_object_is_in_the_table() -> None:
    told = re.findall(r"^\| (\w+) `([^`]+)` \|", section("What it keeps"), re.MULTILINE)
    made = desired("name", "namespace", "uid", GPUExporterSpec(), pod_monitors=True)
    names = {(item["kind"], item["metadata"]["name"]) for item in made}
    assert {(kind, name.replace("NAMESPACE", "namespace").replace("NAME", "name")) for kind, name in told} == names


def test_every_reason_and_event_is_explained() -> None:
    text = section("When it does not work")
    told = set(re.findall(r"`([A-Z][A-Za-z]+)`", text))
    said_in = [*(CODE / "exporters").glob("*.py"), CODE / "objects" / "object_fields.py"]
    status = "".join(path.read_text() for path in said_in)
    conditions = re.findall(r'Condition\(\s*"(?:True|False|Unknown)",\s*(?:reason or )?"([A-Z]\w+)"', status)
    troubles = (CODE / "exporters" / "exporter_status.py").read_text()
    obstacles = re.findall(r'Trouble\(\s*"([A-Z]\w+)"', troubles)
    others = re.findall(r'"(Forbidden|Refused|ApiUnavailable|TooMany)"', status)
    events = re.findall(r'Event\(\s*"\w+",\s*"([A-Z]\w+)"', (CODE / "event_texts.py").read_text())
    of_autoscalers = {"Ready", "Scaled", "SwitchedToKeda", "SwitchedToHpa"}
    assert len(conditions) > 8
    assert len(obstacles) > 2
    assert set(conditions) | set(obstacles) | set(others) | set(events) - of_autoscalers <= told


def test_the_kinds_are_those_of_the_page() -> None:
    for block in blocks(PAGE, "yaml"):
        item: dict[str, Any] = quick_yaml.load(block)
        if item.keys() == {"spec"}:
            continue  # a part of one
        assert (item["apiVersion"], item["kind"]) in {(kind.api_version, kind.name) for kind in CUSTOM}
