"""Short jobs behind a real Prometheus 3, with and without a 0 where each counter began: what increase() says of them.

Time is 30 times as fast as on a node: jobs of 20 s, looks each 10 s, scrapes each 30 s, rows kept for five minutes.
"""

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from exporter.config.http_file import HttpConfig
from exporter.report.history.collect import AccountsReader
from exporter.report.history.over_http import over_http
from exporter.report.history.prometheus_api import PrometheusApi
from exporter.report.span import Span
from exporter.simulator.parts import GPU_RESOURCE, Container
from tests.support.components import free_port, newer
from tests.support.exporter import config_of, running
from tests.support.prometheus import Prometheus, prometheus, shipped_jobs
from tests.support.simulated import SimulatedNode, World

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

GPUS, JOBS_OF_EACH = 8, 25
JOB_SECONDS, PAUSE_SECONDS = 20 / 30, (1 / 30, 10 / 30)
FAMILY = 'pod_gpu_allocated_seconds_total{pod!=""}'
ZEROS = "--enable-feature=created-timestamp-zero-ingestion"
FLAGS: Mapping[str, tuple[str, ...]] = {"with": (ZEROS,), "without": ()}


async def run_jobs(world: World) -> None:
    """One job after the other on each GPU, each a pod of its own."""
    chance = random.Random(3)

    async def on(uuid: str) -> None:
        for _ in range(JOBS_OF_EACH):
            container = Container(name="main", devices=((GPU_RESOURCE, uuid),))
            pod = world.make.pod("ml", "job", (container,), "Job")
            world.pods = (*world.pods, pod)
            await asyncio.sleep(JOB_SECONDS)
            world.pods = tuple(one for one in world.pods if one is not pod)
            await asyncio.sleep(chance.uniform(*PAUSE_SECONDS))

    await asyncio.gather(*(on(gpu.uuid) for gpu in world.gpus))


async def lab(target: str, servers: Mapping[str, Prometheus]) -> None:
    node = SimulatedNode(World(gpus=GPUS, shared=0, mig=0, seed=1))
    node.world.pods = ()
    await node.start()
    try:
        config = config_of(
            kubelet_socket=str(node.socket),
            dcgm_url=node.url,
            kubelet_max_age="0s",
            accounting_interval=f"{10 / 30:.3f}s",
            accounting_keep="10s",
            web_listen_address=target,
        )
        async with running(config):
            await asyncio.gather(*(asyncio.to_thread(server.wait_for_scrapes, 2) for server in servers.values()))
            await run_jobs(node.world)
            await asyncio.sleep(12)
    finally:
        await node.stop()


async def reported(server: Prometheus) -> float:
    """What `report` counts of the jobs in the last ten minutes."""
    api = PrometheusApi(over_http(url=server.base, timeout_seconds=60, http=HttpConfig()))
    reader = AccountsReader(api=api, matchers=('pod!=""',), wanted=frozenset())
    now_ms = time.time_ns() // 1_000_000
    span = Span(now_ms - 600_000, now_ms)
    try:
        await reader.begin(span)
        for piece in span.pieces():
            await reader.read(piece)
    finally:
        await api.close()
    return sum(amounts.held for amounts in reader.growth.grown.values())


# issue 28, "Must show" 4
def test_of_short_jobs_nothing_is_lost_where_counters_have_begins(tmp_path: Path) -> None:
    target = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        servers = {}
        for name, flags in FLAGS.items():
            (tmp_path / name).mkdir()
            jobs = shipped_jobs(target)
            servers[name] = stack.enter_context(
                prometheus(tmp_path / name, jobs, program=newer("prometheus"), flags=flags)
            )
        asyncio.run(lab(target, servers))
        parts = {}
        for name, server in servers.items():
            held = server.number(f"sum(last_over_time({FAMILY}[10m]))")
            parts[name] = server.number(f"sum(increase({FAMILY}[10m]))") / held
            # A scrape that takes longer than an interval of the accounts (0.33 s here, 10 s on a node) can show a row
            # whose begin is later than the scrape's own: its 0 comes after its first sample, which counts twice.
            twice = server.number(f"sum(resets({FAMILY}[10m]))")
            twice *= server.number("max(max_over_time(scrape_duration_seconds[10m]))")
            assert asyncio.run(reported(server)) == pytest.approx(held, abs=held / 100 + twice), (name, twice)
            # by the shipped configuration; without it each counter would be two series
            assert server.query('count(last_over_time({__name__=~".+_created"}[10m]))') == []
    # increase() takes a row that ended to have gone on for half a scrape
    assert parts["with"] == pytest.approx(1.03, abs=0.07), parts
    assert parts["without"] < parts["with"] - 0.2, parts
