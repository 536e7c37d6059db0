"""The strict reader of untrusted JSON and YAML into frozen dataclasses. Pure.

A dataclass declares each field by `of`, with the reader of its value; `read` fills it from a parsed document. If a
reader refuses a value, the error names the value's path and what is allowed.

Tests: tests/operator/test_resources.py.
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, TypeVar

from exporter.errors import ExporterError

T = TypeVar("T")
# makes the field's value of a document's value and its path. Raises Invalid: it is not allowed
Reader = Callable[[object, str], Any]
MOST_SHOWN = 80


class Invalid(ExporterError):
    """A field of a document cannot be used. `field` is its path, such as spec.fields[0]; "" is the whole document."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}" if field else why)
        self.field = field
        self.why = why


def read(cls: type[T], value: object, path: str) -> T:
    """Make a frozen dataclass, whose fields `of` declared, of the mapping at `path`.

    For a key that is missing or null the field's default counts. Keys without a field are ignored, since a newer schema
    has more. Raises Invalid: the value is no mapping, a field without default is missing, or a reader refuses a value.
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
    """Declare a field of a dataclass with the reader of its value and its default. Without default it is required."""
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata={"read": read_value})
    return field(default=default, metadata={"read": read_value})


def key_of(declared: Field[Any]) -> str:
    """The field's key in the document: pod_labels → podLabels."""
    first, *others = declared.name.split("_")
    return first + "".join(map(str.capitalize, others))


def group(cls: type) -> Reader:
    """The reader of a mapping into a dataclass of its own."""
    return lambda value, path: read(cls, value, path)


def closed(make: Callable[..., object], required: Mapping[str, Reader], optional: Mapping[str, Reader]) -> Reader:
    """The reader of a mapping with these keys only. `make` gets the values by keyword. A null counts as no key."""
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
    """A user's regular expression, compiled without Python's warning about `[[` (a set of sets in future versions).

    Raises re.error: it is no regular expression.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(pattern)


def text(pattern: str, what: str, most: int) -> Reader:
    """The reader of a text of at most `most` characters that matches as a whole. `what` names the allowed texts."""
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
    """The reader of a text that `parse` takes without a ValueError. The text is kept as it was written."""
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
    """The reader of one of these texts."""
    # in YAML 1.1, which kubectl reads, a bare on or off is a boolean
    quoted = ', in quotes ("on")' if "on" in allowed else ""

    def read_choice(value: object, path: str) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise Invalid(path, f"{shown(value)} is not allowed; give {', '.join(allowed)}{quoted}")
        return value

    return read_choice


def whole(least: int, most: int) -> Reader:
    """The reader of a whole number from `least` to `most`."""

    def read_whole(value: object, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Invalid(path, f"{shown(value)} is not allowed; give a whole number from {least} to {most}")
        return value

    return read_whole


def above_zero(most: float) -> Reader:
    """The reader of a number above 0, at most `most`."""

    def read_number(value: object, path: str) -> float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 < value <= most or not math.isfinite(value):  # type: ignore[operator, arg-type]
            raise Invalid(path, f"{shown(value)} is not allowed; give a number above 0")
        return float(value)  # type: ignore[arg-type]

    return read_number


def flag(value: object, path: str) -> bool:
    """The reader of a boolean."""
    if not isinstance(value, bool):
        raise Invalid(path, f"{shown(value)} is not allowed; give true or false")
    return value


def each(read_one: Reader, most: int, *, least: int = 0, once: bool = False) -> Reader:
    """The reader of a list of `least` to `most` values. With `once` no value may be there twice."""

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
    """The reader of a mapping from texts, with at most `most` entries."""

    def read_mapping(value: object, path: str) -> dict[str, Any]:
        given = a_mapping(value, path)
        if len(given) > most:
            raise Invalid(path, f"it has {len(given)} entries; give at most {most}")
        return {read_key(key, path): read_value(inner, f"{path}.{key}") for key, inner in given.items()}

    return read_mapping


def a_mapping(value: object, path: str) -> Mapping[Any, object]:
    """The value, if it is a mapping. Raises Invalid: it is none."""
    if not isinstance(value, Mapping):
        raise Invalid(path, f"{shown(value)} is no mapping")
    return value


def shown(value: object) -> str:
    """A value as a message shows it: short, and on one line. A text that is cut keeps its closing quote."""
    if isinstance(value, (list, Mapping)):
        return "a list" if isinstance(value, list) else "a mapping"
    text = repr(value if not isinstance(value, str) else value[: MOST_SHOWN + 1])
    if len(text) <= MOST_SHOWN:
        return text
    quote = text[-1] if isinstance(value, str) else ""
    return f"{text[:MOST_SHOWN]}…{quote}"
