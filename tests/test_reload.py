"""A configuration that changes while the exporter runs: by SIGHUP, by a file, good and bad, under load."""

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from exporter import service
from exporter.cli.options import read_config
from exporter.node.node import Node
from exporter.node.pushing import Pusher
from exporter.node.role import NODE
from exporter.service import Service
from exporter.sources.kubernetes.workloads import Workloads
from exporter.web.server import Server
from tests.support.exporter import Exporter
from tests.support.node_parts import source_of, sources_of
from tests.support.otlp import Receiver, receiving
from tests.support.simulated import SimulatedNode
from tests.support.waiting import until

NAMES = {"pod": 'pod="', "legacy": 'pod_name="'}


class Setup:
    """A configuration file in the way of a ConfigMap: a symbolic link to a folder that is exchanged."""

    def __init__(self, folder: Path, simulated: SimulatedNode) -> None:
        self._folder = folder
        self._versions = 0
        self._simulated = simulated
        self.path = folder / "config.yaml"

    def write(self, **settings: object) -> None:
        base = {
            "web.listen-address": "127.0.0.1:0",
            "kubelet.socket": str(self._simulated.socket),
            "dcgm.url": self._simulated.url,
        }
        named = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
        self.write_text(yaml.safe_dump({**base, **named}))

    def write_text(self, text: str) -> None:
        """As the kubelet does it: a new folder, and a link that is renamed over the old one."""
        self._versions += 1
        content = self._folder / f"..{self._versions}"
        content.mkdir()
        (content / "config.yaml").write_text(text)
        link = self._folder / "..data_tmp"
        link.symlink_to(content.name)
        link.replace(self._folder / "..data")
        if not self.path.is_symlink():
            self.path.symlink_to("..data/config.yaml")


@pytest.fixture(autouse=True)
def the_file_names_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment, which keeps tests off this machine's own, would win over the file."""
    monkeypatch.delenv("POD_GPU_EXPORTER_KUBELET_SOCKET")


@pytest.fixture
def setup(tmp_path: Path, simulated: SimulatedNode) -> Setup:
    return Setup(tmp_path, simulated)


@asynccontextmanager
async def reloading(setup: Setup) -> AsyncIterator[tuple[Exporter, asyncio.Event]]:
    hang_up = asyncio.Event()
    given = {"config_file": str(setup.path)}
    running = Service(read_config(given), NODE, lambda: read_config(given))
    watch = asyncio.create_task(running.watch(hang_up))
    try:
        (address,) = await running.listen()
        async with aiohttp.ClientSession() as session:
            yield Exporter(running, f"http://{address}", session), hang_up
    finally:
        watch.cancel()
        await running.close()


def node_of(exporter: Exporter) -> Node:
    role = exporter.service._role
    assert isinstance(role, Node)
    return role


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LOOK_EVERY_SECONDS", 0.05)


async def test_a_changed_file_is_taken_up_and_no_scrape_fails_meanwhile(setup: Setup) -> None:
    setup.write()
    statuses: list[int] = []
    async with reloading(setup) as (exporter, _):

        async def scrape() -> None:
            while True:
                statuses.append((await exporter.get("/gpu/metrics"))[0])

        scrapers = [asyncio.create_task(scrape()) for _ in range(5)]
        for number in range(6):
            names = ("legacy", "pod")[number % 2]
            setup.write(labels__names=names)
            await exporter.until_page(lambda page, names=names: NAMES[names] in page)  # type: ignore[misc]
        await until(lambda: len(statuses) > 20)
        for scraper in scrapers:
            scraper.cancel()
        metrics = (await exporter.get("/metrics"))[1]
    assert set(statuses) == {200}
    assert "pod_gpu_exporter_config_reload_success 1\n" in metrics
    assert "pod_gpu_exporter_config_reload_failures_total 0\n" in metrics


@pytest.mark.parametrize(
    "text",
    [
        "labels.names: nonsense",
        "no.such.key: 1",
        "{",
        "device-rules: /no/such/file",
        "inventory.file: /no/such/file",
        "web.config.file: /no/such/file",
        "dcgm.http-config: /no/such/file",
        "web.listen-address: 127.0.0.1:1",
        "- a list",
        "\0",
    ],
)
async def test_a_bad_one_is_refused_and_the_old_one_stays(
    setup: Setup, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    setup.write()
    async with reloading(setup) as (exporter, _):
        before = await exporter.page()
        bad = text if text.startswith(("{", "-", "\0")) else f"web.listen-address: 127.0.0.1:0\n{text}\n"
        setup.write_text(bad)
        await until(lambda: exporter.service.telemetry.reload_failures == 1)
        page, (_, metrics) = await exporter.page(), await exporter.get("/metrics")
        assert owned(page) == owned(before)
        assert "pod_gpu_exporter_config_reload_success 0\n" in metrics
        assert "pod_gpu_exporter_config_reload_failures_total 1\n" in metrics
        setup.write(labels__names="legacy")
        await until(lambda: exporter.service.telemetry.reload_success)
        assert NAMES["legacy"] in await exporter.page()
    (refusal,) = [record for record in caplog.records if "configuration refused" in record.getMessage()]
    assert refusal.fields["error"]  # type: ignore[attr-defined]


def owned(page: str) -> set[str]:
    return set(re.findall(r'UUID="[^"]+".*?pod="[^"]+"', page))


# issue 7, line 25
async def test_an_error_halfway_through_a_reload_does_not_end_the_watching(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setup.write()
    async with reloading(setup) as (exporter, hang_up):
        telemetry = exporter.service.telemetry

        def fails(*_: object) -> None:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as broken:
            broken.setattr(Server, "use", fails)
            hang_up.set()
            await until(lambda: telemetry.reload_failures == 1)
        assert "Too many open files" in caplog.text
        setup.write(labels__names="legacy")
        hang_up.set()
        await until(lambda: telemetry.reload_success)
        assert NAMES["legacy"] in await exporter.page()


# issue 7, line 25
async def test_a_task_in_the_background_does_not_end_in_silence(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    setup.write()
    monkeypatch.setattr(Node, "give_way", fails)
    monkeypatch.setattr(Service, "_measure_lag", fails)
    async with reloading(setup) as (_, hang_up):
        hang_up.set()
        await until(lambda: caplog.text.count("a task in the background ended by a fault") == 2)
    assert "Input/output error" in caplog.text


async def test_owners_and_counters_outlive_a_reload_while_the_kubelet_is_down(
    setup: Setup, simulated: SimulatedNode
) -> None:
    setup.write(sharing="split")
    async with reloading(setup) as (exporter, hang_up):
        before = await exporter.page()
        calls = simulated.kubelet.calls
        await simulated.kubelet.stop()
        setup.write(sharing="split", families__deny="nothing")
        hang_up.set()
        await until(lambda: exporter.service.telemetry.reload_success and not hang_up.is_set())
        after = await exporter.page()
        assert owned(after) == owned(before) != set()
        assert simulated.kubelet.calls == calls
        energy = r'^DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{.*gpu_shared="true".*} (\S+)$'
        assert all(0 <= int(value) < 10**7 for value in re.findall(energy, after, re.MULTILINE)), (
            "a row began anew at the device's value"
        )


async def test_reloads_leave_nothing_behind(setup: Setup) -> None:
    setup.write()
    # as in `serve`, where hours can lie between two collections of everything
    gc.disable()
    nodes: weakref.WeakSet[Node] = weakref.WeakSet()
    async with reloading(setup) as (exporter, _):
        for number in range(10):
            await exporter.page()
            nodes.add(node_of(exporter))
            setup.write(kubelet__timeout=f"{number + 2}s", labels__pod_uid="on")
            await exporter.service.reload()
        try:
            await until(lambda: len(nodes) <= 1)
        finally:
            gc.enable()


async def test_a_source_that_holds_nothing_yet_goes_on_too(setup: Setup) -> None:
    setup.write()
    async with reloading(setup) as (exporter, _):
        before = node_of(exporter)
        assert len(source_of(before, Workloads)) == 0
        setup.write(labels__names="legacy")
        await exporter.service.reload()
        after = node_of(exporter)
        assert after is not before
        assert source_of(after, Workloads) is source_of(before, Workloads)


async def test_a_scrape_that_waits_ends_with_the_sources_it_began_with(setup: Setup, simulated: SimulatedNode) -> None:
    setup.write(accounting__mode="off")
    async with reloading(setup) as (exporter, hang_up):
        simulated.kubelet.stall()
        waiting = asyncio.create_task(exporter.get("/gpu/metrics"))
        await until(lambda: simulated.dcgm.fetches == 1)
        setup.write(accounting__mode="off", kubelet__timeout="9s", dcgm__timeout="4s")
        hang_up.set()
        await until(lambda: not hang_up.is_set())
        simulated.kubelet.resume()
        status, page = await waiting
        assert status == 200
        assert 'pod_gpu_exporter_source_up{source="kubelet"} 1' in page


async def test_a_file_that_is_being_written_is_not_read_yet(setup: Setup) -> None:
    setup.write()
    path = setup.path.resolve()
    async with reloading(setup) as (exporter, _):
        whole = path.read_text() + "labels.names: legacy\n"
        with path.open("w") as file:
            for letter in whole:
                file.write(letter)
                file.flush()
                await asyncio.sleep(0.005)
        await until(lambda: exporter.service.telemetry.reload_success)
        await exporter.until_page(lambda page: NAMES["legacy"] in page)
        assert exporter.service.telemetry.reload_failures == 0


def test_sighup_reaches_the_program(setup: Setup, tmp_path: Path) -> None:
    page = tmp_path / "page.prom"
    page.write_text('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1"} 1\n')
    config = tmp_path / "plain.yaml"
    config.write_text(f"dcgm.file: {page}\nweb.listen-address: 127.0.0.1:0\nkubelet.socket: /no/such\n")
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "exporter", "serve", f"--config.file={config}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stderr
        while "listening" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGHUP)
        while "configuration reloaded" not in (line := process.stderr.readline()):
            assert line
        config.write_text("no.such: key\n")
        process.send_signal(signal.SIGHUP)
        while "configuration refused" not in (line := process.stderr.readline()):
            assert line
        assert "no.such" in line
        process.terminate()
        assert process.wait(10) == 0


# issue 17, Must show 3
async def test_a_reload_keeps_the_pushes_or_has_them_go_elsewhere(setup: Setup) -> None:
    def names_of(receiver: Receiver) -> str:
        return str(receiver.requests[-1]) if receiver.requests else ""

    async with receiving() as one, receiving() as other:
        quick = {"otlp__interval": "50ms", "accounting__interval": "100ms"}
        setup.write(otlp__endpoint=one.url, **quick)
        async with reloading(setup) as (exporter, hang_up):
            await until(lambda: names_of(one))
            before = source_of(node_of(exporter), Pusher)
            setup.write(otlp__endpoint=one.url, labels__idle="omit", **quick)
            hang_up.set()
            await until(lambda: exporter.service.telemetry.reload_success and before.look == node_of(exporter).look)
            assert source_of(node_of(exporter), Pusher) is before
            pushes = len(one.requests)
            await until(lambda: len(one.requests) > pushes + 1)
            setup.write(otlp__endpoint=other.url, **quick)
            hang_up.set()
            await until(lambda: names_of(other))
            setup.write(**{name: value for name, value in quick.items() if name != "otlp__interval"})
            hang_up.set()
            await until(lambda: not sources_of(node_of(exporter), Pusher) and not exporter.service._leaving)
            ended = len(one.requests), len(other.requests)
            await asyncio.sleep(0.3)
            assert (len(one.requests), len(other.requests)) == ended
