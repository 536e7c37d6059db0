"""The real probe, over the processes that a test wants it to see: other tests' programs use CUDA at the same time."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from exporter.errors import SourceError
from exporter.model.cuda import CudaCounts, CudaProcess
from exporter.probe.probe import Probe, ProbeAnswer
from tests.cuda.needs import lacking, root
from tests.cuda.programs import Truth, without_times
from tests.support.waiting import wait_until

_NOTHING = CudaCounts()
# of the times that are compared: a part of them, and what a busy machine may put between two clocks being read
_PART, _NS = 0.2, 20_000_000


class NarrowProc:
    """A folder like /proc, with the machine's first process, this one and those that are shown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "narrow-proc"
        self.folder.mkdir()
        for name in ("self", "1"):
            (self.folder / name).symlink_to(Path("/proc", name))

    def show(self, *pids: int) -> None:
        for pid in pids:
            (self.folder / str(pid)).symlink_to(f"/proc/{pid}")


@contextmanager
def probing(proc: Path, *, most_programs: int = 64, most: Mapping[str, int] | None = None) -> Iterator[Probe]:
    """The probe, loaded into the kernel of this machine; `most` as for `Probe.open`."""
    root()
    try:
        probe = Probe.open(proc=proc, most_programs=most_programs, any_kernel=False, most=most or {})
    except SourceError as error:
        lacking(f"a machine that lets root load BPF ({error})")
    try:
        yield probe
    finally:
        probe.close()


def counted(turn: ProbeAnswer, pid: int) -> dict[int, CudaCounts]:
    """What was counted of a process, by ordinal."""
    return {
        device.ordinal: counts
        for device, counts in turn.reading.counts.items()
        if device.process.pid == pid and counts._replace(errors={}) != _NOTHING
    }


def process_of(turn: ProbeAnswer, pid: int) -> CudaProcess:
    """What is known of a process."""
    (found,) = [process for process in turn.reading.processes.values() if process.id.pid == pid]
    return found


def is_true(turn: ProbeAnswer, truth: Truth, pid: int = 0) -> None:
    """The counts are exact, the times right within 20 %. `pid` is the machine's, where the program has another."""
    counts = counted(turn, pid or truth.pid)
    assert {ordinal: without_times(of) for ordinal, of in counts.items()} == {
        ordinal: without_times(of) for ordinal, of in truth.counts.items()
    }
    for ordinal, of in truth.counts.items():
        for name in ("sync_ns", "active_ns"):
            was, seen = getattr(of, name), getattr(counts[ordinal], name)
            assert abs(seen - was) <= _PART * was + _NS, (ordinal, name, was, seen)
    assert not any(turn.reading.lost.values()), turn.reading.lost


def until(probe: Probe, wanted: Callable[[ProbeAnswer], object]) -> ProbeAnswer:
    """Turn until this is so. Returns that turn."""
    turns: list[ProbeAnswer] = []

    def is_so() -> object:
        probe.scan()
        turns[:] = [probe.read()]
        return wanted(turns[0])

    wait_until(is_so, why=lambda: turns)
    return turns[0]
