"""The kernel's log through the whole node role: /events, the accounts, a restart, and what doctor says."""

import asyncio
import json
import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.config.node_settings import Config
from exporter.node.role import diagnose
from exporter.outputs.diagnosis import Level
from exporter.ownership.kernel_events import JUST_BEFORE_SECONDS
from exporter.sources.kernel_log.kernel_log_source import KernelLog
from tests.node.test_accounting import a_pod, node_of, settings
from tests.support.exporter import Exporter, config_of, running
from tests.support.node_parts import accounts_of, source_of
from tests.support.simulated import GPU_RESOURCE, SimulatedNode, World
from tests.support.waiting import until

ADDRESSES = ("0000:65:00.0", "0000:66:00.0")
LOST = "NVRM: Xid (PCI:0000:65:00): 79, pid={}, name=python3, GPU has fallen off the bus."


class KernelNode:
    """A simulated node with two GPUs, a folder of the driver, and a pipe in place of /dev/kmsg."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.simulated = SimulatedNode(World(gpus=2, seed=1))
        self.uuids = [gpu.uuid for gpu in self.simulated.world.gpus]
        self.simulated.world.pods = (a_pod("first", (GPU_RESOURCE, self.uuids[0])),)
        for number, (address, uuid) in enumerate(zip(ADDRESSES, self.uuids, strict=True)):
            folder = root / "proc/driver/nvidia/gpus" / address
            folder.mkdir(parents=True)
            (folder / "information").write_text(f"GPU UUID: \t {uuid}\nDevice Minor: \t {number}\n")
        (root / "dev").mkdir()
        os.mkfifo(root / "dev/kmsg")
        self.pipe = os.open(root / "dev/kmsg", os.O_RDWR | os.O_NONBLOCK)
        self.sequence = 0

    def config(self, **more: str) -> Config:
        given = {"kernel_log_mode": "on", "accounting_interval": "100ms", **more}
        return replace(config_of(**settings(self.simulated), **given), root=str(self.root))

    def write(self, *messages: str) -> None:
        for message in messages:
            self.sequence += 1
            os.write(self.pipe, f"4,{self.sequence},{round(time.monotonic() * 1e6)},-;{message}\n".encode())

    async def close(self) -> None:
        await self.simulated.stop()
        os.close(self.pipe)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[KernelNode]:
    node = KernelNode(tmp_path)
    await node.simulated.start()
    yield node
    await node.close()


async def events(exporter: Exporter) -> list[dict[str, Any]]:
    status, body = await exporter.get("/events")
    assert status == 200, body
    shown: list[dict[str, Any]] = json.loads(body)
    return shown


async def xids(exporter: Exporter) -> dict[tuple[str, str], float]:
    """XIDs by UUID and pod, of all numbers."""
    rows = re.findall(r"^pod_gpu_xid_errors_total\{(.*)\} (\S+)$", (await exporter.get("/metrics"))[1], re.MULTILINE)
    counts: defaultdict[tuple[str, str], float] = defaultdict(float)
    for labels, value in rows:
        row = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        counts[row["UUID"], row["pod"]] += float(value)
    return dict(counts)


@asynccontextmanager
async def reading(config: Config) -> AsyncIterator[Exporter]:
    """An exporter that has its page, its owners, and all of the log so far."""
    async with running(config) as exporter:

        async def is_reading() -> bool:
            return (await exporter.get("/events"))[1] != "" and 'source="kernel-log"' in (
                await exporter.get("/metrics")
            )[1]

        await until(is_reading)
        await until(lambda: accounts_of(node_of(exporter.service)).looked_at_ns is not None)
        yield exporter


# issue 30, lines 2 and 3
async def test_a_gpu_that_dies_is_its_holder_s_and_not_the_next_one_s(node: KernelNode) -> None:
    async with reading(node.config()) as exporter:
        node.write("usb 1-1: new device", LOST.format(4711))
        await until(lambda: events(exporter))
        node.simulated.world.pods = (a_pod("second", (GPU_RESOURCE, node.uuids[0])),)
        await exporter.until_page(lambda page: 'pod="second"' in page)
        (event,) = await events(exporter)
        assert event.pop("at").endswith("Z")
        assert event == {
            "node_name": "gpu-node-1",
            "kind": "xid",
            "code": 79,
            "name": "GPU has fallen off the bus",
            "cause": "PCIe connection, power, heat, or the GPU itself",
            "remedy": "drain the node and restart it; if it comes back, ask the vendor of the node",
            "severity": "",
            "text": "GPU has fallen off the bus.",
            "pci_address": "0000:65:00.0",
            "device_uuid": node.uuids[0],
            "device_id": "0",
            "mig_instance_id": "",
            "holders": [{"namespace": "ml", "pod": "first", "container": "main"}],
            "pid": 4711,
            "process": "python3",
            "container": None,
        }

        async def counted() -> object:
            return (await xids(exporter)) == {(node.uuids[0], "first"): 1.0}

        await until(counted)
        assert 'pod_gpu_exporter_kernel_log_records_total{result="read"} 2\n' in (await exporter.get("/metrics"))[1]


# issue 22, line 4
async def test_a_pod_that_has_ended_is_not_charged_without_a_look_since(node: KernelNode) -> None:
    async with reading(node.config(accounting_interval="1h")) as exporter:
        await exporter.until_page(lambda page: 'pod="first"' in page)
        node.simulated.world.pods = ()
        await asyncio.sleep(1.5 * JUST_BEFORE_SECONDS)  # what is tried is that time: nobody looks meanwhile
        node.write(LOST.format(4711))
        await until(lambda: events(exporter))
        (event,) = await events(exporter)
        assert event["holders"] == []


# issue 30, line 2
async def test_an_xid_that_page_and_log_show_is_counted_once(node: KernelNode) -> None:
    async with reading(node.config()) as exporter:
        node.write("Linux version 6.18")  # the log is read: pages' XIDs are not counted
        gpu = node.simulated.world.gpus[0]
        log = source_of(node_of(exporter.service), KernelLog)
        await until(lambda: log.sequence == 1)
        await until(lambda: accounts_of(node_of(exporter.service)).ledger.kernel_sequence == 1)
        node.simulated.world.machine.add_xid(gpu.uuid, 31)
        node.write("NVRM: Xid (PCI:0000:65:00): 31, pid=1, name=a, Ch 00000001")
        await exporter.until_page(lambda page: 'err_code="31"' in page or "DCGM_FI_DEV_XID_ERRORS" in page)

        async def is_counted() -> object:
            return await xids(exporter)

        await until(is_counted)
        await asyncio.sleep(0.5)  # some beats more
        assert await xids(exporter) == {(gpu.uuid, "first"): 1.0}


# issue 30, line 2
async def test_a_restart_reads_no_line_twice_and_misses_none(node: KernelNode, tmp_path: Path) -> None:
    config = node.config(accounting_state=str(tmp_path / "state"))
    lines = [
        LOST.format(1),
        "NVRM: Xid (PCI:0000:66:00): 48, An uncorrectable double bit error",
        "NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    ]
    async with reading(config) as exporter:
        node.write(lines[0])

        async def is_counted() -> object:
            return await xids(exporter)

        await until(is_counted)
    # a pipe forgets what was read; the kernel's log does not
    with suppress(BlockingIOError):
        os.read(node.pipe, 65536)
    node.sequence = 0
    node.write(*lines)
    async with running(config) as exporter:

        async def are_counted() -> object:
            return sum((await xids(exporter)).values()) == 2 and len(await events(exporter)) == 2

        await until(are_counted)
        await asyncio.sleep(0.3)
        # who held it at both ends of the time in which nobody looked held it meanwhile; XID 154 is no error
        assert await xids(exporter) == {(node.uuids[0], "first"): 1.0, (node.uuids[1], ""): 1.0}
        first = {"namespace": "ml", "pod": "first", "container": "main"}
        shown = [(event["code"], event["holders"]) for event in await events(exporter)]
        assert shown == [(154, [first]), (48, [])]


async def test_a_log_that_may_not_be_read_any_more_leaves_xids_to_the_pages(node: KernelNode, tmp_path: Path) -> None:
    config = node.config(accounting_state=str(tmp_path / "state"))
    async with reading(config) as exporter:
        node.write("Linux version 6.18")
        await until(lambda: accounts_of(node_of(exporter.service)).ledger.kernel_sequence == 1)
    (node.root / "dev/kmsg").unlink()
    async with running(config) as exporter:
        ledger = accounts_of(node_of(exporter.service)).ledger
        await until(lambda: ledger.states and ledger.kernel_sequence is None)
        node.simulated.world.machine.add_xid(node.uuids[0], 31)

        async def is_counted() -> object:
            return await xids(exporter)

        await until(is_counted)
        assert await xids(exporter) == {(node.uuids[0], "first"): 1.0}


async def test_without_the_log_events_say_how_to_turn_it_on(node: KernelNode) -> None:
    async with running(node.config(kernel_log_mode="off")) as exporter:
        status, body = await exporter.get("/events")
        assert status == 404
        assert "--kernel-log.mode on" in json.loads(body)["error"]
        assert "kernel_log_records" not in (await exporter.get("/metrics"))[1]


async def test_doctor_says_what_it_needs(node: KernelNode) -> None:
    config = node.config()
    (node.root / "dev/kmsg").unlink()
    async with running(config) as exporter:
        snapshot = await node_of(exporter.service).look(None)
        findings = [each for each in diagnose(config, snapshot).findings if "kernel-log" in each.about]
        assert [finding.level for finding in findings] == [Level.WARNING]
        assert "mount the node's /dev/kmsg" in findings[0].trouble.remedy


async def verdicts(exporter: Exporter) -> dict[str, tuple[str, str, str]]:
    """Pod, verdict and reason by UUID."""
    rows = re.findall(r"^pod_gpu_device_verdict\{(.*)\} 1$", (await exporter.get("/metrics"))[1], re.MULTILINE)
    by_name = [dict(re.findall(r'(\w+)="([^"]*)"', row)) for row in rows]
    return {row["UUID"]: (row["pod"], row["verdict"], row["reason"]) for row in by_name}


# issue 30, lines 13 and 22
async def test_a_gpu_that_is_gone_stays_so_until_the_driver_calls_it_well(node: KernelNode, tmp_path: Path) -> None:
    config = node.config(accounting_state=str(tmp_path / "state"))
    well, gone = ("", "ok", ""), ("first", "gone", "fell-off-bus")

    async def is_gone(exporter: Exporter) -> bool:
        return await verdicts(exporter) == {node.uuids[0]: gone, node.uuids[1]: well}

    async with reading(config) as exporter:
        node.write(LOST.format(1))
        await until(lambda: is_gone(exporter))
        restarting = asyncio.create_task(node.simulated.restart_kubelet(down_seconds=0.2, empty_seconds=0.3))
        while not restarting.done():
            assert await is_gone(exporter)
        (row,) = (row for row in json.loads((await exporter.get("/container/metrics"))[1]) if row["pod"])
        assert row["health"] == "gone"
        assert row["health_reasons"][0].startswith("Xid 79 (GPU has fallen off the bus), ")
        assert "-> drain the node" in row["health_reasons"][0]
    # a pipe forgets what was read; the kernel's log does not
    with suppress(BlockingIOError):
        os.read(node.pipe, 65536)
    node.sequence = 0
    node.write(LOST.format(1))
    async with running(config) as exporter:
        await until(lambda: is_gone(exporter))
        assert await events(exporter) == []
        node.write(
            "NVRM: Xid (PCI:0000:65:00): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"
        )

        async def is_well() -> bool:
            return await verdicts(exporter) == {node.uuids[0]: ("first", "ok", ""), node.uuids[1]: well}

        await until(is_well)
        # issue 22, line 7: it is no error, so nobody is told to do something
        assert await xids(exporter) == {(node.uuids[0], "first"): 1.0}  # the XID 79
        (event,) = await events(exporter)
        assert event["remedy"] == "nothing: the driver says that the GPU is well again"


# issue 22, line 6
async def test_a_pages_pci_bus_id_names_the_gpu_without_the_drivers_folder(node: KernelNode) -> None:
    shutil.rmtree(node.root / "proc")
    address = re.search(f'UUID="{node.uuids[0]}",pci_bus_id="([^"]+)"', node.simulated.dcgm.page())
    assert address is not None
    async with reading(node.config()) as exporter:
        node.write(
            f"NVRM: Xid (PCI:{address[1][4:-2].lower()}): 79, pid=4711, name=python3, GPU has fallen off the bus."
        )
        await until(lambda: events(exporter))
        (event,) = await events(exporter)
        assert (event["device_uuid"], event["device_id"]) == (node.uuids[0], "0")
        assert [holder["pod"] for holder in event["holders"]] == ["first"]


# issue 22, line 6
async def test_doctor_says_that_the_log_s_addresses_lead_to_no_gpu(node: KernelNode) -> None:
    shutil.rmtree(node.root / "proc")
    page = node.simulated.dcgm.page
    node.simulated.dcgm.page = lambda: re.sub(r'pci_bus_id="[^"]*",', "", page())  # type: ignore[method-assign]
    async with reading(node.config()) as exporter:
        says = json.loads((await exporter.get("/debug/mapping"))[1])["doctor"]["findings"]
        (finding,) = [each for each in says if "PCI" in each["says"]]
        assert (finding["level"], finding["about"]) == ("warning", "kernel-log")
        assert "/proc/driver/nvidia" in finding["remedy"]
