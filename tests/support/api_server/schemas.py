"""What a structural schema makes of a custom resource: unknown fields go, defaults come in."""

import copy
from collections.abc import Iterator

from tests.support.api_server.answers import Json, Object

_OF_ALL_OBJECTS = ("apiVersion", "kind", "metadata")


def pruned(value: Json, schema: Object, path: str = "", *, is_top: bool = True) -> tuple[Json, list[str]]:
    """The value without what the schema does not know, and the paths of what is gone, as `spec.interval`."""
    gone: list[str] = []
    return _pruned(value, schema, path, is_top, gone), gone


def _pruned(value: Json, schema: Object, path: str, is_top: bool, gone: list[str]) -> Json:
    if isinstance(value, list):
        items = schema.get("items")
        if not isinstance(items, dict):
            return value
        return [_pruned(item, items, f"{path}[{index}]", False, gone) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    is_top = is_top or bool(schema.get("x-kubernetes-embedded-resource"))
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    keeps_all = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or more is True
    kept = {}
    for name, inner in value.items():
        inner_path = f"{path}.{name}" if path else name
        inner_schema = known.get(name) or (more if isinstance(more, dict) else None)
        if is_top and name in _OF_ALL_OBJECTS:
            kept[name] = inner
        elif inner_schema is not None:
            kept[name] = _pruned(inner, inner_schema, inner_path, False, gone)
        elif keeps_all or name in known:
            kept[name] = inner
        else:
            gone.append(inner_path)
    return kept


def with_defaults(value: Json, schema: Object) -> Json:
    """The value with the schema's defaults where nothing stands; a null that the schema does not allow is nothing."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        return [with_defaults(item, items) for item in value]
    if not isinstance(value, dict):
        return value
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    filled = {
        name: inner
        for name, inner in value.items()
        if inner is not None or "default" not in known.get(name, {}) or known[name].get("nullable")
    }
    for name, inner_schema in known.items():
        if name not in filled and "default" in inner_schema:
            filled[name] = copy.deepcopy(inner_schema["default"])
    for name, inner in filled.items():
        inner_schema = known.get(name) or (more if isinstance(more, dict) else {})
        filled[name] = with_defaults(inner, inner_schema)
    return filled


def has_rules(schema: Json) -> bool:
    """Whether there is a rule in CEL anywhere in the schema."""
    if isinstance(schema, list):
        return any(has_rules(inner) for inner in schema)
    return isinstance(schema, dict) and (
        "x-kubernetes-validations" in schema or any(has_rules(inner) for inner in schema.values())
    )


def rules_of(
    value: Json, before: Json, schema: Object, path: str = ""
) -> Iterator[tuple[str, Object, Json, Json, Object]]:
    """Each rule in CEL that a value is held to: path, the rule, the value, what it was before, and its schema."""
    for rule in schema.get("x-kubernetes-validations") or ():
        yield path, rule, value, before, schema
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties")
        old = before if isinstance(before, dict) else {}
        for name, inner in value.items():
            inner_schema = known.get(name) or (more if isinstance(more, dict) else None)
            if inner_schema:
                inner_path = f"{path}.{name}" if path else name
                yield from rules_of(inner, old.get(name), inner_schema, inner_path)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from rules_of(item, _former(item, before, schema), schema["items"], f"{path}[{index}]")


def _former(item: Json, before: Json, schema: Object) -> Json:
    """The item of the list as it was; only those with keys can be found again."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys or not isinstance(before, list) or not isinstance(item, dict):
        return None
    return next((old for old in before if all(old.get(key) == item.get(key) for key in keys)), None)
