"""What one process asks of a device, and the row of a container, to which it goes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.accounting.cuda_counts import NOTHING, added, united_ns
from exporter.model.cuda import CudaCounts, CudaDevice, CudaKey, CudaUse, ProcessId, Span

_NS = 1_000_000_000
Interval = tuple[int, int]


@dataclass(slots=True, eq=False)
class Use:
    """What one process asks of one device, as the last reading says it.

    `growth` is what of it is in no row yet; it grew since `since_ns`, the moment of a reading (None: there was none).
    `key` is where it went last; None as long as it is not known whose it is.
    """

    since_ns: int | None
    now: CudaCounts = NOTHING
    growth: CudaCounts = NOTHING
    key: CudaKey | None = None
    is_released: bool = False

    def settle(self, at_ns: int) -> None:
        """All that grew has its place, or there is none for it."""
        self.growth, self.since_ns = NOTHING, at_ns


@dataclass(slots=True, eq=False)
class Row:
    """What the processes of a container counted on a device. `gone_ns` is since when the container is gone.

    `memory_bytes` and `processes` are of those that run.
    """

    total: CudaCounts = NOTHING
    released_bytes: int = 0
    peak_bytes: int = 0
    active_ns: int = 0
    memory_bytes: int = 0
    processes: set[ProcessId] = field(default_factory=set)
    gone_ns: int | None = None

    def take(self, process: ProcessId, use: Use, *, has_ended: bool) -> None:
        """Count what grew, but for the time in which it was active."""
        if use.growth is not NOTHING:
            self.total = added(self.total, use.growth)
        self.peak_bytes = max(self.peak_bytes, use.now.peak_bytes)
        if not has_ended:
            self.memory_bytes += use.now.memory_bytes
            self.processes.add(process)
        elif not use.is_released:
            self.released_bytes += use.now.memory_bytes
            use.is_released = True

    def use(self) -> CudaUse:
        """What the row says now."""
        return CudaUse(
            counts=self.total._replace(memory_bytes=self.memory_bytes, peak_bytes=self.peak_bytes),
            released_bytes=self.released_bytes,
            active_seconds=self.active_ns / _NS,
            processes=len(self.processes),
        )


class Active(NamedTuple):
    """For how long a device of a process was active since a reading (None: since the first call)."""

    ns: int
    since_ns: int | None


class Actives:
    """What was active between two readings: the time of each row is that in which at least one of its processes was."""

    def __init__(self) -> None:
        self._of_rows: dict[Row, dict[CudaDevice, Active]] = {}

    def add(self, row: Row, device: CudaDevice, use: Use) -> None:
        """Note a use before it is settled."""
        if use.growth.active_ns:
            self._of_rows.setdefault(row, {})[device] = Active(use.growth.active_ns, use.since_ns)

    def count(self, spans: Iterable[Span], at_ns: int) -> None:
        """Put the time into the rows, at the moment of the later reading."""
        several = {
            device: active for of_row in self._of_rows.values() if len(of_row) > 1 for device, active in of_row.items()
        }
        intervals = _intervals(spans, several, at_ns) if several else {}
        for row, of_row in self._of_rows.items():
            since = [active.since_ns for active in of_row.values() if active.since_ns is not None]
            row.active_ns += united_ns(
                [active.ns for active in of_row.values()],
                [intervals.get(device, ()) for device in of_row],
                at_ns - min(since) if len(since) == len(of_row) else None,
            )


def _intervals(
    spans: Iterable[Span], wanted: Mapping[CudaDevice, Active], at_ns: int
) -> Mapping[CudaDevice, Sequence[Interval]]:
    """The parts of spans that are between the readings."""
    intervals: dict[CudaDevice, list[Interval]] = {}
    for span in spans:
        active = wanted.get(span.device)
        if active is not None:
            begin = span.begin_ns if active.since_ns is None else max(span.begin_ns, active.since_ns)
            if begin < (end := min(span.end_ns, at_ns)):
                intervals.setdefault(span.device, []).append((begin, end))
    return intervals
