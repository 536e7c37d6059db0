"""The lenient reader of JSON: a value of another type than asked for counts as absent. Pure.

reading.py is the strict reader.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

AnyObject = Mapping[str, Any]
Object = dict[str, Any]  # an object of JSON that is made here, or some of its fields
_NOTHING: AnyObject = {}
_LARGEST_WHOLE = 2**31 - 1
_LARGEST = 1e15


def mapping(item: object, *path: str) -> AnyObject:
    """The mapping at the end of a path of keys; an empty mapping if there is none."""
    for key in path:
        if not isinstance(item, Mapping):
            return _NOTHING
        item = item.get(key)
    return item if isinstance(item, Mapping) else _NOTHING


def mappings(item: object, key: str, most: int = 1_000) -> Sequence[AnyObject]:
    """The mappings among the first `most` entries of the list at a key."""
    return each_mapping(mapping(item).get(key), most)


def each_mapping(items: object, most: int = 1_000) -> Sequence[AnyObject]:
    """The mappings among the first `most` entries of a list."""
    return [item for item in items[:most] if isinstance(item, Mapping)] if isinstance(items, list) else ()


def text(item: AnyObject, key: str) -> str:
    """The text at a key; "" if there is none."""
    value = item.get(key)
    return value if isinstance(value, str) else ""


def whole(value: object) -> int | None:
    """The value, if it is a whole number from 0 up to the largest of 31 bits; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_WHOLE else None


def number(item: AnyObject, key: str) -> int | None:
    """The whole number at a key, as `whole` reads it."""
    return whole(item.get(key))


def finite(item: AnyObject, key: str) -> float | None:
    """The finite number at a key; None for null, text, and numbers that no GPU measures."""
    value = item.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # first the size: an int may be too large for a float
    return float(value) if -_LARGEST < value < _LARGEST and isfinite(value) else None
