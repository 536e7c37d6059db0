"""Exact decimals, with as many places as a sample's text has; and the conversion of a value to a number of JSON.

Python's `decimal` could do the same, and would cost every node 344 KiB of memory for it.
"""

from collections.abc import Callable, Sequence
from math import inf, isfinite
from typing import NamedTuple

from exporter.dcgm.fields import Field
from exporter.dividing.instances import apportion

# no exporter means to write a number with more characters, or with a larger exponent
_LONGEST = 1_000
# DCGM's values for "not supported", as 32-bit and 64-bit integers; as doubles they are a few above 2**47 or, printed
# with the shortest digits, 2**63.
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
    """Whether a sample's value is a number that this module can divide."""
    number = float(text)
    if not -_LEAST_BLANK < number < _LEAST_BLANK:
        if not isfinite(number) or number == _BLANK_INT64_AS_DOUBLE:
            return False
        if any(low <= number <= high for low, high in _BLANK_RANGES):
            return False
    return is_printable(text)


def is_printable(text: bytes) -> bool:
    """Whether a number has a sensible number of digits, with and without its exponent."""
    if len(text) > _LONGEST:
        return False
    if b"e" not in text and b"E" not in text:
        return True
    # float() makes 0 of 1e-99999, but the parts of this number would have as many digits
    return abs(int(text.lower().partition(b"e")[2])) <= _LONGEST


def read_amount(text: bytes) -> Amount:
    """The amount of a sample's value for which `is_amount` or `is_printable` is true."""
    mantissa, _, exponent = text.lower().partition(b"e")
    whole, _, fraction = mantissa.partition(b".")
    places = len(fraction) - int(exponent or 0)
    units = int(whole + fraction)
    # 4.3e+09 is a whole number in Go's short form, so its unit is 1
    return Amount(units, places) if places >= 0 else Amount(units * 10**-places)


def in_proportion(amount: Amount, weights: Sequence[int]) -> list[Amount]:
    """Parts by weights that add up to the amount, at its own precision. At least one weight is above 0."""
    sign = -1 if amount.units < 0 else 1
    return [Amount(sign * part, amount.places) for part in apportion(abs(amount.units), weights)]


def write_amount(amount: Amount) -> bytes:
    """The text of an amount, with all its places and without an exponent."""
    units, places = amount
    if not places:
        return b"%d" % units
    digits = b"%d" % abs(units)
    if len(digits) <= places:
        digits = digits.zfill(places + 1)
    sign = b"-" if units < 0 else b""
    return sign + digits[:-places] + b"." + digits[-places:]


# dcgm-exporter prints values with Go's FormatFloat(x, 'g', -1, 64), whose exponents begin and end here
_LEAST_EXPONENT = -4
_MOST_EXPONENT = 6
_CONVERTED_PLACES = 6
_TWO_DIGITS = 100
# DCGM's values for "not supported" begin so, and so do some others
_BLANK_STARTS = frozenset({b"2147", b"2.14", b"1407", b"1.40", b"9223", b"9.22"})


def in_unit(times: int, per: int) -> Callable[[bytes], bytes]:
    """A converter of samples' values to another unit, by `times` / `per`; it prints as dcgm-exporter since 4.8.3 does.

    The result is exact if `per` is a power of ten. Otherwise it has six decimals, or as many as the value if these are
    more, and the last decimal is rounded. A value that is no amount is copied.
    """
    shift = len(str(times)) - len(str(per))
    is_shift = str(times).rstrip("0") == str(per).rstrip("0")

    def convert(text: bytes) -> bytes:
        if not is_amount(text):
            return text
        units, places = read_amount(text)
        units *= times
        if per != 1:
            more = len(str(per)) - 1 if is_shift else max(_CONVERTED_PLACES - places, 0)
            whole, rest = divmod(units * 10**more, per)
            units = whole + (2 * rest + whole % 2 > per)
            places = places + more
        digits = b"%d" % abs(units)
        return (b"-" if units < 0 else b"") + _shortly(digits, len(digits) - 1 - places)

    exponents = {
        b"e%+03d" % before: b"e%+03d" % (before + shift)
        for before in range(_MOST_EXPONENT, _TWO_DIGITS)
        if before + shift >= _MOST_EXPONENT
    }

    def move_point(text: bytes) -> bytes:
        # the digits stay the same, so this needs no arithmetic, which would take ten times as long
        if text[:4] in _BLANK_STARTS:
            return convert(text)
        exponent = exponents.get(text[-4:])
        if exponent is not None:
            return text[:-4] + exponent
        if text.isdigit() and text[:1] != b"0":
            return _shortly(text, len(text) - 1 + shift)
        return convert(text)

    return move_point if is_shift else convert


def _shortly(digits: bytes, exponent: int) -> bytes:
    """The text of digits as Go's %g writes it: 4.3e+09, 81000, 0.57. The first digit counts 10 ** `exponent`."""
    digits = digits.rstrip(b"0")
    if not digits:
        return b"0"
    if not _LEAST_EXPONENT <= exponent < _MOST_EXPONENT:
        point = b"." if len(digits) > 1 else b""
        return b"%b%b%be%+03d" % (digits[:1], point, digits[1:], exponent)
    if exponent < 0:
        return b"0." + b"0" * (-1 - exponent) + digits
    whole = exponent + 1
    if len(digits) <= whole:
        return digits.ljust(whole, b"0")
    return digits[:whole] + b"." + digits[whole:]


def plus(one: Amount, other: Amount) -> Amount:
    """The sum, with the places of the amount that has more."""
    more = one.places - other.places
    if more > 0:
        return Amount(one.units + other.units * 10**more, one.places)
    return Amount(one.units * 10**-more + other.units, other.places)


def minus(one: Amount, other: Amount) -> Amount:
    """The difference, with the places of the amount that has more."""
    return plus(one, Amount(-other.units, other.places))


def in_parts(amount: Amount, parts: int) -> Sequence[Amount]:
    """Equal parts that add up to the amount. The first parts get the remainder, unit by unit."""
    part, left = divmod(abs(amount.units), parts)
    sign = -1 if amount.units < 0 else 1
    return [Amount(sign * (part + (number < left)), amount.places) for number in range(parts)]


def divisible(amount: Amount) -> Amount:
    """The same amount.

    One of at most 1 gets six places or more, since a ratio may be printed as 1, which has no halves.
    """
    units, places = amount
    if places < _RATIO_PLACES and 0 < abs(units) <= 10**places:
        return Amount(units * 10 ** (_RATIO_PLACES - places), _RATIO_PLACES)
    return amount


def growth(before: Amount, now: Amount, *, may_lag: bool) -> Amount | None:
    """The growth of a counter. A fall is a restart from 0.

    With `may_lag`, a fall by less than half is a late value: None.
    """
    grown = minus(now, before)
    if grown.units >= 0:
        return grown
    if may_lag and minus(plus(now, now), before).units >= 0:
        return None
    return now if now.units > 0 else NOTHING


# JavaScript, like most readers of JSON, has exact whole numbers up to this one.
_EXACT = 2**53


def number(text: bytes, field: Field) -> int | float | None:
    """The number of a sample's value in its field's unit; None for NaN, infinities and DCGM's "not supported"."""
    value = float(text)
    if not value:
        return 0  # also for a number too small for a double, and for 0e99999999999999999999, which decimals cannot hold
    # DCGM's values for "not supported" are larger, and NaN is not in this range either
    if not -_LEAST_BLANK < value < _LEAST_BLANK and not is_amount(text):
        return None
    if not field.times == field.per == 1:
        value = _converted(text, field) if is_printable(text) else value * field.times / field.per
        if not isfinite(value):
            return None
    return int(value) if value.is_integer() and -_EXACT < value < _EXACT else value


def _converted(text: bytes, field: Field) -> float:
    """The number in the field's unit, rounded once: 0.57 times 100 is 57."""
    units, places = read_amount(text)
    try:
        return units * field.times / (field.per * int(10**places))
    except OverflowError:
        return inf
