"""The queues of pods through the whole node role: which answers have them, which have not, and what they add up to."""

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping

import pytest

from exporter.model.pods import PodInfo
from exporter.ownership.queues import queue_of
from tests.support.exporter import Exporter, Start
from tests.support.simulated import Pod, SimulatedNode, World
from tests.support.simulated_api import SimulatedApi
from tests.support.waiting import until

KUEUE = {"kueue.x-k8s.io/cluster-queue-name": "research", "kueue.x-k8s.io/local-queue-name": "team-a"}
OLDER_KUEUE = {"kueue.x-k8s.io/queue-name": "user-queue"}
KAI = {"kai.scheduler/queue": "batch"}
Labels = Mapping[str, str]


def samples(page: str, name: str) -> list[tuple[Labels, float]]:
    """The samples of a family; a label that is there and empty is kept."""
    lines = re.findall(rf"^{name}{{(.*)}} (\S+)$", page, re.MULTILINE)
    return [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in lines]


def put_in_queues(world: World) -> dict[tuple[str, str], str]:
    """Give pods with devices a queue of each kind in turn, and every fourth none. The queues by namespace and pod."""
    kinds: tuple[dict[str, str], ...] = (KUEUE, OLDER_KUEUE, KAI, {})
    pods = sorted((pod for pod in world.pods if pod.devices), key=lambda pod: (pod.namespace, pod.name))
    for number, pod in enumerate(pods):
        world.relabel(pod, **kinds[number % len(kinds)])
    return {(pod.namespace, pod.name): queue(pod) for pod in world.pods if pod.devices}


def queue(pod: Pod) -> str:
    """What the labels of a pod say, by hand."""
    labels = dict(pod.labels)
    if "kueue.x-k8s.io/cluster-queue-name" in labels:
        return "research"
    if "kueue.x-k8s.io/queue-name" in labels:
        return f"{pod.namespace}/user-queue"
    return "batch" if "kai.scheduler/queue" in labels else ""


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Whole GPUs, shares, and MIG instances."""
    simulated = SimulatedNode(World(gpus=6, shared=2, mig=1, seed=11))
    await simulated.start()
    yield simulated
    await simulated.stop()


def settings(of: SimulatedNode, **more: str) -> dict[str, str]:
    return {
        "kubelet_socket": str(of.socket),
        "kubelet_pods_socket": str(of.pods_socket),
        "dcgm_url": of.url,
        "inventory_file": str(of.inventory_file),
        "kubelet_max_age": "0s",
        "accounting_interval": "1s",
        **more,
    }


async def accounts(exporter: Exporter) -> str:
    """/metrics, once the accounts have counted something."""
    pages: list[str] = []

    async def are_counted() -> bool:
        pages[:] = [(await exporter.get("/metrics"))[1]]
        return any(value for _, value in samples(pages[0], "pod_gpu_allocated_seconds_total"))

    await until(are_counted)
    return pages[0]


def by(rows: Iterable[tuple[Labels, float]], names: Mapping[tuple[str, str], str]) -> Mapping[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for labels, value in rows:
        sums[names.get((labels["namespace"], labels["pod"]), "")] += value
    return sums


# issue 26, "Must show" 3
@pytest.mark.parametrize("sharing", ["copy", "split", "device"])
async def test_sums_by_queue_are_those_by_pod(node: SimulatedNode, start: Start, sharing: str) -> None:
    queues = put_in_queues(node.world)
    assert set(queues.values()) >= {"research", "batch", ""}
    exporter = await start(**settings(node, sharing=sharing))
    page = await accounts(exporter)
    families = ("pod_gpu_allocated_ratio", "pod_gpu_allocated_seconds_total", "pod_gpu_energy_joules_total")
    for family in families:
        rows = samples(page, family)
        assert rows
        by_label: dict[str, float] = defaultdict(float)
        for labels, value in rows:
            by_label[labels.get("queue", "")] += value
        assert by_label == pytest.approx(by(rows, queues)), family
        # no queue, no label: not even an empty one
        assert all(labels.get("queue") != "" for labels, _ in rows)
    shares = [labels for labels, value in samples(page, "pod_gpu_allocated_ratio") if 0 < value < 1]
    assert {labels.get("queue", "") for labels in shares} >= {"research", "batch"}
    assert any(labels["GPU_I_ID"] for labels in shares)
    held = sum(value for labels, value in samples(page, "pod_gpu_allocated_ratio") if labels.get("queue"))
    assert 0 < held <= 6


async def test_which_answers_have_them(node: SimulatedNode, start: Start) -> None:
    queues = put_in_queues(node.world)
    exporter = await start(**settings(node))
    infos = samples(await accounts(exporter), "pod_gpu_info")
    assert {(labels["namespace"], labels["pod"]): labels.get("queue", "") for labels, _ in infos} == queues
    rows = json.loads((await exporter.get("/container/metrics"))[1])
    assert {(row["namespace"], row["pod"]): row.get("queue", "") for row in rows if row["pod"]} == queues
    assert all("queue" not in row for row in rows if not queues.get((row["namespace"], row["pod"])))
    # the series of GPU samples are as they were
    assert "queue=" not in (await exporter.get("/gpu/metrics"))[1]
    assert "queue=" not in (await exporter.get("/metrics/nodes"))[1]


async def test_without_owners_on_samples_pod_gpu_info_has_them_once(node: SimulatedNode, start: Start) -> None:
    queues = put_in_queues(node.world)
    exporter = await start(**settings(node, labels_owners="off", labels_pod_labels="team"))
    infos = [labels for labels, _ in samples(await accounts(exporter), "pod_gpu_info")]
    assert {(labels["namespace"], labels["pod"]): labels.get("queue", "") for labels in infos} == queues
    assert len({frozenset(labels.items()) for labels in infos}) == len(infos)
    assert all(labels["label_team"] for labels in infos)


async def test_they_outlive_the_kubelet_and_its_pods_api(node: SimulatedNode, start: Start) -> None:
    put_in_queues(node.world)
    exporter = await start(**settings(node))

    def queues_of(page: str) -> set[tuple[str, str]]:
        return {(labels["pod"], labels.get("queue", "")) for labels, _ in samples(page, "pod_gpu_allocated_ratio")}

    before = queues_of(await accounts(exporter))
    await node.pods_api.stop()
    await node.kubelet.stop()
    assert queues_of(await accounts(exporter)) == before
    await node.kubelet.start()
    await node.pods_api.start(empty_seconds=0.2)
    for _ in range(3):
        assert queues_of((await exporter.get("/metrics"))[1]) == before


async def test_no_row_begins_without_its_queue(node: SimulatedNode, start: Start) -> None:
    """A label that comes later makes a new series: the first look of the accounts waits for pods."""
    queues = put_in_queues(node.world)
    exporter = await start(**settings(node))
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)

    async def are_counted() -> bool:
        page = (await exporter.get("/metrics"))[1]
        for labels, _ in samples(page, "pod_gpu_allocated_ratio"):
            seen[labels["namespace"], labels["pod"]].add(labels.get("queue", ""))
        return any(value for _, value in samples(page, "pod_gpu_allocated_seconds_total"))

    await until(are_counted)
    assert seen == {pod: {queue} for pod, queue in queues.items()}


async def test_no_node_watches_the_api_server_for_the_sake_of_queues(simulated: SimulatedNode, start: Start) -> None:
    put_in_queues(simulated.world)
    api = SimulatedApi(simulated.world)
    url = await api.start()
    try:
        asked = settings(simulated, kubernetes_url=url, pods_source="api")
        exporter = await start(**asked)
        assert "queue=" not in await accounts(exporter)
        assert api.lists + api.watches == 0
        # they are read for workloads: the queues come with them
        exporter = await start(**asked, workload_labels="app.kubernetes.io/name")
        assert 'queue="research"' in await accounts(exporter)
        assert api.lists > 0
    finally:
        await api.stop()


def test_the_simulated_pods_are_read_as_any_pod() -> None:
    world = World(gpus=4, seed=3)
    queues = put_in_queues(world)

    for pod in world.pods:
        if pod.devices:
            info = PodInfo(namespace=pod.namespace, name=pod.name, uid=pod.uid, labels=dict(pod.labels))
            assert queue_of(info) == queues[pod.namespace, pod.name]
