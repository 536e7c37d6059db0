"""Pods are read once ids of the kubelet are an allocator's tokens: by whom, from when on, and what is said without."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.config.named_files import NodeFiles
from exporter.node.build import make_node
from exporter.node.handover import WantedStreams
from exporter.node.node import Node
from exporter.ownership.owners import Unmatched
from exporter.simulator.allocators import Hami
from tests.support.allocators import allocated_node
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import Container, Pod, SimulatedNode, World
from tests.support.waiting import until

GPU = "nvidia.com/gpu"


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Two GPUs, and no pod yet."""
    simulated = SimulatedNode(World(gpus=2, seed=5))
    simulated.world.pods = ()
    await simulated.start()
    yield simulated
    await simulated.stop()


def settings(node: SimulatedNode, **more: str) -> dict[str, str]:
    usual = {
        "kubelet_socket": str(node.socket),
        "kubelet_max_age": "0s",
        "dcgm_url": node.url,
        "kubernetes_url": node.api_url,
    }
    return usual | more


def a_pod(device_id: str, *, namespace: str = "ml") -> Pod:
    return Pod(namespace=namespace, name="trainer", containers=(Container(name="main", devices=((GPU, device_id),)),))


def token(node: SimulatedNode) -> Pod:
    return a_pod(f"{node.world.gpus[0].uuid}-3")


async def sources(exporter: Exporter) -> dict[str, dict[str, object]]:
    health_of: dict[str, dict[str, object]] = json.loads((await exporter.get("/debug/mapping"))[1])["sources"]
    return health_of


def pods_of(node: Node) -> set[str]:
    """The pods that a node knows."""
    return {name for _, name in node._joining.sources.pods.now.pods}


# issue 24, part 3 and "Must show" 5
@pytest.mark.parametrize("mode", ["auto", "off"])
async def test_a_node_without_tokens_reads_no_pods(node: SimulatedNode, mode: str) -> None:
    node.world.pods = (a_pod(node.world.gpus[0].uuid), a_pod(f"{node.world.gpus[1].uuid}::3"))
    # of the kubelet's own Pods API they are read for their queues
    given = settings(node, allocators_pods=mode, pods_source="api")
    async with running(config_of(**given)) as exporter:
        for _ in range(3):
            await exporter.page()
        assert "pods" not in await sources(exporter)
        assert (node.api.lists, node.api.watches) == (0, 0)


# issue 24, part 3
@pytest.mark.parametrize("source", ["kubelet", "api"])
async def test_the_look_that_first_sees_a_token_has_the_pods(node: SimulatedNode, source: str) -> None:
    given = settings(node, node_name=node.api.node_name)
    if source == "kubelet":
        given |= {"kubelet_pods_socket": str(node.pods_socket)}
    else:
        given |= {"pods_source": "api"}
    made = make_node(config_of(**given), NodeFiles())
    try:
        await made.look(None)
        assert not pods_of(made)
        node.world.pods = (token(node),)
        await made.look(None)
        assert pods_of(made) == {"trainer"}
        assert node.api.lists == (source == "api")
    finally:
        await made.close()


# issue 24, part 3
async def test_a_reservation_pod_shows_an_allocator_though_its_id_is_true(node: SimulatedNode) -> None:
    reserving = Container(name="resource-reservation", devices=((GPU, node.world.gpus[0].uuid),))
    node.world.pods = (Pod(namespace="kai-resource-reservation", name="trainer", containers=(reserving,)),)
    made = make_node(config_of(**settings(node, kubelet_pods_socket=str(node.pods_socket))), NodeFiles())
    try:
        await made.look(None)
        assert pods_of(made) == {"trainer"}
    finally:
        await made.close()


# issue 24, part 3
@pytest.mark.parametrize(("mode", "pods"), [("on", {"trainer"}), ("off", set())])
async def test_a_setting_has_pods_read_always_or_never(node: SimulatedNode, mode: str, pods: set[str]) -> None:
    node.world.pods = (a_pod(node.world.gpus[0].uuid) if mode == "on" else token(node),)
    given = settings(node, kubelet_pods_socket=str(node.pods_socket), allocators_pods=mode)
    made = make_node(config_of(**given), NodeFiles())
    try:
        await made.look(None)
        assert pods_of(made) == pods
    finally:
        await made.close()


# issue 24, part 3
async def test_pods_that_were_needed_are_still_read_after_a_reload(node: SimulatedNode) -> None:
    node.world.pods = (token(node),)
    given = settings(node, node_name=node.api.node_name)
    given["pods_source"] = "api"
    first = make_node(config_of(**given), NodeFiles())
    await first.look(None)
    node.world.pods = ()
    second = make_node(config_of(**given, sharing="device"), NodeFiles(), handover=first.handover)
    await first.give_way(second)
    assert second.handover.the(WantedStreams).allocators
    assert second._joining.sources.pods.is_there
    third = make_node(config_of(**given, allocators_pods="off"), NodeFiles(), handover=second.handover)
    try:
        await second.give_way(third)
        await third.look(None)
        assert not third._joining.sources.pods.is_there
        assert node.api.lists == 1
    finally:
        await third.close()


# issue 24, part 1
async def test_a_lost_gpu_is_remembered_over_a_reload(node: SimulatedNode) -> None:
    """The page lacks it, and a token of the one that is left may mean it."""
    node.world.pods = (token(node),)
    first = make_node(config_of(**settings(node, allocators_pods="off")), NodeFiles())
    await first.look(None)
    node.world.gpus = node.world.gpus[:1]
    second = make_node(config_of(**settings(node, allocators_pods="off")), NodeFiles(), handover=first.handover)
    await first.give_way(second)
    try:
        owners = (await second.look(None)).owners
        assert [match.reason for match in owners.matches] == [Unmatched.ALLOCATOR]
    finally:
        await second.close()


def about_pods(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log's lines about pods, with all that they say."""
    return [str(record.__dict__["fields"]) for record in caplog.records if "'source': 'pods'" in str(record.__dict__)]


# issue 24, part 3
async def test_without_any_source_of_pods_one_line_says_what_to_give(
    node: SimulatedNode, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    node.world.pods = (token(node),)
    name = tmp_path / "token"
    given = settings(node, kubernetes_url="https://127.0.0.1:9", kubernetes_token_file=str(name))
    async with running(config_of(**given)) as exporter:
        for _ in range(3):
            await exporter.page()
        (line,) = about_pods(caplog)
        assert "which GPUs an allocator such as HAMi gave" in line
        assert "list and watch pods" in line
        pods = (await sources(exporter))["pods"]
        assert pods["up"] is False
        assert (await exporter.get("/-/ready"))[0] == 200
        findings = json.loads((await exporter.get("/debug/mapping"))[1])["doctor"]["findings"]
        assert any("an allocator such as HAMi" in each["says"] for each in findings)


# issue 24, part 3
async def test_a_refusal_is_one_line_that_names_the_right_and_ends_with_it(
    node: SimulatedNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.world.pods = (token(node),)
    node.api.failure = (403, {})
    async with running(config_of(**settings(node, node_name=node.api.node_name), pods_source="api")) as exporter:
        for _ in range(3):
            await exporter.page()
        (line,) = about_pods(caplog)
        assert "the service account needs list and watch on pods (deploy/rbac.yaml)" in line
        assert (await sources(exporter))["pods"]["up"] is False
        assert (await exporter.get("/-/ready"))[0] == 200
        node.api.failure = None

        async def is_up() -> bool:
            return (await sources(exporter))["pods"]["up"] is True

        await until(is_up)


# issue 24, "Must show" 6
@pytest.mark.parametrize(("mode", "holds"), [("auto", False), ("on", True)])
async def test_an_annotation_alone_makes_a_holder_only_where_the_user_says_so(
    node: SimulatedNode, mode: str, *, holds: bool
) -> None:
    """Whoever may write pods can write Koordinator's annotation, in every cluster."""
    word = '{"gpu": [{"minor": 1, "resources": {"koordinator.sh/gpu-core": "50"}}]}'
    claiming = Pod(
        namespace="ml",
        name="liar",
        uid="1",
        containers=(Container(name="main", asks=(("koordinator.sh/gpu-core", 50),)),),
        annotations=(("scheduling.koordinator.sh/device-allocated", word),),
    )
    node.world.pods = (claiming,)
    shown = settings(node, kubelet_pods_socket=str(node.pods_socket), labels_pod_uid="on", allocators_pods=mode)
    async with running(config_of(**shown, root=str(node.root))) as exporter:
        await exporter.until("/debug/mapping", lambda text: json.loads(text)["sources"]["pods"]["up"])
        page = await exporter.page()
        assert ('pod="liar"' in page) is holds


# issue 24, part 3
async def test_without_pods_for_allocators_no_word_of_a_pod_counts(node: SimulatedNode) -> None:
    word = (("hami.io/vgpu-devices-allocated", f"{node.world.gpus[1].uuid},NVIDIA,1024,10:;"),)
    node.world.pods = (replace(token(node), uid="1", annotations=word),)
    shown = settings(node, kubelet_pods_socket=str(node.pods_socket), labels_pod_uid="on", allocators_pods="off")
    async with running(config_of(**shown)) as exporter:
        await exporter.until("/debug/mapping", lambda text: json.loads(text)["sources"]["pods"]["up"])
        await exporter.get("/container/metrics")
        (assigned,) = json.loads((await exporter.get("/debug/mapping"))[1])["assigned"]
        assert (assigned["matched"], assigned["reason"]) == (False, "allocator")


# issue 24, part 4
async def test_where_the_checkpoint_tells_nobody_misses_pods() -> None:
    node = allocated_node(Hami(), gpus=2)
    node.has_device_checkpoint = True
    await node.start()
    try:
        shown = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "kubelet_max_age": "0s"}
        async with running(config_of(**shown)) as exporter:
            text = await exporter.until("/debug/mapping", lambda text: '"matched": false' not in text)
            assert json.loads(text)["sources"]["device-checkpoint"]["up"] is True
            assert json.loads(text)["sources"].get("pods", {}).get("up") is not False
    finally:
        await node.stop()
