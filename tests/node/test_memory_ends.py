"""Ends of containers for lack of GPU memory through the whole node role: pods, page, counter, events and `why`."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.accounts.amounts.memory_ends import MemoryEnds
from exporter.accounts.out_of_memory import FULL
from exporter.config.node_settings import Config
from exporter.kubectl import why
from exporter.simulator.job_phases import BATCH, FILLING, SERVING
from exporter.simulator.kubernetes import pod_object
from tests.node.test_accounting import a_pod, node_of, settings
from tests.support.exporter import Exporter, config_of, running
from tests.support.node_parts import accounts_of
from tests.support.simulated import GPU_RESOURCE, SHARED_RESOURCE, Pod, SimulatedNode, World
from tests.support.waiting import until

FAMILY = "pod_gpu_suspected_out_of_memory_total"


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """Three GPUs: a job has the first, a service the second, and two jobs share the third."""
    simulated = SimulatedNode(World(gpus=3, shared=1, seed=1))
    first, second, shared = (gpu.uuid for gpu in simulated.world.gpus)
    simulated.world.pods = (
        working("job", BATCH, (GPU_RESOURCE, first)),
        working("service", SERVING, (GPU_RESOURCE, second)),
        working("one", BATCH, (SHARED_RESOURCE, f"{shared}::0")),
        working("other", BATCH, (SHARED_RESOURCE, f"{shared}::1")),
    )
    await simulated.start()
    yield simulated
    await simulated.stop()


def working(name: str, work: str, *devices: tuple[str, str]) -> Pod:
    return replace(a_pod(name, *devices), work=(work, name))


def config(node: SimulatedNode, **more: str) -> Config:
    pods = {"kubelet_pods_socket": str(node.pods_socket), "labels_pod_uid": "on"}
    return config_of(**settings(node), **pods, accounting_interval="100ms", **more)


def pod_of(node: SimulatedNode, name: str) -> Pod:
    return next(pod for pod in node.world.pods if pod.name == name)


def seen(exporter: Exporter, uuid: str) -> float:
    """The part of a GPU's memory that the last look saw in use."""
    state = accounts_of(node_of(exporter.service)).ledger.states.get(uuid)
    amount = state.amounts["memory_ends"] if state else None
    looks = amount.looks.get("") if isinstance(amount, MemoryEnds) else None
    return looks[-1].ratio if looks else -1.0


async def fill(exporter: Exporter, node: SimulatedNode, name: str) -> Pod:
    """Let a pod take all memory of its GPU, once a look saw how much it had before."""
    uuid = pod_of(node, name).devices[0]
    await until(lambda: 0 <= seen(exporter, uuid) < FULL)
    pod = pod_of(node, name)
    filling = node.world.change(pod, replace(pod, work=(FILLING, name), began=-1000.0))
    await until(lambda: seen(exporter, uuid) >= FULL)
    return node.world.change(filling, replace(filling, work=pod.work))


async def counted(exporter: Exporter) -> dict[tuple[str, str], float]:
    """What was counted, by pod and suspicion."""
    counts = {}
    for labels, value in re.findall(rf"^{FAMILY}\{{(.*)\}} (\S+)$", (await exporter.get("/metrics"))[1], re.MULTILINE):
        row = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        counts[row["pod"], row["suspicion"]] = float(value)
    return counts


async def until_counted(exporter: Exporter, **expected: float) -> None:
    wanted = {(pod, "suspected"): number for pod, number in expected.items()}

    async def is_so() -> bool:
        return await counted(exporter) == wanted

    await until(is_so)


async def mapping_of(exporter: Exporter) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((await exporter.get("/debug/mapping"))[1])
    return about


# issue 26, part 4
async def test_a_job_that_runs_out_of_memory_and_others_that_end_otherwise(node: SimulatedNode) -> None:
    uuid = node.world.gpus[0].uuid
    async with running(config(node)) as exporter:
        assert (await exporter.get("/events"))[0] == 404
        # the kernel kills a service for the machine's memory, and a job on a shared GPU fails: neither is suspected
        killed = node.world.fall(await fill(exporter, node, "service"), 137, "OOMKilled")
        node.world.fall(pod_of(node, "one"))
        ended = node.world.fall(await fill(exporter, node, "job"))
        await until_counted(exporter, job=1)
        (event,) = json.loads((await exporter.get("/events"))[1])
        assert (event["kind"], event["device_uuid"], event["device_id"]) == ("out_of_memory", uuid, "0")
        assert event["holders"] == [{"namespace": "ml", "pod": "job", "container": "main"}]
        assert "its container main ended with exit code 1 at " in event["text"]
        assert event["text"].endswith("GiB): a lack of GPU memory is suspected")
        assert "Lack of GPU memory (suspected)" in (await exporter.get("/"))[1]
        async with exporter.session.get(exporter.base + "/container/metrics") as response:
            assert response.headers["X-Newest-Event"].endswith(" memory 1")
        about = await mapping_of(exporter)
        # what the user is told of the job, which has failed, and of the service
        item = pod_object(ended, "gpu-node-1")
        first = why.before_the_node(item)
        assert first is not None
        assert why.asks_after_its_end(item)
        findings = why.with_findings_of_node(first, item, about).findings
        assert [finding.about for finding in findings] == ["ml/job", "ml/job/main"]
        assert "its GPU's memory was full (" in findings[-1].trouble.message
        of_service = why.explain(pod_object(killed, "gpu-node-1"), about).findings
        assert "OOMKilled" in of_service[-1].trouble.message
        assert not any("GPU memory is" in finding.trouble.message for finding in of_service)


async def test_each_end_of_a_crash_loop_counts_and_none_twice_over_a_restart(
    node: SimulatedNode, tmp_path: Path
) -> None:
    kept = config(node, accounting_state=str(tmp_path / "state"))
    async with running(kept) as exporter:
        node.world.fall(await fill(exporter, node, "service"))
        await until_counted(exporter, service=1)
        node.world.recover()
        await fill(exporter, node, "service")
    # it ends while no exporter runs
    node.world.fall(pod_of(node, "service"))
    async with running(kept) as exporter:
        await until_counted(exporter, service=2)
        assert [event["kind"] for event in json.loads((await exporter.get("/events"))[1])] == ["out_of_memory"] * 2
        looks = accounts_of(node_of(exporter.service)).ledger.look
        await until(lambda: accounts_of(node_of(exporter.service)).ledger.look > looks + 2)
        await until_counted(exporter, service=2)


async def test_without_pods_nothing_is_counted(node: SimulatedNode) -> None:
    async with running(config_of(**settings(node), accounting_interval="100ms", pods_source="kubelet")) as exporter:
        kept = accounts_of(node_of(exporter.service))
        await until(lambda: kept.ledger.look > 2)
        node.world.fall(pod_of(node, "job"))
        looks = kept.ledger.look
        await until(lambda: kept.ledger.look > looks + 2)
        assert seen(exporter, node.world.gpus[0].uuid) < 0
        assert await counted(exporter) == {}
