"""The worst pages through the whole node role: the time for which each path stops the event loop, and the most memory.

python -m benchmarks.stops PAGE [SETTING=VALUE …] [root=FOLDER]
    serves the page (a file), and answers each line of its input with three numbers: the longest time without a pause
    since the last line (in seconds of CPU, since others use the machine, too), all CPU since then, and the most memory
    so far (KiB).
"""

import asyncio
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.table import Row, at_most
from exporter.config.load import load
from exporter.exposition.check import MOST_LINES
from exporter.node.role import NODE
from exporter.outputs.node_outputs import OUTPUTS
from exporter.service import serve
from tests.support.kubelet_process import pods_to_json
from tests.support.simulated import Container, Pod

AIM_MIB = 128
LIMIT_MIB = 160  # what the help of --dcgm.max-bytes promises; the shipped limit leaves the rest to doctor
MOST_HELD = 1_000
ROUNDS = 2
LOOK = "a look of accounting"
_LINES = MOST_LINES - 10
PATHS = tuple(output.path for output in OUTPUTS)
# families that JSON, page and accounts read
_FAMILIES = (
    *("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"),
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK"),
    *("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"),
    *("DCGM_FI_DEV_POWER_VIOLATION", "DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_FI_DEV_XID_ERRORS"),
)


def _page(devices: int, more: Callable[[int], str] = lambda _: "", families: int = len(_FAMILIES)) -> bytes:
    """A page with the most lines allowed, with so many devices, each in all families."""
    names = _FAMILIES[:families]
    lines = (
        f'{names[number // devices]}{{gpu="{of}",UUID="{_uuid(of)}"{more(of)}}} {number % 89}\n'
        for number in range(min(_LINES, devices * families))
        for of in (number % devices,)
    )
    return "".join(lines).encode()


def _uuid(of: int) -> str:
    return f"GPU-{of:08d}-1111-2222-3333-444455556666"


def _owned(of: int) -> str:
    return f',pod="train-{of}",namespace="ml"'


PAGES: Mapping[str, Callable[[], bytes]] = {
    "a device a line": lambda: _page(_LINES, families=1),
    "14 lines a device": lambda: _page(_LINES // 14),
    "an owner a line (dcgm-exporter -k)": lambda: _page(_LINES, _owned, families=1),
    "a GPU in 50,000 instances": lambda: re.sub(
        rb'gpu="\d+",UUID="GPU-(\d+)-[-\d]+"', rb'gpu="0",UUID="GPU-1",GPU_I_ID="\1"', _page(_LINES, families=1)
    ),
}


@dataclass(frozen=True, slots=True, order=True)
class Stop:
    """The event loop's longest time without a pause, and all its CPU (seconds); and the most memory so far (MiB)."""

    longest: float
    total: float
    most_mib: float
    status: int = 0


class Served:
    """An exporter in a process of its own. `page` is the file that it reads."""

    def __init__(self, page: Path, *arguments: str) -> None:
        self.page = page
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.stops", str(page), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._port = int(self._line())
        self.mark()

    def mark(self) -> Stop:
        """The stop and the CPU since the last mark."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Stop(*json.loads(self._line()))

    def ask(self, path: str, **headers: str) -> Stop:
        """Ask a path, and return the stop and the CPU that it took."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        while answer.read(1 << 20):
            pass
        connection.close()
        stop = self.mark()
        return Stop(stop.longest, stop.total, stop.most_mib, answer.status)

    def body(self, path: str) -> bytes:
        """What a path answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("GET", path)
        body = connection.getresponse().read()
        connection.close()
        return body

    def end(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def served(page: bytes, *settings: str, held: int = MOST_HELD) -> Iterator[Served]:
    """The exporter with this page, and a kubelet that has given each of `held` of its GPUs to a pod."""
    with tempfile.TemporaryDirectory() as folder, _kubelet(Path(folder), held) as socket:
        file = Path(folder) / "page.prom"
        file.write_bytes(page)
        # older, since a file that was written just now may not be whole
        os.utime(file, (time.time() - 5, time.time() - 5))
        exporter = Served(file, f"kubelet.socket={socket}", *settings)
        try:
            yield exporter
        finally:
            exporter.end()


@contextmanager
def _kubelet(folder: Path, held: int) -> Iterator[Path]:
    """The socket of a kubelet in a process of its own."""
    pods = [
        Pod(
            namespace="ml",
            name=f"train-{of}",
            containers=(Container(name="main", devices=(("nvidia.com/gpu", _uuid(of)),)),),
        )
        for of in range(held)
    ]
    (folder / "control").write_text(json.dumps({"pods": pods_to_json(pods)}))
    socket = folder / "kubelet.sock"
    kubelet = subprocess.Popen(
        [sys.executable, "-m", "tests.support.kubelet_process", str(socket), str(folder / "control")],
        stdout=subprocess.PIPE,
    )
    try:
        assert kubelet.stdout is not None
        kubelet.stdout.readline()
        yield socket
    finally:
        kubelet.terminate()
        kubelet.communicate()


def stops_of(page: bytes, *settings: str, paths: Sequence[str] = PATHS, rounds: int = ROUNDS) -> Mapping[str, Stop]:
    """The longest stop of each path, and of the looks of accounting, over some rounds. Every answer is packed."""
    worst: dict[str, Stop] = {}
    with served(page, *settings) as exporter:
        for _ in range(rounds):
            for path in paths:
                stop = exporter.ask(path, **{"Accept-Encoding": "gzip"})
                worst[path] = max(stop, worst.get(path, stop))
            time.sleep(1.5)
            stop = exporter.mark()
            worst[LOOK] = max(stop, worst.get(LOOK, stop))
    return worst


def run(_: float) -> list[Row]:
    """The rows on every path, cold and packed, with every page."""
    rows = []
    for name, make in PAGES.items():
        stops = stops_of(make())
        path, worst = max(stops.items(), key=lambda of: of[1].longest)
        most_mib = max(stop.most_mib for stop in stops.values())
        figure = f"{worst.longest * 1e3:.0f} ms ({path})"
        rows.append(Row(f"every path, {name}: longest stop", figure, at_most(100, "ms", 1e-3), worst.longest))
        rows.append(Row(f"every path, {name}: memory", f"{most_mib:.0f} MiB", at_most(AIM_MIB, "MiB"), most_mib))
    return rows


async def _serve(page: str, *more: str) -> None:
    flags = {
        "web.listen-address": ["127.0.0.1:0"],
        "dcgm.file": [page],
        "dcgm.file-max-age": ["1h"],
        "nvml.mode": ["off"],
        "accounting.interval": ["1s"],
        **{name: [value] for name, _, value in (setting.partition("=") for setting in more)},
    }
    (root,) = flags.pop("root", ["/"])
    longest = total = 0.0

    async def watch() -> None:
        nonlocal longest, total
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            took = time.thread_time() - before
            longest, total = max(longest, took), total + took

    async def answer() -> None:
        nonlocal longest, total
        while await asyncio.to_thread(sys.stdin.readline):
            status = Path("/proc/self/status").read_text()
            print(json.dumps((longest, total, int(status.partition("VmHWM:")[2].split()[0]) / 1024)), flush=True)
            longest = total = 0.0
        os.kill(os.getpid(), signal.SIGTERM)

    beside = (asyncio.create_task(watch()), asyncio.create_task(answer()))
    config = replace(load(flags, {}, None, "gpu-node-1"), root=root)
    await serve(config, NODE, lambda addresses: print(addresses[0].port, flush=True))
    for task in beside:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
