"""The ledger of the CUDA probe: what processes count becomes totals of containers and devices that never fall.

A reading says what each process has asked of each device since its first call. What that grew by since the reading
before goes to the row of the process' container. So a row keeps what it has when a process ends. The growth of a
process whose container is not known yet waits until it is.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.accounting.cuda_counts import NOTHING, added, step
from exporter.accounting.cuda_rows import Actives, Row, Use
from exporter.model.cuda import CudaDevice, CudaKey, CudaReading, CudaUse, ProcessId, Span
from exporter.model.pods import Owner

MOST_ROWS = 4_096
# Processes that are gone, and of which it is not known whose they were.
MOST_WAITING = 4_096

# What a device of a process counts for; None where it is not known yet whose the process is.
KeyOf = Callable[[CudaDevice], CudaKey | None]
_NOBODY: AbstractSet[Owner] = frozenset()


@dataclass(slots=True, eq=False)
class _Process:
    """What a process asks of each device, by ordinal. `gone_ns` is the first reading that did not tell of it."""

    uses: dict[int, Use] = field(default_factory=dict)
    has_ended: bool = False
    gone_ns: int | None = None

    @property
    def waits(self) -> bool:
        """Whether it is not known whose it is."""
        return any(use.key is None for use in self.uses.values())


class CudaLedger:
    """Keeps the totals by container and device.

    `lost` counts what found no place: under `waiting` the processes that went and of which nobody came to know whose
    they were, under `rows` how often something grew for which there was no room.
    """

    def __init__(self) -> None:
        self._uses: Mapping[CudaKey, CudaUse] | None = {}
        self.lost: Counter[str] = Counter()
        self._rows: dict[CudaKey, Row] = {}
        self._processes: dict[ProcessId, _Process] = {}
        self._read_at_ns: int | None = None

    @property
    def uses(self) -> Mapping[CudaKey, CudaUse]:
        """The rows as they are now; the same object until something changes."""
        if self._uses is None:
            self._uses = MappingProxyType({key: row.use() for key, row in self._rows.items()})
        return self._uses

    @property
    def rows(self) -> int:
        """How many rows there are; at most MOST_ROWS."""
        return len(self._rows)

    @property
    def processes(self) -> AbstractSet[ProcessId]:
        """Those that count: of the last reading, and those that are gone and wait."""
        return self._processes.keys()

    @property
    def waiting(self) -> int:
        """How many processes are gone, and wait; at most MOST_WAITING."""
        return len(self._gone_waiting())

    def begin_anew(self) -> None:
        """From here on another probe counts, and begins at 0. What waits goes on waiting."""
        for process in self._processes.values():
            for use in process.uses.values():
                use.now = NOTHING

    def add(self, reading: CudaReading, key_of: KeyOf, *, keep_ns: int, there: AbstractSet[Owner] = _NOBODY) -> None:
        """Count a reading: each one once, in their order.

        Args:
            reading: what the probe counted.
            key_of: where it goes.
            keep_ns: for how long the rows of containers that are gone are kept.
            there: the containers that are there, with processes or not.
        """
        self._take(reading)
        self._count(key_of, reading.spans, reading.read_at_ns)
        self._read_at_ns = reading.read_at_ns
        self._forget(there, reading.read_at_ns, keep_ns)
        self._uses = None

    def settle(self, key_of: KeyOf) -> None:
        """Count what waits, as far as it is known by now whose it is."""
        if self._read_at_ns is not None and any(process.waits for process in self._processes.values()):
            self._count(key_of, (), self._read_at_ns)
            self._uses = None

    def _take(self, reading: CudaReading) -> None:
        """Note what grew, and who has ended. One that was gone before, and does not wait, is forgotten."""
        self._processes = {
            id_: process for id_, process in self._processes.items() if process.gone_ns is None or process.waits
        }
        for device, counts in reading.counts.items():
            process = self._processes.get(device.process)
            if process is None:
                process = self._processes[device.process] = _Process()
            use = process.uses.get(device.ordinal)
            if use is None:
                use = process.uses[device.ordinal] = Use(self._read_at_ns)
            if counts != use.now:
                growth, use.now = step(use.now, counts)
                use.growth = growth if use.growth is NOTHING else added(use.growth, growth)
        for id_, process in self._processes.items():
            told = reading.processes.get(id_)
            process.has_ended = told is None or told.ended_ns is not None
            if told is None and process.gone_ns is None:
                process.gone_ns = reading.read_at_ns

    def _count(self, key_of: KeyOf, spans: Sequence[Span], at_ns: int) -> None:
        """Put what grew into rows, and say what runs."""
        actives = Actives()
        for row in self._rows.values():
            row.memory_bytes, row.processes = 0, set()
        for id_, process in self._processes.items():
            for ordinal, use in process.uses.items():
                device = CudaDevice(id_, ordinal)
                use.key = key_of(device) or use.key  # an owner never changes
                if use.key is None:
                    continue
                place = self._row(use.key)
                if place is not None:
                    actives.add(place, device, use)
                    place.take(id_, use, has_ended=process.has_ended)
                elif use.growth is not NOTHING:
                    self.lost["rows"] += 1
                use.settle(at_ns)
        actives.count(spans, at_ns)
        for row in self._rows.values():
            row.peak_bytes = max(row.peak_bytes, row.memory_bytes)

    def _row(self, key: CudaKey) -> Row | None:
        """The row of a key. Where there is no room for a new one, the row that is gone longest makes room."""
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= MOST_ROWS:
                gone = [key for key, row in self._rows.items() if row.gone_ns is not None]
                if not gone:
                    return None
                del self._rows[min(gone, key=lambda key: self._rows[key].gone_ns or 0)]
            row = self._rows[key] = Row()
        return row

    def _forget(self, there: AbstractSet[Owner], at_ns: int, keep_ns: int) -> None:
        """Drop the rows of those who are gone for long, and processes that wait for long, or are too many."""
        for key, row in list(self._rows.items()):
            if row.processes or key[0] in there:
                row.gone_ns = None
            elif row.gone_ns is None:
                row.gone_ns = at_ns
            elif at_ns - row.gone_ns >= keep_ns:
                del self._rows[key]
        waiting = self._gone_waiting()
        for number, (gone_ns, id_) in enumerate(waiting):
            if at_ns - gone_ns < keep_ns and len(waiting) - number <= MOST_WAITING:
                break
            del self._processes[id_]
            self.lost["waiting"] += 1

    def _gone_waiting(self) -> Sequence[tuple[int, ProcessId]]:
        """Processes that are gone and wait, those first that have waited longest."""
        return sorted((of.gone_ns, id_) for id_, of in self._processes.items() if of.gone_ns is not None and of.waits)
