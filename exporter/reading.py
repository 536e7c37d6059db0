"""Reads JSON and YAML that nobody trusts into frozen dataclasses. Pure.

A dataclass declares each field with `of` and the reader of its value; `read` fills it from a parsed document. A reader
that refuses a value names its path and what is allowed.
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, TypeVar

from exporter.errors import ExporterError

T = TypeVar("T")
# a value and the path of its field → what it means; raises Invalid
Reader = Callable[[object, str], Any]
MOST_SHOWN = 80


class Invalid(ExporterError):
    """A field of a document cannot be used. `field` is its path, such as spec.collectors.fields[0]; "" is the whole."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}" if field else why)
        self.field = field
        self.why = why


def read(cls: type[T], value: object, path: str) -> T:
    """A frozen dataclass whose fields were declared with `of`, from the mapping that stands at `path`.

    A key that is missing or null has the field's default. Keys without a field are ignored: a newer schema has more.
    Raises Invalid: the value is no mapping, a field without default is missing, or a field's reader refuses its value.
    """
    given = a_mapping(value, path)
    values: dict[str, Any] = {}
    for declared in fields(cls):  # type: ignore[arg-type]
        key = key_of(declared)
        inner = given.get(key)
        if inner is not None:
            values[declared.name] = declared.metadata["read"](inner, f"{path}.{key}")
        elif declared.default is MISSING and declared.default_factory is MISSING:
            raise Invalid(f"{path}.{key}", "it is required")
    return cls(**values)


def of(read_value: Reader, default: object = MISSING) -> Any:  # noqa: ANN401 - as dataclasses.field: any field's type
    """A field of a dataclass, what reads it, and its default; without default the field is required."""
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata={"read": read_value})
    return field(default=default, metadata={"read": read_value})


def key_of(declared: Field[Any]) -> str:
    """The field's key in the document: pod_labels → podLabels."""
    first, *others = declared.name.split("_")
    return first + "".join(map(str.capitalize, others))


def group(cls: type) -> Reader:
    """A mapping with fields of its own."""
    return lambda value, path: read(cls, value, path)


def closed(make: Callable[..., object], required: Mapping[str, Reader], optional: Mapping[str, Reader]) -> Reader:
    """What `make` makes, by keyword, of a mapping with these keys and no others. A null is as good as no key."""
    readers = {**required, **optional}

    def read_closed(value: object, path: str) -> object:
        if not isinstance(value, Mapping):
            raise Invalid(path, f"{shown(value)} is no mapping; give one with {', '.join(required)}")
        for key in value:
            if key not in readers:
                raise Invalid(path, f"the key {shown(key)} is not known; there are {', '.join(readers)}")
        start = f"{path}." if path else ""
        for key in required:
            if value.get(key) is None:
                raise Invalid(f"{start}{key}", "it is required")
        return make(**{key: readers[key](inner, f"{start}{key}") for key, inner in value.items() if inner is not None})

    return read_closed


def compiled(pattern: str) -> re.Pattern[str]:
    """A user's regular expression. Python warns of `[[`, which may mean a set of sets one day: no user needs that.

    Raises re.error: it is none.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(pattern)


def text(pattern: str, what: str, most: int) -> Reader:
    """A text of at most `most` characters that matches as a whole. `what` says what is allowed, for people."""
    matches = re.compile(pattern).fullmatch

    def read_text(value: object, path: str) -> str:
        if not isinstance(value, str):
            raise Invalid(path, f"{shown(value)} is no text; give {what}")
        if len(value) > most:
            raise Invalid(path, f"it has {len(value)} characters; give at most {most}")
        if not matches(value):
            raise Invalid(path, f"{shown(value)} is not allowed; give {what}")
        return value

    return read_text


def parsed(parse: Callable[[str], object], what: str, most: int, pattern: str = r"[\s\S]+") -> Reader:
    """A text that `parse` takes without a ValueError; it is kept as it was written."""
    read_text = text(pattern, what, most)

    def read_parsed(value: object, path: str) -> str:
        content: str = read_text(value, path)
        try:
            parse(content)
        except (ValueError, OverflowError, RecursionError):  # the last two from regular expressions
            raise Invalid(path, f"{shown(value)} is not allowed; give {what}") from None
        return content

    return read_parsed


def one_of(*allowed: str) -> Reader:
    """One of a few texts."""
    # YAML 1.1, which kubectl reads, takes a bare on or off for a boolean
    quoted = ', in quotes ("on")' if "on" in allowed else ""

    def read_choice(value: object, path: str) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise Invalid(path, f"{shown(value)} is not allowed; give {', '.join(allowed)}{quoted}")
        return value

    return read_choice


def whole(least: int, most: int) -> Reader:
    """A whole number from `least` to `most`."""

    def read_whole(value: object, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Invalid(path, f"{shown(value)} is not allowed; give a whole number from {least} to {most}")
        return value

    return read_whole


def above_zero(most: float) -> Reader:
    """A number above 0, at most `most`."""

    def read_number(value: object, path: str) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 < value <= most or not math.isfinite(value):  # type: ignore[operator, arg-type]
            raise Invalid(path, f"{shown(value)} is not allowed; give a number above 0")
        return float(value)  # type: ignore[arg-type]

    return read_number


def flag(value: object, path: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Invalid(path, f"{shown(value)} is not allowed; give true or false")
    return value


def each(read_one: Reader, most: int, *, least: int = 0, once: bool = False) -> Reader:
    """A list; with `once` no value may be there twice."""

    def read_list(value: object, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Invalid(path, f"{shown(value)} is no list")
        if not least <= len(value) <= most:
            raise Invalid(path, f"it has {len(value)} entries; give {least} to {most}")
        items: list[Any] = []
        for index, inner in enumerate(value):
            one = read_one(inner, f"{path}[{index}]")
            if once and one in items:
                raise Invalid(f"{path}[{index}]", f"{shown(inner)} is there twice; give it once")
            items.append(one)
        return tuple(items)

    return read_list


def by_key(read_key: Reader, read_value: Reader, most: int) -> Reader:
    """A mapping from texts."""

    def read_mapping(value: object, path: str) -> dict[str, Any]:
        given = a_mapping(value, path)
        if len(given) > most:
            raise Invalid(path, f"it has {len(given)} entries; give at most {most}")
        return {read_key(key, path): read_value(inner, f"{path}.{key}") for key, inner in given.items()}

    return read_mapping


def a_mapping(value: object, path: str) -> Mapping[Any, object]:
    """The value, if it is a mapping."""
    if not isinstance(value, Mapping):
        raise Invalid(path, f"{shown(value)} is no mapping")
    return value


def shown(value: object) -> str:
    """A value in a message: short, and on one line."""
    if isinstance(value, (list, Mapping)):
        return "a list" if isinstance(value, list) else "a mapping"
    text = repr(value if not isinstance(value, str) else value[: MOST_SHOWN + 1])
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
