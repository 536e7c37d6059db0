"""A job that hangs, through the whole node role: metrics, JSON, page, events, `top` and `kubectl gpu`."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from exporter.kubectl import device_holders, why
from exporter.model.device_row import from_objects
from exporter.node.kept_accounts import Clock
from exporter.simulator.kubernetes import pod_object
from tests.node.test_accounting import node_of, settings
from tests.support.exporter import config_of, running
from tests.support.node_parts import accounts_of
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until
from tests.top.test_once import top_here

SECOND = 1_000_000_000
STEP_NS = 20 * SECOND


class BeatClock:
    """A clock that goes on by 20 s with each beat of the exporter; the simulated GPUs live by it, too."""

    def __init__(self) -> None:
        self.ns = 0

    def of_world(self) -> int:
        return self.ns

    def of_beats(self) -> int:
        self.ns += STEP_NS
        return 1_700_000_000 * SECOND + self.ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> BeatClock:
    made = BeatClock()
    monkeypatch.setattr(Clock, "__call__", lambda _: made.of_beats())
    monkeypatch.setattr(Clock, "set_ns", lambda _: 0)
    return made


@pytest.fixture
async def node(clock: BeatClock) -> AsyncIterator[SimulatedNode]:
    world = World(gpus=6, seed=4, clock=clock.of_world)
    for pod in world.pods:
        world.remove(pod)
    world.add_stuck(1)
    world.remove(world.pods[-1])  # it would wait for data, ten minutes later
    simulated = SimulatedNode(world, counters="full", collect_seconds=0)
    await simulated.start()
    yield simulated
    await simulated.stop()


# issue 26, part 2
async def test_a_job_that_hangs_is_said_everywhere(node: SimulatedNode, clock: BeatClock) -> None:
    (hung,) = node.world.pods
    pods = {"kubelet_pods_socket": str(node.pods_socket)}
    async with running(config_of(**settings(node), **pods, accounting_interval="20ms")) as exporter:
        kept = accounts_of(node_of(exporter.service))
        assert (await exporter.get("/events"))[0] == 404
        await until(lambda: bool(kept.hang_watch.hangs.suspected))
        assert 150 + 600 <= clock.ns / SECOND <= 150 + 600 + 400

        metrics = (await exporter.get("/metrics"))[1]
        assert f'pod_gpu_suspected_hang{{namespace="research",pod="{hung.name}"' in metrics
        rows = from_objects(json.loads((await exporter.get("/container/metrics"))[1]), 100)
        by_uuid = {row.device_uuid: row.suspected_hang for row in rows if row.suspected_hang}
        assert by_uuid == dict.fromkeys(hung.devices, "waiting_kernel")
        message = next(row.suspected_hang_message for row in rows if row.suspected_hang)
        assert message.startswith("100% busy for 1")
        page = (await exporter.get("/"))[1]
        assert page.count(">suspected hang<") == len(hung.devices)
        (event,) = json.loads((await exporter.get("/events"))[1])
        assert (event["kind"], event["name"], event["cause"]) == ("hang", "suspected hang", "waiting_kernel")
        assert [holder["pod"] for holder in event["holders"]] == [hung.name]
        assert f"suspected hang: {message}" in device_holders.table(rows, rows)
        shown = await asyncio.to_thread(top_here, "--once", "--url", exporter.base, COLUMNS="200")
        assert shown.count(b"100% busy for") == len(hung.devices), shown
        about = json.loads((await exporter.get("/debug/mapping"))[1])
        explained = why.explain(pod_object(hung, "gpu-node-1"), about).render()
        assert "suspected hang: 100% busy" in explained
        assert "docs/hangs.md" in explained

        node.world.end(hung)
        await until(lambda: not kept.hang_watch.hangs.suspected)
        assert "pod_gpu_suspected_hang{" not in (await exporter.get("/metrics"))[1]
        events = json.loads((await exporter.get("/events"))[1])
        assert [event["name"] for event in events] == ["suspected hang is over", "suspected hang"]
