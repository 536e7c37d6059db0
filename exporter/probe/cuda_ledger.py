"""The ledger of the CUDA probe: it adds up processes' requests to CUDA by container and device. Totals never fall.

A reading has the requests of each process to each device since its first call. The growth since the previous reading is
added to the row of the process' container, so that the row keeps it when the process ends. Growth waits while the
container of its process is not known.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from operator import add, sub
from types import MappingProxyType
from typing import NamedTuple

from exporter.model.cuda import (
    OTHER_ERRORS,
    CudaCounts,
    CudaDevice,
    CudaKey,
    CudaReading,
    CudaUse,
    ProcessId,
    SeenProcess,
    WorkSpan,
)
from exporter.model.pods import Owner
from exporter.probe.cuda_owners import OwnerFacts, ProcessOwners

# The most codes of errors that are counted one by one. CUDA has some 150 codes.
MOST_CODES = 64
NOTHING = CudaCounts()
# CudaCounts begins with the counters, of which times come last; then come memory in use and tables
_COUNTERS = CudaCounts._fields.index("memory_bytes")
_NO_MEMORY = (0, 0)  # memory_bytes and peak_bytes, which follow the counters
_CALLS_AND_BYTES = CudaCounts._fields.index("sync_ns")
Interval = tuple[int, int]
_NS = 1_000_000_000


def step(before: CudaCounts, now: CudaCounts) -> tuple[CudaCounts, CudaCounts]:
    """The counters' growth, without the memory; and the counts to compare the next reading with.

    If a number of calls or bytes fell, counting began anew, and `now` is the growth. A time may fall without that: work
    in progress counts up to the reading, and the next reading may show that it ended earlier.
    """
    growth = _each(sub, now, before, _more(now.errors, before.errors))
    if _has_fallen(growth):
        return _each(sub, now, NOTHING, now.errors), now
    if growth.sync_ns < 0 or growth.active_ns < 0:
        now = now._replace(sync_ns=max(now.sync_ns, before.sync_ns), active_ns=max(now.active_ns, before.active_ns))
        growth = growth._replace(sync_ns=max(growth.sync_ns, 0), active_ns=max(growth.active_ns, 0))
    return growth, now


def added(one: CudaCounts, other: CudaCounts) -> CudaCounts:
    """The sum of two counts, without the memory. Codes of errors beyond MOST_CODES are counted under OTHER_ERRORS."""
    return _each(add, one, other, _added(one.errors, other.errors) if other.errors else one.errors)


def _each(of: Callable[[int, int], int], one: CudaCounts, other: CudaCounts, errors: Mapping[int, int]) -> CudaCounts:
    """The counts that `of` makes of each pair of counters. Their memory is 0."""
    return CudaCounts._make(
        (
            *map(of, _first(one, _COUNTERS), _first(other, _COUNTERS)),
            *_NO_MEMORY,
            tuple(map(of, one.copies, other.copies)),
            tuple(map(of, one.copied_bytes, other.copied_bytes)),
            errors,
        )
    )


def _first(counts: CudaCounts, number: int) -> tuple[int, ...]:
    return counts[:number]  # type: ignore[return-value] # the first fields are all numbers


def united_ns(increments: Sequence[int], spans: Iterable[Sequence[Interval]], window_ns: int | None) -> int:
    """The time in which at least one of several processes was active.

    `increments` has the time for which each process was active; there is at least one. `spans` has the moments, as far
    as they are known: the overlap in the known part stands for the whole. All of it lies within `window_ns` (None: not
    known).
    """
    total = united = sum(increments)
    nonempty = [intervals for intervals in spans if intervals]
    if len(nonempty) > 1:
        apart = sum(_measure(intervals) for intervals in nonempty)
        together = _measure([interval for intervals in nonempty for interval in intervals])
        if apart:
            united = total * together // apart
    if window_ns is not None:
        united = min(united, window_ns)
    return max(united, *increments)


def _has_fallen(growth: CudaCounts) -> bool:
    least = min(*_first(growth, _CALLS_AND_BYTES), *growth.copies, *growth.copied_bytes)
    return least < 0 or any(more < 0 for more in growth.errors.values())


def _more(now: Mapping[int, int], before: Mapping[int, int]) -> Mapping[int, int]:
    if not before:
        return now
    return {code: more for code in {**before, **now} if (more := now.get(code, 0) - before.get(code, 0))}


def _added(one: Mapping[int, int], other: Mapping[int, int]) -> Mapping[int, int]:
    total = dict(one)
    for code, count in other.items():
        counted_as = code if code in total or len(total) < MOST_CODES else OTHER_ERRORS
        total[counted_as] = total.get(counted_as, 0) + count
    return MappingProxyType(total)


def _measure(intervals: Iterable[Interval]) -> int:
    """The length of the intervals' union."""
    measure = 0
    until = None
    for begin, end in sorted(intervals):
        if until is None or begin > until:
            until = begin
        if end > until:
            measure += end - until
            until = end
    return measure


@dataclass(slots=True, eq=False)
class RowUse:
    """The requests of one process to one device, up to the last reading.

    `growth`, since the reading at `since_ns` (None: since the first call), is in no row yet. `key` is the key of the
    row that got the last growth; None while the process' owner is not known.
    """

    since_ns: int | None
    now: CudaCounts = NOTHING
    growth: CudaCounts = NOTHING
    key: CudaKey | None = None
    is_released: bool = False


@dataclass(slots=True, eq=False)
class CudaRow:
    """The requests of a container's processes to a device. `memory_bytes` and `processes` count running processes only.

    `gone_ns` is since when the container is gone.
    """

    total: CudaCounts = NOTHING
    released_bytes: int = 0
    peak_bytes: int = 0
    active_ns: int = 0
    memory_bytes: int = 0
    processes: set[ProcessId] = field(default_factory=set)
    gone_ns: int | None = None

    def take(self, process: ProcessId, use: RowUse, *, has_ended: bool) -> None:
        """Count the growth, except for the active time."""
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
        """The row as it is now."""
        return CudaUse(
            counts=self.total._replace(memory_bytes=self.memory_bytes, peak_bytes=self.peak_bytes),
            released_bytes=self.released_bytes,
            active_seconds=self.active_ns / _NS,
            processes=len(self.processes),
        )


class Active(NamedTuple):
    """The time for which a process kept a device active since a reading (None: since the first call)."""

    ns: int
    since_ns: int | None


def _count_active(
    of_rows: Mapping[CudaRow, Mapping[CudaDevice, Active]], spans: Iterable[WorkSpan], at_ns: int
) -> None:
    """Add the times to the rows. A row is active while one of its processes is.

    `at_ns` is the moment of the later reading.
    """
    several = {device: active for of_row in of_rows.values() if len(of_row) > 1 for device, active in of_row.items()}
    intervals = _intervals(spans, several, at_ns) if several else {}
    for row, of_row in of_rows.items():
        since = [active.since_ns for active in of_row.values() if active.since_ns is not None]
        row.active_ns += united_ns(
            [active.ns for active in of_row.values()],
            [intervals.get(device, ()) for device in of_row],
            at_ns - min(since) if len(since) == len(of_row) else None,
        )


def _intervals(
    spans: Iterable[WorkSpan], wanted: Mapping[CudaDevice, Active], at_ns: int
) -> Mapping[CudaDevice, Sequence[Interval]]:
    """The parts of spans between the two readings."""
    intervals: dict[CudaDevice, list[Interval]] = {}
    for span in spans:
        active = wanted.get(span.device)
        if active is not None:
            begin = span.begin_ns if active.since_ns is None else max(span.begin_ns, active.since_ns)
            if begin < (end := min(span.end_ns, at_ns)):
                intervals.setdefault(span.device, []).append((begin, end))
    return intervals


MOST_ROWS = 4_096
# the most processes that are gone without a known owner
MOST_WAITING = 4_096

# The key of the row for a process' device; None while the process' owner is not known.
KeyOf = Callable[[CudaDevice], CudaKey | None]
_NOBODY: AbstractSet[Owner] = frozenset()


@dataclass(slots=True, eq=False)
class _ProcessUses:
    """A process' requests to each device, by ordinal.

    `gone_ns` is the moment of the first reading without the process.
    """

    uses: dict[int, RowUse] = field(default_factory=dict)
    has_ended: bool = False
    gone_ns: int | None = None

    @property
    def waits(self) -> bool:
        """Whether its owner is not known."""
        return any(use.key is None for use in self.uses.values())


class CudaLedger:
    """The keeper of the totals by container and device.

    `lost` counts losses: `waiting` is the number of processes that ended and were dropped before their owner was known,
    `rows` how often there was no room for growth.
    """

    def __init__(self) -> None:
        self._uses: Mapping[CudaKey, CudaUse] | None = {}
        self.lost: Counter[str] = Counter()
        self._rows: dict[CudaKey, CudaRow] = {}
        self._processes: dict[ProcessId, _ProcessUses] = {}
        self._read_at_ns: int | None = None

    @property
    def uses(self) -> Mapping[CudaKey, CudaUse]:
        """The rows; the same object until something changes."""
        if self._uses is None:
            self._uses = MappingProxyType({key: row.use() for key, row in self._rows.items()})
        return self._uses

    @property
    def rows(self) -> int:
        """The number of rows; at most MOST_ROWS."""
        return len(self._rows)

    @property
    def processes(self) -> AbstractSet[ProcessId]:
        """The processes of the last reading, and processes that are gone and wait for an owner."""
        return self._processes.keys()

    @property
    def waiting(self) -> int:
        """The number of processes that are gone and wait for an owner; at most MOST_WAITING."""
        return len(self._gone_waiting())

    def begin_anew(self) -> None:
        """Note that another probe counts from here on, from 0. Waiting growth goes on waiting."""
        for process in self._processes.values():
            for use in process.uses.values():
                use.now = NOTHING

    def add(self, reading: CudaReading, key_of: KeyOf, *, keep_ns: int, there: AbstractSet[Owner] = _NOBODY) -> None:
        """Count each reading once, in order. Rows of containers that are not `there` are kept for `keep_ns`."""
        self._take(reading)
        self._count(key_of, reading.spans, reading.read_at_ns)
        self._read_at_ns = reading.read_at_ns
        self._forget(there, reading.read_at_ns, keep_ns)
        self._uses = None

    def settle(self, key_of: KeyOf) -> None:
        """Count waiting growth whose owner is known by now."""
        if self._read_at_ns is not None and any(process.waits for process in self._processes.values()):
            self._count(key_of, (), self._read_at_ns)
            self._uses = None

    def _take(self, reading: CudaReading) -> None:
        """Note the growth and the processes that have ended. Forget processes that were gone before and do not wait."""
        self._processes = {
            id_: process for id_, process in self._processes.items() if process.gone_ns is None or process.waits
        }
        for device, counts in reading.counts.items():
            process = self._processes.get(device.process)
            if process is None:
                process = self._processes[device.process] = _ProcessUses()
            use = process.uses.get(device.ordinal)
            if use is None:
                use = process.uses[device.ordinal] = RowUse(self._read_at_ns)
            if counts != use.now:
                growth, use.now = step(use.now, counts)
                use.growth = growth if use.growth is NOTHING else added(use.growth, growth)
        for id_, process in self._processes.items():
            process_read = reading.processes.get(id_)
            process.has_ended = process_read is None or process_read.ended_ns is not None
            if process_read is None and process.gone_ns is None:
                process.gone_ns = reading.read_at_ns

    def _count(self, key_of: KeyOf, spans: Sequence[WorkSpan], at_ns: int) -> None:
        """Add the growth to the rows, and note the running processes."""
        active: defaultdict[CudaRow, dict[CudaDevice, Active]] = defaultdict(dict)
        for row in self._rows.values():
            row.memory_bytes = 0
            row.processes = set()
        for id_, process in self._processes.items():
            for ordinal, use in process.uses.items():
                device = CudaDevice(id_, ordinal)
                use.key = key_of(device) or use.key  # an owner never changes
                if use.key is None:
                    continue
                place = self._row(use.key)
                if place is not None:
                    if use.growth.active_ns:
                        active[place][device] = Active(use.growth.active_ns, use.since_ns)
                    place.take(id_, use, has_ended=process.has_ended)
                elif use.growth is not NOTHING:
                    self.lost["rows"] += 1
                # by now all growth is in a row, or had no room
                use.growth = NOTHING
                use.since_ns = at_ns
        _count_active(active, spans, at_ns)
        for row in self._rows.values():
            row.peak_bytes = max(row.peak_bytes, row.memory_bytes)

    def _row(self, key: CudaKey) -> CudaRow | None:
        """The row of a key; None without room. A new row may take the place of the row that has been gone longest."""
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= MOST_ROWS:
                gone = [key for key, row in self._rows.items() if row.gone_ns is not None]
                if not gone:
                    return None
                del self._rows[min(gone, key=lambda key: self._rows[key].gone_ns or 0)]
            row = self._rows[key] = CudaRow()
        return row

    def _forget(self, there: AbstractSet[Owner], at_ns: int, keep_ns: int) -> None:
        """Drop rows that are gone for long. Drop waiting processes that wait for long or are too many."""
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
        """The processes that are gone and wait, the longest first."""
        return sorted((of.gone_ns, id_) for id_, of in self._processes.items() if of.gone_ns is not None and of.waits)


# A load of a probe into the kernel: the probe, and the number of the load.
Load = tuple[object, int]


class CudaTotals:
    """The ledger and the owners of its processes; both outlive a reload.

    `filled_by` is the object that fills them now.
    """

    def __init__(self) -> None:
        self.ledger = CudaLedger()
        self.owners = ProcessOwners()
        self.filled_by: object = None
        self._load: Load | None = None

    def begin(self, fills: object, load: Load) -> None:
        """From here on `fills` fills it, with the readings of this load. Another load counts from 0."""
        self.filled_by = fills
        if self._load != load:
            self._load = load
            self.ledger.begin_anew()

    def add(
        self,
        reading: CudaReading,
        seen: Iterable[SeenProcess],
        facts: OwnerFacts,
        *,
        there: AbstractSet[Owner],
        keep_ns: int,
    ) -> bool:
        """Count a reading, as CudaLedger.add does. Returns whether the owner of every process is known now."""
        self.owners.learn(reading.processes.values(), seen)
        whose = self.owners.whose(facts)
        self.ledger.add(reading, self._key, there=there, keep_ns=keep_ns)
        self.owners.keep(self.ledger.processes)
        return whose.keys() >= self.ledger.processes

    def settle(self, facts: OwnerFacts) -> None:
        """Count waiting growth whose owner these facts tell."""
        self.owners.whose(facts)
        self.ledger.settle(self._key)

    def _key(self, device: CudaDevice) -> CudaKey | None:
        whose = self.owners.whose_by_id.get(device.process)
        return whose.key(device) if whose is not None else None
