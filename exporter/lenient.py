"""Reads fields of JSON that may be anything: a value of another type than asked for counts as absent. Pure.

What must have its form is read strictly, by reading.py.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

AnyObject = Mapping[str, Any]
_NOTHING: AnyObject = {}
_LARGEST_WHOLE = 2**31 - 1
_LARGEST = 1e15


def mapping(item: object, *path: str) -> AnyObject:
    """The mapping at the end of a path of keys; an empty one where there is none."""
    for key in path:
        if not isinstance(item, Mapping):
            return _NOTHING
        item = item.get(key)
    return item if isinstance(item, Mapping) else _NOTHING


def mappings(item: object, key: str, most: int = 1_000) -> Sequence[AnyObject]:
    """The mappings in a list, which stands under a key; of the list's entries at most so many are looked at."""
    return each_mapping(mapping(item).get(key), most)


def each_mapping(items: object, most: int = 1_000) -> Sequence[AnyObject]:
    """The mappings in a list; of its entries at most so many are looked at."""
    return [item for item in items[:most] if isinstance(item, Mapping)] if isinstance(items, list) else ()


def text(item: AnyObject, key: str) -> str:
    """A text; "" where there is none."""
    value = item.get(key)
    return value if isinstance(value, str) else ""


def whole(value: object) -> int | None:
    """A whole number from 0 to what 31 bits hold; None where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_WHOLE else None


def number(item: AnyObject, key: str) -> int | None:
    """The same, under a key."""
    return whole(item.get(key))


def finite(item: AnyObject, key: str) -> float | None:
    """A finite number; None for null, text, and what no GPU measures."""
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # first the size: an int may be too large for a float
    return float(value) if -_LARGEST < value < _LARGEST and isfinite(value) else None
