"""Amounts: exact decimals, as the values of samples are printed, with as many places as were printed.

Python's `decimal` could do the same, and would cost every node 344 KiB of memory for it.
"""

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

# A value of more characters, or with a larger exponent, is a number that nobody means.
_LONGEST = 1_000
# DCGM's values for "not supported", as 32-bit and 64-bit integers; as doubles they come out as a few above 2**47
# or, printed with the shortest digits, as 2**63.
_BLANK_RANGES = ((2147483632, 2147483647), (140737488355328, 140737488355343))
_BLANK_INT64_AS_DOUBLE = 2.0**63
_LEAST_BLANK = _BLANK_RANGES[0][0]
_RATIO_PLACES = 6  # as DCGM prints ratios before 4.9


class Amount(NamedTuple):
    """`units` of 10 ** -`places` each; `places` is 0 or more."""

    units: int
    places: int = 0


NOTHING = Amount(0)


def is_amount(text: bytes) -> bool:
    """Whether a sample's value is a number that can be divided."""
    number = float(text)
    if not -_LEAST_BLANK < number < _LEAST_BLANK:
        if not isfinite(number) or number == _BLANK_INT64_AS_DOUBLE:
            return False
        if any(low <= number <= high for low, high in _BLANK_RANGES):
            return False
    return is_printable(text)


def is_printable(text: bytes) -> bool:
    """Whether a number is written, and can be written out, in a sensible number of digits."""
    if len(text) > _LONGEST:
        return False
    if b"e" not in text and b"E" not in text:
        return True
    # float() makes 0 of 1e-99999, whose parts would take as many digits to write
    return abs(int(text.lower().partition(b"e")[2])) <= _LONGEST


def read_amount(text: bytes) -> Amount:
    """The value that a sample shows, which `is_amount` or `is_printable` says yes to."""
    mantissa, _, exponent = text.lower().partition(b"e")
    whole, _, fraction = mantissa.partition(b".")
    places = len(fraction) - int(exponent or 0)
    units = int(whole + fraction)
    # 4.3e+09 is a whole number that Go printed shortly: its unit is 1
    return Amount(units, places) if places >= 0 else Amount(units * 10**-places)


def write_amount(amount: Amount) -> bytes:
    """An amount with all its places, and without an exponent."""
    units, places = amount
    if not places:
        return b"%d" % units
    digits = b"%d" % abs(units)
    if len(digits) <= places:
        digits = digits.zfill(places + 1)
    sign = b"-" if units < 0 else b""
    return sign + digits[:-places] + b"." + digits[-places:]


def plus(one: Amount, other: Amount) -> Amount:
    """The sum, with the places of the one that has more."""
    a, b, places = _aligned(one, other)
    return Amount(a + b, places)


def minus(one: Amount, other: Amount) -> Amount:
    """The difference, with the places of the one that has more."""
    a, b, places = _aligned(one, other)
    return Amount(a - b, places)


def in_parts(amount: Amount, parts: int) -> Sequence[Amount]:
    """Equal parts that add up to the amount: what is left over goes to the first ones, unit by unit."""
    each, left = divmod(abs(amount.units), parts)
    sign = -1 if amount.units < 0 else 1
    return [Amount(sign * (each + (number < left)), amount.places) for number in range(parts)]


def divisible(amount: Amount) -> Amount:
    """The same amount; one of at most 1 in millionths at least: a ratio may be printed as 1, which has no halves."""
    units, places = amount
    if places < _RATIO_PLACES and 0 < abs(units) <= 10**places:
        return Amount(units * 10 ** (_RATIO_PLACES - places), _RATIO_PLACES)
    return amount


def growth(before: Amount, now: Amount, *, may_lag: bool) -> Amount | None:
    """How much a counter grew; None for a value that came late, if that can be: the counter was further already.

    A fall is a start from 0, as increase() sees it too. One by less than half may be a late value.
    """
    grown = minus(now, before)
    if grown.units >= 0:
        return grown
    if may_lag and minus(plus(now, now), before).units >= 0:
        return None
    return now if now.units > 0 else NOTHING


def _aligned(one: Amount, other: Amount) -> tuple[int, int, int]:
    """The units of both at the places of the one that has more, and these places."""
    a, b, more = one.units, other.units, one.places - other.places
    if more > 0:
        return a, b * 10**more, one.places
    if more < 0:
        return a * 10**-more, b, other.places
    return a, b, one.places
