"""Claims that come and go: what is remembered of them stays bounded."""

import asyncio
import contextvars
import gc
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from types import MethodType

import pytest

from exporter.simulator.dcgm_pages import FAMILIES
from tests.support.exporter import config_of, running
from tests.support.simulated import SimulatedNode, World

WARM_UP, HALF_WAY, CLAIMS = 40, 100, 160
# If every fourth of sixty claims left an object, there would be more objects; if each one did, more bytes.
MOST_OBJECTS, MOST_BYTES = 15, 1_200
# Timers that were cancelled stay in the event loop for a while, each with the bound method that it would have called.
OF_THE_LOOP = (asyncio.TimerHandle, contextvars.Context, MethodType)


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Three GPUs, handed out by claims; two are cut anew for each."""
    simulated = SimulatedNode(World(gpus=3, claims=3, dynamic=2, seed=3), families=FAMILIES[:2])
    await simulated.start()
    yield simulated
    await simulated.stop()


def remembered() -> tuple[int, int]:
    """The objects that hold others, and their bytes: what grows with claims is one of these, or in one."""
    gc.collect()
    objects = [one for one in gc.get_objects() if not isinstance(one, OF_THE_LOOP)]
    return len(objects), sum(map(sys.getsizeof, objects))


# issue 18, line 3
async def test_claims_that_ended_leave_no_memory_behind(node: SimulatedNode) -> None:
    # accounts are kept for a while, and have a bound of their own
    config = config_of(kubelet_socket=str(node.socket), kubelet_max_age="0s", dcgm_url=node.url, accounting_mode="off")
    claims, sizes = 0, list[tuple[int, int]]()
    pods: set[str] = set()
    async with running(replace(config, root=str(node.root))) as exporter:
        for until in (WARM_UP, HALF_WAY, CLAIMS):
            while claims < until:
                node.world.step()
                page = await exporter.page()
                pods, before = {pod.name for pod in node.world.pods if f'pod="{pod.name}"' in page}, pods
                claims += len(pods - before)
            # the same node each time: without a pod
            node.world.pods, pods = (), set()
            for _ in range(3):
                await exporter.page()
            sizes.append(remembered())
    # a table of Python's own may grow once by more than this: what grows with claims grows in both halves
    objects, in_bytes = (min(second - first, third - second) for first, second, third in zip(*sizes, strict=True))
    assert objects < MOST_OBJECTS, sizes
    assert in_bytes < MOST_BYTES, sizes
