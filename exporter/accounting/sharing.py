"""Dividing a device's values among its owners (`--sharing split`), in exact amounts, so that the parts add up.

What a page repeats of a GPU on the rows of its MIG instances is divided among the instances before (repeated.py). A
gauge is divided as it stands. A counter is divided by its increases, since owners come and go while it only grows:

- every row starts at 0: an owner's when it first holds the device, and the row without owner, which is always there;
- each takes its part of every increase after that, the row without owner what nobody held the device for;
- parts are equal, or as the time for which each owner's kernels ran meanwhile, where that is measured: then the row
  without owner has the part of kernels that are no owner's;
- no row ever falls, and what the rows grew by is what the device grew by.

So a restart of the exporter is to increase() what any counter's restart is: nothing was consumed by it. An increase
belongs to those who held the device at both ends of it: a row that was not there before cannot show that it grew. A row
that comes back goes on where it was. Values that are no amounts (not-supported values, NaN, Inf) are copied.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.accounting.decimals import (
    NOTHING,
    Amount,
    divisible,
    growth,
    in_parts,
    is_amount,
    plus,
    read_amount,
    write_amount,
)
from exporter.accounting.instances import apportion
from exporter.accounting.repeated import CutGpu, GpuCounters, OfGpu
from exporter.model.pages import Page, Reading
from exporter.model.pods import Owner

# Nanoseconds for which the kernels of each owner have run, and under None those of nobody. It only grows.
RunTimes = Mapping[Owner | None, int]
# Rows of owners that left are remembered up to this many a series: whoever comes back goes on where it was. One that is
# forgotten begins at 0 again, which to increase() is a restart.
_MOST_ROWS = 16
# 16 GPUs of 7 instances with 10 such fields are 1,120. A device that is gone is forgotten after this many others.
MOST_SERIES = 2_048
# Sources whose last read is remembered: a node has one or two, --dcgm.selector finds at most 64.
_MOST_SOURCES = 256


def split_gauge(text: bytes, parts: int) -> list[bytes]:
    """A value in `parts` equal parts at its own precision; what is left over goes to the first ones, unit by unit.

    What is at most 1 is divided more finely (`divisible`).
    """
    if not is_amount(text):
        return [text] * parts
    return [write_amount(part) for part in in_parts(divisible(read_amount(text)), parts)]


@dataclass(slots=True)
class _Rows:
    """One counter of one device: its value, the sources that reported the value, and its rows' values by owner.

    The key None is the row without owner. `read` is the number of the read that last moved the rows. `has_part` says
    that the value was a whole GPU's then, of which the device had a part. `ran` is what the owners' kernels had run for
    when the counter was last divided, or an owner came; None where that was not known.
    """

    device: Amount
    sources: frozenset[str]
    rows: "OrderedDict[Owner | None, Amount]"
    present: frozenset[Owner] = frozenset()
    read: int = 0
    has_part: bool = False
    ran: RunTimes | None = None

    def divide(self, grown: Amount, owners: Sequence[Owner], times: RunTimes | None) -> None:
        """Add what the counter grew by to the rows of those `owners` who stayed, as long as their kernels ran."""
        stayed = [owner for owner in owners if owner in self.present]
        rows: Sequence[Owner | None] = (*stayed, None)
        run = _run_since(self.ran, times, rows) if stayed else ()
        if any(run):
            parts: Sequence[Amount] = [Amount(units, grown.places) for units in apportion(grown.units, run)]
        else:
            rows = stayed or (None,)
            parts = in_parts(grown, len(rows))
        for row, part in zip(rows, parts, strict=True):
            self.rows[row] = plus(self.rows[row], part)

    def note_times(self, times: RunTimes | None, *, is_divided: bool) -> None:
        """From here on kernels count for the next increase; where there was none, for longer than that."""
        before = self.ran
        if times is None or before is None or is_divided:
            self.ran = times
        elif times is not before:
            self.ran = {owner: before.get(owner, ns) for owner, ns in times.items()}

    def grow_to(self, now: Amount, sources: frozenset[str]) -> Amount:
        """How much the counter grew, now that `sources` report the value `now`; note the value."""
        # Of two upstreams that export one GPU, one reads it a little later than the other: what another one says
        # counts once it is past what was known.
        grown = growth(self.device, now, may_lag=sources != self.sources)
        if grown is None:
            return NOTHING
        self.device, self.sources = now, sources
        return grown


class CounterBook:
    """The values of every divided counter and of its rows.

    It advances once with every new read of the upstreams, whoever asked for the read. The same page again changes
    nothing. Nor does an older page than the book already has: a scrape that had to wait may join such a page.
    """

    def __init__(self) -> None:
        self._series: OrderedDict[bytes, _Rows] = OrderedDict()
        self._read_at: OrderedDict[str, float] = OrderedDict()
        self._sources: frozenset[str] = frozenset()
        self._read = 0
        self._is_older = False
        self._gpus = GpuCounters()
        self._grown: dict[bytes, Amount] = {}  # with this read, by series: parts of what whole GPUs grew by

    @property
    def series(self) -> int:
        """How many divided counters are remembered; at most MOST_SERIES, beside those of cut GPUs (repeated.py)."""
        return len(self._series)

    def turn_to(self, pages: Sequence[Page]) -> None:
        """From here on the values of `advance` are those of these pages, joined."""
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

    def share(self, of: OfGpu, rows: Sequence[Reading], gpu: CutGpu) -> None:
        """Divide a counter that the rows of a GPU's instances may repeat: before `advance`, for all rows of a page."""
        if not self._is_older:
            self._grown.update(self._gpus.grow(of, rows, gpu, self._read))

    def advance(
        self, series: bytes, owners: Sequence[Owner], value: bytes, times: RunTimes | None = None
    ) -> list[bytes]:
        """The rows' values at a read: one for each of `owners`, in that order, then the one without owner.

        `series` is the identity of the counter's series, the owners aside. `times` are those of this read, None where
        that of somebody on the device is not known.
        """
        if self._is_older or not is_amount(value):
            return self.peek(series, owners, value)
        state = self._series.get(series)
        now, of_gpu = read_amount(value), self._grown.get(series)
        if state is None:
            rows = OrderedDict[Owner | None, Amount]({None: NOTHING})
            state = _Rows(now, self._sources, rows, read=self._read, has_part=of_gpu is not None, ran=times)
            self._series[series] = state
            _limit(self._series, MOST_SERIES)
        self._series.move_to_end(series)
        # of several upstreams' rows of one series the first counts
        if state.read != self._read:
            state.read = self._read
            grown = state.grow_to(now, self._sources)
            if of_gpu is not None or state.has_part:  # a GPU's value before and an instance's now do not compare
                grown = of_gpu or NOTHING
            state.has_part = of_gpu is not None
            if grown.units:  # not even 0.000 is added otherwise: the same page again has the same text again
                state.divide(grown, owners, times)
            state.note_times(times, is_divided=bool(grown.units))
        elif times is not None and state.ran is not None:  # whoever comes while the page is shown begins here
            state.note_times(times, is_divided=False)
        for owner in owners:
            state.rows.setdefault(owner, NOTHING)
            state.rows.move_to_end(owner)
        state.rows.move_to_end(None)
        _limit(state.rows, max(_MOST_ROWS, len(owners) + 1))
        state.present = frozenset(owners)
        return [write_amount(state.rows[owner]) for owner in (*owners, None)]

    def peek(self, series: bytes, owners: Sequence[Owner], value: bytes) -> list[bytes]:
        """The rows' values in the same order, without moving them. A value that is no amount is copied to each row."""
        if not is_amount(value):
            return [value] * (len(owners) + 1)
        state = self._series.get(series)
        known = state.rows if state is not None else {}
        return [write_amount(known.get(owner, NOTHING)) for owner in (*owners, None)]


def _run_since(before: RunTimes | None, now: RunTimes | None, owners: Sequence[Owner | None]) -> Sequence[int]:
    """For how long the kernels of each have run since `before`; () where that is not known of everybody.

    What is less than before was measured anew, from 0 on.
    """
    if before is None or now is None:
        return ()
    known = [(before[owner], now[owner]) for owner in owners if owner in before and owner in now]
    return [ns - was if ns >= was else ns for was, ns in known] if len(known) == len(owners) else ()


def _limit(entries: "OrderedDict[Any, Any]", most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)
