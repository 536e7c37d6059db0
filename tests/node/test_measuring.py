"""A node on which NVML tells what each owner of a shared GPU uses: through the stand-in's library, to the page."""

import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import AsyncIterator

import pytest

from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner
from exporter.node import measuring
from exporter.node.role import NODE
from exporter.service import Service
from exporter.sources.nvml import nvml_source
from tests.support.components import real
from tests.support.exporter import Exporter, config_of, running
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.rows import rows_of
from tests.support.simulated import SimulatedNode, World


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedNode]:
    """Four GPUs, three of them shared, under pods that live a hundred times as fast."""
    simulated = SimulatedNode(World(gpus=4, shared=3, seed=7, speed=100))
    real("gcc")
    assert simulated.nvml.build()
    loads(monkeypatch, simulated.nvml)
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.4)
    await simulated.start()
    yield simulated
    await until_nobody_uses_it()
    await simulated.stop()


def of_node(node: SimulatedNode, **more: str) -> dict[str, str]:
    places = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "root": str(node.root)}
    return {**places, "nvml_mode": "on", **more}


def held_by_several(node: SimulatedNode) -> set[str]:
    shares: defaultdict[str, set[str]] = defaultdict(set)
    for pod in node.world.listed:
        for device in pod.devices:
            if "::" in device:
                shares[device.partition("::")[0]].add(pod.name)
    return {uuid for uuid, pods in shares.items() if len(pods) > 1}


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
    return await exporter.until_page(lambda page: ("", "") in rows_of(page)["DCGM_FI_DEV_FB_USED"][uuid])


async def test_processes_of_nobody_are_counted_and_named_with_their_reason(node: SimulatedNode) -> None:
    gpu = next(gpu for gpu in node.world.gpus if gpu.uuid in held_by_several(node))
    cgroup, stat = node.root / "proc/77/cgroup", node.root / "proc/77/stat"
    cgroup.parent.mkdir()
    cgroup.write_text("0::/user.slice/user-0.slice/session-1.scope\n")
    stat.write_text(f"77 (miner) S 1 {' '.join(['0'] * 17)} 1 0\n")
    lines = node.write_processes()
    stray = (f"process {gpu.index} -1 -1 77 c {2**30}", f"memory {gpu.index} -1 {2**38} 0 {2**37}")
    node.nvml.write(node.world.gpus, [*lines, *stray], is_recut=False)
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
    monkeypatch.setattr(measuring, "KEPT_SECONDS", 60.0)
    async with running(config_of(**of_node(node))) as exporter:
        await measured(exporter, node)
        (uuid, *_) = sorted(held_by_several(node))
        node.nvml.write(node.world.gpus, ["fail nvmlDeviceGetCount_v2 1 -1"])
        await exporter.until("/metrics", lambda text: 'source_up{source="nvml"} 0\n' in text)
        page = await exporter.page()
        assert ("", "") in rows_of(page)["DCGM_FI_DEV_FB_USED"][uuid], "a failure alone takes nothing away"
        monkeypatch.setattr(measuring, "KEPT_SECONDS", 0.0)
        page = await exporter.until_page(lambda page: ("", "") not in rows_of(page)["DCGM_FI_DEV_FB_USED"][uuid])
        assert len(set(rows_of(page)["DCGM_FI_DEV_FB_USED"][uuid].values())) == 1, "copies again"
        assert own((await exporter.get("/metrics"))[1], "pod_gpu_processes") == []


async def test_without_the_hosts_processes_rows_stay_copies(node: SimulatedNode) -> None:
    (node.root / "proc/1/cgroup").unlink()
    for mode, is_told in (("on", True), ("auto", False)):
        async with running(config_of(**of_node(node, nvml_mode=mode))) as exporter:
            (uuid, *_) = sorted(held_by_several(node))
            for _ in range(10):
                page = await exporter.page()
                await asyncio.sleep(0.05)
            assert len(set(rows_of(page)["DCGM_FI_DEV_FB_USED"][uuid].values())) == 1
            metrics = (await exporter.get("/metrics"))[1]
            assert ('source_up{source="processes"} 0' in metrics) is is_told
            assert ("hostPID" in metrics) is is_told


# issue 10, B: measured sharing
async def test_the_time_of_kernels_goes_on_through_a_reload(node: SimulatedNode) -> None:
    config = config_of(**of_node(node))
    service = Service(config, NODE, lambda: config)
    try:
        before: dict[tuple[DeviceKey, Owner | None], int] = {}
        grew, rounds = 0, 0
        began = time.monotonic()
        while rounds < 40 or not grew:
            rounds += 1
            node.write_processes()
            snapshot = await service.collect(None)
            await service.reload()
            now = snapshot.measured.sm_ns if snapshot.measured else {}
            flat = {(device, owner): ns for device, of in now.items() for owner, ns in of.items()}
            if flat:
                assert snapshot.measured is not None
                assert {of for of in flat if of[1]} == set(snapshot.measured.uses)
                assert all((device, None) in flat for device in now)
            assert all(ns >= before.get(of, 0) for of, ns in flat.items())
            assert all(ns <= (time.monotonic() - began) * 1e9 for ns in flat.values())
            grew += sum(ns > before[of] for of, ns in flat.items() if of in before)
            before = flat
            await asyncio.sleep(0.05)
    finally:
        await service.close()
