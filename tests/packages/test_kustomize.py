"""deploy/kustomize, rendered by kubectl: the same as the plain manifests, valid, and what the program takes."""

import re
from pathlib import Path

import pytest

from exporter.config.node_settings import SETTINGS
from tests.support.exporter import config_from
from tests.support.manifests import (
    KUBERNETES,
    KUSTOMIZE,
    Object,
    by_key,
    exporter_in,
    fits_the_program,
    kustomized,
    kustomized_with,
    objects_in,
    objects_of,
    of_kind,
    pod_of,
    valid,
)
from tests.support.places import ROOT

DEPLOY = ROOT / "deploy"
ON_NODES = ["sidecar", "gpu-operator", "nvml", "hardened", "cuda-probe"]
WHOLE = ["base", "cluster", "operator", *ON_NODES]
# each with a variant to try it on
COMPONENTS = {
    "hardened": "gpu-operator",
    "measured-use": "gpu-operator",
    "cuda-probe": "gpu-operator",
    "kernel-log": "gpu-operator",
    "kubernetes-api": "gpu-operator",
    "allocators": "gpu-operator",
    "keda": "cluster",
    "pod-events": "operator",
}
pytestmark = pytest.mark.real


def variant(name: str) -> list[Object]:
    return kustomized(KUSTOMIZE / name)


@pytest.fixture
def with_component(tmp_path: Path, request: pytest.FixtureRequest) -> list[Object]:
    return kustomized_with(request.param, COMPONENTS[request.param], tmp_path)


# issue 12, "Must show" 4
@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", WHOLE)
def test_every_variant_renders_and_is_valid(name: str, version: str) -> None:
    valid(variant(name), version)


# issue 12, "Must show" 4
@pytest.mark.parametrize("with_component", COMPONENTS, indirect=True)
def test_every_component_renders_and_is_valid(with_component: list[Object], request: pytest.FixtureRequest) -> None:
    for version in KUBERNETES:
        valid(with_component, version)
    name = request.node.callspec.params["with_component"]
    assert by_key(with_component) != by_key(variant(COMPONENTS[name]))


def test_no_folder_is_left_out() -> None:
    assert {path.parent.name for path in KUSTOMIZE.glob("*/kustomization.yaml")} == {*WHOLE}
    assert {path.parent.name for path in KUSTOMIZE.glob("components/*/kustomization.yaml")} == {*COMPONENTS}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("sidecar", ROOT / "daemonset.yaml"),
        ("gpu-operator", DEPLOY / "daemonset-beside-gpu-operator.yaml"),
        ("cluster", DEPLOY / "cluster.yaml"),
    ],
)
def test_a_variant_is_the_same_as_its_plain_manifest(name: str, path: Path) -> None:
    assert by_key(variant(name)) == by_key(objects_of(path))


@pytest.mark.parametrize("with_component", ["kubernetes-api", "allocators"], indirect=True)
def test_the_rights_are_those_of_the_plain_manifest(with_component: list[Object]) -> None:
    rights = by_key(objects_of(DEPLOY / "rbac.yaml"))
    assert {key: found for key, found in by_key(with_component).items() if key in rights} == rights
    pod = pod_of(with_component)
    assert pod["serviceAccountName"] == "pod-gpu-metrics-exporter"
    assert pod["automountServiceAccountToken"] is True


@pytest.mark.parametrize("with_component", ["measured-use"], indirect=True)
def test_measured_use_is_what_the_plain_manifest_has_as_comments(with_component: list[Object]) -> None:
    text = (DEPLOY / "daemonset-beside-gpu-operator.yaml").read_text()
    text, changes = re.subn(r"# (hostPID: true|- \{name: (?:NVIDIA_|log-).*\})$", r"\1", text, flags=re.MULTILINE)
    assert changes == 7
    assert by_key(with_component) == by_key(objects_in(text))


# issue 24, part 3
@pytest.mark.parametrize("with_component", ["allocators"], indirect=True)
def test_what_allocators_need_is_what_the_plain_manifests_have_as_comments(with_component: list[Object]) -> None:
    text = (DEPLOY / "daemonset-beside-gpu-operator.yaml").read_text()
    text, changes = re.subn(r"# (- \{name: (?:pods-api|device-plugins),.*\})$", r"\1", text, flags=re.MULTILINE)
    assert changes == 4
    plain = objects_in(text)
    # as the command at the top of deploy/rbac.yaml does
    pod_of(plain).update(serviceAccountName="pod-gpu-metrics-exporter", automountServiceAccountToken=True)
    assert by_key(with_component) == by_key((*plain, *objects_of(DEPLOY / "rbac.yaml")))


# issue 13, Safety
@pytest.mark.parametrize("with_component", ["cuda-probe"], indirect=True)
def test_the_cuda_probe_is_given_what_it_needs_and_no_more(with_component: list[Object]) -> None:
    pod, before = pod_of(with_component), pod_of(variant("gpu-operator"))
    container = exporter_in(pod)
    context = container.pop("securityContext")
    added = context["capabilities"].pop("add")
    assert added == ["BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH"]
    # all else is dropped, nothing is privileged, seccomp and the read-only root stay
    assert context == exporter_in(before)["securityContext"]
    assert pod.pop("hostPID") is True
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    known = {mount["mountPath"] for mount in exporter_in(before)["volumeMounts"]}
    assert mounted - known == {"/var/log/containers", "/var/log/pods", "/etc/pod-gpu-metrics-exporter/config"}
    assert pod.keys() == before.keys()


# issue 30, line 2
@pytest.mark.parametrize("with_component", ["kernel-log"], indirect=True)
def test_only_with_the_kernel_s_log_the_exporter_is_privileged(with_component: list[Object]) -> None:
    container, before = exporter_in(pod_of(with_component)), exporter_in(pod_of(variant("gpu-operator")))
    context = container["securityContext"]
    assert context == {**before["securityContext"], "privileged": True, "allowPrivilegeEscalation": True}
    assert "privileged" not in before["securityContext"]
    mounts = [mount for mount in container["volumeMounts"] if mount not in before["volumeMounts"]]
    assert mounts == [{"name": "kmsg", "mountPath": "/dev/kmsg", "readOnly": True}]
    settings = [env for env in container["env"] if env not in before["env"]]
    assert settings == [{"name": "POD_GPU_EXPORTER_KERNEL_LOG_MODE", "value": "on"}]


@pytest.mark.parametrize("with_component", ["cuda-probe"], indirect=True)
def test_the_cuda_probe_is_switched_by_a_file_so_that_no_restart_is_needed(
    with_component: list[Object], tmp_path: Path
) -> None:
    container = exporter_in(pod_of(with_component))
    assert not any("probe" in text.lower() for text in (*container["args"], *(env["name"] for env in container["env"])))
    written = of_kind(with_component, "ConfigMap")["data"]["config.yaml"]
    for text, is_on in ((written, True), (written.replace('"on"', '"off"'), False)):
        (tmp_path / "config.yaml").write_text(text)
        assert config_from(["serve", f"--config.file={tmp_path / 'config.yaml'}"]).probe.is_on is is_on


@pytest.mark.parametrize("with_component", ["keda"], indirect=True)
def test_kedas_scaler_is_what_the_plain_manifest_has_as_comments(with_component: list[Object]) -> None:
    text = (DEPLOY / "cluster.yaml").read_text()
    of_keda = r"# (- --keda\..*|- name: keda|  containerPort: 9401|  port: 9401|  targetPort: keda)$"
    text, changes = re.subn(of_keda, r"\1", text, flags=re.MULTILINE)
    assert changes == 6
    rights = objects_of(DEPLOY / "keda" / "rbac.yaml")
    assert by_key(with_component) == by_key([*objects_in(text), *rights])


def test_nvml_alone_needs_no_dcgm_exporter() -> None:
    container = exporter_in(pod_of(variant("nvml")))
    assert config_from(container["args"]).dcgm.mode == "off"
    nvidia = {entry["name"]: entry["value"] for entry in container["env"] if entry["name"].startswith("NVIDIA_")}
    # what NVIDIA's runtime needs to bring in NVML's library, and no more of the driver than that
    assert nvidia == {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
    assert by_key(variant("nvml")).keys() == by_key(variant("base")).keys()


@pytest.mark.parametrize("name", ON_NODES)
def test_the_program_takes_what_a_variant_gives_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fits_the_program(variant(name), monkeypatch)


def test_hardened_asks_for_a_password_and_lets_in_prometheus_alone() -> None:
    objects = variant("hardened")
    container = exporter_in(pod_of(objects))
    (mounted,) = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "web"]
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    (setting,) = (setting for setting in SETTINGS if setting.flag == "--web.config.file")
    assert Path(str(environment[setting.env])).parent == Path(mounted)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    policy = of_kind(objects, "NetworkPolicy")["spec"]
    (ingress,) = policy["ingress"]
    assert [port["port"] for port in ingress["ports"]] == [port["name"] for port in container["ports"]]
    assert policy["egress"] == []
    labels = of_kind(objects, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()


def test_a_change_of_the_base_would_be_noticed() -> None:
    changed = variant("sidecar")
    exporter_in(pod_of(changed))["resources"]["limits"]["memory"] = "64Mi"
    assert by_key(changed) != by_key(objects_of(ROOT / "daemonset.yaml"))
