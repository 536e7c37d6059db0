"""Whether a custom resource keeps to its structural schema, and what is wrong in a real API server's words."""

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import datetime

from tests.support.api_server.answers import Cause, Json, Object
from tests.support.api_server.schemas import has_rules, rules_of

# Says what is wrong by a rule in CEL: None where it holds. It is given the rule, self, and oldSelf where there is one.
Rules = Callable[[Object, Json, Json], str | None]
_BLOCKING = {"FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany"}
_BLOCKING_TYPE = "FieldValueTypeInvalid"
_UNCHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing"
    " errors to complete validation"
)
_TYPES: dict[str, Callable[[Json], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def problems(item: Object, before: Object | None, schema: Object, rules: Rules | None) -> list[Cause]:
    """What is wrong with an object, the schema's complaints before those of its rules in CEL.

    Without `rules` those in CEL are left unchecked.
    """
    causes = list(_schema_problems(item, schema, "", is_top=True))
    causes += _duplicates(item, schema, "")
    if not has_rules(schema):
        return causes
    if any(cause.reason in _BLOCKING or cause.reason == _BLOCKING_TYPE for cause in causes):
        return [*causes, Cause("Invalid", "<nil>", _UNCHECKED)]
    return causes if rules is None else [*causes, *_broken_rules(item, before, schema, rules)]


def _broken_rules(item: Object, before: Object | None, schema: Object, rules: Rules) -> Iterator[Cause]:
    for path, rule, value, old, _ in rules_of(item, before, schema):
        if "oldSelf" in rule["rule"] and old is None and not rule.get("optionalOldSelf"):
            continue
        why = rules(rule, value, old)
        if why is None:
            continue
        where = path + str(rule.get("fieldPath", ""))
        shown = "" if isinstance(value, dict | list) else f"{_shown(value)}: "
        reason = str(rule.get("reason", "FieldValueInvalid")).removeprefix("FieldValue")
        said = {"Required": f"Required value: {why}", "Forbidden": f"Forbidden: {why}"}
        yield Cause(reason, where or "<nil>", said.get(reason, f"Invalid value: {shown}{why}"))


def _schema_problems(value: Json, schema: Object, path: str, *, is_top: bool = False) -> Iterator[Cause]:
    if value is None and schema.get("nullable"):
        return
    if schema.get("x-kubernetes-int-or-string") and not (_TYPES["integer"](value) or isinstance(value, str)):
        yield _type_problem(value, "integer,string", path)
        return
    wanted = schema.get("type")
    if wanted and not _TYPES[wanted](value):
        yield _type_problem(value, wanted, path)
        return
    if "enum" in schema and value not in schema["enum"]:
        supported = ", ".join(_shown(choice) for choice in schema["enum"])
        yield Cause("NotSupported", path, f"Unsupported value: {_shown(value)}: supported values: {supported}")
    if isinstance(value, str):
        yield from _string_problems(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_problems(value, schema, path)
    elif isinstance(value, list):
        yield from _list_problems(value, schema, path)
    elif isinstance(value, dict):
        yield from _object_problems(value, schema, path, is_top=is_top)
    yield from _combined_problems(value, schema, path)


def _object_problems(value: Object, schema: Object, path: str, *, is_top: bool) -> Iterator[Cause]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    if len(value) < schema.get("minProperties", 0):
        yield _invalid(value, path, f"should have at least {schema['minProperties']} properties")
    if len(value) > schema.get("maxProperties", math.inf):
        yield _too_many(len(value), schema["maxProperties"], path)
    for name, inner in value.items():
        inner_schema = known.get(name) or (more if isinstance(more, dict) else None)
        if inner_schema and not (is_top and name in ("apiVersion", "kind", "metadata")):
            yield from _schema_problems(inner, inner_schema, f"{path}.{name}" if path else name)
    for name in schema.get("required", ()):
        if name not in value:
            yield Cause("Required", f"{path}.{name}" if path else name, "Required value")


def _list_problems(value: list[Json], schema: Object, path: str) -> Iterator[Cause]:
    if len(value) < schema.get("minItems", 0):
        yield _invalid(value, path, f"should have at least {schema['minItems']} items")
    if len(value) > schema.get("maxItems", math.inf):
        yield _too_many(len(value), schema["maxItems"], path)
    for index, item in enumerate(value):
        yield from _schema_problems(item, schema.get("items") or {}, f"{path}[{index}]")


def _string_problems(value: str, schema: Object, path: str) -> Iterator[Cause]:
    if len(value) > schema.get("maxLength", math.inf):
        yield Cause("TooLong", path, f"Too long: may not be more than {schema['maxLength']} bytes")
    if len(value) < schema.get("minLength", 0):
        yield _invalid(value, path, f"should be at least {schema['minLength']} chars long")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield _invalid(value, path, f"should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and not _is_date_time(value):
        yield _type_problem(value, "date-time", path, shown=_shown(value))


def _number_problems(value: float, schema: Object, path: str) -> Iterator[Cause]:
    if "minimum" in schema:
        least = schema["minimum"]
        if schema.get("exclusiveMinimum") and value <= least:
            yield _invalid(value, path, f"should be greater than {_shown(least)}")
        elif value < least:
            yield _invalid(value, path, f"should be greater than or equal to {_shown(least)}")
    if "maximum" in schema:
        most = schema["maximum"]
        if schema.get("exclusiveMaximum") and value >= most:
            yield _invalid(value, path, f"should be less than {_shown(most)}")
        elif value > most:
            yield _invalid(value, path, f"should be less than or equal to {_shown(most)}")
    if schema.get("multipleOf") and value % schema["multipleOf"]:
        yield _invalid(value, path, f"should be a multiple of {_shown(schema['multipleOf'])}")


def _combined_problems(value: Json, schema: Object, path: str) -> Iterator[Cause]:
    """What allOf, anyOf, oneOf and not say."""
    for inner in schema.get("allOf", ()):
        yield from _schema_problems(value, inner, path)
    if "anyOf" in schema and not any(_fits(value, inner, path) for inner in schema["anyOf"]):
        yield _combined(path, "must validate at least one schema (anyOf)")
    if "oneOf" in schema:
        fitting = sum(_fits(value, inner, path) for inner in schema["oneOf"])
        if fitting != 1:
            found = "Found none valid" if not fitting else f"Found {fitting} valid alternatives"
            yield _combined(path, f"must validate one and only one schema (oneOf). {found}")
    if "not" in schema and _fits(value, schema["not"], path):
        yield _combined(path, "must not validate the schema (not)")


def _fits(value: Json, schema: Object, path: str) -> bool:
    return next(_schema_problems(value, schema, path), None) is None


def _duplicates(value: Json, schema: Object, path: str) -> Iterator[Cause]:
    """The items that a list of the type set, or of the type map, has twice."""
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties")
        for name, inner in value.items():
            inner_schema = known.get(name) or (more if isinstance(more, dict) else {})
            yield from _duplicates(inner, inner_schema, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        seen = []
        for index, item in enumerate(value):
            told = {key: item.get(key) for key in keys} if keys and isinstance(item, dict) else item
            if schema.get("x-kubernetes-list-type") in ("set", "map") and told in seen:
                yield Cause("Duplicate", f"{path}[{index}]", f"Duplicate value: {_shown(told)}")
            seen.append(told)
            yield from _duplicates(item, schema.get("items") or {}, f"{path}[{index}]")


def _type_problem(value: Json, wanted: str, path: str, *, shown: str = "") -> Cause:
    """A value of another type; its type stands where other complaints show the value."""
    names = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"))
    actual = next((name for kind, name in names if isinstance(value, kind)), "null")
    if shown:
        return Cause("Invalid", path, f"Invalid value: {shown}: {path} in body must be of type {wanted}: {shown}")
    told = f'Invalid value: "{actual}": {path} in body must be of type {wanted}: "{actual}"'
    return Cause("TypeInvalid", path, told)


def _invalid(value: Json, path: str, rule: str) -> Cause:
    return Cause("Invalid", path, f"Invalid value: {_shown(value)}: {path} in body {rule}")


def _combined(path: str, rule: str) -> Cause:
    return Cause("Invalid", path, f'Invalid value: "": "{path}" {rule}')


def _too_many(count: int, most: int, path: str) -> Cause:
    return Cause("TooMany", path, f"Too many: {count}: must have at most {most} items")


def _shown(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_date_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False
