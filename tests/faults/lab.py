"""A node to hurt: the real program between a kubelet that is a process of its own and an upstream on plain sockets.

A scraper asks all the while, as Prometheus does, and notes what it saw.
"""

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from exporter.simulator.dcgm import SimulatedDcgm
from tests.faults.upstream import Upstream
from tests.support.kubelet_process import pods_to_json
from tests.support.simulated import Pod, World

SCRAPE_TIMEOUT_SECONDS = 2.0
# max(h - 0.5, h / 2), and what a busy machine with two cores may add to it. Who waits for a source without heeding the
# scraper's limit waits five seconds: that is noticed.
DEADLINE_SECONDS = 1.5
NOISE_SECONDS = 3.0
PAUSE_SECONDS = 0.2
START_SECONDS = 30.0
NOT_GPU = re.compile(r"#|pod_gpu_exporter_|$")
OWNER = re.compile(r',?(?:pod|namespace|container|gpu_shared)="[^"]*"')
OWNED = re.compile(r'[^#{]+\{.*?UUID="([^"]+)".*?pod="([^"]+)",namespace="([^"]+)",container="([^"]+)"')

Owned = frozenset[tuple[str, str, str, str]]


@dataclass(frozen=True)
class Scrape:
    """One scrape: when it began (seconds of time.monotonic), how long it took, and what came."""

    began: float
    took: float
    status: int
    series: frozenset[str] = field(repr=False)  # without what says whose it is
    owned: Owned = field(repr=False)
    text: str = field(repr=False)

    @property
    def all_up(self) -> bool:
        return self.status == 200 and not re.search(r"^pod_gpu_exporter_source_up\{.*\} 0$", self.text, re.MULTILINE)


class Lab:
    """One node. `expected` is what a good scrape shows; it is set by the first one, and by `expect`."""

    def __init__(self, folder: Path, pods: int | None = None) -> None:
        self.folder = folder
        self.world = World(gpus=4, shared=1, mig=1, seed=11)
        if pods:
            self.world.pods += tuple(
                Pod(namespace="crowd", name=f"pod-{number:03}" * 20, containers=()) for number in range(pods)
            )
        self.page = SimulatedDcgm(self.world).page
        self.upstream = Upstream(lambda: self.page().encode())
        self.second = Upstream(lambda: b'OTHER_FAMILY{gpu="0"} 1\n')
        self.sockets = folder / "pod-resources"
        self.sockets.mkdir()
        self.socket = self.sockets / "kubelet.sock"
        self.control = folder / "control.json"
        self.scrapes: list[Scrape] = []
        self.hurt_at = self.healed_at = 0.0
        self.expected: Scrape | None = None
        self.exporter: asyncio.subprocess.Process | None = None
        self.base = ""
        self.log = folder / "log"
        self._kubelet: asyncio.subprocess.Process | None = None
        self._scraper: asyncio.Task[None] | None = None
        (folder / "calls").write_text("0")
        self.tell()

    def tell(self, **more: object) -> None:
        """What the kubelet answers from now on."""
        beside = self.control.with_suffix(".new")
        offers = [slot for gpu in self.world.gpus for slot in gpu.slots]
        beside.write_text(json.dumps({"pods": pods_to_json(self.world.pods), "offers": offers, **more}))
        beside.replace(self.control)

    async def start_kubelet(self, *, empty_seconds: float = 0, partial_seconds: float = 0) -> None:
        command = [sys.executable, "-m", "tests.support.kubelet_process", str(self.socket), str(self.control)]
        command += [f"--empty={empty_seconds}", f"--partial={partial_seconds}"]
        self._kubelet = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert self._kubelet.stdout
        assert await self._kubelet.stdout.readline() == b"serving\n"

    def signal_kubelet(self, number: signal.Signals) -> None:
        assert self._kubelet
        self._kubelet.send_signal(number)

    async def end_kubelet(self, number: signal.Signals) -> None:
        self.signal_kubelet(number)
        assert self._kubelet
        await self._kubelet.wait()

    async def start_exporter(self, command: str, settings: Mapping[str, str], wrapper: tuple[str, ...] = ()) -> None:
        values = {"kubelet.socket": str(self.socket), "dcgm.url": self.upstream.url}
        if command == "serve":
            values["web.listen-address"] = "127.0.0.1:0"
        values |= {key: value.format(lab=self) for key, value in settings.items()}
        flags = [f"--{name}={one}" for name, value in values.items() for one in value.split(",") if one]
        start = wrapper or (sys.executable, "-m", "exporter")
        with self.log.open("wb") as log:
            self.exporter = await asyncio.create_subprocess_exec(
                *(part.format(lab=self) for part in start), command, *flags, stderr=log, env={**os.environ}
            )
        if command == "serve":
            await self.until(lambda: b"listening" in self.log.read_bytes(), START_SECONDS)
            found = re.search(r"address=(\S+)", self.log.read_text())
            assert found
            self.base = f"http://{found[1]}"

    async def until(self, look: Callable[[], bool], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not look():
                    assert self.exporter is None or self.exporter.returncode is None, self.log.read_text()
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"not within {seconds} s; the log says:\n{self.log.read_text()}") from None

    async def start_scraping(self) -> None:
        """From now on, after a first scrape that says what is to be expected."""
        self._scraper = asyncio.create_task(self._scrape_on())
        async with asyncio.timeout(START_SECONDS):
            while not any(scrape.all_up for scrape in self.scrapes):
                assert not self._scraper.done(), self._scraper.exception()
                await asyncio.sleep(0.02)
        self.expected = next(scrape for scrape in self.scrapes if scrape.all_up)
        assert self.expected.owned

    async def expect(self, *, pods: tuple[Pod, ...]) -> None:
        """Other pods from now on: what they own is what is expected, whatever is left of the old ones."""
        assert self.expected
        self.world.pods = pods
        names = {(pod.namespace, pod.name) for pod in pods}
        kept = frozenset(found for found in self.expected.owned if (found[2], found[1]) in names)
        self.expected = Scrape(0, 0, 200, self.expected.series, kept, self.expected.text)

    async def hurt(self, seconds: float) -> None:
        """The fault has begun, and lasts."""
        self.hurt_at = time.monotonic()
        await asyncio.sleep(seconds)

    def healed(self) -> None:
        """The fault is over."""
        self.healed_at = time.monotonic()

    def kubelet_calls(self) -> int:
        """How often List was called."""
        return int((self.folder / "calls").read_text())

    def rss_mib(self) -> float:
        assert self.exporter
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.exporter.pid}/status").read_text())
        assert found
        return int(found[1]) / 1024

    async def close(self) -> None:
        if self._scraper:
            self._scraper.cancel()
        for process in (self.exporter, self._kubelet):
            if process and process.returncode is None:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                await process.wait()
        await self.upstream.stop()
        await self.second.stop()

    async def scrape(self, session: aiohttp.ClientSession) -> Scrape:
        began = time.monotonic()
        headers = {"X-Prometheus-Scrape-Timeout-Seconds": f"{SCRAPE_TIMEOUT_SECONDS:g}"}
        try:
            async with session.get(f"{self.base}/gpu/metrics", headers=headers) as response:
                status, text = response.status, await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            status, text = 0, repr(error)
        took = time.monotonic() - began
        lines = text.splitlines() if status == 200 else []
        return Scrape(
            began,
            took,
            status,
            frozenset(OWNER.sub("", line.rpartition(" ")[0]) for line in lines if not NOT_GPU.match(line)),
            frozenset(found.groups() for line in lines if (found := OWNED.match(line))),  # type: ignore[misc]
            text,
        )

    async def _scrape_on(self) -> None:
        timeout = aiohttp.ClientTimeout(total=SCRAPE_TIMEOUT_SECONDS * 2)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                self.scrapes.append(await self.scrape(session))
                await asyncio.sleep(PAUSE_SECONDS)


@asynccontextmanager
async def a_lab(
    settings: Mapping[str, str],
    *,
    command: str = "serve",
    wrapper: tuple[str, ...] = (),
    pods: int | None = None,
    folders: tuple[str, ...] = (),
) -> AsyncIterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        lab = Lab(Path(folder), pods)
        try:
            await lab.upstream.start()
            await lab.second.start()
            await lab.start_kubelet()
            (lab.folder / "dcgm.prom").write_text(lab.page())
            (lab.folder / "config.yaml").touch()
            for name in folders:
                (lab.folder / name).mkdir()
            await lab.start_exporter(command, settings, wrapper)
            if command == "serve":
                await lab.start_scraping()
            yield lab
        finally:
            await lab.close()
