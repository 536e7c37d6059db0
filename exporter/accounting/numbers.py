"""A sample's value, as text → the number of a field of /container/metrics. It becomes one here and nowhere else."""

from math import inf, isfinite

from exporter.accounting.decimals import is_amount, is_printable, read_amount
from exporter.accounting.fields import Field

# JavaScript, and with it most readers of JSON, knows whole numbers exactly up to here.
_EXACT = 2**53
_USUAL = 2**31 - 16


def number(text: bytes, field: Field) -> int | float | None:
    """A sample's value in its field's unit; None for NaN, infinities and DCGM's values for "not supported"."""
    value = float(text)
    if not value:
        return 0  # also what is too small for a double, or 0e99999999999999999999, which decimals cannot hold
    # DCGM's "not supported" are larger than this; NaN is not in between either
    if not -_USUAL < value < _USUAL and not is_amount(text):
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
