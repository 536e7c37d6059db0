"""`--sharing split` in a real Prometheus: owners come and go, and their rows grow by what the device grew by."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from exporter.simulator.node import SimulatedNode
from exporter.simulator.world import SHARED_RESOURCE, Container, Pod, World
from tests.support.components import free_port
from tests.support.exporter import config_of, running
from tests.support.prometheus import started
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
SCRAPES_APART_SECONDS = 0.2


class Machine:
    """One GPU in shares, whose energy grows while it is told to."""

    def __init__(self) -> None:
        self.energy = 1_000_000
        self.watts = 0
        self.node = SimulatedNode(World(gpus=1, shared=1, seed=1))
        self.node.world.pods = ()
        self.uuid = self.node.world.gpus[0].uuid
        self.node.dcgm.failure = self._page

    def hold(self, *names: str) -> None:
        self.node.world.pods = tuple(
            Pod(
                namespace="ml",
                name=name,
                containers=(Container(name="main", devices=((SHARED_RESOURCE, f"{self.uuid}::{share}"),)),),
            )
            for share, name in enumerate(names)
        )

    def _page(self, _: web.Request) -> web.Response:
        self.energy += self.watts
        return web.Response(text=f'# TYPE {ENERGY} counter\n{ENERGY}{{gpu="0",UUID="{self.uuid}"}} {self.energy}\n')


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    made = Machine()
    await made.node.start()
    yield made
    await made.node.stop()


async def query(base: str, text: str) -> list[dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{base}/api/v1/query", params={"query": text}) as answer,
    ):
        rows: list[dict[str, Any]] = (await answer.json())["data"]["result"]
        return rows


@asynccontextmanager
async def prometheus_before(target: str, folder: Path) -> AsyncIterator[str]:
    """A Prometheus that scrapes the target; its own address."""
    job = {
        "job_name": "gpu",
        "metrics_path": "/gpu/metrics",
        "honor_labels": True,
        "static_configs": [{"targets": [target]}],
    }
    interval = f"{round(SCRAPES_APART_SECONDS * 1000)}ms"
    with started(folder, [job], interval, timeout=interval) as base:
        yield base


async def reads(machine: Machine, more: int) -> None:
    """Until the machine was read so many times more."""
    enough = machine.node.dcgm.fetches + more
    await until(lambda: machine.node.dcgm.fetches >= enough)


def increase_of(values: Sequence[str]) -> Decimal:
    """What increase() counts between a series' samples: one that is lower than the last begins at 0."""
    numbers = [Decimal(value) for value in values]
    return sum((now - last if now >= last else now for last, now in pairwise(numbers)), Decimal(0))


async def test_the_rows_of_a_shared_gpu_grow_by_what_it_grew(machine: Machine, tmp_path: Path) -> None:
    config = config_of(
        kubelet_socket=str(machine.node.socket),
        dcgm_url=machine.node.url,
        sharing="split",
        kubelet_max_age="0s",
        # a row that a look of its own begins may have grown before Prometheus sees it first
        accounting_mode="off",
    )
    async with running(config) as exporter, prometheus_before(exporter.base[7:], tmp_path) as base:
        await reads(machine, 10)
        before = machine.energy
        machine.watts = 101  # a read; not divisible by two or three
        for holders in ((), ("a",), ("a", "b"), ("b", "c", "a"), ("c",), (), ("d", "a"), ("d",)):
            machine.hold(*holders)
            await asyncio.sleep(12 * SCRAPES_APART_SECONDS)
        machine.watts = 0
        grown = machine.energy - before
        await asyncio.sleep(5 * SCRAPES_APART_SECONDS)
        series = await query(base, f"{ENERGY}[5m]")
        increase = await query(base, f"sum(increase({ENERGY}[5m]))")
    assert {row["metric"]["pod"] for row in series if "pod" in row["metric"]} == {"a", "b", "c", "d"}
    total = Decimal(0)
    for row in series:
        values = [Decimal(value) for _, value in row["values"]]
        assert values[0] == 0
        assert values == sorted(values)
        total += values[-1]
    assert total == grown
    # increase() guesses what lies between a series' ends and the samples beside them: half a scrape a series
    assert float(increase[0]["value"][1]) == pytest.approx(grown, rel=0.05)


# issue 7, line 30
async def test_a_restart_of_the_exporter_is_no_consumption(machine: Machine, tmp_path: Path) -> None:
    target = f"127.0.0.1:{free_port()}"
    config = config_of(
        kubelet_socket=str(machine.node.socket),
        dcgm_url=machine.node.url,
        sharing="split",
        kubelet_max_age="0s",
        accounting_mode="off",
        web_listen_address=target,
    )
    observed = 0
    async with prometheus_before(target, tmp_path) as base:
        for holders in (("a", "b"), ("b",), ("b", "a")):
            machine.hold(*holders)
            async with running(config):
                await reads(machine, 5)
                before = machine.energy
                machine.watts = 101
                await reads(machine, 10)
                # nobody else reads it: what it grew by is what was scraped
                machine.watts = 0
                observed += machine.energy - before
                await reads(machine, 5)
            # nobody looks meanwhile
            machine.energy += 1_000_000
        series = await query(base, f"{ENERGY}[5m]")
        increase = await query(base, f"sum(increase({ENERGY}[5m]))")
    assert {row["metric"].get("pod", "") for row in series} == {"a", "b", ""}
    by_pod = {row["metric"].get("pod", ""): increase_of([value for _, value in row["values"]]) for row in series}
    assert sum(by_pod.values()) == observed
    # whoever held it all the time has the most, and nobody has gained what it consumed while nobody looked
    assert by_pod[""] == 0
    assert by_pod["a"] < by_pod["b"] < observed
    assert float(increase[0]["value"][1]) == pytest.approx(observed, rel=0.3)
