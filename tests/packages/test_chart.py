"""The Helm chart, by Helm's own engine: the same objects as kustomize, valid, and no value that does nothing."""

from pathlib import Path

import pytest
import yaml

from exporter import __version__
from exporter.config.files import read_structured
from exporter.config.web_file import read_web_config
from tests.support.chart import CHART, helm, merged, rendered, without_helms_labels
from tests.support.chart_values import EVERYTHING
from tests.support.exporter import config_from
from tests.support.manifests import (
    KUBERNETES,
    KUSTOMIZE,
    Object,
    by_key,
    fits_the_program,
    kustomized,
    objects_of,
    of_kind,
    valid,
)
from tests.support.places import ROOT

DEPLOY = ROOT / "deploy"
# each with the kustomization that has the same objects
VARIANTS = {"sidecar": "sidecar", "gpu-operator": "gpu-operator", "nvml": "nvml", "hardened": "hardened"}
COMPONENTS = ["measured-use", "kubernetes-api"]
pytestmark = pytest.mark.real


def values_of(name: str) -> Object:
    """The values of a variant; the chart's own are those of the variant sidecar."""
    return {} if name == "sidecar" else dict(yaml.safe_load((CHART / "variants" / f"{name}.yaml").read_text()))


def same_as(objects: list[Object], expected: list[Object]) -> None:
    """The same, but for what Helm says of itself, and the namespace, which Helm makes or finds."""
    expected = [found for found in expected if found["kind"] != "Namespace"]
    assert by_key(without_helms_labels(objects)) == by_key(expected)


# issue 12, "Must show" 4
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_has_the_same_objects_as_with_kustomize(name: str) -> None:
    same_as(rendered(values_of(name)), kustomized(KUSTOMIZE / VARIANTS[name]))


# issue 12, "Must show" 4
@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_has_the_same_objects_as_with_kustomize(component: str, tmp_path: Path) -> None:
    # kustomize takes no absolute path
    (tmp_path / "kustomize").symlink_to(KUSTOMIZE)
    (tmp_path / "mine").mkdir()
    content = {"resources": ["../kustomize/nvml"], "components": [f"../kustomize/components/{component}"]}
    (tmp_path / "mine" / "kustomization.yaml").write_text(yaml.safe_dump(content))
    same_as(rendered(merged(values_of("nvml"), values_of(component))), kustomized(tmp_path / "mine"))


# issue 12, "Must show" 4
@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_monitors_are_those_of_the_plain_manifests(kind: str) -> None:
    name = kind[0].lower() + kind[1:]
    objects = rendered({name: {"enabled": True, "additionalLabels": {"release": "kube-prometheus-stack"}}})
    (plain,) = objects_of(DEPLOY / "prometheus" / f"{kind.lower()}.yaml")
    assert without_helms_labels(of_kind(objects, kind)) == plain


@pytest.mark.parametrize("version", KUBERNETES)
def test_all_that_can_be_switched_on_is_valid_at_once(version: str) -> None:
    objects = rendered(EVERYTHING)
    valid(objects, version)
    kinds = {found["kind"] for found in objects}
    assert kinds >= {"DaemonSet", "Service", "Secret", "ConfigMap", "NetworkPolicy", "ClusterRole", "PodMonitor"}
    assert kinds >= {"Deployment", "PodDisruptionBudget", "Role", "ServiceMonitor"}


def test_the_program_takes_what_the_chart_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for values in ({}, {"mode": "custom", "extraArgs": ["--dcgm.selector=auto"]}, EVERYTHING):
        fits_the_program(rendered(values), monkeypatch)


def test_the_program_reads_the_files_that_the_chart_writes(tmp_path: Path) -> None:
    """web.yaml with the certificate beside it, and the configuration."""
    objects = by_key(rendered(EVERYTHING))
    web = tmp_path / "web.yaml"
    web.write_text(objects["Secret", "pod-gpu-metrics", "pod-gpu-metrics-exporter-web"]["stringData"]["web.yaml"])
    read = read_web_config(read_structured(str(web), "--web.config.file"), str(web))
    assert read.tls is not None
    assert read.tls.cert_file == str(tmp_path / "server.crt")
    assert set(read.users) == {"prometheus"}
    config = tmp_path / "config.yaml"
    config.write_text(objects["ConfigMap", "pod-gpu-metrics", "pod-gpu-metrics-exporter"]["data"]["config.yaml"])
    loaded = config_from(["serve", f"--config.file={config}"])
    assert (loaded.sharing.mode, loaded.labels.pod_uid) == ("split", True)


def test_the_chart_has_the_programs_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_every_object_is_where_the_release_is_and_belongs_to_it() -> None:
    for found in rendered(merged(EVERYTHING, {"namespaceOverride": "elsewhere"})):
        assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        assert found["metadata"].get("namespace", "elsewhere") == "elsewhere" or found["kind"] == "ConfigMap"


def test_lint_finds_nothing() -> None:
    report = helm().lint(CHART, EVERYTHING, strict=True)
    # a picture is all that it misses
    assert [found["error"] for found in report["messages"] if "icon" not in found["error"]] == []
    assert report["errors"] == []
