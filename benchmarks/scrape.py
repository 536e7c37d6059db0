"""Whole scrapes over real sockets: latency, CPU and memory of `serve`, beside a bare proxy and a direct fetch."""

import http.client
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.table import Row, median_seconds, rounds
from exporter.attribution.owners import select
from exporter.simulator.kubelet import list_response
from exporter.simulator.world import Container, Pod, World
from exporter.sources.kubelet import parse

SCRAPES = 2000
LONG_RUN = 10_000
PACED_SCRAPES, PACED_A_SECOND = 2000, 10
PODS_CHANGE_EVERY = 50
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Process:
    """A peer in a process of its own, scraped over one kept connection."""

    def __init__(self, arguments: list[str], port: re.Pattern[str], path: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        found = next(match for line in self._process.stdout if (match := port.search(line)))
        self.port = int(found[1])
        self.first_scrape_seconds = 0.0
        self.path = path
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port)

    @property
    def pid(self) -> int:
        return self._process.pid

    def scrape(self, **headers: str) -> float:
        """Seconds that a scrape took."""
        began = time.perf_counter()
        self._connection.request("GET", self.path, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        seconds = time.perf_counter() - began
        if answer.status != 200 or len(body) < 1000:
            raise RuntimeError(f"{self.path}: {answer.status} {body[:200]!r}")
        return seconds

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

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
    scrapes, paced_scrapes, long_run = (rounds(usual, effort) for usual in (SCRAPES, PACED_SCRAPES, LONG_RUN))
    with peers() as (upstream, proxy, exporter):
        for peer in (upstream, proxy, exporter):
            for _ in range(200):
                peer.scrape()
        # one after the other in turns, so that a noisy moment of the machine hits all of them
        times: dict[Process, list[float]] = {upstream: [], proxy: [], exporter: []}
        cpu = {peer: peer.cpu_seconds() for peer in times}
        for _ in range(scrapes):
            for peer, found in times.items():
                found.append(peer.scrape())
        per_scrape = {peer: (peer.cpu_seconds() - before) / scrapes for peer, before in cpu.items()}
        median = {peer: statistics.median(found) for peer, found in times.items()}
        packed = statistics.median(exporter.scrape(**{"Accept-Encoding": "gzip"}) for _ in range(rounds(500, effort)))
        cpu_of_gzip = exporter.cpu_seconds()
        for _ in range(scrapes):
            exporter.scrape(**{"Accept-Encoding": "gzip"})
        cpu_of_gzip = (exporter.cpu_seconds() - cpu_of_gzip) / scrapes - per_scrape[exporter]
        paced = []
        for _ in range(paced_scrapes):
            time.sleep(1 / PACED_A_SECOND)
            paced.append(exporter.scrape())
        tail = sorted(paced)[int(0.99 * paced_scrapes)] / statistics.median(paced)
        start = exporter.first_scrape_seconds
        # the first thousand scrapes with changing pods fill what is filled once (allocator arenas, the code's caches)
        for number in range(rounds(1000, effort)):
            change(upstream, number)
            exporter.scrape()
        memory = exporter.resident_mib()
        for number in range(long_run):
            change(upstream, number)
            exporter.scrape()
        grown = exporter.resident_mib() - memory
    latency, cost = median[exporter] / median[proxy], per_scrape[exporter] / per_scrape[proxy]
    return [
        Row("scrape, median", f"{median[exporter] * 1e3:.2f} ms", "", median[exporter]),
        Row(
            "scrape / bare aiohttp proxy, median",
            f"{latency:.2f} times ({median[proxy] * 1e3:.2f} ms)",
            "at most 1.2 times",
            latency,
        ),
        Row(
            "scrape / direct fetch, median",
            f"{median[exporter] / median[upstream]:.2f} times ({median[upstream] * 1e3:.2f} ms)",
            "",
            median[exporter] / median[upstream],
        ),
        Row(
            "gzip scrape / plain scrape, median",
            f"{packed / median[exporter]:.2f} times",
            "",
            packed / median[exporter],
        ),
        Row(
            "CPU per scrape / bare aiohttp proxy",
            f"{cost:.2f} times ({per_scrape[exporter] * 1e3:.2f} / {per_scrape[proxy] * 1e3:.2f} ms)",
            "at most 1.3 times",
            cost,
        ),
        Row("CPU of gzip on top", f"{cpu_of_gzip * 1e3:.2f} ms", "at most 0.5 ms", cpu_of_gzip),
        Row(
            f"p99 / median, {paced_scrapes} scrapes at {PACED_A_SECOND} a second",
            f"{tail:.1f} times",
            "at most 3 times",
            tail,
        ),
        Row("start until the first good scrape", f"{start:.2f} s", "at most 1 s", start),
        Row("resident memory of serve (VmRSS)", f"{memory:.1f} MiB", "at most 60 MiB", memory),
        Row(f"its growth over {long_run} scrapes, pods changing", f"{grown:+.2f} MiB", "none", grown),
    ]


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
    refresh = median_seconds(lambda: select(parse(body).assignments, ["nvidia.com/*"]), rounds=rounds(300, effort))
    return [
        Row("resident memory, 112 MIG instances, 60 families", f"{memory:.1f} MiB", "at most 75 MiB", memory),
        Row("event loop's time for a new List of 500 pods", f"{refresh * 1e3:.2f} ms", "at most 3 ms", refresh),
    ]


def change(upstream: Process, number: int) -> None:
    if number % PODS_CHANGE_EVERY == 0:
        upstream.signal(signal.SIGUSR1)
