"""Dividing a device's values among its owners (`--sharing split`), in decimals, so that the parts add up exactly.

A gauge is divided as it stands. A counter is divided by its increases, since owners come and go while it only grows:

- every row starts at 0: an owner's when it first holds the device, and the row without owner, which is always there;
- each takes its part of every increase after that, the row without owner what nobody held the device for;
- no row ever falls, and what the rows grew by is what the device grew by.

So a restart of the exporter is to increase() what any counter's restart is: nothing was consumed by it. An increase
belongs to those who held the device at both ends of it: a row that was not there before cannot show that it grew. A row
that comes back goes on where it was. Values that are no amounts (not-supported values, NaN, Inf) are copied.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_DOWN, Context, Decimal
from math import isfinite
from typing import Any

from exporter.model.pages import Page
from exporter.model.pods import Owner

# Exact, whatever the number of digits: nothing here may be rounded.
_EXACT = Context(prec=min(MAX_PREC, 20_000), rounding=ROUND_DOWN, Emin=MIN_EMIN, Emax=MAX_EMAX)
_LONGEST = 1_000
# DCGM's values for "not supported", as 32-bit and 64-bit integers; as doubles they come out as a few above 2**47
# or, printed with the shortest digits, as 2**63.
_BLANK_RANGES = ((2147483632, 2147483647), (140737488355328, 140737488355343))
_BLANK_INT64_AS_DOUBLE = 2.0**63
# Rows of owners that left are remembered up to this many a series: whoever comes back goes on where it was. One that is
# forgotten begins at 0 again, which to increase() is a restart.
_MOST_ROWS = 16
# 16 GPUs of 7 instances with 10 such fields are 1,120. A device that is gone is forgotten after this many others.
MOST_SERIES = 2_048
# Sources whose last read is remembered: a node has one or two, --dcgm.selector finds at most 64.
_MOST_SOURCES = 256


def is_amount(text: bytes) -> bool:
    """Whether a sample's value is a number that can be divided."""
    number = float(text)
    if not isfinite(number) or number == _BLANK_INT64_AS_DOUBLE or len(text) > _LONGEST:
        return False
    # float() makes 0 of 1e-99999: a number that nobody means, and whose parts would take as many digits to write
    _, e, exponent = text.lower().partition(b"e")
    if e and abs(int(exponent)) > _LONGEST:
        return False
    return not any(low <= number <= high for low, high in _BLANK_RANGES)


def split_gauge(text: bytes, parts: int) -> list[bytes]:
    """A value in `parts` equal parts at its own precision; what is left over goes to the first ones, unit by unit."""
    if not is_amount(text):
        return [text] * parts
    return [_text(part) for part in _divide(_decimal(text), parts)]


def _decimal(text: bytes) -> Decimal:
    return _EXACT.create_decimal(text.decode())


def _exponent(number: Decimal) -> int:
    # 4.3e+09 is a whole number that Go printed shortly: its unit is 1
    return min(int(number.as_tuple().exponent), 0)


def _divide(number: Decimal, parts: int) -> list[Decimal]:
    exponent = _exponent(number)
    units = _EXACT.scaleb(number, -exponent)
    each, left = _EXACT.divmod(units, Decimal(parts))
    step = Decimal(1).copy_sign(left)
    return [
        _EXACT.scaleb(_EXACT.add(each, step if index < abs(int(left)) else Decimal(0)), exponent)
        for index in range(parts)
    ]


def _text(number: Decimal) -> bytes:
    return f"{number:f}".encode()


@dataclass(slots=True)
class _Rows:
    """One counter of one device: its value, the sources that reported the value, and its rows' values by owner.

    The key None is the row without owner. `read` is the number of the read that last moved the rows.
    """

    device: Decimal
    sources: frozenset[str]
    rows: "OrderedDict[Owner | None, Decimal]"
    present: frozenset[Owner] = frozenset()
    read: int = 0

    def grow_to(self, now: Decimal, sources: frozenset[str]) -> Decimal:
        """How much the counter grew, now that `sources` report the value `now`; note the value."""
        if now < self.device:
            # Of two upstreams that export one GPU, one reads it a little later than the other: what another one says
            # counts once it is past what was known. A fall by half is more than that.
            if sources != self.sources and 2 * now >= self.device:
                return Decimal(0)
            # the device has started again from 0, as increase() sees it too
            grown = max(now, Decimal(0))
        else:
            grown = _EXACT.subtract(now, self.device)
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

    @property
    def series(self) -> int:
        """How many divided counters are remembered; at most MOST_SERIES."""
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

    def advance(self, series: bytes, owners: Sequence[Owner], value: bytes) -> list[bytes]:
        """The rows' values at a read: one for each of `owners`, in that order, then the one without owner.

        `series` is the identity of the counter's series, the owners aside.
        """
        if self._is_older or not is_amount(value):
            return self.peek(series, owners, value)
        state = self._series.get(series)
        now = _decimal(value)
        if state is None:
            rows = OrderedDict[Owner | None, Decimal]({None: Decimal(0)})
            state = self._series[series] = _Rows(device=now, sources=self._sources, rows=rows, read=self._read)
            _limit(self._series, MOST_SERIES)
        self._series.move_to_end(series)
        # of several upstreams' rows of one series the first counts
        grown = state.grow_to(now, self._sources) if state.read != self._read else Decimal(0)
        state.read = self._read
        if grown:  # not even 0.000 is added otherwise: the same page again has the same text again
            stayed: list[Owner | None] = [owner for owner in owners if owner in state.present] or [None]
            for owner, part in zip(stayed, _divide(grown, len(stayed)), strict=True):
                state.rows[owner] = _EXACT.add(state.rows[owner], part)
        for owner in owners:
            state.rows.setdefault(owner, Decimal(0))
            state.rows.move_to_end(owner)
        state.rows.move_to_end(None)
        _limit(state.rows, max(_MOST_ROWS, len(owners) + 1))
        state.present = frozenset(owners)
        return [_text(state.rows[owner]) for owner in (*owners, None)]

    def peek(self, series: bytes, owners: Sequence[Owner], value: bytes) -> list[bytes]:
        """The rows' values in the same order, without moving them. A value that is no amount is copied to each row."""
        if not is_amount(value):
            return [value] * (len(owners) + 1)
        state = self._series.get(series)
        known = state.rows if state is not None else {}
        return [_text(known.get(owner, Decimal(0))) for owner in (*owners, None)]


def _limit(entries: "OrderedDict[Any, Any]", most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)
