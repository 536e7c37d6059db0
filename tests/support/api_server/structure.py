"""Whether the schema of a CustomResourceDefinition is structural, which an API server wants before it serves it.

After k8s.io/apiextensions-apiserver's validation: each field has a type, lists say what they hold, defaults are valid,
and what a list is keyed by is always there. Costs of rules in CEL are left to a real API server.
"""

from collections.abc import Iterator

from tests.support.api_server import validation
from tests.support.api_server.answers import Cause, Json, Object
from tests.support.api_server.schemas import with_defaults

_NO_TYPE_NEEDED = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")


def problems(schema: Object, path: str) -> Iterator[Cause]:
    """What is wrong with a whole schema."""
    if schema.get("type") != "object":
        said = f'Invalid value: "{schema.get("type", "")}": must be object at the root'
        yield Cause("Invalid", f"{path}.type", said)
    yield from _problems(schema, path)


def _problems(schema: Object, path: str) -> Iterator[Cause]:
    kind = schema.get("type")
    if not kind and not any(schema.get(name) for name in _NO_TYPE_NEEDED):
        yield Cause("Required", f"{path}.type", "Required value: must not be empty for specified object fields")
    elif kind and kind not in _TYPES:
        supported = ", ".join(f'"{name}"' for name in _TYPES)
        yield Cause("NotSupported", f"{path}.type", f'Unsupported value: "{kind}": supported values: {supported}')
    if schema.get("uniqueItems"):
        said = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield Cause("Forbidden", f"{path}.uniqueItems", f"Forbidden: {said}")
    if schema.get("properties") and "additionalProperties" in schema:
        said = "additionalProperties and properties are mutual exclusive"
        yield Cause("Forbidden", f"{path}.additionalProperties", f"Forbidden: {said}")
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        if not str(rule.get("rule", "")).strip():
            where = f"{path}.x-kubernetes-validations[{index}].rule"
            yield Cause("Required", where, "Required value: rule is not specified")
    yield from _default_problems(schema, path)
    for name, inner in (schema.get("properties") or {}).items():
        yield from _problems(inner, f"{path}.properties[{name}]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _problems(schema["additionalProperties"], f"{path}.additionalProperties")
    if kind == "array":
        yield from _list_problems(schema, path)


def _list_problems(schema: Object, path: str) -> Iterator[Cause]:
    items = schema.get("items")
    if not isinstance(items, dict):
        yield Cause("Required", f"{path}.items", "Required value: must be specified")
        return
    yield from _problems(items, f"{path}.items")
    how, keys = schema.get("x-kubernetes-list-type", "atomic"), schema.get("x-kubernetes-list-map-keys") or ()
    if (how == "map") != bool(keys):
        said = "must be specified if and only if x-kubernetes-list-type is map"
        yield Cause("Required", f"{path}.x-kubernetes-list-map-keys", f"Required value: {said}")
    for key in keys:
        known: Json = (items.get("properties") or {}).get(key)
        if known is None or ("default" not in known and key not in (items.get("required") or ())):
            said = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield Cause("Required", f"{path}.items.properties[{key}].default", f"Required value: {said}")
    is_atomic = items.get("x-kubernetes-map-type") == "atomic" or items.get("type") == "array"
    if how == "set" and items.get("type") in ("object", "array") and not is_atomic:
        said = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield Cause("Invalid", f"{path}.items.x-kubernetes-map-type", f'Invalid value: "": {said}')


def _default_problems(schema: Object, path: str) -> Iterator[Cause]:
    """What the default itself breaks; the defaults within it count."""
    if "default" not in schema:
        return
    whole = {"type": "object", "properties": {"default": {**schema}}}
    filled = with_defaults({"default": schema["default"]}, whole)
    for cause in validation.problems(filled, None, whole, None):
        if cause.field != "<nil>":
            yield Cause(cause.reason.removeprefix("FieldValue"), f"{path}.{cause.field}", cause.message)
