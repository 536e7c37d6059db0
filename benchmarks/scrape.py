"""Whole scrapes over real sockets: latency, CPU and memory of `serve`, beside a bare proxy and a direct fetch."""

import http.client
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.table import Aim, Row, at_least, at_most, median_seconds, rounds
from exporter.simulator.kubelet import list_response
from exporter.sources.kubelet.pod_resources import parse
from tests.support.simulated import Container, Pod, World

SCRAPES = 7000
LONG_RUN = 10_000
_NO_GROWTH_MIB = 0.1
PROCESSES = 10
PACED_SCRAPES, PACED_A_SECOND = 2000, 10
PODS_CHANGE_EVERY = 50


class Process:
    """A peer in a process of its own, scraped over one kept connection."""

    def __init__(self, arguments: list[str], port: re.Pattern[str], path: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        announced = next(match for line in self._process.stdout if (match := port.search(line)))
        self.port = int(announced[1])
        self.first_scrape_seconds = 0.0
        self.path = path
        self._size = 0
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port)

    @property
    def pid(self) -> int:
        return self._process.pid

    def scrape(self, **headers: str) -> float:
        """Scrape, and return the seconds that it took."""
        began = time.perf_counter()
        self._connection.request("GET", self.path, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        seconds = time.perf_counter() - began
        self._size = len(body)
        if answer.status != 200 or len(body) < 1000:
            raise RuntimeError(f"{self.path}: {answer.status} {body[:200]!r}")
        return seconds

    def size(self, **headers: str) -> int:
        """The bytes of an answer's body on the wire."""
        self.scrape(**headers)
        return self._size

    def cpu_seconds(self) -> float:
        """The CPU of all threads so far, user and system, in nanoseconds of the scheduler: clock ticks are 10 ms."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def resident_mib(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def peers(*of_node: str) -> Iterator[tuple[Process, Process, Process]]:
    """The upstream, the bare proxy and the exporter."""
    started: list[Process] = []
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/kubelet.sock"
        a_port = re.compile(r"^(\d+)$")
        try:
            upstream = Process(["benchmarks.peers", "node", socket, *of_node], a_port, "/metrics")
            started.append(upstream)
            url = f"http://127.0.0.1:{upstream.port}/metrics"
            started.append(Process(["benchmarks.peers", "proxy", url], a_port, "/gpu/metrics"))
            began = time.perf_counter()
            serve = ["exporter", "serve", f"--kubelet.socket={socket}", f"--dcgm.url={url}"]
            started.append(
                Process(
                    [*serve, "--web.listen-address=127.0.0.1:0"],
                    re.compile(r"msg=listening address=127\.0\.0\.1:(\d+)"),
                    "/gpu/metrics",
                )
            )
            started[2].scrape()
            started[2].first_scrape_seconds = time.perf_counter() - began
            yield upstream, started[1], started[2]
        finally:
            for process in started:
                process.end()


def run(effort: float) -> list[Row]:
    return [*_beside_a_proxy(effort), *_alone(effort)]


def _beside_a_proxy(effort: float) -> list[Row]:
    scrapes = rounds(SCRAPES, effort) // PROCESSES
    latencies, costs = [], []
    # The processes are started several times: the layout of a process's memory makes 8 % of difference for its life.
    for _ in range(PROCESSES):
        with peers() as three:
            latency, cost = _in_turns(three, scrapes)
        latencies.append(latency)
        costs.append(cost)
    upstream, proxy, exporter = (statistics.median(figures) for figures in zip(*latencies, strict=True))
    beside_proxy = statistics.median(ours / theirs for _, theirs, ours in latencies)
    cost_beside = [ours / theirs for _, theirs, ours in costs]
    cost_of_proxy, cost = (statistics.median(figures) for figures in list(zip(*costs, strict=True))[1:])
    return [
        Row("scrape, median", f"{exporter * 1e3:.2f} ms", None, exporter),
        Row(
            "scrape / bare aiohttp proxy, median",
            f"{beside_proxy:.2f} times ({proxy * 1e3:.2f} ms)",
            at_most(1.2, "times"),
            beside_proxy,
        ),
        Row(
            "scrape / direct fetch, median",
            f"{exporter / upstream:.2f} times ({upstream * 1e3:.2f} ms)",
            None,
            exporter / upstream,
        ),
        Row(
            "CPU per scrape / bare aiohttp proxy",
            f"{statistics.median(cost_beside):.2f} times, {min(cost_beside):.2f} to {max(cost_beside):.2f}"
            f" ({cost * 1e3:.2f} / {cost_of_proxy * 1e3:.2f} ms)",
            at_most(1.3, "times"),
            statistics.median(cost_beside),
        ),
    ]


def _in_turns(processes: Sequence[Process], scrapes: int) -> tuple[list[float], list[float]]:
    """The median seconds of a scrape of each process, and its CPU seconds."""
    for process in processes:
        for _ in range(200):
            process.scrape()
    before = [process.cpu_seconds() for process in processes]
    # the processes take turns, so that a noisy moment of the machine hits all of them
    times = [[process.scrape() for process in processes] for _ in range(scrapes)]
    cost = [(process.cpu_seconds() - then) / scrapes for process, then in zip(processes, before, strict=True)]
    return [statistics.median(seconds) for seconds in zip(*times, strict=True)], cost


def _alone(effort: float) -> list[Row]:
    scrapes, paced_scrapes, long_run = (rounds(usual, effort) for usual in (SCRAPES, PACED_SCRAPES, LONG_RUN))
    with peers() as (upstream, _, exporter):
        for _ in range(200):
            exporter.scrape()
        plain, packed = (_cpu_of(exporter, scrapes, **{"Accept-Encoding": how}) for how in ("identity", "gzip"))
        plain_size, packed_size = exporter.size(), exporter.size(**{"Accept-Encoding": "gzip"})
        paced = []
        for _ in range(paced_scrapes):
            time.sleep(1 / PACED_A_SECOND)
            paced.append(exporter.scrape())
        tail = sorted(paced)[int(0.99 * paced_scrapes)] / statistics.median(paced)
        # the first thousand scrapes with changing pods fill allocator arenas and caches, once for all
        for number in range(rounds(1000, effort)):
            change(upstream, number)
            exporter.scrape()
        memory = exporter.resident_mib()
        for number in range(long_run):
            change(upstream, number)
            exporter.scrape()
        grown = exporter.resident_mib() - memory
        start = exporter.first_scrape_seconds
    return [
        Row("CPU of gzip on top", f"{(packed - plain) * 1e3:.2f} ms", at_most(0.5, "ms", 1e-3), packed - plain),
        Row(
            "bytes without gzip / with it",
            f"{plain_size / packed_size:.1f} times ({plain_size} / {packed_size})",
            at_least(8, "times"),
            plain_size / packed_size,
        ),
        Row(
            f"p99 / median, {paced_scrapes} scrapes at {PACED_A_SECOND} a second",
            f"{tail:.1f} times",
            at_most(3, "times"),
            tail,
        ),
        Row("start until the first good scrape", f"{start:.2f} s", at_most(1, "s"), start),
        Row("resident memory of serve (VmRSS)", f"{memory:.1f} MiB", at_most(60, "MiB"), memory),
        Row(
            f"its growth over {long_run} scrapes, pods changing",
            f"{grown:+.2f} MiB",
            Aim("none", _NO_GROWTH_MIB),
            grown,
        ),
    ]


def _cpu_of(process: Process, scrapes: int, **headers: str) -> float:
    before = process.cpu_seconds()
    for _ in range(scrapes):
        process.scrape(**headers)
    return (process.cpu_seconds() - before) / scrapes


def large_node(effort: float) -> list[Row]:
    """16 GPUs in 112 MIG instances with 60 families, and a kubelet that lists 500 pods."""
    with peers("mig") as (_, _, exporter):
        for _ in range(300):
            exporter.scrape()
        memory = exporter.resident_mib()
    pods = [
        Pod(namespace="crowd", name=f"a-pod-of-a-usual-length-{number:03}", containers=(Container(name="main"),))
        for number in range(500)
    ]
    body = list_response([*World(gpus=8, seed=1).pods, *pods])
    refresh = median_seconds(lambda: parse(body, resources=["nvidia.com/*"]), rounds=rounds(300, effort))
    return [
        Row("resident memory, 112 MIG instances, 60 families", f"{memory:.1f} MiB", at_most(75, "MiB"), memory),
        Row("event loop's time for a new List of 500 pods", f"{refresh * 1e3:.2f} ms", at_most(3, "ms", 1e-3), refresh),
    ]


def change(upstream: Process, number: int) -> None:
    if number % PODS_CHANGE_EVERY == 0:
        upstream.signal(signal.SIGUSR1)
