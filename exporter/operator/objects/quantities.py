"""Kubernetes' quantities, in the one form in which the API server writes a number ("1500m", "70", "2k"). Pure.

An amount that is applied in this form comes back as the same text, so that nobody takes it for somebody's edit.
"""

import re
from decimal import ROUND_HALF_UP, ROUND_UP, Decimal
from itertools import chain

# Quantities are whole numbers of 64 bits times a power of ten, and have at most nine digits behind the point.
_SUFFIXES = {18: "E", 15: "P", 12: "T", 9: "G", 6: "M", 3: "k", 0: "", -3: "m", -6: "u", -9: "n"}
_BINARY = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_TIMES = dict(chain(_BINARY.items(), ((suffix, Decimal(10) ** power) for power, suffix in _SUFFIXES.items() if suffix)))
_FORM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?")
MOST_CHARS = 40
_LEAST = Decimal("1e-9")
_THOUSANDTH = Decimal("0.001")


def written(amount: Decimal) -> str:
    """An amount of at least 0 and below 1e18, as a quantity. What is finer than a billionth is rounded up, as there."""
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
        ValueError: it is none, or has more digits than anybody means.
    """
    text = str(quantity)
    found = _FORM.fullmatch(text) if len(text) <= MOST_CHARS else None
    if not found:
        raise ValueError(f"{text[:MOST_CHARS]!r} is no quantity")
    number, suffix = found.groups()
    if suffix is None:
        return Decimal(number)
    return Decimal(number) * _TIMES[suffix] if suffix in _TIMES else Decimal(f"{number}{suffix}")


def in_thousandths(number: float) -> Decimal:
    """A number as autoscalers know it: a HorizontalPodAutoscaler counts in thousandths."""
    return Decimal(repr(number)).quantize(_THOUSANDTH, ROUND_HALF_UP)


def plain(amount: Decimal) -> str:
    """An amount as a plain number, such as "70" and "0.7"."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
