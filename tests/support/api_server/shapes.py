"""How the parts of an object merge: what is one value, and by what the items of a list are told apart.

Server-side apply works on this alone. A custom resource's shape is its structural schema's; that of a built-in kind is
a table of the fields that are not what they seem: by default an object is a map whose fields have owners of their own,
and a list is one value (`+listType`, `+mapType` and `+structType` in k8s.io/api).
"""

import json
from dataclasses import dataclass, field
from typing import Protocol

from tests.support.api_server.answers import Json, Object

LEAF, MAP, SET, LIST = "leaf", "map", "set", "list"
# The lists whose items have keys, by the fields' names; a field of a kind comes before that of any.
_KEYED: dict[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "protocol"),
    "resourceClaims": ("name",),
    "secrets": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
    "Service.spec.ports": ("port", "protocol"),
    "Pod.status.podIPs": ("ip",),
}
# Lists of the same names that are one value.
_NOT_KEYED = frozenset({"EndpointSlice.ports", "ServiceAccount.imagePullSecrets"})
_SETS = frozenset({"finalizers"})
# The objects that are one value, and the lists' items that are.
_ONE_VALUE = frozenset(
    {
        "configMapKeyRef", "fieldRef", "imagePullSecrets[]", "involvedObject", "labelSelector", "nodeSelector",
        "ownerReferences[]", "regarding", "related", "requiredDuringSchedulingIgnoredDuringExecution",
        "resourceFieldRef", "roleRef", "scaleTargetRef", "secretKeyRef", "secretRef", "secrets[]", "selector",
    }
)  # fmt: skip
_KEY_DEFAULTS = {"protocol": "TCP"}


class Shape(Protocol):
    """How a value merges."""

    def how(self, value: Json) -> str:
        """LEAF, MAP, SET or LIST (of items with keys)."""

    def child(self, name: str) -> "Shape":
        """The shape of a field."""

    def item(self) -> "Shape":
        """The shape of a list's items."""

    def declares(self, name: str) -> bool:
        """Whether a field is a named one, not an entry that a user chose the key of."""

    def keys(self) -> tuple[str, ...]:
        """The fields that tell a list's items apart."""


@dataclass(frozen=True, slots=True)
class BuiltInShape:
    """The shape of a value of a built-in kind; `path` are the names of kind and fields."""

    path: tuple[str, ...]

    def how(self, value: Json) -> str:
        """LEAF, MAP, SET or LIST."""
        if self.path[-1] in _ONE_VALUE or ".".join(self.path) in _ONE_VALUE:
            return LEAF
        if isinstance(value, dict):
            return MAP
        if not isinstance(value, list):
            return LEAF
        return SET if self.path[-1] in _SETS else LIST if self.keys() else LEAF

    def child(self, name: str) -> Shape:
        """The shape of a field."""
        return BuiltInShape((*self.path, name))

    def item(self) -> Shape:
        """The shape of the items; those of keyed lists are objects, as a rule."""
        return BuiltInShape((*self.path, f"{self.path[-1]}[]"))

    def declares(self, name: str) -> bool:  # noqa: ARG002
        """Maps that users chose the keys of hold nothing but values, for which the question is not asked."""
        return True

    def keys(self) -> tuple[str, ...]:
        """The fields that tell items apart."""
        whole = ".".join(self.path)
        return () if whole in _NOT_KEYED else _KEYED.get(whole) or _KEYED.get(self.path[-1]) or ()


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """The shape of a value of a custom resource, by its structural schema."""

    schema: Object = field(hash=False)
    is_top: bool = False

    def how(self, value: Json) -> str:
        """LEAF, MAP, SET or LIST."""
        if isinstance(value, dict):
            return LEAF if self.schema.get("x-kubernetes-map-type") == "atomic" else MAP
        if not isinstance(value, list):
            return LEAF
        return {"set": SET, "map": LIST}.get(self.schema.get("x-kubernetes-list-type", ""), LEAF)

    def child(self, name: str) -> Shape:
        """The shape of a field; the metadata of every object have the same."""
        if self.is_top and name == "metadata":
            return BuiltInShape(("metadata",))
        more = self.schema.get("additionalProperties")
        own = self.schema.get("properties", {}).get(name)
        return SchemaShape(own if own is not None else more if isinstance(more, dict) else {})

    def item(self) -> Shape:
        """The shape of the items."""
        return SchemaShape(self.schema.get("items") or {})

    def declares(self, name: str) -> bool:
        """Whether the schema names the field."""
        return (self.is_top and name == "metadata") or name in self.schema.get("properties", {})

    def keys(self) -> tuple[str, ...]:
        """The fields that tell items apart."""
        return tuple(self.schema.get("x-kubernetes-list-map-keys") or ())


def element_of(item: Json, shape: Shape, how: str) -> str:
    """By what an item of a list is known, in the words of FieldsV1: `v:"dcgm"` or `k:{"type":"Ready"}`."""
    if how == SET:
        return f"v:{_compact(item)}"
    keys = shape.keys()
    named = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in keys if isinstance(item, dict)}
    return f"k:{_compact({key: value for key, value in sorted(named.items()) if value is not None})}"


def _compact(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
