"""What the machine says of its driver and kernel."""

import asyncio
import json
import os
import platform
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model.driver import DeviceFile, Host
from exporter.sources.host import device_files, host_source
from exporter.sources.host.host_source import AGAIN_SECONDS, MOST_CHARS, VERSION, HostSource, version_in
from exporter.sources.source import is_absent
from tests.support.clock import Clock
from tests.support.exporter import config_of, running
from tests.support.simulated import SimulatedNode

GCC = "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)\n"


# as modules of these kinds write it
@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023", "535.129.03"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  384.81  Wed Aug 17 22:24:07 PDT 2016", "384.81"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06  Release Build  (abuild@host)  Thu Jul",
            "555.42.06",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  (b@mobile-u64-6336)",
            "540.4.0",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module 580.65", "580.65"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module", ""),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  Thu Oct 19 18:56:32 UTC 2023", ""),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  ٥٣٥.١٢٩", ""),
        ("another version: NVIDIA UNIX x86_64 Kernel Module  535.129.03", ""),
        ("", ""),
    ],
)
def test_the_drivers_version(line: str, version: str) -> None:
    assert version_in(f"{line}\n{GCC}") == version


@settings(max_examples=40)
@given(st.text(st.sampled_from('NVRM version: Kernel Module 5.3"\n\\ß'), max_size=200) | st.text())
def test_whatever_stands_there_the_version_is_digits_and_dots(text: str) -> None:
    for said in (text, f"NVRM version: NVIDIA Kernel Module {text}"):
        assert re.fullmatch(r"[0-9.]*", version_in(said))
        assert len(version_in(said)) <= MOST_CHARS


async def test_it_is_read_again_after_a_while(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / VERSION
    file.parent.mkdir(parents=True)
    host = HostSource(root=str(tmp_path), on_health=lambda *_: None, clock=clock)
    first = host.begin()
    assert first is not None
    await first
    uname = {"kernel": platform.release(), "architecture": platform.machine()}
    assert host.host == Host(driver_version="", **uname), "no driver, and what is known anyway"
    assert is_absent(host.health)
    file.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu\n{GCC}")
    known = host.host
    clock.ahead = AGAIN_SECONDS - 1
    assert host.begin() is None
    await asyncio.sleep(0.05)
    assert host.host is known
    clock.ahead = AGAIN_SECONDS
    assert host.begin() is None, "only the first read is worth waiting for"
    while host.host is known:
        await asyncio.sleep(0)
    assert host.host == Host(driver_version="535.129.03", **uname)
    await host.close()


async def test_who_asks_for_the_device_files_does_not_wait_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, looks = threading.Event(), []

    def hang(root: Path) -> tuple[DeviceFile, ...]:
        looks.append(root)
        goes_on.wait(30)
        return (DeviceFile("/dev/nvidia0"),)

    monkeypatch.setattr(device_files, "look", hang)
    monkeypatch.setattr(host_source, "ANSWER_SECONDS", 0.1)
    host = HostSource(root=str(tmp_path), on_health=lambda *_: None)
    assert set(await asyncio.gather(host.device_files(), host.device_files())) == {None}
    assert looks == [tmp_path], "one look at a time"
    monkeypatch.setattr(host_source, "ANSWER_SECONDS", 10)
    again = asyncio.create_task(host.device_files())
    await asyncio.sleep(0)
    goes_on.set()
    assert await again == (DeviceFile("/dev/nvidia0"),)
    monkeypatch.setattr(device_files, "look", lambda _: (_ for _ in ()).throw(PermissionError))
    assert await host.device_files() is None
    await host.close()


# issue 13, "Host facts"
async def test_the_machine_is_on_metrics(simulated: SimulatedNode, tmp_path: Path) -> None:
    given = {"kubelet_socket": str(simulated.socket), "dcgm_url": simulated.url}
    kernel = f'kernel="{platform.release()}",architecture="{platform.machine()}"'
    for root, more, said in (
        (simulated.root, {}, f'vendor="nvidia",driver_version="580.105.08",gpus="4",{kernel}'),
        (simulated.root, {"inventory": "off"}, f'vendor="nvidia",driver_version="580.105.08",gpus="0",{kernel}'),
        # a machine without a driver, whose GPUs somebody names
        (
            tmp_path,
            {"inventory_file": str(simulated.inventory_file)},
            f'vendor="nvidia",driver_version="",gpus="4",{kernel}',
        ),
        (tmp_path, {}, None),
    ):
        async with running(config_of(**given, **more, root=str(root))) as exporter:
            samples = [
                line
                for line in (await exporter.get("/metrics"))[1].splitlines()
                if line.startswith("pod_gpu_host_info")
            ]
            assert samples == ([f"pod_gpu_host_info{{{said}}} 1"] if said else [])


async def test_another_vendors_gpus_are_not_nvidias(simulated: SimulatedNode, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps({"gpus": [{"uuid": "0x1234", "index": "0"}]}))
    given = {"kubelet_socket": str(simulated.socket), "dcgm_url": simulated.url, "inventory_file": str(inventory)}
    async with running(config_of(**given, root=str(tmp_path))) as exporter:
        assert "pod_gpu_host_info{" not in (await exporter.get("/metrics"))[1]


# issue 13, "Device access": the exporter says which files it may itself open, not the doctor which asks it
async def test_the_running_exporter_says_which_device_files_it_may_open(
    simulated: SimulatedNode, tmp_path: Path
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "dev").mkdir()
    given = {"kubelet_socket": str(simulated.socket), "dcgm_url": simulated.url, "root": str(tmp_path)}
    async with running(config_of(**given)) as exporter:

        async def said() -> list[str]:
            findings = json.loads((await exporter.get("/debug/mapping"))[1])["doctor"]["findings"]
            return [finding["says"] for finding in findings if "device files" in finding["about"]]

        assert await said() == [], "no driver, no word"
        (tmp_path / "proc/devices").write_text("Character devices:\n195 nvidia\n\nBlock devices:\n259 blkext\n")
        assert await said() == [
            "NVIDIA's driver is loaded, and none of its device files is here: the exporter cannot ask NVML"
        ]
        if os.geteuid() == 0:
            os.mknod(tmp_path / "dev/nvidia0", 0o020666, os.makedev(195, 0))
            assert await said() == ["the exporter may open 1 of NVIDIA's 1"]


async def test_no_scrape_pays_for_it(simulated: SimulatedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Path] = []
    monkeypatch.setattr(device_files, "look", looks.append)
    given = {"kubelet_socket": str(simulated.socket), "dcgm_url": simulated.url, "root": str(tmp_path)}
    async with running(config_of(**given)) as exporter:
        for path in ("/gpu/metrics", "/metrics", "/container/metrics", "/", "/-/ready"):
            assert (await exporter.get(path))[0] == 200
        assert looks == []
        await exporter.get("/debug/mapping")
    assert looks == [tmp_path]
