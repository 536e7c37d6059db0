"""Dividing a device's values among its owners (`--sharing split`), in decimals, so that the parts add up exactly.

A gauge is divided as it stands. A counter is divided by its increases, since owners come and go while it only grows:

- an owner's row starts at 0 when it first holds the device, and takes its part of every increase after that;
- a row without owner is always there; it starts at the device's value and takes what nobody held the device for;
- no row ever falls, and what the rows grew by is what the device grew by.

An increase belongs to those who held the device at both ends of it: a row that was not there before cannot show that
it grew. A row that comes back goes on where it was. Values that are no amounts (not-supported values, NaN, Inf) are
copied.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_DOWN, Context, Decimal
from math import isfinite
from typing import Any

from exporter.model import DeviceKey, Owner

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


def is_amount(text: bytes) -> bool:
    """Whether a sample's value is a number that can be divided."""
    number = float(text)
    if not isfinite(number) or number == _BLANK_INT64_AS_DOUBLE or len(text) > _LONGEST:
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
    exponent = number.as_tuple().exponent
    # 4.3e+09 is a whole number that Go printed shortly: its unit is 1
    return min(exponent, 0) if isinstance(exponent, int) else 0


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
    if abs(number.adjusted()) > _LONGEST:
        return str(number).encode()
    return f"{number:f}".encode()


@dataclass(slots=True)
class _Rows:
    """One counter of one device: its last value and its rows'. The key None is the row without owner."""

    device: Decimal
    rows: "OrderedDict[Owner | None, Decimal]" = field(default_factory=OrderedDict)
    present: frozenset[Owner] = frozenset()


class CounterBook:
    """What every divided counter and its rows stand at.

    It advances with every page that is read, whoever asked for it: the same page again changes nothing. `note_sole`
    and `is_divided` say which devices' counters are divided: those that were ever shared.
    """

    def __init__(self) -> None:
        self._series: OrderedDict[bytes, _Rows] = OrderedDict()
        self._divided: OrderedDict[DeviceKey, None] = OrderedDict()
        self._sole: OrderedDict[DeviceKey, Owner] = OrderedDict()

    @property
    def series(self) -> int:
        """How many divided counters are remembered; at most MOST_SERIES."""
        return len(self._series)

    def is_divided(self, device: DeviceKey) -> bool:
        """Whether a device's counters go by increments: from its first share on, for good."""
        return device in self._divided

    def note_shared(self, device: DeviceKey) -> None:
        """A device has a share's owner, or several owners."""
        self._divided[device] = None
        self._divided.move_to_end(device)
        _limit(self._divided, MOST_SERIES)

    def note_sole(self, device: DeviceKey, owner: Owner | None) -> None:
        """Whose row shows a device's whole counter while it is not divided: it must not fall if that begins."""
        self._sole.pop(device, None)
        if owner is not None:
            self._sole[device] = owner
            _limit(self._sole, MOST_SERIES)

    def advance(self, device: DeviceKey, series: bytes, owners: Sequence[Owner], value: bytes) -> list[bytes]:
        """The rows' values at a read: one for each of `owners`, in that order, then the one without owner.

        `series` is the identity of the counter's series, the owners aside.
        """
        if not is_amount(value):
            return [value] * (len(owners) + 1)
        now = _decimal(value)
        state = self._series.get(series)
        if state is None:
            state = self._series[series] = _Rows(device=now, rows=OrderedDict({None: now}))
            sole = self._sole.get(device)
            if sole is not None:
                state.rows[sole] = now
            _limit(self._series, MOST_SERIES)
        self._series.move_to_end(series)
        # a device whose counter fell has started again from 0, as increase() sees it too
        grown = _EXACT.subtract(now, state.device) if now >= state.device else max(now, Decimal(0))
        if grown:  # not even 0.000 is added otherwise: the same page again has the same text again
            stayed: list[Owner | None] = [owner for owner in owners if owner in state.present] or [None]
            for owner, part in zip(stayed, _divide(grown, len(stayed)), strict=True):
                state.rows[owner] = _EXACT.add(state.rows[owner], part)
        for owner in owners:
            state.rows.setdefault(owner, Decimal(0))
            state.rows.move_to_end(owner)
        state.rows.move_to_end(None)
        _limit(state.rows, max(_MOST_ROWS, len(owners) + 1))
        state.device, state.present = now, frozenset(owners)
        return [_text(state.rows[owner]) for owner in (*owners, None)]


def _limit(entries: "OrderedDict[Any, Any]", most: int) -> None:
    while len(entries) > most:
        entries.popitem(last=False)
