"""The CUDA probe: the cost of a million calls for the exporter, and the cost of each call for the calling program.

A program calls cudaLaunchKernel of the tests' stub, which does nothing, as fast as it can. The benchmark needs root,
a kernel that loads BPF, gcc and clang. Without them there are no figures.
"""

import asyncio
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.table import Row, at_most, rounds
from exporter.errors import SourceError
from exporter.probe import gate
from exporter.probe.elf import function_offsets
from exporter.probe.functions import ENTERED, RETURNED
from exporter.probe.libbpf import Object
from exporter.probe.probe import Probe
from exporter.probe.probe_source import CudaProbe
from tests.cuda.programs import Program, built

CALLS, CALLS_A_ROUND = 1_000_000, 200_000
CALLED = "cudaLaunchKernel"
# many times the usual time
SECONDS = 120.0
PROC = Path("/proc")


def run(effort: float) -> list[Row]:
    try:
        if shutil.which("gcc") is None:
            raise FileNotFoundError("there is no gcc")
        _opened().close()
        with tempfile.TemporaryDirectory() as folder:
            empty = Path(folder) / "empty.bpf.o"
            _compile(empty)
            return [_reading(), _calling(empty, rounds(15, effort))]
    except (SourceError, OSError, subprocess.CalledProcessError) as error:
        print(f"no figures of the CUDA probe: {error}")
        return []


def _opened() -> Probe:
    return Probe.open(proc=PROC, most_programs=64, any_kernel=False)


def _reading() -> Row:
    """Turns by the source's own timer, including scans of all processes of the machine."""
    seconds = asyncio.run(asyncio.wait_for(_cpu_of_turns(), SECONDS))
    what = f"CUDA probe: CPU of the exporter for {CALLS:,} probed calls"
    return Row(what, f"{seconds:.3f} s", at_most(0.1, "s"), seconds)


async def _cpu_of_turns() -> float:
    source = CudaProbe(
        proc=str(PROC), interval_seconds=5.0, max_programs=64, any_kernel=False, on_health=lambda *_: None
    )
    with Program(f"spin {CALLS}", variant="linked") as program:
        source.begin()
        while source.turn is None or not source.turn.programs:
            await asyncio.sleep(0.01)
        before = time.process_time()
        program.go()
        while True:
            await asyncio.sleep(0.2)
            counts = source.turn.reading.counts.items()
            if sum(of.launches for device, of in counts if device.process.pid == program.pid) == CALLS:
                break
        seconds = time.process_time() - before
    await source.close()
    return seconds


def _calling(empty: Path, times: int) -> Row:
    """The three ways take turns, so that a machine that slows down slows all of them."""
    ways: tuple[Callable[[], float], ...] = (_spin, lambda: _beside_nothing(empty), _probed)
    plain, with_empty, probed = (
        statistics.median(each) for each in zip(*([way() for way in ways] for _ in range(times)), strict=True)
    )
    ratio = (probed - plain) / (with_empty - plain)
    figure = f"{ratio:.2f} times ({probed - plain:.0f} ns beside {with_empty - plain:.0f} ns)"
    what = "CUDA probe: time that it adds to a call, beside that of an empty uprobe and uretprobe"
    return Row(what, figure, at_most(1.15, "times"), ratio)


def _spin() -> float:
    """The nanoseconds of a call."""
    with Program(f"spin {CALLS_A_ROUND}", variant="linked") as program:
        return program.done().spin_ns


def _probed() -> float:
    probe = _opened()
    try:
        with Program(f"spin {CALLS_A_ROUND}", variant="linked") as program:
            probe.scan()
            took = program.done().spin_ns
            counts = probe.read().reading.counts.items()
        assert sum(of.launches for device, of in counts if device.process.pid == program.pid) == CALLS_A_ROUND
        return took
    finally:
        probe.close()


def _beside_nothing(empty: Path) -> float:
    with _attached(empty):
        return _spin()


@contextmanager
def _attached(empty: Path) -> Iterator[None]:
    at_once = gate.kernel_version(gate.this_machine().release) >= gate.AT_ONCE_KERNEL
    loaded = Object(empty, {}, (ENTERED, RETURNED), at_once=at_once)
    library = built().runtime
    with library.open("rb") as file:
        offsets = function_offsets(file.fileno(), frozenset({CALLED}))[CALLED]
    places = [(offset, 0) for offset in offsets]
    links = [
        *loaded.attach_uprobes(ENTERED, str(library), places),
        *loaded.attach_uprobes(RETURNED, str(library), places, at_return=True),
    ]
    try:
        yield
    finally:
        for link in links:
            link.close()
        loaded.close()


def _compile(to: Path) -> None:
    headers = f"/usr/include/{gate.this_machine().architecture}-linux-gnu"
    source = Path(__file__).with_name("empty.bpf.c")
    command: list[str | Path] = [
        "clang",
        "-O2",
        "-g",
        "-target",
        "bpf",
        "-mcpu=v3",
        "-idirafter",
        headers,
        "-c",
        source,
        "-o",
        to,
    ]
    subprocess.run(command, check=True)
