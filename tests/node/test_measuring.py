"""A node on which NVML tells what each owner of a shared GPU uses: through the stand-in's library, to the page."""

import asyncio
import json
import os
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

from exporter.node import measuring
from exporter.simulator.node import SimulatedNode
from exporter.simulator.world import World
from exporter.sources.nvml import library, source
from tests.support.components import real
from tests.support.exporter import Exporter, config_of, running
from tests.support.nvml import loads

_SAMPLE = re.compile(r"(DCGM_FI_DEV_\w+){(.*)} (\S+)")
# a minute of scrapes: MEASURED_SECONDS=60 pytest tests/node/test_measuring.py
SECONDS = float(os.environ.get("MEASURED_SECONDS", "2.5"))


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedNode]:
    """Four GPUs, three of them shared, under pods that live a hundred times as fast."""
    simulated = SimulatedNode(World(gpus=4, shared=3, seed=7, speed=100))
    real("gcc")
    assert simulated.nvml.build()
    loads(monkeypatch, simulated.nvml)
    monkeypatch.setattr(source, "AGAIN_SECONDS", 0.4)
    await simulated.start()
    yield simulated
    async with asyncio.timeout(10):
        while library._SHARED.users:
            await asyncio.sleep(0.01)
    await simulated.stop()


def of_node(node: SimulatedNode, **more: str) -> dict[str, str]:
    places = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "root": str(node.root)}
    return {**places, "nvml_mode": "on", **more}


def rows(page: str, family: str) -> dict[str, dict[tuple[str, str], Decimal]]:
    """By the UUID of each GPU, and by pod and container ("" for nobody)."""
    found: defaultdict[str, dict[tuple[str, str], Decimal]] = defaultdict(dict)
    for name, labels, value in _SAMPLE.findall(page):
        if name == family:
            of = dict(pair.split("=", 1) for pair in labels.replace('"', "").split(","))
            found[of["UUID"]][of.get("pod", ""), of.get("container", "")] = Decimal(value)
    return found


def held_by_several(node: SimulatedNode) -> set[str]:
    shares: defaultdict[str, set[str]] = defaultdict(set)
    for pod in node.world.listed:
        for device in pod.devices:
            if "::" in device:
                shares[device.partition("::")[0]].add(pod.name)
    return {uuid for uuid, pods in shares.items() if len(pods) > 1}


async def bare(exporter: Exporter, node: SimulatedNode) -> str:
    """The page as it comes in."""
    async with exporter.session.get(node.url) as response:
        return await response.text()


def own(metrics: str, family: str) -> list[tuple[dict[str, str], float]]:
    """The samples of a family of the exporter's own, with their labels."""
    found = re.findall(rf"^{family}{{(.*)}} (\S+)$", metrics, re.MULTILINE)
    return [
        (dict(pair.split("=", 1) for pair in labels.replace('"', "").split(",")), float(value))
        for labels, value in found
    ]


async def measured(exporter: Exporter, node: SimulatedNode) -> str:
    """The first page on which memory is measured: there is a row for what nobody has."""
    (uuid, *_) = sorted(held_by_several(node))
    async with asyncio.timeout(5):
        while True:
            page = await exporter.page()
            if ("", "") in rows(page, "DCGM_FI_DEV_FB_USED")[uuid]:
                return page
            await asyncio.sleep(0.05)


# issue 10, "Must show" 2
@pytest.mark.parametrize("sharing", ["copy", "split"])
async def test_memory_of_the_owners_and_of_nobody_is_the_devices_in_every_scrape(
    node: SimulatedNode, sharing: str
) -> None:
    async with running(config_of(**of_node(node, sharing=sharing))) as exporter:
        await measured(exporter, node)
        shared = held_by_several(node)
        assert shared
        seen: defaultdict[tuple[str, str], set[Decimal]] = defaultdict(set)
        differ = False
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            node.write_processes()
            before, page, after = await bare(exporter, node), await exporter.page(), await bare(exporter, node)
            ours = rows(page, "DCGM_FI_DEV_FB_USED")
            for uuid in shared:
                assert len(ours[uuid]) > 2
                assert ("", "") in ours[uuid]
                # the machine takes a step every second
                whole = {value for its in (before, after) for value in rows(its, "DCGM_FI_DEV_FB_USED")[uuid].values()}
                assert sum(ours[uuid].values()) in whole, ours[uuid]
                busy = rows(page, "DCGM_FI_DEV_GPU_UTIL")[uuid]
                assert ("", "") not in busy
                assert len(set(ours[uuid].values())) > 2, "each has its own"
                for (pod, _), ratio in busy.items():
                    seen[uuid, pod].add(ratio)
                differ |= len({ratio for ratio in busy.values() if ratio}) > 1
            await asyncio.sleep(0.1)
        assert any(len(values - {0}) > 1 for values in seen.values()), "they move"
        assert differ, "each has its own"


async def test_processes_of_nobody_are_counted_and_named_with_their_reason(node: SimulatedNode) -> None:
    gpu = next(gpu for gpu in node.world.gpus if gpu.uuid in held_by_several(node))
    cgroup, stat = node.root / "proc/77/cgroup", node.root / "proc/77/stat"
    cgroup.parent.mkdir()
    cgroup.write_text("0::/user.slice/user-0.slice/session-1.scope\n")
    stat.write_text(f"77 (miner) S 1 {' '.join(['0'] * 17)} 1 0\n")
    lines = node.write_processes()
    node.nvml.write(node.world.gpus, [*lines, f"process {gpu.index} -1 -1 77 c {2**30}"], is_recut=False)
    async with running(config_of(**of_node(node))) as exporter:
        await measured(exporter, node)
        metrics = (await exporter.get("/metrics"))[1]
        told = json.loads((await exporter.get("/debug/mapping"))[1])["processes_of_nobody"]
    assert [(each["pid"], each["reason"], each["uuid"]) for each in told["processes"]] == [
        (77, "no_container", gpu.uuid)
    ]
    assert told["more"] == 0
    of_nobody = [(labels["UUID"], value) for labels, value in own(metrics, "pod_gpu_processes") if not labels["pod"]]
    assert of_nobody == [(gpu.uuid, 1.0)]
    memory = own(metrics, "pod_gpu_memory_used_bytes")
    assert [value for labels, value in memory if not labels["pod"]] == [2.0**30]
    holders = {(pod.name, device.partition("::")[0]) for pod in node.world.listed for device in pod.devices}
    assert {(labels["pod"], labels["UUID"]) for labels, _ in memory if labels["pod"]} == holders
    assert len(own(metrics, "pod_gpu_utilization_ratio")) >= len(holders)


async def test_what_the_driver_says_no_more_is_shown_no_more(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "KEPT_SECONDS", 0.5)
    async with running(config_of(**of_node(node))) as exporter:
        page = await measured(exporter, node)
        (uuid, *_) = sorted(held_by_several(node))
        node.nvml.write(node.world.gpus, ["fail nvmlDeviceGetCount_v2 1 -1"])
        failed_at = time.monotonic()
        async with asyncio.timeout(5):
            while ("", "") in rows(page, "DCGM_FI_DEV_FB_USED")[uuid]:
                page = await exporter.page()
                await asyncio.sleep(0.05)
        assert time.monotonic() - failed_at > 0.3, "a failure alone takes nothing away"
        assert len(set(rows(page, "DCGM_FI_DEV_FB_USED")[uuid].values())) == 1, "copies again"
        assert own((await exporter.get("/metrics"))[1], "pod_gpu_processes") == []


async def test_without_the_hosts_processes_rows_stay_copies_and_only_whoever_asked_is_told(node: SimulatedNode) -> None:
    (node.root / "proc/1/cgroup").unlink()
    for mode, is_told in (("on", True), ("auto", False)):
        async with running(config_of(**of_node(node, nvml_mode=mode))) as exporter:
            (uuid, *_) = sorted(held_by_several(node))
            for _ in range(10):
                page = await exporter.page()
                await asyncio.sleep(0.05)
            assert len(set(rows(page, "DCGM_FI_DEV_FB_USED")[uuid].values())) == 1
            metrics = (await exporter.get("/metrics"))[1]
            assert ('source_up{source="processes"} 0' in metrics) is is_told
            assert ("hostPID" in metrics) is is_told
