"""Claims that come and go: what is remembered of them stays bounded."""

import gc
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from exporter.simulator.dcgm_pages import FAMILIES
from tests.support.exporter import config_of, running
from tests.support.simulated import SimulatedNode, World

WARM_UP, HALF_WAY, CLAIMS = 40, 140, 240
# An empty object that is left of each of 100 claims, with its place in a table, would take more.
MOST_BYTES = 8_000


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Three GPUs, handed out by claims; two are cut anew for each."""
    simulated = SimulatedNode(World(gpus=3, claims=3, dynamic=2, seed=3), families=FAMILIES[:2])
    await simulated.start()
    yield simulated
    await simulated.stop()


def remembered() -> int:
    """The bytes of all objects that hold others: what grows with claims is one of these, or in one."""
    gc.collect()
    return sum(map(sys.getsizeof, gc.get_objects()))


# issue 18, line 3
async def test_claims_that_ended_leave_no_memory_behind(node: SimulatedNode) -> None:
    # accounts are kept for a while, and have a bound of their own
    config = config_of(kubelet_socket=str(node.socket), kubelet_max_age="0s", dcgm_url=node.url, accounting_mode="off")
    claims, sizes = 0, list[int]()
    pods: set[str] = set()
    async with running(replace(config, root=str(node.root))) as exporter:
        for until in (WARM_UP, HALF_WAY, CLAIMS):
            while claims < until:
                node.world.step()
                page = await exporter.page()
                pods, before = {pod.name for pod in node.world.pods if f'pod="{pod.name}"' in page}, pods
                claims += len(pods - before)
            sizes.append(remembered())
    # a table of Python's own may grow once by more than this: what grows with claims grows in both halves
    assert min(sizes[1] - sizes[0], sizes[2] - sizes[1]) < MOST_BYTES, sizes
