"""A sample's value as a whole number of small units, exactly: no float is in between, and no `decimal` is imported."""

import re

from exporter.accounting.decimals import is_amount

# sign, digits before and after the point, exponent; a float that a program prints has no more digits
_NUMBER = re.compile(rb"([+-]?)([0-9]{0,20})(?:\.([0-9]{0,20}))?(?:[eE]([+-]?[0-9]{1,3}))?")
_MOST_DIGITS = 40
_MOST_ZEROS = 60
# What DCGM prints for "not supported" is larger than this.
_USUAL = 2**31 - 16


def units(text: bytes, power: int) -> int | None:
    """The value in units of 10**-power, rounded down: b"112.5" with power 6 is 112500000.

    None for what is no amount: NaN, infinities, negative numbers, DCGM's values for "not supported", and texts that no
    exporter prints (hexadecimal, or over 40 digits).
    """
    whole, _, fraction = text.partition(b".")
    if (whole + fraction).isdigit() and len(text) <= _MOST_DIGITS:
        digits, zeros = int(whole + fraction), power - len(fraction)
    else:
        digits, exponent = _with_exponent(text)
        zeros = power + exponent
        if digits <= 0 or abs(zeros) > _MOST_ZEROS:
            return None if digits else 0
    amount = digits * 10**zeros if zeros >= 0 else digits // 10**-zeros
    return amount if amount < _USUAL * 10**power or is_amount(text) else None


def _with_exponent(text: bytes) -> tuple[int, int]:
    """A number with a sign or an exponent as digits and a power of ten; -1 for a negative one, and for what is none."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        return -1, 0
    sign, whole, fraction, exponent = found.groups()
    fraction = fraction or b""
    digits = int(whole + fraction or b"-1")
    return -1 if digits > 0 and sign == b"-" else digits, int(exponent or 0) - len(fraction)
