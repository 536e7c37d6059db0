"""A real kubectl runs `kubectl gpu` in front of real exporters, behind the API server's proxy."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.kubectl.places import CLUSTER, NAMESPACE
from tests.report.test_command import held, server
from tests.support import quick_yaml
from tests.support.components import free_port
from tests.support.kubectl_gpu import JANE, READ_PODS, GpuCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def rules_stay(cluster: GpuCluster) -> Iterator[None]:
    before = cluster.api.rules
    yield
    cluster.api.rules = before


def names(devices: Any) -> set[str]:
    return {f"{device['node_name']}/{device['device_id']}/{device.get('mig_instance_id', '')}" for device in devices}


# issue 21, "Must show" 2
def test_top_shows_all_nodes_by_the_cluster_role(cluster: GpuCluster) -> None:
    shown = cluster.json("top", user=JANE)
    assert shown["exporter"]["role"] == "cluster"
    assert {device["node"] for device in shown["devices"]} == {"gpu-node-1", "gpu-node-2"}
    # by kubectl itself, which finds the plugin
    ended = cluster.kubectl("gpu", "top", "--once", "--sort", "idle", "-n", "serving", user=JANE)
    assert ended.code == 0, ended.err
    assert "serving/" in ended.out
    assert "notebooks/" not in ended.out


# issue 22, line 20
def test_where_processes_are_is_said_without_a_flag_that_top_lacks(cluster: GpuCluster) -> None:
    error = cluster.json("top", "--processes", user=JANE)["processes_error"]
    assert error == (
        "the processes are on the exporter of their node: run kubectl port-forward to its pod, and"
        " pod-gpu-metrics-exporter top --url localhost:PORT"
    )


def test_who_knows_a_node_a_gpu_and_a_pod(cluster: GpuCluster) -> None:
    of_node = cluster.json("who", "gpu-node-1", user=JANE)
    # three GPUs, one of them shared by three, and seven instances; the one that is cut is no device
    assert len(names(of_node)) == 3 + 7
    held = next(device for device in of_node if device["namespace"] == "serving" and not device["gpu_shared"])
    for words in (held["device_uuid"], f"pod/serving/{held['pod']}", f"gpu-node-1/{held['device_id']}"):
        found = cluster.json("who", words)
        assert names([held]) <= names(found), words
    assert {device["pod"] for device in cluster.json("who", held["pod"])} == {held["pod"]}
    table = cluster.gpu("who", held["device_uuid"], user=JANE).out
    assert table.split()[:4] == ["NODE", "GPU", "MODEL", "POD"]
    assert f"serving/{held['pod']}" in table
    elsewhere = cluster.line("-n", "kube-system", "who", held["pod"])
    assert elsewhere.startswith(f"{held['pod']}: no pod in kube-system that holds a GPU, no node and no GPU -> ")
    assert cluster.json("who", held["pod"], "-n", "kube-system", "-A")


def test_idle_lists_the_longest_idle_first(cluster: GpuCluster) -> None:
    devices: list[dict[str, Any]] = []

    def is_known() -> bool:
        devices[:] = cluster.json("idle", user=JANE)
        return bool(devices) and all(device["idle_since"] for device in devices)

    wait_until(is_known)
    moments = [device["idle_since"] for device in devices]
    assert moments == sorted(moments)
    assert {device["state"] for device in devices} == {"idle"}
    table = cluster.gpu("idle").out
    assert table.splitlines()[0].endswith("IDLE SINCE")
    assert len(table.splitlines()) == 1 + len(moments)
    # what is idle here belongs to other namespaces
    nothing = cluster.gpu("idle", "-n", "kube-system")
    assert (nothing.code, nothing.out) == (0, "No device that a container holds is idle.\n")


def put_pod(cluster: GpuCluster, name: str, *, node: str = "gpu-node-1", gpus: int = 1, phase: str = "Running") -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    conditions = [{"type": "PodScheduled", "message": "0/9 nodes are available: 9 Insufficient nvidia.com/gpu."}]
    cluster.api.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": "serving", "name": name},
            "spec": {"containers": [{"name": "main", **limits}], **({"nodeName": node} if node else {})},
            "status": {"phase": phase, "conditions": conditions},
        }
    )


def test_why_says_what_doctor_says_of_the_pod(cluster: GpuCluster) -> None:
    node = cluster.nodes[0]
    pod = next(pod for pod in node.world.pods if pod.namespace == "serving" and len(pod.devices) == 1)
    ended = cluster.gpu("why", pod.name, user=JANE)
    assert (ended.code, ended.err) == (0, "")
    first, _, *findings = ended.out.splitlines()
    assert first == f"1 of 1 devices of serving/{pod.name} have metrics with its name."
    assert len(findings) == 1
    assert findings[0].startswith(f"ok       {pod.devices[0]} (")
    report = cluster.json("why", f"serving/{pod.name}", user=JANE)
    assert [finding["level"] for finding in report["findings"]] == ["ok"]


@pytest.mark.parametrize(
    ("pod", "code", "words"),
    [
        ({"gpus": 0}, 0, "no container of it asks for a device"),
        ({"phase": "Succeeded"}, 0, "it has ended (Succeeded): the kubelet took its devices back"),
        # the node's exporter is asked how it ended, and what is known without one stands without one
        ({"phase": "Failed"}, 0, "it has ended (Failed): the kubelet took its devices back"),
        ({"phase": "Failed", "node": "gpu-node-9"}, 0, "it has ended (Failed): the kubelet took its devices back"),
        ({"node": ""}, 1, "it runs on no node yet: 0/9 nodes are available: 9 Insufficient nvidia.com/gpu."),
        ({}, 1, "it asks for nvidia.com/gpu, and the kubelet lists no device for it"),
    ],
    ids=["asks for none", "has ended", "has failed", "has failed elsewhere", "is not scheduled", "is not listed"],
)
def test_why_a_pod_has_no_metrics(cluster: GpuCluster, pod: dict[str, Any], code: int, words: str) -> None:
    put_pod(cluster, "lonely", **pod)
    ended = cluster.gpu("why", "lonely", user=JANE)
    assert ended.code == code
    assert words in ended.out
    with cluster.without("Pod", "lonely", "serving"):
        assert cluster.line("why", "lonely") == 'the API server says NotFound: pods "lonely" not found'


def test_why_on_a_node_without_an_exporter(cluster: GpuCluster) -> None:
    put_pod(cluster, "far-away", node="gpu-node-9")
    assert cluster.line("why", "far-away").startswith("no exporter runs on the node gpu-node-9 -> ")


def test_report_asks_the_prometheus_that_is_named(cluster: GpuCluster) -> None:
    assert cluster.line("report").startswith("there is no Prometheus -> ")
    with server(held) as url:
        cluster.put_service(
            "monitoring", "prometheus-operated", url, port="web", labels={"operated-prometheus": "true"}
        )
        named = ["--since", "1m", "--prometheus", "monitoring/prometheus-operated:web", "--format", "json"]
        # to name the port spares the right to list
        rule = {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]}
        cluster.api.rules = [("monitoring", rule)]
        ended = cluster.gpu("report", *named, user=JANE)
        assert ended.code == 0, ended.err
        assert json.loads(ended.out)["groups"]
        assert cluster.line("report", user=JANE) == (
            "jane may not list services in all namespaces -> name its Service: --prometheus NAMESPACE/SERVICE:PORT"
        )
    gone = cluster.line("report", "--prometheus", "monitoring/prometheus-operated")
    assert gone.startswith("--prometheus: service monitoring/prometheus-operated does not answer: ")
    assert cluster.line("report", "--prometheus", "x", code=2).startswith("--prometheus: 'x' is not allowed")


def test_without_a_cluster_role_the_nodes_are_asked(cluster: GpuCluster) -> None:
    by_role = names(cluster.json("who", "node/gpu-node-2"))
    with cluster.without("Service", CLUSTER):
        assert names(cluster.json("who", "node/gpu-node-2", user=JANE)) == by_role
        assert cluster.json("top", user=JANE)["exporter"]["nodes"] == 2
        cluster.put_exporter_pod("gpu-node-3", f"http://127.0.0.1:{free_port()}")
        ended = cluster.gpu("who", "gpu-node-2", user=JANE)
        assert ended.code == 0
        assert ended.err.startswith("the node gpu-node-3 is missing: pod pod-gpu-metrics/exporter-gpu-node-3 does not")
        cluster.put_exporter_pod("gpu-node-2", cluster.exporters["gpu-node-2"], name="of-another-release")
        assert cluster.line("idle").startswith("there are several exporters on the node gpu-node-2: ")
        with cluster.without("Pod", "of-another-release"), cluster.without("Pod", "exporter-gpu-node-3"):
            assert cluster.json("who", "gpu-node-2")
    for pod in ("of-another-release", "exporter-gpu-node-3"):
        cluster.remove("Pod", pod)


def test_several_cluster_roles_are_told_apart_by_a_flag(cluster: GpuCluster) -> None:
    label = {"app.kubernetes.io/name": CLUSTER}
    cluster.put_service("monitoring", "other-cluster", cluster.cluster, labels=label)
    several = cluster.line("idle")
    assert several.startswith("there are several cluster roles, ")
    assert several.endswith("-> name one: --exporter NAMESPACE or --exporter NAMESPACE/SERVICE")
    for flags in (["--exporter", "monitoring"], ["--exporter=monitoring/other-cluster:metrics"]):
        assert cluster.json("who", "gpu-node-2", *flags)
    assert cluster.json("who", "gpu-node-2", env={"KUBECTL_GPU_EXPORTER": NAMESPACE})
    cluster.remove("Service", "other-cluster", "monitoring")


def test_without_rights_one_line_names_the_right(cluster: GpuCluster) -> None:
    cluster.api.rules = [("serving", READ_PODS)]
    line = cluster.line("top", user=JANE)
    assert line == (
        "jane may not get services/proxy in the namespace pod-gpu-metrics -> ask the cluster's admin for the"
        " ClusterRole pod-gpu-metrics-viewer (deploy/kubectl/viewer.yaml)"
    )
    assert cluster.line("who", "gpu-node-1", user=JANE) == line
    pod = next(pod for pod in cluster.nodes[0].world.pods if pod.namespace == "serving")
    assert cluster.line("why", pod.name, user=JANE).startswith(
        "jane may not list pods in the namespace pod-gpu-metrics"
    )
    cluster.api.rules = [*cluster.viewer]
    assert cluster.line("why", pod.name, user=JANE) == (
        "jane may not get pods in the namespace serving -> ask the cluster's admin for this right"
    )


def test_the_right_to_ask_one_service_is_enough(cluster: GpuCluster) -> None:
    rule = {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]}
    cluster.api.rules = [(NAMESPACE, {**rule, "resourceNames": [f"{CLUSTER}:metrics"]})]
    assert cluster.json("who", "gpu-node-1", user=JANE)


def test_what_is_away_is_said_in_one_line(cluster: GpuCluster) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    cluster.put_service(NAMESPACE, CLUSTER, nobody)
    for command in (["top"], ["idle"], ["who", "gpu-node-1"]):
        assert cluster.line(*command).startswith(f"service pod-gpu-metrics/{CLUSTER} does not answer: ")
    cluster.put_service(NAMESPACE, CLUSTER, cluster.cluster, is_ready=False)
    assert cluster.line("top").startswith(
        f"service pod-gpu-metrics/{CLUSTER} does not answer: no endpoints available for service"
    )
    cluster.put_service(NAMESPACE, CLUSTER, cluster.cluster)
    address = f"127.0.0.1:{free_port()}"
    assert cluster.line("top", server=f"https://{address}").startswith(f"no API server answers at {address} -> ")
    assert cluster.line("top", env={"KUBECONFIG": "/dev/null"}) == (
        "the kubeconfig names no API server -> give --kubeconfig or --context, or set KUBECONFIG"
    )
    assert 'context "nope" does not exist' in cluster.line("top", "--context", "nope")
    assert cluster.line("--exporter", "default/nothing", "top").startswith(
        'the API server says NotFound: services "nothing" not found -> name one: --exporter'
    )
    exporters = ("exporter-gpu-node-1", "exporter-gpu-node-2")
    with (
        cluster.without("Service", CLUSTER),
        cluster.without("Pod", exporters[0]),
        cluster.without("Pod", exporters[1]),
    ):
        assert cluster.line("top").startswith("no exporter runs in this cluster: ")


def test_krews_archive_runs_without_any_library_of_the_machine(
    cluster: GpuCluster, krews_files: Path, krews_plugin: Path
) -> None:
    plugin = quick_yaml.load((krews_files / "gpu.yaml").read_text())["spec"]
    (platform,) = plugin["platforms"]
    archive = krews_files / Path(platform["uri"]).name
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
    assert (krews_plugin / "kubectl-gpu").samefile(krews_files / "store" / platform["bin"])
    pod = next(pod for pod in cluster.nodes[0].world.pods if pod.namespace == "serving")
    for words in (["top", "--once"], ["why", pod.name]):
        ended = cluster.kubectl("gpu", *words, user=JANE, plugins=krews_plugin)
        assert (ended.code, ended.err) == (0, ""), words
    with server(held) as url:
        cluster.put_service(
            "monitoring", "prometheus-operated", url, port="web", labels={"operated-prometheus": "true"}
        )
        # without a URL it takes the only Prometheus that it finds
        report = ["report", "--since", "1m", "--format", "html"]
        ended = cluster.kubectl("gpu", *report, plugins=krews_plugin)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("<!doctype html>")


def test_without_kubectl_it_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from exporter.kubectl.command import main; main()", "idle"]
    ended = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        1,
        "kubectl gpu: kubectl is not in the PATH -> install it, or add its folder to the PATH\n",
    )
