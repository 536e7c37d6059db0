"""Hundreds of claims that come and go: what is remembered of them stays bounded."""

import gc
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from exporter.simulator.pages import FAMILIES
from tests.support.exporter import config_of, running
from tests.support.simulated import SimulatedNode, World

WARM_UP, CLAIMS = 100, 500
# An object that is left of each of the 400 claims after the warm-up would take more, by itself.
MOST_BYTES = 16_000


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
async def test_five_hundred_claims_leave_nothing_behind(node: SimulatedNode) -> None:
    # accounts are kept for a while, and have a bound of their own
    config = config_of(kubelet_socket=str(node.socket), kubelet_max_age="0s", dcgm_url=node.url, accounting_mode="off")
    claims = warm = 0
    pods: set[str] = set()
    async with running(replace(config, root=str(node.root))) as exporter:
        while claims < CLAIMS:
            node.world.step()
            page = await exporter.page()
            pods, before = {pod.name for pod in node.world.pods if f'pod="{pod.name}"' in page}, pods
            claims += len(pods - before)
            if claims >= WARM_UP and not warm:
                warm = remembered()
        assert remembered() - warm < MOST_BYTES
