"""The Helm chart, by Helm's own engine: the same objects as kustomize, valid, and no value that does nothing."""

from pathlib import Path

import pytest

from exporter import __version__
from exporter.config.files import read_structured
from exporter.config.web_file import read_web_config
from tests.support import quick_yaml
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
    kustomized_with,
    objects_of,
    of_kind,
    valid,
)
from tests.support.places import ROOT

DEPLOY = ROOT / "deploy"
MOST_IN_A_NAME = 63
OPERATOR = "pod-gpu-metrics-operator"
# each with the kustomization that has the same objects
VARIANTS = {"sidecar": "sidecar", "gpu-operator": "gpu-operator", "nvml": "nvml", "hardened": "hardened"}
CONFIGURATION = ("ConfigMap", "pod-gpu-metrics", "pod-gpu-metrics-exporter")
pytestmark = pytest.mark.real


def values_of(name: str) -> Object:
    """The values of a variant; the chart's own are those of the variant sidecar."""
    return {} if name == "sidecar" else dict(quick_yaml.load((CHART / "variants" / f"{name}.yaml").read_text()))


def name_of(group: Object) -> str:
    return str(group["name"])


def same_as(objects: list[Object], expected: list[Object]) -> None:
    """The same, but for what Helm says of itself, and the namespace, which Helm makes or finds."""
    expected = [found for found in expected if found["kind"] != "Namespace"]
    assert by_key(without_helms_labels(objects)) == by_key(expected)


# issue 12, "Must show" 4
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_has_the_same_objects_as_with_kustomize(name: str) -> None:
    same_as(rendered(values_of(name)), kustomized(KUSTOMIZE / VARIANTS[name]))


# issue 12, "Must show" 4
@pytest.mark.parametrize("component", ["measured-use", "cuda-probe", "kernel-log", "kubernetes-api", "allocators"])
def test_a_component_has_the_same_objects_as_with_kustomize(component: str, tmp_path: Path) -> None:
    objects = rendered(merged(values_of("nvml"), values_of(component)))
    same_as(objects, kustomized_with(component, "nvml", tmp_path))


def test_the_kill_switch_of_the_cuda_probe_changes_the_configuration_alone(tmp_path: Path) -> None:
    """The pods stay as they are: they take the file over, instead of being made anew node by node."""
    texts = {}
    for mode in ("on", "off"):
        objects = by_key(rendered({"cudaProbe": {"enabled": True, "mode": mode}, "config": {"probe.interval": "1s"}}))
        (tmp_path / "config.yaml").write_text(objects.pop(CONFIGURATION)["data"]["config.yaml"])
        probe = config_from(["serve", f"--config.file={tmp_path / 'config.yaml'}"]).probe
        assert (probe.is_on, probe.interval_seconds) == (mode == "on", 1.0)
        texts[mode] = objects
    assert texts["on"] == texts["off"]


@pytest.mark.parametrize("said", [{"probe": {"mode": "off"}}, {"probe.mode": "off"}])
def test_what_the_configuration_says_of_the_probe_wins(said: Object, tmp_path: Path) -> None:
    objects = by_key(rendered({"cudaProbe": {"enabled": True}, "config": said}))
    (tmp_path / "config.yaml").write_text(objects[CONFIGURATION]["data"]["config.yaml"])
    assert not config_from(["serve", f"--config.file={tmp_path / 'config.yaml'}"]).probe.is_on


# issue 12, "Must show" 4
def test_the_cluster_role_has_the_same_objects_as_with_kustomize(tmp_path: Path) -> None:
    """It comes beside the objects on the nodes, which it does not change."""
    with_keda = merged(values_of("cluster"), values_of("keda"))
    for values, expected in (
        (values_of("cluster"), kustomized(KUSTOMIZE / "cluster")),
        (with_keda, kustomized_with("keda", "cluster", tmp_path)),
    ):
        same_as(rendered(values), [*kustomized(KUSTOMIZE / "sidecar"), *expected])


def test_the_operator_has_the_same_objects_as_with_kustomize() -> None:
    """Its two kinds are in crds/, which Helm applies before all else, and neither changes nor deletes later."""
    objects = kustomized(KUSTOMIZE / "operator")
    definitions = [found for found in objects if found["kind"] == "CustomResourceDefinition"]
    same_as(rendered(values_of("operator")), [found for found in objects if found not in definitions])
    assert by_key(objects_of(*(CHART / "crds").iterdir())) == by_key(definitions)


# issue 30, "rights are added only with it"
def test_the_operator_may_write_events_on_pods_where_it_is_let(tmp_path: Path) -> None:
    plain, expected = kustomized(KUSTOMIZE / "operator"), kustomized_with("pod-events", "operator", tmp_path)
    policies = {("ValidatingAdmissionPolicy", "", f"{OPERATOR}-events")}
    policies |= {("ValidatingAdmissionPolicyBinding", "", f"{OPERATOR}-events")}
    assert by_key(plain).keys() - by_key(expected).keys() == policies
    values = merged(values_of("operator"), {"operator": {"podEvents": True}})
    same_as(rendered(values), [item for item in expected if item["kind"] != "CustomResourceDefinition"])
    some = by_key(rendered(merged(values, {"operator": {"namespaces": ["a"]}})))
    role, binding = some["ClusterRole", "", f"{OPERATOR}-events"], some["ClusterRoleBinding", "", f"{OPERATOR}-events"]
    assert {(*rule["resources"], *rule["verbs"]) for rule in role["rules"]} == {
        ("pods", "list"),
        ("events", "list", "create"),
    }
    assert binding["roleRef"]["name"] == f"{OPERATOR}-events"
    assert [*binding["subjects"]] == [OPERATOR]
    assert not policies & some.keys()


def test_the_operator_may_be_bound_to_namespaces() -> None:
    """It then has no right in another one but to bind what exporters need, and looks nowhere else."""
    everywhere, some = (
        by_key(rendered(merged(values_of("operator"), {"operator": {"namespaces": names}})))
        for names in ([], ["a", "b"])
    )
    assert everywhere.keys() - some.keys() == {("ClusterRoleBinding", "", OPERATOR)}
    assert some.keys() - everywhere.keys() == {("RoleBinding", name, f"{OPERATOR}-objects") for name in ("a", "b")}
    for name in ("a", "b"):
        binding, before = (
            some["RoleBinding", name, f"{OPERATOR}-objects"],
            everywhere["ClusterRoleBinding", "", OPERATOR],
        )
        assert (binding["roleRef"], binding["subjects"]) == (before["roleRef"], before["subjects"])
    (container,) = some["Deployment", "pod-gpu-metrics", OPERATOR]["spec"]["template"]["spec"]["containers"].values()
    assert container["args"][-2:] == ["--operator.namespace=a", "--operator.namespace=b"]


def test_the_mode_none_runs_no_exporter() -> None:
    for item in rendered(merged(EVERYTHING, {"mode": "none", "grafanaDashboards": {"enabled": False}})):
        name = item["metadata"]["name"]
        assert item["kind"] == "PrometheusRule" or "-cluster" in name or "-operator" in name or name.endswith("-keda")


# issue 12, "Must show" 4
@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_monitors_are_those_of_the_plain_manifests(kind: str) -> None:
    name = kind[0].lower() + kind[1:]
    objects = rendered({name: {"enabled": True, "additionalLabels": {"release": "kube-prometheus-stack"}}})
    (plain,) = objects_of(DEPLOY / "prometheus" / f"{kind.lower()}.yaml")
    assert without_helms_labels(of_kind(objects, kind)) == plain


# issue 12, "Must show" 4
def test_the_rules_are_those_of_the_plain_manifest() -> None:
    on = {"enabled": True, "additionalLabels": {"release": "kube-prometheus-stack"}}
    (plain,) = objects_of(DEPLOY / "prometheus" / "prometheusrule.yaml")
    rules = without_helms_labels(of_kind(rendered({"prometheusRule": on}), "PrometheusRule"))
    assert sorted(rules["spec"]["groups"], key=name_of) == sorted(plain["spec"].pop("groups"), key=name_of)
    del rules["spec"]["groups"]
    assert rules == plain


def test_an_alert_can_be_left_out() -> None:
    def alerts(values: Object) -> set[str]:
        rules = of_kind(rendered({"prometheusRule": {"enabled": True, **values}}), "PrometheusRule")
        return {rule["alert"] for group in rules["spec"]["groups"] for rule in group["rules"] if "alert" in rule}

    assert alerts({}) - alerts({"disabledAlerts": ["PodGpuExporterDown"]}) == {"PodGpuExporterDown"}


def test_the_dashboards_are_those_of_the_kustomization() -> None:
    expected = kustomized(DEPLOY / "grafana")
    found = [
        item for item in rendered({"grafanaDashboards": {"enabled": True}}) if "dashboard" in item["metadata"]["name"]
    ]
    for item in found:
        # Helm names the namespace itself
        assert item["metadata"].pop("namespace") == "pod-gpu-metrics"
        assert item["metadata"]["labels"].pop("app.kubernetes.io/name") == "pod-gpu-metrics-exporter"
    same_as(found, expected)


@pytest.mark.parametrize("version", KUBERNETES)
def test_all_that_can_be_switched_on_is_valid_at_once(version: str) -> None:
    objects = rendered(EVERYTHING)
    valid(objects, version)
    kinds = {found["kind"] for found in objects}
    assert kinds >= {"DaemonSet", "Service", "Secret", "ConfigMap", "NetworkPolicy", "ClusterRole"}
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
    chart = quick_yaml.load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_every_object_is_where_the_release_is_and_belongs_to_it() -> None:
    for found in rendered(merged(EVERYTHING, {"namespaceOverride": "elsewhere"})):
        assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        assert found["metadata"].get("namespace", "elsewhere") == "elsewhere" or found["kind"] == "ConfigMap"


# Helm takes names of releases up to this length
@pytest.mark.parametrize("name", ["gpus", "a" * 53, "-".join("ab" for _ in range(18))])
def test_a_release_of_another_name_holds_together(name: str) -> None:
    objects = rendered(EVERYTHING, name)
    valid(objects, KUBERNETES[-1])
    named = by_key(objects)
    assert all(len(key[2]) <= MOST_IN_A_NAME for key in named if key[0] in ("Service", "DaemonSet", "Deployment"))
    workloads = [item["spec"]["template"] for item in objects if item["kind"] in ("DaemonSet", "Deployment")]
    for item in objects:
        spec = item.get("spec", {})
        selector = spec["selector"] if item["kind"] == "Service" else spec.get("podSelector", {}).get("matchLabels")
        if selector:
            met = [found for found in workloads if selector.items() <= found["metadata"]["labels"].items()]
            assert len(met) == 1, item["metadata"]["name"]
    (cluster,) = [item for item in objects if item["kind"] == "Deployment" and "-cluster" in item["metadata"]["name"]]
    (container,) = cluster["spec"]["template"]["spec"]["containers"]
    service = next(argument for argument in container["args"] if argument.startswith("--cluster.service="))
    namespace, exporters = service.partition("=")[2].split("/")
    assert ("Service", namespace, exporters) in named


def test_lint_finds_nothing() -> None:
    report = helm().lint(CHART, EVERYTHING, strict=True)
    # an icon is an address, and the chart has one once its release has a site
    assert [message["error"] for message in report["messages"]] == ["icon is recommended"]
    assert report["errors"] == []
