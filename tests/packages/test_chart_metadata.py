"""What the chart says of itself: to Helm, to Artifact Hub, and to who has just installed it."""

import tomllib
from typing import Any

import pytest

from tests.support import quick_yaml
from tests.support.chart import CHART, VALUES, merged, rendered, rendered_texts
from tests.support.chart_values import EVERYTHING
from tests.support.manifests import objects_of
from tests.support.places import ROOT

METADATA: dict[str, Any] = quick_yaml.load((CHART / "Chart.yaml").read_text())
DIGEST = "sha256:" + "0f" * 32
BUILD = "docker build -t YOUR_REGISTRY/pod-gpu-metrics-exporter:"


def annotation(name: str) -> list[dict[str, Any]]:
    """A list of objects, which Artifact Hub wants as YAML in a text."""
    value: list[dict[str, Any]] = quick_yaml.load(METADATA["annotations"][f"artifacthub.io/{name}"])
    return value


# issue 22, line 23
def test_the_chart_of_the_repository_names_no_address() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not {"home", "icon", "sources"} & METADATA.keys()
    assert METADATA["annotations"]["artifacthub.io/license"] == project["license"]
    # release/chart adds the links of a site below the annotations
    assert list(METADATA)[-1] == "annotations"


def test_the_images_of_the_chart_are_those_that_it_runs() -> None:
    dcgm = VALUES["dcgmExporter"]["image"]
    ours = f"{VALUES['image']['repository']}:{METADATA['appVersion']}"
    images = {found["name"]: found["image"] for found in annotation("images")}
    assert images == {"exporter": ours, "dcgm-exporter": f"{dcgm['repository']}:{dcgm['tag']}"}


def test_the_kinds_of_the_chart_are_those_of_its_definitions() -> None:
    definitions = {
        (spec["names"]["kind"], version["name"], found["metadata"]["name"])
        for found in objects_of(*(CHART / "crds").iterdir())
        for spec in [found["spec"]]
        for version in spec["versions"]
    }
    assert {(found["kind"], found["version"], found["name"]) for found in annotation("crds")} == definitions
    assert {found["kind"] for found in annotation("changes")} <= {"added", "changed", "fixed"}


@pytest.mark.real
def test_an_image_by_digest_is_the_one_of_all_that_the_chart_runs() -> None:
    values = merged(EVERYTHING, {"image": {"repository": "registry.example/exporter", "digest": DIGEST, "tag": ""}})
    workloads = [item for item in rendered(values) if item["kind"] in ("DaemonSet", "Deployment")]
    pods = [item["spec"]["template"]["spec"] for item in workloads]
    containers = [found for pod in pods for found in pod["containers"] if found["name"] != "dcgm-exporter"]
    assert {found["image"] for found in containers} == {f"registry.example/exporter@{DIGEST}"}
    (operator,) = [found for found in containers if found["name"] == "operator"]
    assert f"--operator.exporter-image=registry.example/exporter@{DIGEST}" in operator["args"]


@pytest.mark.real
def test_the_notes_say_how_to_build_an_image_that_no_registry_has() -> None:
    for values, builds in (
        ({}, True),
        ({"image": {"repository": "registry.example/exporter"}}, False),
        ({"image": {"repository": "registry.example/exporter", "digest": DIGEST}}, False),
    ):
        assert (BUILD in rendered_texts(values)["NOTES.txt"]) is builds


# issue 22, line 21
@pytest.mark.real
def test_notes_beside_the_gpu_operator_say_how_to_have_no_series_twice() -> None:
    says = "dcgmExporter.serviceMonitor.enabled=false"
    beside = rendered_texts({"mode": "gpu-operator", "gpuOperator": {"namespace": "gpus"}})["NOTES.txt"]
    assert f"-n gpus --reuse-values --set {says}" in beside
    assert says not in rendered_texts({})["NOTES.txt"]


@pytest.mark.real
def test_the_notes_lead_to_the_page() -> None:
    objects = {(found["kind"].lower(), found["metadata"]["name"]) for found in rendered(EVERYTHING)}
    for values, scheme, count in (({}, "http", 1), (EVERYTHING, "https", 2)):
        notes = rendered_texts(values)["NOTES.txt"]
        assert f"{scheme}://localhost:9400/" in notes
        forwards = [line.split() for line in notes.splitlines() if "port-forward" in line]
        assert len(forwards) == count
        for words in forwards:
            kind, _, name = words[words.index("port-forward") + 1].partition("/")
            assert (kind, name) in objects or not values
