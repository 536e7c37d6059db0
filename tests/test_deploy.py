"""The shipped manifests against Kubernetes' schemas and against the program's own flags."""

import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import kubernetes_validate
import pytest
import yaml

from exporter.cli.main import commands
from exporter.cli.options import read_config
from exporter.config import Config
from exporter.settings import ENVIRONMENT_PREFIX, SETTINGS
from exporter.web import Endpoints
from tests.conftest import ROOT, at_default_places

DEPLOY = ROOT / "deploy"
MANIFESTS = [ROOT / "daemonset.yaml", DEPLOY / "daemonset-beside-gpu-operator.yaml"]
MONITORS = [DEPLOY / "prometheus" / "podmonitor.yaml", DEPLOY / "prometheus" / "servicemonitor.yaml"]
KUBERNETES = ["1.31", "1.34", "1.37"]
OTHER_ENVIRONMENT = {
    "DCGM_HOST",
    "DCGM_PORT",
    "DCGM_METRICS_ENDPOINT",
    "POD_NAMESPACE",
    f"{ENVIRONMENT_PREFIX}CONFIG_FILE",
}


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def of_kind(path: Path, kind: str) -> dict[str, Any]:
    return next(document for document in documents(path) if document["kind"] == kind)


def exporter_container(path: Path) -> dict[str, Any]:
    containers = of_kind(path, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    return next(container for container in containers if container["name"] == "exporter")


def config_from(arguments: list[str]) -> Config:
    """The configuration that a command line makes; a typo in a flag is an error here as it is there."""
    command = commands.commands[arguments[0]]
    context = command.make_context(arguments[0], arguments[1:])
    with patch.dict(os.environ, at_default_places(), clear=True):
        return read_config(context.params)


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_core_objects_are_valid(path: Path, version: str) -> None:
    found = documents(path)
    assert {document["kind"] for document in found} == {"Namespace", "DaemonSet", "Service"}
    for document in found:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", KUBERNETES)
def test_access_is_for_what_is_listed_and_watched_and_no_more(version: str) -> None:
    found = documents(DEPLOY / "rbac.yaml")
    for document in found:
        kubernetes_validate.validate(document, version, strict=True)
    account, role, binding = found
    assert [(rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
        (["pods"], ["list", "watch"]),
        (["resourceslices"], ["list", "watch"]),
        (["replicasets"], ["get"]),
        (["jobs"], ["get"]),
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    namespace = of_kind(MANIFESTS[0], "DaemonSet")["metadata"]["namespace"]
    assert binding["subjects"][0]["namespace"] == account["metadata"]["namespace"] == namespace


def test_a_wrong_object_would_be_noticed() -> None:
    wrong = of_kind(MANIFESTS[0], "DaemonSet")
    wrong["spec"]["template"]["spec"]["enableServiceLink"] = False
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES[0], strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_the_command_line_environment_and_mounts_fit_the_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    container = exporter_container(path)
    known = {name for setting in SETTINGS for name in (setting.env, setting.also_env)} | OTHER_ENVIRONMENT
    for variable in container["env"]:
        assert variable["name"] in known
        monkeypatch.setenv(variable["name"], variable.get("value", "node-1"))
    config = config_from(container["args"])
    assert config.node_name == "node-1"
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert str(Path(config.kubelet_socket).parent) in mounted
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    (port,) = [port["containerPort"] for port in container["ports"]]
    assert [address.port for address in config.listen_addresses] == [port]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_volumes_are_the_folders_that_are_mounted(path: Path) -> None:
    pod = of_kind(path, "DaemonSet")["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume["hostPath"] for volume in pod["volumes"]}
    for mount in exporter_container(path)["volumeMounts"]:
        assert volumes[mount["name"]] == {"path": mount["mountPath"], "type": "Directory"}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_it_asks_for_nothing_it_does_not_need(path: Path) -> None:
    pod = of_kind(path, "DaemonSet")["spec"]["template"]["spec"]
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    context = exporter_container(path)["securityContext"]
    assert context == {
        "runAsUser": 0,
        "capabilities": {"drop": ["ALL"]},
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert exporter_container(path)["resources"]["requests"]["memory"] == "64Mi"
    assert exporter_container(path)["resources"]["limits"]["memory"] == "128Mi"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_probes_services_and_selectors_meet_something(path: Path) -> None:
    container = exporter_container(path)
    paths = Endpoints(None).paths  # type: ignore[arg-type]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]
    labels = of_kind(path, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    (service,) = [
        found
        for found in documents(path)
        if found["kind"] == "Service" and found["metadata"]["name"][-8:] == "exporter"
    ]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]


def test_beside_the_gpu_operator_the_page_is_always_this_nodes() -> None:
    path = MANIFESTS[1]
    service = next(
        found for found in documents(path) if found["kind"] == "Service" and "internalTrafficPolicy" in found["spec"]
    )
    assert service["spec"]["internalTrafficPolicy"] == "Local"
    (url,) = config_from(exporter_container(path)["args"]).dcgm_urls
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert url == f"http://{name}.{namespace}.svc:{service['spec']['ports'][0]['port']}/metrics"


def test_dcgm_exporter_listens_where_the_exporter_reads() -> None:
    containers = of_kind(MANIFESTS[0], "DaemonSet")["spec"]["template"]["spec"]["containers"]
    environment = {variable["name"]: variable["value"] for variable in containers[0]["env"]}
    (url,) = config_from(containers[1]["args"]).dcgm_urls
    assert url == f"http://{environment['DCGM_EXPORTER_LISTEN']}/metrics"


@pytest.mark.parametrize("path", MONITORS, ids=lambda path: path.name)
def test_monitors_have_the_shape_of_their_custom_resource(path: Path) -> None:
    (monitor,) = documents(path)
    kind = monitor["kind"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    endpoints_key = {"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"}[kind]
    assert set(monitor["spec"]) == {"selector", endpoints_key}
    meets = (
        of_kind(MANIFESTS[0], "DaemonSet")["spec"]["template"]
        if kind == "PodMonitor"
        else of_kind(MANIFESTS[0], "Service")
    )
    assert monitor["spec"]["selector"]["matchLabels"].items() <= meets["metadata"]["labels"].items()
    assert [endpoint["path"] for endpoint in monitor["spec"][endpoints_key]] == ["/gpu/metrics", "/metrics"]
    for endpoint in monitor["spec"][endpoints_key]:
        assert set(endpoint) == {"port", "path", "honorLabels", "relabelings"}
        assert (endpoint["port"], endpoint["honorLabels"]) == ("metrics", True)
        assert endpoint["relabelings"] == [{"sourceLabels": ["__metrics_path__"], "targetLabel": "metrics_path"}]


def test_compose() -> None:
    (compose,) = documents(DEPLOY / "docker-compose.yaml")
    exporter, dcgm = compose["services"]["exporter"], compose["services"]["dcgm-exporter"]
    config = config_from(exporter["command"])
    assert config.dcgm_urls == (f"http://dcgm-exporter{dcgm['environment']['DCGM_EXPORTER_LISTEN']}/metrics",)
    folder = str(Path(config.kubelet_socket).parent)
    assert exporter["volumes"] == [f"{folder}:{folder}:ro"]
    assert exporter["ports"] == [f"9400:{config.listen_addresses[0].port}"]
    assert (DEPLOY / exporter["build"] / "Dockerfile").exists()


def test_the_unit_starts_the_program() -> None:
    unit = (DEPLOY / "systemd" / "pod-gpu-metrics-exporter.service").read_text()
    line = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert line
    program, *arguments = shlex.split(line[1])
    assert program.endswith("/bin/pod-gpu-metrics-exporter")
    assert config_from(arguments).dcgm_urls == ("http://127.0.0.1:9401/metrics",)
    assert re.search(r"^CapabilityBoundingSet=$", unit, re.MULTILINE)


def test_a_typo_in_a_flag_would_be_noticed() -> None:
    with pytest.raises(click.NoSuchOption):
        config_from(["serve", "--dcgm.ulr=http://x:1/m"])


@pytest.mark.parametrize("what", ["", "-dev", "-sbom"])
def test_the_lock_has_every_dependency_with_hashes(what: str) -> None:
    lock = (ROOT / f"requirements{what}.lock").read_text()
    locked = {name.lower() for name in re.findall(r"^([A-Za-z0-9-]+)==", lock, re.MULTILINE)}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        "": project["dependencies"],
        "-dev": project["dependencies"] + project["optional-dependencies"]["dev"],
        "-sbom": ["cyclonedx-bom"],
    }[what]
    assert {re.split("[^A-Za-z0-9-]", name)[0].lower() for name in wanted} <= locked
    for block in re.split(r"\n(?=\S)", lock):
        if "==" in block:
            assert "--hash=sha256:" in block, block.split()[0]
