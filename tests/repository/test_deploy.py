"""The shipped manifests against Kubernetes' schemas and against the program's own flags."""

import csv
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest

from exporter.cli.commands import command_named
from exporter.cli.options import flags_of
from exporter.cluster import scaled_objects
from exporter.cluster.keda.trigger import KEDAS_KEYS, KEYS, read_trigger
from exporter.cluster.outputs import autoscale
from exporter.cluster.outputs.cluster_outputs import OUTPUTS as CLUSTER_OUTPUTS
from exporter.cluster.scaling import check_metric, read_question
from exporter.config.cluster_settings import SETTINGS as CLUSTER_SETTINGS
from exporter.config.cluster_settings import load_cluster
from exporter.config.node_settings import SETTINGS
from exporter.config.settings import ENVIRONMENT_PREFIX
from exporter.dcgm.fields import FIELDS, METRICS
from exporter.sources.cdi import cdi_source as cdi
from exporter.sources.claim_access import checkpoint_beside
from tests.support import quick_yaml
from tests.support.exporter import OPEN_PATHS, config_from
from tests.support.places import ROOT

DEPLOY = ROOT / "deploy"
DRIVER = "/var/lib/kubelet/plugins/gpu.nvidia.com"
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
    return [document for document in quick_yaml.load_all(path.read_text()) if document]


def of_kind(path: Path, kind: str) -> dict[str, Any]:
    return next(document for document in documents(path) if document["kind"] == kind)


def container_of(path: Path, name: str) -> dict[str, Any]:
    containers = of_kind(path, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    return next(container for container in containers if container["name"] == name)


def exporter_container(path: Path) -> dict[str, Any]:
    return container_of(path, "exporter")


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_core_objects_are_valid(path: Path, version: str) -> None:
    found = documents(path)
    assert {document["kind"] for document in found} - {"ConfigMap"} == {"Namespace", "DaemonSet", "Service"}
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
        (["resourceclaims"], ["get"]),
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
    assert config.node.name == "node-1"
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert str(Path(config.kubelet.socket).parent) in mounted
    assert {*cdi.FOLDERS, str(Path(checkpoint_beside(config.kubelet.socket)).parent)} <= {*mounted}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    (port,) = [port["containerPort"] for port in container["ports"]]
    assert [address.port for address in config.web.listen_addresses] == [port]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_volumes_are_the_folders_that_are_mounted(path: Path) -> None:
    pod = of_kind(path, "DaemonSet")["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume["hostPath"] for volume in pod["volumes"] if "hostPath" in volume}
    for mount in exporter_container(path)["volumeMounts"]:
        # what DRA drivers write may be there or not, and the folder may come later than the exporter
        kind = "DirectoryOrCreate" if mount["mountPath"] in (*cdi.FOLDERS, DRIVER) else "Directory"
        assert volumes[mount["name"]] == {"path": mount["mountPath"], "type": kind}


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
    assert exporter_container(path)["resources"]["limits"]["memory"] == "256Mi"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_probes_services_and_selectors_meet_something(path: Path) -> None:
    container = exporter_container(path)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in OPEN_PATHS
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
    (url,) = config_from(exporter_container(path)["args"]).dcgm.urls
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert url == f"http://{name}.{namespace}.svc:{service['spec']['ports'][0]['port']}/metrics"


def test_dcgm_exporter_listens_where_exporter_and_kubelet_ask() -> None:
    dcgm = container_of(MANIFESTS[0], "dcgm-exporter")
    environment = {variable["name"]: variable.get("value") for variable in dcgm["env"]}
    (url,) = config_from(exporter_container(MANIFESTS[0])["args"]).dcgm.urls
    # not on loopback: a probe comes to the pod's address
    assert environment["DCGM_EXPORTER_LISTEN"] == ":9401"
    assert url == "http://127.0.0.1:9401/metrics"
    assert dcgm["ports"] == [{"name": "dcgm", "containerPort": 9401}]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert dcgm[probe]["httpGet"] == {"path": "/health", "port": "dcgm"}


DCGM_EXPORTER = "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.1-4.8.4-distroless"
# The names that this dcgm-exporter knows, of those that the counters file could want: DCGM's by their field ids
# (go-dcgm v1.4611.0), and dcgm-exporter's own. One that it does not know ends it at its start.
DCGM_FIELDS = {
    "DCGM_FI_DRIVER_VERSION": 1,
    **{
        f"DCGM_FI_DEV_{name}": number
        for name, number in {
            "SM_CLOCK": 100, "MEM_CLOCK": 101, "CLOCKS_EVENT_REASONS": 112, "MEMORY_TEMP": 140, "GPU_TEMP": 150,
            "POWER_USAGE": 155, "TOTAL_ENERGY_CONSUMPTION": 156, "ENFORCED_POWER_LIMIT": 164,
            "PCIE_REPLAY_COUNTER": 202, "GPU_UTIL": 203, "MEM_COPY_UTIL": 204, "ENC_UTIL": 206, "DEC_UTIL": 207,
            "XID_ERRORS": 230,
            "PCIE_LINK_GEN": 237, "PCIE_LINK_WIDTH": 238, "POWER_VIOLATION": 240, "THERMAL_VIOLATION": 241,
            "SYNC_BOOST_VIOLATION": 242, "BOARD_LIMIT_VIOLATION": 243, "LOW_UTIL_VIOLATION": 244,
            "RELIABILITY_VIOLATION": 245, "FB_TOTAL": 250, "FB_FREE": 251, "FB_USED": 252, "FB_RESERVED": 253,
            "ECC_SBE_VOL_TOTAL": 310, "ECC_DBE_VOL_TOTAL": 311, "UNCORRECTABLE_REMAPPED_ROWS": 393,
            "CORRECTABLE_REMAPPED_ROWS": 394, "ROW_REMAP_FAILURE": 395, "ROW_REMAP_PENDING": 396,
            "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 409, "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": 419,
            "NVLINK_REPLAY_ERROR_COUNT_TOTAL": 429, "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 439,
            "NVLINK_BANDWIDTH_TOTAL": 449, "GPU_NVLINK_ERRORS": 450, "NVLINK_ERROR_DL_CRC": 497,
            "NVLINK_ERROR_DL_RECOVERY": 498, "NVLINK_ERROR_DL_REPLAY": 499, "VGPU_LICENSE_STATUS": 526,
            "NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS": 1211, "NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS": 1212,
            "NVLINK_COUNT_LINK_RECOVERY_EVENTS": 1213,
        }.items()
    },
    **{
        f"DCGM_FI_PROF_{name}": number
        for name, number in {
            "GR_ENGINE_ACTIVE": 1001, "SM_ACTIVE": 1002, "SM_OCCUPANCY": 1003, "PIPE_TENSOR_ACTIVE": 1004,
            "DRAM_ACTIVE": 1005, "PIPE_FP64_ACTIVE": 1006, "PIPE_FP32_ACTIVE": 1007, "PIPE_FP16_ACTIVE": 1008,
            "PCIE_TX_BYTES": 1009, "PCIE_RX_BYTES": 1010, "NVLINK_TX_BYTES": 1011, "NVLINK_RX_BYTES": 1012,
            "PIPE_INT_ACTIVE": 1016,
        }.items()
    },
}  # fmt: skip
DCGM_EXPORTERS_OWN = {"DCGM_EXP_CLOCK_EVENTS_TOTAL", "DCGM_EXP_XID_ERRORS_TOTAL"}


# issue 7, line 16
def test_dcgm_exporter_is_as_new_and_as_hardened_as_in_nvidias_chart() -> None:
    dcgm = container_of(MANIFESTS[0], "dcgm-exporter")
    assert dcgm["image"] == DCGM_EXPORTER
    assert dcgm["securityContext"] == {
        "runAsUser": 0,
        "runAsNonRoot": False,
        "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
        "allowPrivilegeEscalation": False,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    named = next(variable for variable in dcgm["env"] if variable["name"] == "NODE_NAME")
    assert named["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert dcgm["resources"] == {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    for path in MANIFESTS:
        assert of_kind(path, "DaemonSet")["spec"]["template"]["spec"]["priorityClassName"] == "system-node-critical"


# issue 7, line 16
def test_the_counters_have_what_the_json_and_dashboards_need() -> None:
    dcgm = container_of(MANIFESTS[0], "dcgm-exporter")
    counters = of_kind(MANIFESTS[0], "ConfigMap")
    environment = {variable["name"]: variable.get("value") for variable in dcgm["env"]}
    (mount,) = dcgm["volumeMounts"]
    (name,) = counters["data"]
    assert environment["DCGM_EXPORTER_COLLECTORS"] == f"{mount['mountPath']}/{name}"
    volumes = of_kind(MANIFESTS[0], "DaemonSet")["spec"]["template"]["spec"]["volumes"]
    volume = next(volume for volume in volumes if volume["name"] == mount["name"])
    assert volume["configMap"]["name"] == counters["metadata"]["name"]
    lines = [line for line in counters["data"][name].splitlines() if not line.startswith("#")]
    rows = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    assert {len(row) for row in rows} == {3}
    names = [row[0] for row in rows]
    assert len(set(names)) == len(names)
    assert set(names) <= DCGM_FIELDS.keys() | DCGM_EXPORTERS_OWN
    assert {row[1] for row in rows} == {"gauge", "counter", "label"}
    # GPUs of data centres have no fan of their own
    assert {FIELDS[name].json for name in names if name in FIELDS} >= set(METRICS) - {"fan_speed"}


# issue 7, line 18
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_readiness_is_asked_for_when_the_port_is_open(path: Path) -> None:
    """The kubelet's first readiness probe came before the port was open: a failure at every start."""
    assert exporter_container(path)["startupProbe"] == {
        "httpGet": {"path": "/-/healthy", "port": "metrics"},
        "periodSeconds": 1,
        "timeoutSeconds": 3,
        "failureThreshold": 60,
    }


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
        # issue 28: Prometheus asks for OpenMetrics, where begins of counters are series
        drops = [{"sourceLabels": ["__name__"], "regex": "(pod_gpu|process|python)_.+_created", "action": "drop"}]
        assert endpoint.pop("metricRelabelings", []) == (drops if endpoint["path"] == "/metrics" else [])
        assert set(endpoint) == {"port", "path", "interval", "honorLabels", "relabelings"}
        assert (endpoint["port"], endpoint["honorLabels"]) == ("metrics", True)
        # issue 7, line 17
        assert endpoint["interval"] == "30s"
        assert endpoint["relabelings"] == [
            {"sourceLabels": ["__metrics_path__"], "targetLabel": "metrics_path"},
            {"targetLabel": "exporter", "replacement": "pod-gpu-metrics-exporter"},
            {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
        ]
    assert monitor["metadata"]["labels"]["release"] == "kube-prometheus-stack"


def test_a_discovery_of_pods_finds_the_shipped_ones() -> None:
    path = DEPLOY / "prometheus" / "scrape-config-kubernetes.yaml"
    namespace = of_kind(MANIFESTS[0], "DaemonSet")["metadata"]["namespace"]
    labels = of_kind(MANIFESTS[0], "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    ports = [port["name"] for port in exporter_container(MANIFESTS[0])["ports"]]
    (config,) = documents(path)
    found = {job["metrics_path"]: job for job in config["scrape_configs"]}
    static = quick_yaml.load((DEPLOY / "prometheus" / "scrape-config.yaml").read_text())["scrape_configs"]
    assert {path: job["job_name"] for path, job in found.items()} == {
        job["metrics_path"]: job["job_name"] for job in static
    }
    for job in found.values():
        assert (job["honor_labels"], job["scrape_interval"]) == (True, "30s")
        (discovery,) = job["kubernetes_sd_configs"]
        assert discovery.keys() == {"role", "namespaces", "selectors"}
        assert (discovery["role"], discovery["namespaces"]) == ("pod", {"names": [namespace]})
        (selector,) = discovery["selectors"]
        name, _, value = selector["label"].partition("=")
        assert (selector["role"], labels[name]) == ("pod", value)
        (port,) = (rule["regex"] for rule in job["relabel_configs"] if rule.get("action") == "keep")
        assert [port] == ports


def test_compose() -> None:
    (compose,) = documents(DEPLOY / "docker-compose.yaml")
    exporter, dcgm = compose["services"]["exporter"], compose["services"]["dcgm-exporter"]
    config = config_from(exporter["command"])
    assert config.dcgm.urls == (f"http://dcgm-exporter{dcgm['environment']['DCGM_EXPORTER_LISTEN']}/metrics",)
    folder = str(Path(config.kubelet.socket).parent)
    assert exporter["volumes"] == [f"{each}:{each}:ro" for each in (folder, *cdi.FOLDERS, DRIVER)]
    assert exporter["ports"] == [f"9400:{config.web.listen_addresses[0].port}"]
    assert (DEPLOY / exporter["build"] / "Dockerfile").exists()
    # issue 7, line 18: a container's own host name is a new one with every container
    assert dcgm["image"] == DCGM_EXPORTER
    for service in (exporter, dcgm):
        assert service["environment"]["NODE_NAME"].startswith("${NODE_NAME:?")
        assert (service["restart"], service["cap_drop"]) == ("unless-stopped", ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
    assert dcgm["cap_add"] == ["SYS_ADMIN"]
    # the list of fields that the DaemonSet has
    (mount,) = dcgm["volumes"]
    counters, mounted, _ = mount.split(":")
    assert mounted == dcgm["environment"]["DCGM_EXPORTER_COLLECTORS"]
    assert (DEPLOY / counters).read_text() == of_kind(MANIFESTS[0], "ConfigMap")["data"]["counters.csv"]


def test_the_unit_starts_the_program() -> None:
    unit = (DEPLOY / "systemd" / "pod-gpu-metrics-exporter.service").read_text()
    line = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert line
    program, *arguments = shlex.split(line[1])
    assert program.endswith("/bin/pod-gpu-metrics-exporter")
    assert config_from(arguments).dcgm.urls == ("http://127.0.0.1:9401/metrics",)
    assert re.search(r"^CapabilityBoundingSet=$", unit, re.MULTILINE)


# issue 7, line 18
@pytest.mark.parametrize("name", ["exporter", "textfile"])
def test_a_unit_reloads_by_the_signal_that_the_program_knows(name: str) -> None:
    unit = (DEPLOY / "systemd" / f"pod-gpu-metrics-{name}.service").read_text()
    assert "\nExecReload=/bin/kill -HUP $MAINPID\n" in unit
    assert "\nRestart=on-failure\n" in unit


# issue 7, line 18
def test_the_textfile_unit_writes_where_it_may() -> None:
    unit = (DEPLOY / "systemd" / "pod-gpu-metrics-textfile.service").read_text()
    line = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert line
    program, *arguments = shlex.split(line[1])
    assert program.endswith("/bin/pod-gpu-metrics-exporter")
    context = command_named(arguments[0]).make_context(arguments[0], arguments[1:])
    assert context.params["interval"] == "15s"
    assert f"\nReadWritePaths={Path(context.params['output']).parent}\n" in unit
    assert "\nProtectSystem=strict\n" in unit


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


CLUSTER = DEPLOY / "cluster.yaml"


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_objects_of_the_cluster_role_are_valid(version: str) -> None:
    found = documents(CLUSTER)
    assert [document["kind"] for document in found] == [
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Deployment",
        "PodDisruptionBudget",
        "Service",
    ]
    for document in found:
        kubernetes_validate.validate(document, version, strict=True)
        assert document["metadata"]["namespace"] == of_kind(MANIFESTS[0], "DaemonSet")["metadata"]["namespace"]


def test_the_cluster_role_may_follow_one_service_and_no_more() -> None:
    role, binding, account = (of_kind(CLUSTER, kind) for kind in ("Role", "RoleBinding", "ServiceAccount"))
    assert role["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
    ]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", role["metadata"]["name"])
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    pod = of_kind(CLUSTER, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "runAsGroup": 65534,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "capabilities": {"drop": ["ALL"]},
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
    }
    assert not {"volumes", "hostNetwork", "hostPID", "hostIPC"} & set(pod)


def test_the_cluster_roles_command_line_names_the_exporters_service() -> None:
    (container,) = of_kind(CLUSTER, "Deployment")["spec"]["template"]["spec"]["containers"]
    command = command_named("cluster").make_context("cluster", container["args"][1:])
    flags = flags_of(command.params, CLUSTER_SETTINGS, {})
    config = load_cluster(flags, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAMESPACE": "x"}, None)
    service = of_kind(MANIFESTS[0], "Service")
    assert config.cluster.service == (service["metadata"]["namespace"], service["metadata"]["name"])
    assert service["spec"]["clusterIP"] == "None", "an EndpointSlice has the pods' own addresses"
    (port,) = [port["containerPort"] for port in container["ports"]]
    assert [address.port for address in config.web.listen_addresses] == [port]
    known = {name for setting in CLUSTER_SETTINGS for name in (setting.env, setting.also_env)} | OTHER_ENVIRONMENT
    assert {variable["name"] for variable in container["env"]} <= known
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in [output.path for output in CLUSTER_OUTPUTS if output.is_probe]
        assert container[probe]["httpGet"]["port"] == container["ports"][0]["name"]


def test_the_cluster_roles_selectors_meet_it_and_no_node_exporter() -> None:
    deployment, budget, service = (of_kind(CLUSTER, kind) for kind in ("Deployment", "PodDisruptionBudget", "Service"))
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        budget["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
    ):
        assert selector.items() <= labels.items()
    assert not of_kind(MANIFESTS[0], "Service")["spec"]["selector"].items() <= labels.items()
    assert deployment["spec"]["replicas"] > budget["spec"]["maxUnavailable"]


def test_the_scaled_object_asks_what_the_cluster_role_answers() -> None:
    (scaled,) = documents(DEPLOY / "keda" / "metrics-api.yaml")
    target, (trigger,) = scaled["spec"]["scaleTargetRef"], scaled["spec"]["triggers"]
    assert scaled["spec"]["minReplicaCount"] >= 1
    asked = trigger["metadata"]
    service = of_kind(CLUSTER, "Service")["metadata"]
    base = f"http://{service['name']}.{service['namespace']}.svc:9400{autoscale.OUTPUT.path}"
    question = read_question(asked["url"].removeprefix(base))
    check_metric(question.metric)
    assert (question.namespace, question.workload, question.kind) == (
        scaled["metadata"]["namespace"],
        target["name"],
        target["kind"].lower(),
    )
    properties = quick_yaml.load((ROOT / "docs" / "openapi.yaml").read_text())["paths"][
        "/autoscale/{namespace}/{workload}/{metric}"
    ]["get"]["responses"]["200"]["content"]["application/json"]["schema"]["properties"]
    assert asked["valueLocation"] in properties


@pytest.mark.parametrize("version", KUBERNETES)
def test_autoscalers_ask_for_metrics_that_prometheus_adapter_has(version: str) -> None:
    folder = ROOT / "deploy" / "prometheus-adapter"
    rules = quick_yaml.load((folder / "values.yaml").read_text())["rules"]
    for file, kind, of in (("hpa-pods.yaml", "pods", "custom"), ("hpa-workload.yaml", "external", "external")):
        (document,) = documents(folder / file)
        kubernetes_validate.validate(document, version, strict=True)
        (metric,) = document["spec"]["metrics"]
        assert metric["type"].lower() == kind
        assert metric[kind]["metric"]["name"] in {rule["name"]["as"] for rule in rules[of]}
        assert metric[kind]["target"]["averageValue"]


def with_keda() -> list[dict[str, Any]]:
    """deploy/cluster.yaml without the comments before the lines for KEDA."""
    lines = r"^( *)# (- --keda\.|- name: keda$|  containerPort: 9401$|  port: 9401$|  targetPort: keda$)"
    text, times = re.subn(lines, r"\1\2", CLUSTER.read_text(), flags=re.MULTILINE)
    assert times == 6
    return list(quick_yaml.load_all(text))


@pytest.mark.parametrize("version", KUBERNETES)
def test_kedas_lines_of_the_cluster_role_lead_to_its_port(version: str) -> None:
    found = {document["kind"]: document for document in with_keda()}
    for document in (*found.values(), *documents(DEPLOY / "keda" / "rbac.yaml")):
        kubernetes_validate.validate(document, version, strict=True)
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    command = command_named("cluster").make_context("cluster", container["args"][1:])
    config = load_cluster(flags_of(command.params, CLUSTER_SETTINGS, {}), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None)
    assert config.keda.listen_address is not None
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert named["keda"] == config.keda.listen_address.port
    (port,) = [port for port in found["Service"]["spec"]["ports"] if port["targetPort"] == "keda"]
    service = found["Service"]["metadata"]
    (scaled,) = documents(DEPLOY / "keda" / "external.yaml")
    address = scaled["spec"]["triggers"][0]["metadata"]["scalerAddress"]
    assert address == f"{service['name']}.{service['namespace']}.svc:{port['port']}"
    policy = of_kind(DEPLOY / "keda" / "rbac.yaml", "NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == found["Service"]["spec"]["selector"]
    everybody, operator = policy["ingress"]
    assert [each["port"] for each in (*everybody["ports"], *operator["ports"])] == list(named.values())
    assert "from" not in everybody


def test_keda_costs_the_cluster_role_one_right() -> None:
    path = DEPLOY / "keda" / "rbac.yaml"
    assert path.relative_to(ROOT).as_posix() == scaled_objects.MANIFEST
    role, binding = of_kind(path, "ClusterRole"), of_kind(path, "ClusterRoleBinding")
    assert role["rules"] == [{"apiGroups": ["keda.sh"], "resources": ["scaledobjects"], "verbs": ["get"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    account = of_kind(CLUSTER, "ServiceAccount")["metadata"]
    whose = {key: account[key] for key in ("name", "namespace")}
    assert binding["subjects"] == [{"kind": "ServiceAccount", **whose}]


def test_the_external_scalers_example_is_a_trigger_that_it_reads() -> None:
    (scaled,) = documents(DEPLOY / "keda" / "external.yaml")
    external, *others = scaled["spec"]["triggers"]
    assert external["metricType"] == "AverageValue"
    assert others, "from 0 to 1 another trigger is needed"
    metadata = external["metadata"]
    assert set(metadata) <= {*KEYS, *KEDAS_KEYS}
    trigger = read_trigger(scaled["metadata"]["namespace"], scaled["metadata"]["name"], metadata)
    assert (trigger.target, trigger.threshold, trigger.workload) == (70.0, 5.0, "")
    (polled,) = documents(DEPLOY / "keda" / "metrics-api.yaml")
    assert polled["spec"]["triggers"][0]["metadata"]["targetValue"] == metadata["target"]
