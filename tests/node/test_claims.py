"""--dra through the whole node role: nothing without a claim, ResourceSlices from the first one on."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.config.named_files import NodeFiles
from exporter.model.devices import Claim
from exporter.node.build import make_node
from exporter.node.handover import WantedStreams
from tests.support.exporter import Exporter, config_of, running
from tests.support.node_api import NodeApi
from tests.support.simulated import DRA_DRIVER, DRA_POOL, Container, Pod, SimulatedNode, World
from tests.support.waiting import until


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Four GPUs to be claimed, and no pod yet."""
    simulated = SimulatedNode(World(gpus=4, claims=4, seed=7))
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


async def owners(exporter: Exporter) -> dict[str, list[str]]:
    mapping = json.loads((await exporter.get("/debug/mapping"))[1])
    return {row["uuid"]: [owner["pod"] for owner in row["owners"]] for row in mapping["seen"]}


# issue 7, line 12
async def test_nothing_is_asked_before_the_first_claim_which_finds_its_gpu(node: SimulatedNode) -> None:
    claimed = [pod for pod in node.world.pods if any(container.claims for container in pod.containers)]
    assert claimed
    node.world.pods = ()
    async with running(config_of(**settings(node))) as exporter:
        for _ in range(3):
            assert not any((await owners(exporter)).values())
        assert (node.api.lists, node.api.watches) == (0, 0)
        assert "resourceslices" not in json.loads((await exporter.get("/debug/mapping"))[1])["sources"]
        node.world.pods = tuple(claimed)
        # the very page that first names the claim has its owner
        found = {pod for pods in (await owners(exporter)).values() for pod in pods}
        assert found == {pod.name for pod in claimed}
        assert "dra_claim_name=" in await exporter.page()
        assert node.api.lists == 1


# issue 7, line 12
async def test_a_cdi_name_that_holds_a_uuid_needs_no_api(node: SimulatedNode) -> None:
    gpu = node.world.gpus[2]
    claim = Claim(
        namespace="ml", name="one", driver="gpu.nvidia.com", pool="p", device="gpu-2",
        cdi_names=(f"nvidia.com/gpu={gpu.uuid}",),
    )  # fmt: skip
    node.world.pods = (Pod(namespace="ml", name="one", containers=(Container(name="main", claims=(claim,)),)),)
    async with running(config_of(**settings(node))) as exporter:
        assert (await owners(exporter))[gpu.uuid] == ["one"]
        assert node.api.lists == 0
        # another driver's claims are none of its business
        nic = replace(claim, driver="dra.net", device="gpu-3", cdi_names=())
        node.world.pods += (Pod(namespace="ml", name="nic", containers=(Container(name="main", claims=(nic,)),)),)
        assert (await owners(exporter))[gpu.uuid] == ["one"]
        assert node.api.lists == 0


# issue 7, line 12
async def test_a_token_is_needed_and_may_come_later(node: SimulatedNode, tmp_path: Path) -> None:
    token = tmp_path / "token"
    given = settings(node, kubernetes_url="https://127.0.0.1:9", kubernetes_token_file=str(token))
    async with running(config_of(**given)) as exporter:
        assert not any((await owners(exporter)).values())
        mapping = json.loads((await exporter.get("/debug/mapping"))[1])
        assert {row["reason"] for row in mapping["assigned"]} == {"claim_unresolved"}
        assert "access to the Kubernetes API" in mapping["assigned"][0]["explanation"]
        assert "resourceslices" not in mapping["sources"]
        token.write_text("t")
        await owners(exporter)
        sources = json.loads((await exporter.get("/debug/mapping"))[1])["sources"]
        assert sources["resourceslices"]["up"] is False


# issue 7, line 12
async def test_what_was_begun_goes_on_over_a_reload(node: SimulatedNode) -> None:
    first = make_node(config_of(**settings(node)), NodeFiles())
    await first.look(None)
    second = make_node(config_of(**settings(node, sharing="device")), NodeFiles(), handover=first.handover)
    try:
        await first.give_way(second)
        assert second.handover.the(WantedStreams).slices
        snapshot = await second.look(None)
        assert {match.reason for match in snapshot.owners.matches} == {""}
        assert node.api.lists == 1
    finally:
        await second.close()


# issue 22, line 39
async def test_a_taint_of_nvidias_driver_is_among_the_reasons_of_its_gpu(node: SimulatedNode) -> None:
    """The simulated driver taints as NVIDIA's does: NoSchedule for an error of the GPU, None for one of a program."""
    ill, busy = node.world.gpus[1].uuid, node.world.gpus[2].uuid
    async with running(config_of(**settings(node))) as exporter:
        assert "dra_claim_name=" in await exporter.page()
        node.world.machine.add_xid(ill, 63)
        node.world.machine.add_xid(busy, 31)

        def is_tainted(text: str) -> bool:
            reasons = {row["device_uuid"]: row.get("health_reasons", ()) for row in json.loads(text)}
            return any("keeps new pods away from it: gpu.nvidia.com/xid=63 ->" in each for each in reasons[ill])

        text = await exporter.until("/container/metrics", is_tainted)
        rows = {row["device_uuid"]: row for row in json.loads(text)}
        assert (rows[ill]["health"], rows[ill]["last_xid"]) == ("degraded", 63)
        assert (rows[busy]["health"], rows[busy]["last_xid"]) == ("ok", 31)


def pair(node: SimulatedNode) -> Pod:
    """A pod with a claim of two GPUs, of which each container asked for one."""
    claims = [
        Claim(
            namespace="ml",
            name="pair-0-gpus-bcdfg",
            driver=DRA_DRIVER,
            pool=DRA_POOL,
            device=gpu.claim_device,
            cdi_names=(f"k8s.gpu.nvidia.com/claim=00000000-0000-4000-8000-000000000003-{gpu.claim_device}",),
        )
        for gpu in node.world.gpus[:2]
    ]
    containers = tuple(
        Container(name=name, claims=(claim,)) for name, claim in zip(("main", "side"), claims, strict=True)
    )
    return Pod(namespace="ml", name="pair-0", uid="pair", containers=containers)


async def containers(exporter: Exporter) -> list[list[tuple[str, bool]]]:
    """Who holds each GPU, and whether others do, too."""
    mapping = json.loads((await exporter.get("/debug/mapping"))[1])
    return [[(owner["container"], owner["shared"]) for owner in row["owners"]] for row in mapping["seen"]]


# issue 22, line 3
async def test_requests_of_a_claim_are_told_apart_while_the_api_is_away(node: SimulatedNode, api: NodeApi) -> None:
    """The pod's name may come again, so without the API nobody can say which pod it is."""
    await api.show(pair(node))
    apart = [[("main", False)], [("side", False)], [], []]
    given = settings(node, **api.settings, pods_source="api", labels_pod_labels="app")
    async with running(config_of(**given)) as exporter:

        async def are_apart() -> bool:
            return await containers(exporter) == apart

        async def pods_are(up: bool) -> bool:
            assert await containers(exporter) == apart
            sources = json.loads((await exporter.get("/debug/mapping"))[1])["sources"]
            return bool(sources["pods"]["up"]) is up

        await until(are_apart)
        await api.halt()
        await until(lambda: pods_are(up=False))
        for _ in range(10):
            assert await containers(exporter) == apart
        await node.restart_kubelet(down_seconds=0.1, empty_seconds=0.2)
        assert await containers(exporter) == apart
        await api.go_on()
        await until(lambda: pods_are(up=True))
        assert await containers(exporter) == apart
