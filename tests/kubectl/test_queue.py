"""`kubectl gpu queue` by a real kubectl: quotas of Kueue and KAI, what pods hold, and who waits."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from exporter.kubectl.queue_lookup import ReadQueues
from exporter.kubectl.queue_objects import KAI, KUEUE, QueueQuota, of_cluster_queue, of_kai_queue, waiting_pod
from exporter.kubectl.queue_table import lines_of, table
from exporter.model.device_row import DeviceRow
from exporter.model.states import DeviceState
from tests.support.kubectl_gpu import JANE, GpuCluster
from tests.support.real_api import anything

KUEUE_API, KAI_API = "kueue.x-k8s.io", "scheduling.run.ai"
OF_KUEUE = f"{KUEUE_API}/v1beta1"
DEFINITIONS = (
    anything(OF_KUEUE, "ClusterQueue", "clusterqueues", scope="Cluster"),
    anything(OF_KUEUE, "LocalQueue", "localqueues"),
    anything(f"{KAI_API}/v2", "Queue", "queues", scope="Cluster"),
)
READ_QUEUES = {"apiGroups": [KUEUE_API, KAI_API], "resources": ["*"], "verbs": ["get", "list"]}
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
Object = dict[str, Any]


def flavors(key: str, **amounts: str) -> list[Object]:
    """The amounts of a flavor of each name."""
    return [
        {"name": name, "resources": [{"name": "nvidia.com/gpu", key: amount}, {"name": "cpu", key: "64"}]}
        for name, amount in amounts.items()
    ]


def cluster_queue(name: str, *, version: str = "v1beta1", cohort: str = "all") -> Object:
    return {
        "apiVersion": f"{KUEUE_API}/{version}",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "cohort" if version == "v1beta1" else "cohortName": cohort,
            "resourceGroups": [{"flavors": flavors("nominalQuota", h100="8", a100="4")}],
        },
        "status": {
            "pendingWorkloads": 3,
            "flavorsReservation": flavors("total", h100="7", a100="1"),
            "flavorsUsage": flavors("total", h100="5", a100="1"),
        },
    }


def local_queue(namespace: str, name: str, of: str) -> Object:
    about = {"namespace": namespace, "name": name}
    return {"apiVersion": OF_KUEUE, "kind": "LocalQueue", "metadata": about, "spec": {"clusterQueue": of}}


def kai_queue(name: str, quota: float, allocated: str = "2500m") -> Object:
    return {
        "apiVersion": f"{KAI_API}/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {
            "parentQueue": "everything",
            "resources": {"gpu": {"quota": quota, "limit": -1, "overQuotaWeight": 1}},
        },
        "status": {"allocated": {"nvidia.com/gpu": allocated, "cpu": "3"}},
    }


def pending(name: str, *, gpus: int = 2, labels: Object | None = None, gates: tuple[str, ...] = ()) -> Object:
    why = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated" if gates else "Unschedulable"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "serving",
            "name": name,
            "labels": labels or {},
            "creationTimestamp": "2026-11-28T10:00:00Z",
        },
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}}],
            "schedulingGates": [{"name": gate} for gate in gates],
        },
        "status": {
            "phase": "Pending",
            "conditions": [{**why, "message": "0/9 nodes are available: 9 Insufficient nvidia.com/gpu."}],
        },
    }


@pytest.fixture
def queues(cluster: GpuCluster) -> Iterator[GpuCluster]:
    """The cluster with Kueue and KAI: pods of serving are in a queue of the first, those of notebooks of the second."""
    api = cluster.api
    rules = api.rules
    of_kueue = {"kueue.x-k8s.io/queue-name": "user-queue"}
    new = [
        pending("waits", labels=of_kueue),
        pending("is-gated", gpus=8, labels=of_kueue, gates=("kueue.x-k8s.io/admission",)),
        pending("needs-none", gpus=0),
    ]
    quotas = [cluster_queue("research"), local_queue("serving", "user-queue", "research"), kai_queue("batch", 6)]
    label_of = {"serving": "kueue.x-k8s.io/queue-name", "notebooks": "kai.scheduler/queue"}
    with cluster.with_kinds(*DEFINITIONS):
        for item in (*quotas, *new):
            api.put(item)
        before: list[Object] = []
        for node in cluster.nodes:
            for pod in node.world.pods:
                as_it_was = api.get("Pod", pod.namespace, pod.name)
                assert as_it_was is not None
                before.append(as_it_was)
                label = label_of.get(pod.namespace)
                labels = {label: "user-queue" if pod.namespace == "serving" else "batch"} if label else {}
                api.put({**as_it_was, "metadata": {**as_it_was["metadata"], "labels": labels}})
        yield cluster
        api.rules = rules
        for item in before:
            api.put({**item, "metadata": {"labels": {}, **item["metadata"]}})
        for item in new:
            cluster.remove("Pod", item["metadata"]["name"], item["metadata"]["namespace"])


def held(cluster: GpuCluster, namespace: str) -> int:
    """The devices that pods of a namespace hold, by the simulated nodes themselves."""
    pods = (pod for node in cluster.nodes for pod in node.world.pods if pod.namespace == namespace)
    return sum(len(pod.devices) for pod in pods)


@pytest.mark.real
def test_quota_held_and_waiting_by_queue(queues: GpuCluster) -> None:
    answer = queues.json("queue")
    lines = {line["queue"]: line for line in answer["queues"]}
    assert answer["not_read"] == []
    # the LocalQueue of the pods' labels is the ClusterQueue that it feeds
    assert lines.keys() == {"research", "batch", ""}
    research, batch = lines["research"], lines["batch"]
    assert (research["system"], research["above"], research["quota"]) == (KUEUE, "all", {"nvidia.com/gpu": 12})
    assert (research["reserved"], research["admitted"]) == ({"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 6})
    assert (research["pending_workloads"], research["local_queues"]) == (3, ["serving/user-queue"])
    assert (batch["system"], batch["quota"], batch["admitted"]) == (KAI, {"nvidia.com/gpu": 6}, {"nvidia.com/gpu": 2.5})
    for line, namespace in ((research, "serving"), (batch, "notebooks")):
        assert line["gpus"] + line["shares"] + line["mig_instances"] == held(queues, namespace), namespace
        assert all(name.startswith(f"{namespace}/") for name in line["pods"])
    everything = sum(line["gpus"] + line["shares"] + line["mig_instances"] for line in lines.values())
    assert everything == sum(len(pod.devices) for node in queues.nodes for pod in node.world.pods)
    waiting = {pod["pod"]: pod for pod in research["waiting"]}
    assert waiting.keys() == {"waits", "is-gated"}
    assert waiting["waits"]["why"].startswith("Unschedulable: 0/9 nodes are available")
    assert waiting["is-gated"]["why"] == "held back by kueue.x-k8s.io/admission"
    assert waiting["is-gated"]["gpus"] == 8


@pytest.mark.real
def test_one_queue_pod_by_pod(queues: GpuCluster) -> None:
    for name in ("research", "user-queue"):
        # the context's namespace is serving
        ended = queues.gpu("queue", name)
        assert (ended.code, ended.err) == (0, ""), name
        first, *others = ended.out.split("\n\n")
        assert first.splitlines()[0].split()[:4] == ["QUEUE", "COHORT", "QUOTA", "ADMITTED"]
        assert [line.split()[:4] for line in first.splitlines()[1:]] == [["research", "all", "12", "6"]]
        assert "2 pods, 10 GPUs" in first
        holders, waiting = (text.splitlines()[1:] for text in others)
        assert all(line.startswith("serving/") for line in (*holders, *waiting))
        assert len(waiting) == 2
    assert queues.line("queue", "reserch") == (
        "reserch: no such queue -> there are batch, research; -A looks in all namespaces"
    )
    of_any = queues.gpu("queue", "serving/user-queue", "-A")
    assert of_any.out.splitlines()[1].startswith("research "), of_any
    assert queues.gpu("queue", "(none)").out.splitlines()[1].startswith("(none) ")


@pytest.mark.real
def test_of_one_namespace_it_says_so(queues: GpuCluster) -> None:
    ended = queues.gpu("queue", "-n", "serving")
    assert ended.err == "Of pods only those of the namespace serving are counted.\n"
    batch = next(line for line in ended.out.splitlines() if line.startswith("batch "))
    assert batch.split()[4] == "0"


@pytest.mark.real
def test_a_name_of_both_schedulers_is_said(queues: GpuCluster) -> None:
    """Labels of pods name queues without their scheduler."""
    queues.api.put(kai_queue("research", 3))
    ended = queues.gpu("queue")
    assert ended.err == ("not read: the quota of KAI Scheduler's queue research: a ClusterQueue has the same name\n")
    assert next(line for line in ended.out.splitlines() if line.startswith("research ")).split()[2] == "12"


@contextmanager
def rights(cluster: GpuCluster, *more: tuple[str, Object]) -> Iterator[None]:
    before = cluster.api.rules
    cluster.api.rules = [*cluster.viewer, *more]
    yield
    cluster.api.rules = before


@pytest.mark.real
def test_what_may_not_be_read_is_said(queues: GpuCluster) -> None:
    """Jane may list neither queues nor the pods of all namespaces. Her own pods' labels are known."""
    with rights(queues, ("serving", READ_PODS)):
        ended = queues.gpu("queue", user=JANE)
    assert ended.code == 0
    lines = ended.err.splitlines()
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines] == [
        "pods that wait in other namespaces than serving",
        "quotas of Kueue",
        "which ClusterQueue a LocalQueue feeds",
        "quotas of KAI Scheduler",
    ]
    assert all(line.startswith("not read: ") and "jane may not list" in line for line in lines)
    # deploy/kubectl/viewer.yaml gives the first, bound to the whole cluster, and none of the others
    assert ["pod-gpu-metrics-viewer" in line for line in lines] == [True, False, False, False]
    assert lines[1].endswith("clusterqueues in all namespaces -> ask the cluster's admin for this right")
    names = {line.split()[0] for line in ended.out.split("\n\n")[0].splitlines()[1:]}
    assert names == {"serving/user-queue", "(none)"}
    with rights(queues, ("", READ_PODS), ("", READ_QUEUES)):
        assert queues.gpu("queue", user=JANE).err == ""


@pytest.mark.real
def test_without_kueue_and_kai_nothing_is_missed(cluster: GpuCluster) -> None:
    ended = cluster.gpu("queue")
    assert (ended.code, ended.err) == (0, "")
    assert [line.split()[0] for line in ended.out.splitlines()] == ["QUEUE", "(none)"]


def test_a_cluster_queue_of_either_version() -> None:
    of_v1beta1, of_v1beta2 = (of_cluster_queue(cluster_queue("q", version=name)) for name in ("v1beta1", "v1beta2"))
    assert of_v1beta1 == of_v1beta2
    assert of_v1beta1.above == "all"


@pytest.mark.parametrize(("quota", "shown"), [(-1, {}), (0, {"nvidia.com/gpu": 0}), (0.5, {"nvidia.com/gpu": 0.5})])
def test_a_queue_of_kais_without_a_limit_has_no_quota(quota: float, shown: dict[str, float]) -> None:
    assert of_kai_queue(kai_queue("q", quota)).quota == shown


@pytest.mark.parametrize(
    "item",
    [
        {**pending("runs"), "status": {"phase": "Running"}},
        {**pending("pulls-its-image"), "spec": {**pending("p")["spec"], "nodeName": "n"}},
        pending("needs-none", gpus=0),
        {},
    ],
)
def test_who_does_not_wait(item: Object) -> None:
    assert waiting_pod(item) is None


def test_objects_of_any_form_are_read_without_an_error() -> None:
    """They come from the API server, and from controllers of any version."""
    without_amount = [{"flavors": [{"resources": [{"name": "nvidia.com/gpu"}]}]}]
    objects: list[Object] = [{}, {"spec": []}, {"spec": {"resourceGroups": without_amount}}]
    for odd in objects:
        assert of_cluster_queue(odd).quota == {}
        assert of_kai_queue(odd) == QueueQuota(name="", system=KAI, above="", quota={}, reserved={}, admitted={})


NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)


def test_the_table() -> None:
    """Whole GPUs, shares and instances are counted apart; use that nobody knows is none."""
    held: dict[str, Any] = {"namespace": "a", "queue": "prod", "node_name": "n"}
    rows = [
        DeviceRow(**held, pod="p", device_id="0", device_uuid="G0", gpu_utilization=50, state=DeviceState.USED),
        DeviceRow(**held, pod="p", device_id="1", device_uuid="G1", gpu_utilization=0, state=DeviceState.IDLE),
        DeviceRow(**held, pod="q", device_id="2", device_uuid="G2", gpu_shared=True, state=DeviceState.UNKNOWN),
        DeviceRow(**held, pod="r", device_id="3", device_uuid="G3", entity="mig", mig_instance_id="7"),
        DeviceRow(node_name="n", device_id="4", device_uuid="G4"),
    ]  # fmt: skip
    waiting = waiting_pod(pending("waits", labels={"kai.scheduler/queue": "prod"}))
    assert waiting is not None
    quota = QueueQuota(
        name="prod",
        system=KAI,
        above="all",
        quota={"nvidia.com/mig-1g.10gb": 7, "nvidia.com/gpu": 12},
        reserved={},
        admitted={},
    )
    lines = lines_of(rows, ReadQueues(quotas={"prod": quota}, waiting=[waiting]))
    assert table(lines, NOW, with_pods=True) == TABLE


@pytest.mark.parametrize(("with_pods", "shown"), [(False, 20), (True, 25)])
def test_those_who_wait_leave_the_queues_on_the_screen(*, with_pods: bool, shown: int) -> None:
    pods = [waiting_pod(pending(f"p{number}")) for number in range(25)]
    lines = lines_of([], ReadQueues(waiting=[pod for pod in pods if pod]))
    waiting = table(lines, NOW, with_pods=with_pods).split("\n\n")[1].splitlines()[1:]
    assert sum(line.startswith("serving/p") for line in waiting) == shown
    rest = "and 5 pods more, which have waited for less; with QUEUE all of a queue are shown"
    assert waiting[shown:] == ([] if with_pods else [rest])


TABLE = """\
QUEUE   COHORT   QUOTA               ADMITTED   GPUS   SHARES   MIG   USED   IDLE   PODS   WAITING         PENDING
prod    all      12, 7 mig-1g.10gb   -          2      1        1     0.5    1      3      1 pod, 2 GPUs   -

POD   NODE   DEVICES   IDLE
a/p   n      0, 1      1
a/q   n      2         0
a/r   n      3/7       0

POD             QUEUE   ASKS FOR   AGE   WHY
serving/waits   prod    2 gpu      2 h   Unschedulable: 0/9 nodes are available: 9 Insufficient nvidia.com/gpu.
"""
