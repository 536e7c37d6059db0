"""The division of a device's values among its owners (`--sharing split`), in exact amounts: the parts add up.

First come MIG instances: dcgm-exporter repeats the GPU's power, energy and bytes over PCIe and NVLink on the row of
each instance. Each instance gets a part, by its activity (instances.py). Rows that differ are the instances' own
values.

Then come owners. A gauge is divided by its present value. A counter is divided by its increases, since owners come and
go while it only grows:

- every row starts at 0: an owner's row when it first holds the device, and the row without owner, which is always
  there;
- each row gets its part of every later increase; the row without owner gets the increase while nobody holds the device;
- parts are equal or, if an allocator granted a part of the device to each owner, in proportion to these; or, if
  kernels are measured, in proportion to the time for which each owner's kernels ran meanwhile: then the row without
  owner gets the part of kernels that are no owner's;
- no row ever falls, and the rows together grow as much as the device's counter.

So increase() sees a restart of the exporter like any counter's restart: nothing was consumed. An increase belongs to
the owners that held the device at both its ends, since a new row cannot show growth. A row that comes back continues
from its old value.
Values that are no amounts (not-supported values, NaN, Inf) are copied.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.dcgm.table import Additive
from exporter.dividing.decimals import (
    NOTHING,
    Amount,
    divisible,
    growth,
    in_parts,
    in_proportion,
    is_amount,
    plus,
    read_amount,
    write_amount,
)
from exporter.dividing.instances import apportion, compute_slices, is_repeated, weights
from exporter.model.pages import Page, Reading
from exporter.model.pods import Owner
from exporter.model.slices import Work

# The most counters of GPUs that are remembered: the counter unused for longest goes. 16 GPUs with 10 such fields have
# 160.
MOST_COUNTERS = 2_048
_READINGS_A_SLICE = 4_000

# The family, and the GPU by its UUID.
OfGpu = tuple[bytes, str]


@dataclass(slots=True)
class CutGpu:
    """A GPU that is cut into MIG instances: compute slices and activity (0 to 1) by GPU_I_ID, and rows by family."""

    slices: dict[str, int] = field(default_factory=dict)
    activity: dict[str, float] = field(default_factory=dict)
    rows: dict[bytes, list[Reading]] = field(default_factory=dict)
    _weights: dict[tuple[str, ...], Sequence[int]] = field(default_factory=dict)

    def parts(self, units: int, instances: Iterable[str]) -> Mapping[str, int]:
        """The parts of `units` for these different instances. They add up to it."""
        among = tuple(instances)
        by = self._weights.get(among)
        if by is None:
            slices = [self.slices[instance] for instance in among]
            by = self._weights[among] = weights(slices, [self.activity.get(instance) for instance in among])
        sign = -1 if units < 0 else 1
        parts = apportion(abs(units), by)
        return {instance: sign * part for instance, part in zip(among, parts, strict=True)}


ShareCounter = Callable[[OfGpu, Sequence[Reading], CutGpu], None]


def share_page(
    readings: Iterable[Reading], additive: Mapping[bytes, Additive], share_counter: ShareCounter
) -> Work[Mapping[bytes, bytes]]:
    """The parts of gauges, by series; a series that is not in it keeps its value. Counters go to `share_counter`.

    It yields where other tasks may run. `additive` has the families whose values a page may repeat. All other readings
    are the instances' activity. Samples without an instance stay as they are: `dcgm-exporter -d g,i` writes the GPU's
    own row.
    """
    parts: dict[bytes, bytes] = {}
    gpus = yield from _cut_gpus(readings, additive)
    for uuid, gpu in gpus.items():
        for family, rows in gpu.rows.items():
            amounts = set(filter(is_amount, {value for _, value in rows}))
            divisible = [row for row in rows if row[1] in amounts]
            if not divisible:
                continue
            if additive[family] is Additive.COUNTER:
                share_counter((family, uuid), divisible, gpu)
            elif are_repeated(divisible):
                parts.update(_parts_of_gauge(divisible, gpu))
        yield
    return parts


def _cut_gpus(readings: Iterable[Reading], additive: Mapping[bytes, Additive]) -> Work[Mapping[str, CutGpu]]:
    """The GPUs that are cut into MIG instances, by UUID, as a page shows them."""
    gpus: dict[str, CutGpu] = {}
    for number, reading in enumerate(readings, start=1):
        if not number % _READINGS_A_SLICE:
            yield
        series, value = reading
        family = series.name
        subject = series.subject
        instance = subject.instance
        uuid = subject.gpu
        if not instance or not uuid:
            continue
        gpu = gpus.get(uuid)
        if gpu is None:
            gpu = gpus[uuid] = CutGpu()
        if instance not in gpu.slices:
            gpu.slices[instance] = compute_slices(subject.profile)
        if family not in additive:
            if instance not in gpu.activity and is_amount(value):
                gpu.activity[instance] = float(value)
        elif family in gpu.rows:
            gpu.rows[family].append(reading)
        else:
            gpu.rows[family] = [reading]
    return gpus


def are_repeated(rows: Sequence[Reading]) -> bool:
    """Whether these rows of one field all repeat the GPU's value."""
    texts = {value for _, value in rows}
    return len(texts) == 1 or is_repeated([float(text) for text in texts])


def _parts_of_gauge(rows: Sequence[Reading], gpu: CutGpu) -> Mapping[bytes, bytes]:
    """The parts of the first row's value, at its precision, by series. A single instance keeps the value's text."""
    instances = dict.fromkeys(series.subject.instance for series, _ in rows)
    if len(instances) == 1:
        return {}
    units, places = divisible(read_amount(rows[0][1]))
    parts = gpu.parts(units, instances)
    texts = {instance: write_amount(Amount(part, places)) for instance, part in parts.items()}
    return {series.identity: texts[series.subject.instance] for series, _ in rows}


@dataclass(slots=True)
class _Counter:
    """A counter of a GPU: its value, the series that showed it, and the number of the read that last moved it.

    `is_repeated`: the rows repeat the GPU's value. None while all of them show 0.
    """

    value: Amount
    series: frozenset[bytes]
    is_repeated: bool | None
    read: int


class GpuCounters:
    """The GPUs' counters that instances' rows repeat. It tells each row's growth with a read."""

    def __init__(self) -> None:
        self._counters: OrderedDict[OfGpu, _Counter] = OrderedDict()

    def grow(self, key: OfGpu, rows: Sequence[Reading], gpu: CutGpu, read: int) -> Mapping[bytes, Amount]:
        """The growth of each series, once for every read. A series that is not in it shows its instance's own value.

        The instances that both this read and the last read have share the growth. If rows that differed begin to repeat
        one value, the old values cannot be compared with the new one: nothing grows.
        """
        value = read_amount(max((text for _, text in rows), key=float))
        series = frozenset(row.identity for row, _ in rows)
        counter = self._counters.get(key)
        before = counter.is_repeated if counter else None
        # rows that are all 0 may be repeated values or own values
        repeated = are_repeated(rows) if value.units else before
        grows = dict.fromkeys(series, NOTHING) if repeated else {}
        if counter is None:
            self._counters[key] = _Counter(value, series, repeated, read)
            _limit(self._counters, MOST_COUNTERS)
            return grows
        self._counters.move_to_end(key)
        if counter.read == read:
            return {}
        instance_of = {row.identity: row.subject.instance for row, _ in rows if row.identity in counter.series}
        counter.series = series
        counter.is_repeated = repeated
        counter.read = read
        if not repeated or before is False:
            counter.value = value
            return grows
        # a small fall is no reset, since rows are read a moment apart, and a new cut has other rows
        grown = growth(counter.value, value, may_lag=True)
        if grown is None:
            return grows
        counter.value = value
        if grown.units and instance_of:
            parts = gpu.parts(grown.units, dict.fromkeys(instance_of.values()))
            grows.update((row, Amount(parts[instance], grown.places)) for row, instance in instance_of.items())
        return grows


# The nanoseconds for which the kernels of each owner (None: nobody) have run. They only grow.
RunTimes = Mapping[Owner | None, int]
# The most rows of a series that are remembered, with the rows of owners that have left. A forgotten owner begins at 0
# again, which increase() sees as a restart.
_MOST_ROWS = 16
# 16 GPUs of 7 instances with 10 such fields have 1,120 series
MOST_SERIES = 2_048
# The most sources whose last read is remembered. A node has one or two; --dcgm.selector finds at most 64.
_MOST_SOURCES = 256


def split_gauge(text: bytes, parts: int, granted: Sequence[int] | None = None) -> list[bytes]:
    """Parts of a value by what was granted, at its own precision; equal parts if that is not known.

    A value of at most 1 is divided more finely (`divisible`).
    """
    if not is_amount(text):
        return [text] * parts
    amount = divisible(read_amount(text))
    return [write_amount(part) for part in (in_proportion(amount, granted) if granted else in_parts(amount, parts))]


@dataclass(slots=True)
class _DividedCounter:
    """One counter of one device: its value, the sources that reported the value, and its rows' values by owner.

    The key None is the row without owner. `read` is the number of the read that last moved the rows. `has_part`: at
    that read the value was the whole GPU's. `ran` is the time for which each owner's kernels had run when the counter
    was last divided, or when the owner came; None if that was not known.
    """

    device: Amount
    sources: frozenset[str]
    rows: "OrderedDict[Owner | None, Amount]"
    present: frozenset[Owner] = frozenset()
    read: int = 0
    has_part: bool = False
    ran: RunTimes | None = None

    def divide(
        self, grown: Amount, owners: Sequence[Owner], times: RunTimes | None, granted: Sequence[int] | None
    ) -> None:
        """Add the growth to the rows of those `owners` who stayed, by the time for which their kernels ran.

        If that is not known, or is 0, it is divided by what the owners were granted; equally without that.
        """
        stayed = [owner for owner in owners if owner in self.present]
        rows: Sequence[Owner | None] = (*stayed, None)
        run = _run_since(self.ran, times, rows) if stayed else ()
        if any(run):
            parts: Sequence[Amount] = in_proportion(grown, run)
        elif granted and stayed:
            rows = stayed
            granted_to = dict(zip(owners, granted, strict=True))
            parts = in_proportion(grown, [granted_to[owner] for owner in stayed])
        else:
            rows = stayed or (None,)
            parts = in_parts(grown, len(rows))
        for row, part in zip(rows, parts, strict=True):
            self.rows[row] = plus(self.rows[row], part)

    def note_times(self, times: RunTimes | None, *, is_divided: bool) -> None:
        """Begin to count kernels for the next increase. If nothing was divided now, times that already count go on."""
        before = self.ran
        if times is None or before is None or is_divided:
            self.ran = times
        elif times is not before:
            self.ran = {owner: before.get(owner, ns) for owner, ns in times.items()}

    def note_owners(self, owners: Sequence[Owner]) -> None:
        """Note who holds the device now. The rows of those who left longest ago make room."""
        for owner in owners:
            self.rows.setdefault(owner, NOTHING)
            self.rows.move_to_end(owner)
        self.rows.move_to_end(None)
        _limit(self.rows, max(_MOST_ROWS, len(owners) + 1))
        self.present = frozenset(owners)

    def grow_to(self, now: Amount, sources: frozenset[str]) -> Amount:
        """Note the value `now`, which `sources` report. Returns the counter's growth."""
        # two upstreams of one GPU read it a moment apart, so the value of the other upstream counts once it is larger
        grown = growth(self.device, now, may_lag=sources != self.sources)
        if grown is None:
            return NOTHING
        self.device = now
        self.sources = sources
        return grown


class CounterBook:
    """The values of every divided counter and of its rows.

    It advances once with every new read of the upstreams, whoever asked for the page. The same page changes nothing,
    and neither does an older page, which a late scrape may join.
    """

    def __init__(self) -> None:
        self._series: OrderedDict[bytes, _DividedCounter] = OrderedDict()
        self._read_at: OrderedDict[str, float] = OrderedDict()
        self._sources: frozenset[str] = frozenset()
        self._read = 0
        self._is_older = False
        self._gpus = GpuCounters()
        self._grown: dict[bytes, Amount] = {}  # by series: its part of a whole GPU's growth with this read

    @property
    def series(self) -> int:
        """The number of remembered divided counters, without those of cut GPUs; at most MOST_SERIES."""
        return len(self._series)

    def turn_to(self, pages: Sequence[Page]) -> None:
        """Turn to these pages: the next values for `advance` come from them, joined."""
        self._is_older = any(page.moment < self._read_at.get(page.source, page.moment) for page in pages)
        if self._is_older or all(page.moment == self._read_at.get(page.source) for page in pages):
            return
        for page in pages:
            self._read_at[page.source] = page.moment
            self._read_at.move_to_end(page.source)
        _limit(self._read_at, _MOST_SOURCES)
        self._sources = frozenset(page.source for page in pages)
        self._read += 1
        self._grown = {}

    def share(self, key: OfGpu, rows: Sequence[Reading], gpu: CutGpu) -> None:
        """Divide a counter that instances' rows may repeat.

        Callers do this for all rows of a page, before `advance`.
        """
        if not self._is_older:
            self._grown.update(self._gpus.grow(key, rows, gpu, self._read))

    def advance(
        self,
        series: bytes,
        owners: Sequence[Owner],
        value: bytes,
        times: RunTimes | None = None,
        granted: Sequence[int] | None = None,
    ) -> list[bytes]:
        """The rows' values at a read: one value for each of `owners`, in that order, then the value without owner.

        `series` is the identity of the counter's series without its owners. `times` are the kernels' times at this
        read; None if a time is not known. What no times divide, what was `granted` to each owner does.
        """
        if self._is_older or not is_amount(value):
            return self.peek(series, owners, value)
        state = self._series.get(series)
        now = read_amount(value)
        of_gpu = self._grown.get(series)
        if state is None:
            rows = OrderedDict[Owner | None, Amount]({None: NOTHING})
            state = _DividedCounter(now, self._sources, rows, read=self._read, has_part=of_gpu is not None, ran=times)
            self._series[series] = state
            _limit(self._series, MOST_SERIES)
        self._series.move_to_end(series)
        # if several upstreams have a row of one series, the first row counts
        if state.read != self._read:
            state.read = self._read
            grown = state.grow_to(now, self._sources)
            if of_gpu is not None or state.has_part:  # a GPU's earlier value cannot be compared with an instance's
                grown = of_gpu or NOTHING
            state.has_part = of_gpu is not None
            if grown.units:  # else nothing is added, not even 0.000, so that the same page has the same text again
                state.divide(grown, owners, times, granted)
            state.note_times(times, is_divided=bool(grown.units))
        elif times is not None and state.ran is not None:  # an owner that comes while the page is shown begins here
            state.note_times(times, is_divided=False)
        state.note_owners(owners)
        return [write_amount(state.rows[owner]) for owner in (*owners, None)]

    def peek(self, series: bytes, owners: Sequence[Owner], value: bytes) -> list[bytes]:
        """The rows' values in the order of `advance`, without moving them.

        A value that is no amount is copied to each row.
        """
        if not is_amount(value):
            return [value] * (len(owners) + 1)
        state = self._series.get(series)
        rows = state.rows if state is not None else {}
        return [write_amount(rows.get(owner, NOTHING)) for owner in (*owners, None)]


def _run_since(before: RunTimes | None, now: RunTimes | None, owners: Sequence[Owner | None]) -> Sequence[int]:
    """The time for which each owner's kernels ran since `before`; () if one is not known.

    A fall is a restart from 0.
    """
    if before is None or now is None:
        return ()
    if not before.keys() & now.keys() >= set(owners):
        return ()
    return [now[owner] - before[owner] if now[owner] >= before[owner] else now[owner] for owner in owners]


def _limit(entries: "OrderedDict[Any, Any]", most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)
