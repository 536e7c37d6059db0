"""Sets of fields: which of them an object has, which of them two objects differ in, and how FieldsV1 writes them.

A path is a tuple of FieldsV1's own words: `("f:spec", "f:conditions", 'k:{"type":"Ready"}', "f:status")`. What has
parts and what is one value follows the schema of a custom resource, and a table of names for built-in kinds. The table
has what this project applies (`+listType`, `+mapType` and `+structType` in k8s.io/api).
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.support.api_server.answers import Json, Object

Path = tuple[str, ...]
# The lists whose items have keys, by the field's name. Ports have one of two keys.
_KEYS: dict[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "port", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
_ONE_VALUE = frozenset(
    {
        "configMapKeyRef", "fieldRef", "imagePullSecrets[]", "labelSelector", "nodeSelector", "ownerReferences[]",
        "regarding", "requiredDuringSchedulingIgnoredDuringExecution", "resourceFieldRef", "roleRef", "scaleTargetRef",
        "secretKeyRef", "selector",
    }
)  # fmt: skip
_DEFAULTS = {"protocol": "TCP"}
# In place of a value where there is none. A null is a value, as for the owners of fields.
_NOTHING: Json = ()
_METADATA = ("creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion", "uid")
# Fields that nobody owns, since the API server itself writes them.
UNOWNED = frozenset({("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{it}") for it in _METADATA)})


@dataclass(frozen=True, slots=True)
class Shape:
    """How a value merges: by the name of its field, and by its schema if it is part of a custom resource."""

    name: str = ""
    schema: Object | None = None

    def parts(self, value: Json) -> dict[str, tuple[Json, "Shape"]] | None:
        """The parts that have owners of their own, by their words in FieldsV1. None: it is one value."""
        if isinstance(value, dict):
            if (self.name in _ONE_VALUE) if self.schema is None else self._says("map-type") == "atomic":
                return None
            return {f"f:{name}": (inner, self.child(name)) for name, inner in value.items()}
        if not isinstance(value, list):
            return None
        if self._says("list-type") == "set":
            return {f"v:{_compact(item)}": (item, Shape()) for item in value}
        keys = _KEYS.get(self.name, ()) if self.schema is None else self._says("list-map-keys")
        if not keys or not all(isinstance(item, dict) for item in value):
            return None
        return {_word(item, keys): (item, self._item()) for item in value}

    def child(self, name: str) -> "Shape":
        """The shape of a field. The metadata of every object have the same."""
        if self.schema is None or (not self.name and name == "metadata"):
            return Shape(name)
        properties = self.schema.get("properties", {})
        return Shape(name, properties.get(name) or self.schema.get("additionalProperties") or {})

    def _item(self) -> "Shape":
        return Shape(f"{self.name}[]", None if self.schema is None else self.schema.get("items") or {})

    def _says(self, what: str) -> Json:
        return None if self.schema is None else self.schema.get(f"x-kubernetes-{what}")


def _word(item: Object, keys: Iterable[str]) -> str:
    named = {key: item.get(key, _DEFAULTS.get(key)) for key in keys}
    return f"k:{_compact({key: value for key, value in sorted(named.items()) if value is not None})}"


def _compact(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def fields_of(value: Json, shape: Shape, path: Path = ()) -> Iterator[Path]:
    """The fields that an applied object names, which its manager owns."""
    parts = shape.parts(value)
    if not parts:
        yield path
        return
    for word, (inner, inner_shape) in parts.items():
        if not word.startswith("f:"):
            yield (*path, word)
        yield from fields_of(inner, inner_shape, (*path, word))


def difference(before: Json, after: Json, shape: Shape) -> tuple[set[Path], set[Path]]:
    """The fields that `after` adds to `before` or changes, and those that it lacks, without those that nobody owns."""
    changed: set[Path] = set()
    removed: set[Path] = set()
    _compare(before, after, shape, (), (changed, removed))
    return changed - UNOWNED, removed - UNOWNED


def _compare(before: Json, after: Json, shape: Shape, path: Path, into: tuple[set[Path], set[Path]]) -> None:
    if before == after and before is not _NOTHING:
        return
    changed, removed = into
    old, new = shape.parts(before) or {}, shape.parts(after) or {}
    if (old or new) and (not before or not after or type(before) is type(after)):
        for word in old.keys() | new.keys():
            was, inner_shape = old.get(word) or (_NOTHING, new[word][1])
            _compare(was, new.get(word, (_NOTHING,))[0], inner_shape, (*path, word), into)
    elif before is not _NOTHING and after is not _NOTHING:
        changed.add(path)
    if before is _NOTHING:
        changed.add(path)
    elif after is _NOTHING:
        removed.add(path)


def merged(live: Json, applied: Json, shape: Shape) -> Json:
    """The live value with the applied one laid over it. The items of a list come in the order of the applied one."""
    old, new = shape.parts(live), shape.parts(applied)
    if old is None or new is None:
        return applied
    inner = {word: merged(old.get(word, (None,))[0], value, part) for word, (value, part) in new.items()}
    if isinstance(applied, dict):
        return {**live, **{word.removeprefix("f:"): value for word, value in inner.items()}}
    items = []
    for word, (value, _) in old.items():
        if word not in new:
            items.append(value)  # where it stood
        while word in inner:
            items.append(inner.pop(next(iter(inner))))
    return [*items, *inner.values()]


def without(value: Json, paths: Iterable[Path], shape: Shape) -> Json:
    """The value less some of its fields; None if nothing is left of it."""
    whole = {path[0] for path in paths if len(path) == 1}
    inside: dict[str, list[Path]] = {}
    for path in paths:
        if len(path) > 1:
            inside.setdefault(path[0], []).append(path[1:])
    parts = shape.parts(value)
    if not parts or not (whole or inside):
        return value
    kept = {
        word: without(inner, inside[word], part) if word in inside else inner
        for word, (inner, part) in parts.items()
        if word not in whole
    }
    kept = {word: inner for word, inner in kept.items() if inner is not None or word not in inside}
    if isinstance(value, dict):
        return {word.removeprefix("f:"): inner for word, inner in kept.items()} or None
    return [*kept.values()] or None


def to_fields_v1(paths: Iterable[Path]) -> Object:
    """The paths as FieldsV1: nested objects, with "." where what has parts is a field itself."""
    root: Object = {}
    for path in sorted(paths):
        node = root
        for word in path:
            node = node.setdefault(word, {})
        node["."] = {}
    return {word: _leafless(inner) for word, inner in root.items()}


def _leafless(node: Object) -> Object:
    """A leaf is an empty object, not one that holds "." alone."""
    return {} if node.keys() == {"."} else {word: _leafless(inner) for word, inner in node.items()}


def from_fields_v1(node: Object, path: Path = ()) -> Iterator[Path]:
    """The paths that FieldsV1 names."""
    if path and (not node or "." in node):
        yield path
    for word, inner in node.items():
        if word != ".":
            yield from from_fields_v1(inner, (*path, word))
