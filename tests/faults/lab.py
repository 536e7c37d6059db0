"""A node to hurt: the real program between a kubelet that is a process of its own and an upstream on plain sockets.

A scraper asks all the while, as Prometheus does, and notes what it saw.
"""

import asyncio
import json
import re
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import aiohttp

from exporter.cli.main import run
from exporter.simulator.dcgm import SimulatedDcgm
from tests.faults.upstream import Upstream
from tests.support import kubelet_process
from tests.support.forked import Forked
from tests.support.simulated import Pod, World
from tests.support.waiting import PATIENCE_SECONDS, until

SCRAPE_TIMEOUT_SECONDS = 2.0
# max(h - 0.5, h / 2), and what a busy machine with two cores may add to it. Who waits for a source without heeding the
# scraper's limit waits five seconds: that is noticed.
DEADLINE_SECONDS = 1.5
NOISE_SECONDS = 3.0
PAUSE_SECONDS = 0.2
# A fault takes a moment to be seen: the connection that is open may still bring one good page.
SETTLES_SECONDS = 0.5
# A fault lasts until so many scrapes have begun and ended in it, since then.
SCRAPES = 3
NOT_GPU = "pod_gpu_exporter_"
OWNER = re.compile(r',?(?:pod|namespace|container|gpu_shared)="[^"]*"')
OWNED = re.compile(r'[^#{]+\{.*?UUID="([^"]+)".*?pod="([^"]+)",namespace="([^"]+)",container="([^"]+)"')

Owner = tuple[str, str, str, str]
Owned = frozenset[Owner]


@cache  # all scrapes of all labs have the same few hundred
def of_series(series: str) -> tuple[str, Owner | None]:
    """A series without what says whose it is ("" if it is not of a GPU), and who owns which device by it."""
    without_owner = "" if series.startswith(NOT_GPU) else OWNER.sub("", series)
    match = OWNED.match(series)
    return without_owner, (match[1], match[2], match[3], match[4]) if match else None


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
        self.exporter: Forked | asyncio.subprocess.Process | None = None
        self.base = ""
        self.log = folder / "log"
        self._kubelet: Forked | None = None
        self._kubelet_starts = 0
        self._between_scrapes = asyncio.Lock()
        self._scraper: asyncio.Task[None] | None = None
        self.tell()

    def tell(self, **more: object) -> None:
        """What the kubelet answers from now on."""
        beside = self.control.with_suffix(".new")
        offers = [slot for gpu in self.world.gpus for slot in gpu.slots]
        beside.write_text(json.dumps({"pods": kubelet_process.pods_to_json(self.world.pods), "offers": offers, **more}))
        beside.replace(self.control)

    async def start_kubelet(self, *, empty_seconds: float = 0, partial_seconds: float = 0) -> None:
        self._kubelet_starts += 1
        (self.folder / "calls").write_text("0")
        log = self.folder / f"kubelet-{self._kubelet_starts}.log"
        words = [str(self.socket), str(self.control), f"--empty={empty_seconds}", f"--partial={partial_seconds}"]
        self._kubelet = Forked(kubelet_process.main, words, log)
        await until(lambda: b"serving\n" in log.read_bytes(), why=log.read_text)

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
        flags = [f"--{name}={word}" for name, value in values.items() for word in value.split(",") if word]
        if wrapper:
            with self.log.open("wb") as log:
                words = *(word.format(lab=self) for word in wrapper), command, *flags
                self.exporter = await asyncio.create_subprocess_exec(*words, stderr=log)
        else:
            self.exporter = Forked(run, [command, *flags], self.log)
        if command == "serve":
            await self.until(lambda: b"listening" in self.log.read_bytes())
            address = re.search(r"address=(\S+)", self.log.read_text())
            assert address
            self.base = f"http://{address[1]}"

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until it is so, as `waiting.until`.

        Raises:
            AssertionError: it does not come about, or the exporter or the scraper has ended.
        """

        def is_so() -> object:
            assert self.exporter is None or self.exporter.returncode is None, self.log.read_text()
            assert self._scraper is None or not self._scraper.done(), self._scraper
            return condition()

        await until(is_so, why=self.log.read_text)

    async def start_scraping(self) -> None:
        """From now on, after a first scrape that says what is to be expected."""
        self._scraper = asyncio.create_task(self._scrape_on())
        await self.until(lambda: any(scrape.all_up for scrape in self.scrapes))
        self.expected = next(scrape for scrape in self.scrapes if scrape.all_up)
        assert self.expected.owned

    async def expect(self, *, pods: tuple[Pod, ...]) -> None:
        """Other pods from now on: what they own is what is expected, whatever is left of the old ones."""
        assert self.expected
        self.world.pods = pods
        names = {(pod.namespace, pod.name) for pod in pods}
        kept = frozenset(owned for owned in self.expected.owned if (owned[2], owned[1]) in names)
        self.expected = Scrape(0, 0, 200, self.expected.series, kept, self.expected.text)

    def begins(self) -> None:
        """The fault begins."""
        self.hurt_at = time.monotonic()

    async def hurt(self, seconds: float = 0.0, asked: Callable[[], int] | None = None) -> None:
        """Begin the fault, and return after `seconds`, once a few scrapes have seen it.

        `asked` counts the exporter's calls of the peer that fails: with it, two more calls must come first.
        """
        self.begins()
        before = asked() if asked else 0
        await asyncio.sleep(seconds)
        await self.until(lambda: len(self.settled()) >= SCRAPES and (asked is None or asked() >= before + 2))

    def settled(self) -> list[Scrape]:
        """The scrapes that began and ended in the fault, without those of its first moment."""
        begins, ends = self.hurt_at + SETTLES_SECONDS, self.healed_at or time.monotonic()
        return [scrape for scrape in self.scrapes if begins < scrape.began and scrape.began + scrape.took < ends]

    def healed(self) -> None:
        """The fault is over."""
        self.healed_at = time.monotonic()

    async def step(self, seconds: float) -> None:
        """The clocks of `tests.support.stepping_clock` step. They do so between two scrapes, and some follow."""
        ahead = self.folder / "ahead"
        async with self._between_scrapes:
            beside = ahead.with_suffix(".new")
            beside.write_text(str(seconds))
            beside.replace(ahead)
            number = len(self.scrapes)
        await self.until(lambda: len(self.scrapes) >= number + SCRAPES)

    async def lists_again(self) -> None:
        """The exporter asks the kubelet twice more: the first of these calls may have begun before."""
        before = self.kubelet_calls()
        await self.until(lambda: self.kubelet_calls() >= before + 2)

    def kubelet_calls(self) -> int:
        """How often List was called."""
        return int((self.folder / "calls").read_text())

    def rss_mib(self) -> float:
        assert self.exporter
        line = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.exporter.pid}/status").read_text())
        assert line
        return int(line[1]) / 1024

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
        series = [of_series(line.rpartition(" ")[0]) for line in lines if line[:1] not in ("", "#")]
        return Scrape(
            began,
            took,
            status,
            frozenset(without_owner for without_owner, _ in series if without_owner),
            frozenset(owned for _, owned in series if owned),
            text,
        )

    async def _scrape_on(self) -> None:
        # the judge looks at how long a scrape took: one that was given up would count as lost, too
        timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                async with self._between_scrapes:
                    self.scrapes.append(await self.scrape(session))
                await asyncio.sleep(PAUSE_SECONDS)


Run = Callable[[Lab], Awaitable[None]]


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
