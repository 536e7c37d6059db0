"""A sample's value as a whole number of small units, exactly: no float is in between, and no `decimal` is imported."""

from functools import lru_cache

from exporter.accounting.sharing import is_amount

# What DCGM prints for "not supported" is larger than this.
_USUAL = 2**31 - 16
_LONGEST = 40
_MOST_ZEROS = 40


# The rows of a GPU's instances repeat one text, and most texts are those of the look before.
@lru_cache(maxsize=1024)
def units(text: bytes, power: int) -> int | None:
    """The value in units of 10**-power, rounded down: b"112.5" with power 6 is 112500000.

    None for what is no amount: NaN, infinities, negative numbers, DCGM's values for "not supported", and texts that no
    exporter prints (hexadecimal, or over 40 digits).
    """
    mantissa, _, exponent = text.lower().partition(b"e")
    whole, _, fraction = mantissa.partition(b".")
    digits = whole.removeprefix(b"+") + fraction
    if not digits.isdigit() or len(text) > _LONGEST:
        return 0 if mantissa.startswith(b"-") and not digits.strip(b"-0") and len(text) <= _LONGEST else None
    zeros = power - len(fraction) + (int(exponent) if exponent else 0)
    if abs(zeros) > _MOST_ZEROS:
        return None
    number = int(digits)
    amount = number * 10**zeros if zeros >= 0 else number // 10**-zeros
    return amount if amount < _USUAL * 10**power or is_amount(text) else None
