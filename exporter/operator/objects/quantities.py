"""Kubernetes' quantities in the API server's form ("1500m", "70", "2k"), which it gives back unchanged. Pure."""

import re
from decimal import ROUND_HALF_UP, ROUND_UP, Decimal
from itertools import chain

from exporter.reading import Invalid, shown

# Quantities are whole numbers of 64 bits times a power of ten, and have at most nine digits behind the point.
_SUFFIXES = {18: "E", 15: "P", 12: "T", 9: "G", 6: "M", 3: "k", 0: "", -3: "m", -6: "u", -9: "n"}
_BINARY = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_TIMES = dict(chain(_BINARY.items(), ((suffix, Decimal(10) ** power) for power, suffix in _SUFFIXES.items() if suffix)))
_FORM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?")
_WITH_UNIT = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
MOST_CHARS = 40
_LEAST = Decimal("1e-9")
_THOUSANDTH = Decimal("0.001")


def written(amount: Decimal) -> str:
    """An amount of at least 0 and below 1e18, as a quantity. It is rounded up to a billionth, as in Kubernetes."""
    if amount % _LEAST:
        amount = amount.quantize(_LEAST, ROUND_UP)
    if not amount:
        return "0"
    for power, suffix in _SUFFIXES.items():
        count = amount.scaleb(-power)
        if count == count.to_integral_value():
            return f"{int(count)}{suffix}"
    raise AssertionError(amount)


def read(quantity: str | int) -> Decimal:
    """The amount of a quantity.

    Raises:
        ValueError: it is no quantity, or has more digits than a quantity needs.
    """
    text = str(quantity)
    match = _FORM.fullmatch(text) if len(text) <= MOST_CHARS else None
    if not match:
        raise ValueError(f"{text[:MOST_CHARS]!r} is no quantity")
    number, suffix = match.groups()
    if suffix is None:
        return Decimal(number)
    return Decimal(number) * _TIMES[suffix] if suffix in _TIMES else Decimal(f"{number}{suffix}")


def in_thousandths(number: float) -> Decimal:
    """A number rounded to thousandths, in which a HorizontalPodAutoscaler counts."""
    return Decimal(repr(number)).quantize(_THOUSANDTH, ROUND_HALF_UP)


def plain(amount: Decimal) -> str:
    """An amount as a plain number, such as "70" or "0.7"."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def quantity(value: object, path: str) -> str | int:
    """Read an amount of a resource, and keep it as it was written."""
    whole_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if whole_number or (isinstance(value, str) and len(value) <= MOST_CHARS and _WITH_UNIT.fullmatch(value)):
        return value  # type: ignore[return-value]
    raise Invalid(path, f"{shown(value)} is no quantity; give one such as 100m or 128Mi")
