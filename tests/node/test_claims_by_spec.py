"""Devices of claims on a node whose DRA driver writes CDI specs, where nobody may ask the Kubernetes API."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from exporter.simulator import driver_files
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import SimulatedNode, World
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
    return by_gpu


# issue 18, line 1
async def test_claims_are_named_by_their_specs_and_no_api_is_asked(node: SimulatedNode, exporter: Exporter) -> None:
    await until(lambda: is_right(node, exporter))
    for _ in range(6):
        node.world.step()
        # its spec is there before the kubelet names it: the very next page has it
        expected = holders(node.world)
        assert await owners(exporter) == expected
    assert (node.api.lists, node.api.watches) == (0, 0)
    assert "resourceslices" not in json.loads((await exporter.get("/debug/mapping"))[1])["sources"]


async def is_right(node: SimulatedNode, exporter: Exporter) -> bool:
    return await owners(exporter) == holders(node.world)


# issue 18, line 2
async def test_restarts_of_the_kubelet_lose_no_owner_of_a_claim(node: SimulatedNode, exporter: Exporter) -> None:
    await until(lambda: is_right(node, exporter))
    before = holders(node.world)
    assert any(before.values())
    for number in range(12):
        # in 2 of 12 starts a List has some of the pods for a moment
        empty, partial = 0.3, 0.3 * (number % 6 == 0)
        restart = asyncio.create_task(
            node.restart_kubelet(
                down_seconds=0.1, empty_seconds=empty, partial_seconds=partial, slices_away_seconds=600.0
            )
        )
        lists_all_at = time.monotonic() + 0.1 + empty + partial
        calls = node.kubelet.calls
        while not restart.done() or time.monotonic() < lists_all_at or node.kubelet.calls < calls + 3:
            assert await owners(exporter) == before
    await until(lambda: is_right(node, exporter))


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
