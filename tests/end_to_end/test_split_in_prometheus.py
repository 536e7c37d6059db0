"""`--sharing split` in a real Prometheus: owners come and go, and their rows grow by what the device grew by."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from exporter.config.node_settings import Config
from tests.support.components import free_port
from tests.support.exporter import config_of, running
from tests.support.prometheus import started
from tests.support.simulated import SHARED_RESOURCE, Container, Pod, SimulatedNode, World
from tests.support.waiting import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
SCRAPES_APART_SECONDS = 0.3  # a busy machine may take long for an answer, and a scrape has no more time than this


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


@asynccontextmanager
async def machine() -> AsyncIterator[Machine]:
    made = Machine()
    await made.node.start()
    try:
        yield made
    finally:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """By how much the machine's energy has grown, and what Prometheus knows of that: its series, and their increase."""

    grown: int
    series: Sequence[dict[str, Any]]
    increase: float


async def seen_by(base: str, grown: int, sum_of: Callable[[Sequence[str]], Decimal]) -> Seen:
    """What Prometheus knows once its last scrape is in it: the machine is still."""
    series: list[dict[str, Any]] = []

    async def is_complete() -> bool:
        series[:] = await query(base, f"{ENERGY}[5m]")
        return sum(sum_of([value for _, value in row["values"]]) for row in series) == grown

    await until(is_complete, why=lambda: (grown, series))
    ((_, increase),) = [row["value"] for row in await query(base, f"sum(increase({ENERGY}[5m]))")]
    return Seen(grown=grown, series=series, increase=float(increase))


def dividing(made: Machine, **more: str) -> Config:
    return config_of(
        kubelet_socket=str(made.node.socket),
        dcgm_url=made.node.url,
        sharing="split",
        kubelet_max_age="0s",
        # a row that a look of its own begins may have grown before Prometheus sees it first
        accounting_mode="off",
        **more,
    )


async def of_owners_that_come_and_go(folder: Path) -> Seen:
    async with (
        machine() as made,
        running(dividing(made)) as exporter,
        prometheus_before(exporter.base[7:], folder) as base,
    ):
        await reads(made, 6)
        before = made.energy
        made.watts = 101  # a read; not divisible by two or three
        for holders in ((), ("a",), ("a", "b"), ("b", "c", "a"), ("c",), (), ("d", "a"), ("d",)):
            made.hold(*holders)
            await reads(made, 8)
        made.watts = 0
        return await seen_by(base, made.energy - before, lambda values: Decimal(values[-1]))


async def across_restarts(folder: Path) -> Seen:
    target = f"127.0.0.1:{free_port()}"
    observed = 0
    async with machine() as made, prometheus_before(target, folder) as base:
        for holders in (("a", "b"), ("b",), ("b", "a")):
            made.hold(*holders)
            async with running(dividing(made, web_listen_address=target)):
                await reads(made, 5)
                before = made.energy
                made.watts = 101
                await reads(made, 10)
                # nobody else reads it: what it grew by is what was scraped
                made.watts = 0
                observed += made.energy - before
                await reads(made, 5)
            # nobody looks meanwhile
            made.energy += 1_000_000
        return await seen_by(base, observed, increase_of)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Seen, Seen]:
    """Side by side: most of it is waiting for scrapes."""

    async def run() -> tuple[Seen, Seen]:
        one, other = (tmp_path_factory.mktemp("prometheus") for _ in range(2))
        return await asyncio.gather(of_owners_that_come_and_go(one), across_restarts(other))

    return asyncio.run(run())


def test_the_rows_of_a_shared_gpu_grow_by_what_it_grew(both: tuple[Seen, Seen]) -> None:
    seen, _ = both
    assert {row["metric"]["pod"] for row in seen.series if "pod" in row["metric"]} == {"a", "b", "c", "d"}
    for row in seen.series:
        values = [Decimal(value) for _, value in row["values"]]
        assert values[0] == 0
        assert values == sorted(values)
    # increase() guesses what lies between a series' ends and the samples beside them: half a scrape a series
    assert seen.increase == pytest.approx(seen.grown, rel=0.1)


# issue 7, line 30
def test_a_restart_of_the_exporter_is_no_consumption(both: tuple[Seen, Seen]) -> None:
    _, seen = both
    assert {row["metric"].get("pod", "") for row in seen.series} == {"a", "b", ""}
    by_pod = {row["metric"].get("pod", ""): increase_of([value for _, value in row["values"]]) for row in seen.series}
    # whoever held it all the time has the most, and nobody has gained what it consumed while nobody looked
    assert by_pod[""] == 0
    assert by_pod["a"] < by_pod["b"] < seen.grown
    assert seen.increase == pytest.approx(seen.grown, rel=0.3)
