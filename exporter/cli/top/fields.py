"""Reading JSON that may be anything: a field of the right kind, or nothing."""

from collections.abc import Iterator, Mapping
from itertools import islice
from math import isfinite
from typing import Any

Object = Mapping[str, Any]
NOTHING: Object = {}
_LARGEST = 1e15


def number(of: Object, name: str) -> float | None:
    """A finite number; None for null, text, and what no GPU measures."""
    value = of.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # first the size: an int may be too large for a float
    return float(value) if -_LARGEST < value < _LARGEST and isfinite(value) else None


def text(of: Object, name: str) -> str:
    """A text; "" for anything else."""
    value = of.get(name)
    return value if isinstance(value, str) else ""


def section(of: Object, name: str) -> Object:
    """An object; an empty one for anything else."""
    value = of.get(name)
    return value if isinstance(value, dict) else NOTHING


def objects(of: object, most: int) -> Iterator[Object]:
    """The objects of an array, at most so many; none for anything else."""
    return islice((each for each in of if isinstance(each, dict)), most) if isinstance(of, list) else iter(())
