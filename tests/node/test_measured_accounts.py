"""Accounts of a node on which NVML tells whose kernels ran: through the stand-in's library, to /metrics."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping

import pytest

from exporter.simulator.node import SimulatedNode
from exporter.simulator.world import World
from exporter.sources.nvml import source
from tests.node.test_measuring import held_by_several, of_node, own
from tests.support.components import real
from tests.support.exporter import config_of, running
from tests.support.nvml import loads, until_nobody_uses_it

SECONDS = 5.0
ENERGY, ACTIVE, IDLE = "pod_gpu_energy_joules_total", "pod_gpu_active_seconds_total", "pod_gpu_idle_seconds_total"
ALLOCATED = "pod_gpu_allocated_seconds_total"


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedNode]:
    """Three shared GPUs behind a dcgm-exporter that reads them once a second."""
    simulated = SimulatedNode(World(gpus=3, shared=3, seed=7), collect_seconds=1.0)
    real("gcc")
    assert simulated.nvml.build()
    loads(monkeypatch, simulated.nvml)
    monkeypatch.setattr(source, "AGAIN_SECONDS", 0.2)
    await simulated.start()
    yield simulated
    await until_nobody_uses_it()
    await simulated.stop()


def by_pod(metrics: str, family: str, uuid: str) -> Mapping[str, float]:
    """A family's rows of a GPU; "" for nobody."""
    return {labels["pod"]: value for labels, value in own(metrics, family) if labels["UUID"] == uuid}


# issue 10, B: the accounting families divide energy and activity by measured SM time
async def test_owners_of_a_shared_gpu_have_what_their_kernels_used(node: SimulatedNode) -> None:
    shared = held_by_several(node)
    assert shared
    ran: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    async with running(config_of(**of_node(node, accounting_interval="300ms"))) as exporter:
        said = []
        for _ in range(2):
            until = time.monotonic() + SECONDS / 2
            while time.monotonic() < until:
                node.write_processes()
                for each in node.world.machine.running():
                    ran[each.device_id, each.pod].append(each.activity)
                await asyncio.sleep(0.1)
            said.append((await exporter.get("/metrics"))[1])
    before, after = said
    for uuid in shared:
        joules, active, idle, allocated = (
            {pod: value - by_pod(before, family, uuid)[pod] for pod, value in by_pod(after, family, uuid).items()}
            for family in (ENERGY, ACTIVE, IDLE, ALLOCATED)
        )
        assert joules[""] == 0
        assert "" in active
        assert "" not in idle
        owners = [pod for pod in joules if pod]
        means = {pod: sum(ran[uuid, pod]) / len(ran[uuid, pod]) for pod in owners}
        for pod in owners:
            # power is divided by the time of kernels, whatever it would be for each alone
            part = means[pod] / sum(means.values())
            assert joules[pod] == pytest.approx(part * sum(joules.values()), rel=0.2, abs=1), (pod, joules, means)
            if not means[pod]:
                assert idle[pod] == pytest.approx(allocated[pod])
                assert active[pod] == 0
