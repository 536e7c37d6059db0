"""Holds a dashboard's JSON to Grafana's own schema, as Grafana publishes it: `grafana-foundation-sdk`'s models.

Each model is a class made of Grafana's schema (CUE). Its `to_json` says how a field is called in JSON, and the hints
of its fields say what may stand there. The models read leniently; this is strict: a field that the schema does not
have, a word that is none of an enumeration's and a value of another type are told, each with its path.
"""

import enum
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from grafana_foundation_sdk.models import bargauge, common, dashboard, prometheus, stat, table, timeseries

Json = Any
_NAMED = re.compile(r'"(\w+)"\] = self\.(\w+)|"(\w+)": self\.(\w+)')
# of a panel's kind: its options, and what `fieldConfig.defaults.custom` has
_KINDS: Mapping[str, tuple[Any, Any]] = {
    "bargauge": (bargauge.Options, None),
    "stat": (stat.Options, None),
    "table": (table.Options, common.TableFieldOptions),
    "timeseries": (timeseries.Options, timeseries.FieldConfig),
}


def troubles(model: Json) -> list[str]:
    """What of a dashboard Grafana's schema does not have, each with its path."""
    return list(_wrong(dashboard.Dashboard, model, "$"))


def _wrong(hint: Any, value: Json, path: str) -> Iterator[str]:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        yield from _wrong_choice(get_args(hint), value, path)
    elif origin in (list, dict):
        yield from _wrong_inside(hint, value, path)
    elif words := _words(hint):
        if value not in words:
            yield f"{path}: {value!r} is none of {words}"
    elif hint in (str, int, float, bool, NoneType):
        yield from _wrong_scalar(hint, value, path)
    elif hint not in (Any, object):
        yield from _wrong_object(hint, value, path)


def _words(hint: Any) -> tuple[Any, ...]:
    """What may stand where only some words may; () elsewhere."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(member.value for member in hint) if isinstance(hint, type) and issubclass(hint, enum.Enum) else ()


def _wrong_inside(hint: Any, value: Json, path: str) -> Iterator[str]:
    of, inside = get_origin(hint), get_args(hint)[-1]
    if not isinstance(value, of):
        yield f"{path}: {value!r} is no {of.__name__}"
    elif of is list:
        for number, each in enumerate(value):
            yield from _wrong(inside, each, f"{path}[{number}]")
    else:
        for name, each in value.items():
            yield from _wrong(inside, each, f"{path}.{name}")


def _wrong_choice(choices: tuple[Any, ...], value: Json, path: str) -> Iterator[str]:
    """The troubles of the choice that fits best; a choice that fits has none."""
    possible = [choice for choice in choices if choice is not NoneType or value is None]
    yield from min([list(_wrong(choice, value, path)) for choice in possible], key=len)


def _wrong_scalar(hint: type, value: Json, path: str) -> Iterator[str]:
    is_bool = isinstance(value, bool)
    fits = {str: isinstance(value, str), bool: is_bool, NoneType: value is None}
    fits[int] = isinstance(value, int) and not is_bool
    fits[float] = isinstance(value, int | float) and not is_bool
    if not fits[hint]:
        yield f"{path}: {value!r} is no {hint.__name__}"


def _wrong_object(of: type, value: Json, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: {value!r} is no {of.__name__}"
        return
    fields = _fields(of)
    for name, each in value.items():
        inside = f"{path}.{name}"
        special = _special(of, name, value)
        if name not in fields:
            yield f"{inside}: {of.__name__} has no such field"
        elif special is not None:
            yield from special(inside, each)
        else:
            yield from _wrong(fields[name], each, inside)


def _special(of: type, name: str, value: Json) -> Callable[[str, Json], Iterator[str]] | None:
    """How a field is read whose type depends on what stands beside it."""
    if of is dashboard.Panel and name in ("options", "targets", "fieldConfig"):
        options, custom = _KINDS[value["type"]]
        if name == "options":
            return lambda path, each: _wrong(options, each, path)
        if name == "targets":
            return lambda path, each: _wrong(list[prometheus.Dataquery], each, path)
        return lambda path, each: _wrong_field_config(custom, each, path)
    return None


def _wrong_field_config(custom: Any, value: Json, path: str) -> Iterator[str]:
    yield from _wrong(dashboard.FieldConfigSource, value, path)
    own = value["defaults"].get("custom")
    if own is not None:
        yield from _wrong(custom, own, f"{path}.defaults.custom")


@cache
def _fields(of: type) -> Mapping[str, Any]:
    """The types of a model's fields, by their names in JSON."""
    hints = get_type_hints(of)
    named = {}
    for match in _NAMED.finditer(inspect.getsource(of.to_json)):  # type: ignore[attr-defined]
        name, field = match[1] or match[3], match[2] or match[4]
        named[name] = hints[field]
    return named
