"""How fields of an object from the Kubernetes API are read: nothing that comes from there is trusted. Pure.

The API server has validated the object against the schema in deploy/operator/crds.yaml, unless an older or a newer
schema is installed. So every reader checks again, and names the field that it refuses.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, field, fields
from typing import Any, TypeVar

from exporter.errors import ExporterError

T = TypeVar("T")
# a value and the path of its field → what it means; raises Invalid
Reader = Callable[[object, str], Any]
MOST_SHOWN = 80
_WITH_UNIT = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_MOST_IN_A_QUANTITY = 40


class Invalid(ExporterError):
    """A field of a custom resource cannot be used. `field` is its path, such as spec.collectors.fields[0]."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field
        self.why = why


def read(cls: type[T], value: object, path: str) -> T:
    """A frozen dataclass whose fields were declared with `of`, from the mapping that stands at `path`.

    A key that is missing or null has the field's default. Keys without a field are ignored: a newer schema has more.

    Raises:
        Invalid: the value is no mapping, a field without default is missing, or a field's reader refuses its value.
    """
    given = a_mapping(value, path)
    found: dict[str, Any] = {}
    for declared in fields(cls):  # type: ignore[arg-type]
        key = key_of(declared)
        inner = given.get(key)
        if inner is not None:
            found[declared.name] = declared.metadata["read"](inner, f"{path}.{key}")
        elif declared.default is MISSING and declared.default_factory is MISSING:
            raise Invalid(f"{path}.{key}", "it is required")
    return cls(**found)


def of(read_value: Reader, default: object = MISSING) -> Any:  # noqa: ANN401 - as dataclasses.field: any field's type
    """A field of a dataclass, what reads it, and its default; without default the field is required."""
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata={"read": read_value})
    return field(default=default, metadata={"read": read_value})


def key_of(declared: Field[Any]) -> str:
    """The field's key in the API: pod_labels → podLabels."""
    first, *others = declared.name.split("_")
    return first + "".join(map(str.capitalize, others))


def group(cls: type) -> Reader:
    """A mapping with fields of its own."""
    return lambda value, path: read(cls, value, path)


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
        found: str = read_text(value, path)
        try:
            parse(found)
        except (ValueError, OverflowError, RecursionError):  # the last two from regular expressions
            raise Invalid(path, f"{shown(value)} is not allowed; give {what}") from None
        return found

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


def quantity(value: object, path: str) -> str | int:
    """An amount of a resource, kept as it was written."""
    whole_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if whole_number or (isinstance(value, str) and len(value) <= _MOST_IN_A_QUANTITY and _WITH_UNIT.fullmatch(value)):
        return value  # type: ignore[return-value]
    raise Invalid(path, f"{shown(value)} is no quantity; give one such as 100m or 128Mi")


def each(read_one: Reader, most: int, *, least: int = 0, once: bool = False) -> Reader:
    """A list; with `once` no value may be there twice."""

    def read_list(value: object, path: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Invalid(path, f"{shown(value)} is no list")
        if not least <= len(value) <= most:
            raise Invalid(path, f"it has {len(value)} entries; give {least} to {most}")
        found: list[Any] = []
        for index, inner in enumerate(value):
            one = read_one(inner, f"{path}[{index}]")
            if once and one in found:
                raise Invalid(f"{path}[{index}]", f"{shown(inner)} is there twice; give it once")
            found.append(one)
        return tuple(found)

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
    said = repr(value if not isinstance(value, str) else value[: MOST_SHOWN + 1])
    return said if len(said) <= MOST_SHOWN else f"{said[:MOST_SHOWN]}…"
