"""Devices of claims on a node whose DRA driver writes CDI specs, where nobody may ask the Kubernetes API."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from exporter.model.devices import Claim
from exporter.ownership.explain import NOBODY
from exporter.simulator import driver_files
from exporter.sources.cdi.cdi_source import CdiInventory
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import Container, Pod, SimulatedNode, World
from tests.support.waiting import until


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    simulated = SimulatedNode(World(gpus=4, claims=4, seed=7))
    await simulated.start()
    yield simulated
    await simulated.stop()


@pytest.fixture
async def exporter(node: SimulatedNode) -> AsyncIterator[Exporter]:
    """It has no token for the Kubernetes API, and may not ask without one."""
    config = config_of(kubelet_socket=str(node.socket), kubelet_max_age="0s", dcgm_url=node.url)
    async with running(replace(config, root=str(node.root))) as exporter:
        yield exporter


async def owners(exporter: Exporter) -> dict[str, list[str]]:
    mapping = json.loads((await exporter.get("/debug/mapping"))[1])
    return {row["uuid"]: [owner["pod"] for owner in row["owners"]] for row in mapping["seen"]}


def holders(world: World) -> dict[str, list[str]]:
    names = {gpu.claim_device: gpu.uuid for gpu in world.gpus}
    by_gpu: dict[str, list[str]] = {uuid: [] for uuid in names.values()}
    for pod in world.listed:
        for container in pod.containers:
            for claim in container.claims:
                by_gpu[names[claim.device]].append(pod.name)
    return {uuid: sorted(pods) for uuid, pods in by_gpu.items()}


# issue 18, line 1
async def test_claims_are_named_by_their_specs_and_no_api_is_asked(node: SimulatedNode, exporter: Exporter) -> None:
    await until(lambda: is_right(node, exporter))
    for _ in range(6):
        node.world.step()
        # its spec is there before the kubelet names it; a look does not wait long for a slow kubelet
        await until(lambda: is_right(node, exporter))
    assert (node.api.lists, node.api.watches) == (0, 0)
    assert "resourceslices" not in json.loads((await exporter.get("/debug/mapping"))[1])["sources"]


async def is_right(node: SimulatedNode, exporter: Exporter) -> bool:
    return await owners(exporter) == holders(node.world)


# issue 18, line 2
async def test_restarts_of_the_kubelet_lose_no_owner_of_a_claim(node: SimulatedNode, exporter: Exporter) -> None:
    await until(lambda: is_right(node, exporter))
    before = holders(node.world)
    assert any(before.values())
    for number in range(4):
        # every other start lists only some of the pods for a moment
        empty, partial = 0.3, 0.3 * (number % 2 == 0)
        restart = asyncio.create_task(
            node.restart_kubelet(
                down_seconds=0.1, empty_seconds=empty, partial_seconds=partial, slices_away_seconds=600.0
            )
        )
        lists_all_at = time.monotonic() + 0.1 + empty + partial
        calls = node.kubelet.calls
        while not restart.done() or time.monotonic() < lists_all_at or node.kubelet.calls < calls + 3:
            assert await owners(exporter) == before
            await asyncio.sleep(0.01)
    await until(lambda: is_right(node, exporter))


# issue 22, line 2
@pytest.mark.parametrize("starts", [1, 8])
async def test_a_device_that_the_kubelet_lists_again_and_again_is_one(
    node: SimulatedNode, exporter: Exporter, starts: int
) -> None:
    """After each restart one more pod of a shared claim starts, so the driver names its device once more."""
    first = next(pod for pod in node.world.listed if any(container.claims for container in pod.containers))
    for number in range(starts):
        await node.restart_kubelet(down_seconds=0.0, empty_seconds=0.0, partial_seconds=0.0)
        node.world.pods = (*node.world.pods, replace(first, name=f"also-{number}", uid=f"uid-{number}"))
        await until(lambda: is_right(node, exporter))
    claim = next(claim for container in first.containers for claim in container.claims)
    assert node.kubelet.prepared.times[claim.namespace, claim.name] == 1 + starts
    mapping = json.loads((await exporter.get("/debug/mapping"))[1])
    assert {row["reason"] for row in mapping["assigned"]} == {""}
    free = [row["reason"] for row in mapping["seen"] if not row["owners"]]
    assert set(free) == {NOBODY}, "of none it is unknown whether it is held"


# issue 18, line 2
async def test_a_folder_of_specs_that_is_away_loses_no_owner(
    node: SimulatedNode, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: is_right(node, exporter))
    before = holders(node.world)
    folder = node.root / "var/run/cdi"
    monkeypatch.setattr(driver_files, "write_claims", lambda *_: None)  # of these claims the driver writes none again
    away = folder.rename(folder.with_name("away"))
    for _ in range(15):
        assert await owners(exporter) == before
        await asyncio.sleep(0.2)
    away.rename(folder)
    assert await owners(exporter) == before


def other_drivers(node: SimulatedNode, name: str, *paths: str) -> Pod:
    """A pod with a claim of a driver that is no driver of NVIDIA's, whose spec names these nodes."""
    nodes = [{"path": path} for path in paths]
    spec = {"cdiVersion": "0.6.0", "kind": "gpu.example.com/share", "devices": [
        {"name": name, "containerEdits": {"deviceNodes": nodes}}
    ]}  # fmt: skip
    (node.root / f"var/run/cdi/{name}.json").write_text(json.dumps(spec))
    claim = Claim(
        namespace="ml", name=name, driver="gpu.example.com", pool="p", device=name,
        cdi_names=(f"gpu.example.com/share={name}",),
    )  # fmt: skip
    container = Container(name="main", claims=(claim,))
    return Pod(namespace="ml", name=name, uid=f"uid-{name}", containers=(container,))


# issue 18, line 1
async def test_another_drivers_claim_is_followed_where_its_spec_names_a_gpu() -> None:
    node = SimulatedNode(World(gpus=2, seed=7))
    await node.start()
    first, second = (gpu.uuid for gpu in node.world.gpus)
    node.world.pods = (
        other_drivers(node, "share-0", "/dev/nvidia1"),
        other_drivers(node, "share-1", "/dev/nvidia1"),
        other_drivers(node, "nic-0", "/dev/infiniband/uverbs0"),
    )
    try:
        settings = {"kubelet_socket": str(node.socket), "kubelet_max_age": "0s", "dcgm_url": node.url}
        async with running(config_of(**settings, root=str(node.root))) as exporter:
            shared = {first: [], second: ["share-0", "share-1"]}
            assert await owners(exporter) == shared, "the first page has them"
            assigned = json.loads((await exporter.get("/debug/mapping"))[1])["assigned"]
            assert {row["pod"]: row["reason"] for row in assigned} == {"share-0": "", "share-1": "", "nic-0": "no_gpu"}
            assert (node.api.lists, node.api.watches) == (0, 0)
            restart = asyncio.create_task(node.restart_kubelet(down_seconds=0.1, empty_seconds=0.3))
            while not restart.done():
                assert await owners(exporter) == shared
                await asyncio.sleep(0.01)
            # the driver removes the spec before the kubelet forgets the claim
            (node.root / "var/run/cdi/share-0.json").unlink()
            for _ in range(15):
                assert await owners(exporter) == shared
                await asyncio.sleep(0.1)
            node.world.pods = node.world.pods[1:]
            await until(lambda: are(exporter, {first: [], second: ["share-1"]}))
        async with running(config_of(**settings, root=str(node.root), dra="off")) as off:
            assert await owners(off) == {first: [], second: []}
    finally:
        await node.stop()


async def are(exporter: Exporter, expected: dict[str, list[str]]) -> bool:
    return await owners(exporter) == expected


# issue 18, line 1
@pytest.mark.usefixtures("half_a_second")
async def test_slices_are_not_asked_for_while_the_specs_are_read(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that has just started may be slow to read them, and the API is there to be asked."""
    may_read, read = threading.Event(), CdiInventory._read

    def slow(specs: CdiInventory) -> object:
        may_read.wait()
        return read(specs)

    monkeypatch.setattr(CdiInventory, "_read", slow)
    config = config_of(
        kubelet_socket=str(node.socket), kubelet_max_age="0s", dcgm_url=node.url, kubernetes_url=node.api_url
    )
    try:
        async with running(replace(config, root=str(node.root))) as exporter:
            for _ in range(3):
                assert not any((await owners(exporter)).values())
            assert node.api.lists == 0
            may_read.set()
            await until(lambda: is_right(node, exporter))
            assert node.api.lists == 0
    finally:
        may_read.set()
