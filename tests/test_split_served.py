"""`--sharing split` through the whole node role: counters advance once per page, whoever scrapes and however late."""

import asyncio
import re

import pytest
from aiohttp import web

from exporter.simulator.node import SimulatedNode
from exporter.simulator.world import SHARED_RESOURCE, Container, Pod, World
from tests.conftest import config_of, running

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def rows(page: str) -> dict[str, int]:
    found = re.findall(rf'^{ENERGY}{{.*?pod="([^"]*)".*}} (\S+)$', page, re.MULTILINE)
    return {pod: int(value) for pod, value in found}


@pytest.fixture
def node() -> SimulatedNode:
    """One GPU in shares, held by a and b, whose energy grows by 10 with every read."""
    simulated = SimulatedNode(World(gpus=1, shared=1, seed=1))
    uuid = simulated.world.gpus[0].uuid
    simulated.world.pods = tuple(
        Pod(
            namespace="ml",
            name=name,
            containers=(Container(name="main", devices=((SHARED_RESOURCE, f"{uuid}::{share}"),)),),
        )
        for share, name in enumerate("ab")
    )

    def answer(_: web.Request) -> web.Response:
        energy = 1000 + 10 * simulated.dcgm.fetches
        return web.Response(text=f'{ENERGY}{{gpu="0",UUID="{uuid}"}} {energy}\n')

    simulated.dcgm.failure = answer
    return simulated


async def test_a_scrape_that_waited_with_an_older_page_is_no_reset(node: SimulatedNode) -> None:
    await node.start()
    try:
        config = config_of(kubelet_socket=str(node.socket), dcgm_url=node.url, sharing="split", kubelet_max_age="0s")
        async with running(config) as exporter:
            first = rows(await exporter.page())
            assert first == {"a": 0, "b": 0, "": 1010}
            # one scrape waits for the kubelet with its page in hand, while another comes and goes
            node.kubelet.stall()
            waiting = asyncio.create_task(exporter.page())
            async with asyncio.timeout(5):
                while node.dcgm.fetches < 2:
                    await asyncio.sleep(0.01)
            _, quick = await exporter.get("/gpu/metrics", **{"X-Prometheus-Scrape-Timeout-Seconds": "0.2"})
            assert rows(quick) == {"a": 10, "b": 10, "": 1010}
            assert rows(await waiting) == {"a": 10, "b": 10, "": 1010}
            node.kubelet.resume()
            assert rows(await exporter.page()) == {"a": 15, "b": 15, "": 1010}
    finally:
        await node.stop()


async def test_scrapes_that_share_a_page_advance_it_once(node: SimulatedNode) -> None:
    await node.start()
    try:
        async with running(config_of(kubelet_socket=str(node.socket), dcgm_url=node.url, sharing="split")) as exporter:
            await exporter.page()
            pages = await asyncio.gather(*(exporter.page() for _ in range(20)))
            last = rows(max(pages, key=lambda page: rows(page)["a"]))
            assert last["a"] + last["b"] == 10 * (node.dcgm.fetches - 1)
            assert last[""] == 1010
    finally:
        await node.stop()
