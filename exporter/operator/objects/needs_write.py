"""Decides whether an object must be written. If it is as wanted, it is not. Pure.

Each object says who last applied which of its fields (metadata.managedFields, in the form FieldsV1:
https://kubernetes.io/docs/reference/using-api/server-side-apply/). An object is as wanted if this operator owns exactly
the fields that it wants, with the values that it wants. Other fields belong to those who added them.
"""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any, NamedTuple

from exporter.lenient import AnyObject, mappings
from exporter.operator.objects.kinds import OPERATOR, Key, controller_of, is_controlled_by, is_for, key_of, metadata
from exporter.operator.objects.object_fields import is_going
from exporter.operator.objects.quantities import read
from exporter.operator.objects.resources import Object

# These name the object, and have no owner in managedFields.
_NAMES = frozenset({"apiVersion", "kind", "metadata"})
_NAMES_OF_METADATA = frozenset({"name", "namespace", "uid", "resourceVersion"})
# Defaults that the API server adds to a part that is owned as a whole.
_ADDED = {"apiVersion": ("v1",), "divisor": ("0",), "protocol": ("TCP",), "action": ("replace",)}
_CHANGES_ALWAYS = frozenset({"managedFields", "resourceVersion", "generation"})
_AMOUNTS = frozenset({"limits", "requests"})
_SAYS_NOTHING: tuple[object, ...] = ("", None, [], {}, ())


def is_as_wanted(wanted: AnyObject, live: AnyObject) -> bool:
    """Whether an apply would change nothing. A wrong "no" costs a request; nobody would mend a wrong "yes"."""
    owned = applied_fields(live)
    if owned is None:
        return False
    return _agree(content_of(wanted), live, owned)


def content_of(wanted: AnyObject) -> AnyObject:
    """The content of an object that is to be written, without the fields that name it."""
    content = dict(_without(wanted, _NAMES))
    about = _without(metadata(wanted), _NAMES_OF_METADATA)
    if about:
        content["metadata"] = about
    return content


def fingerprint(wanted: AnyObject, live: AnyObject) -> str:
    """A hash of a wanted object and the live one, without its status and the fields that change with each write.

    If an API server rewrites a value, the object never looks as wanted. So an apply that changed nothing is remembered
    by this hash, and is not sent again and again.
    """
    parts = [wanted, _without(metadata(live), _CHANGES_ALWAYS), _without(live, ("metadata", "status"))]
    text = json.dumps(parts, sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()


def _without(item: AnyObject, names: Container[str]) -> AnyObject:
    return {name: value for name, value in item.items() if name not in names}


def applied_fields(live: AnyObject) -> AnyObject | None:
    """The fields that this operator applied last, and still owns; None if there are none."""
    for entry in mappings(metadata(live), "managedFields"):
        is_ours = entry.get("manager") == OPERATOR and entry.get("operation") == "Apply"
        if is_ours and not entry.get("subresource"):
            fields = entry.get("fieldsV1")
            return fields if isinstance(fields, Mapping) else None
    return None


def _agree(wanted: Any, live: Any, owned: Any, *, amounts: bool = False) -> bool:  # noqa: ANN401 - JSON
    if not isinstance(owned, Mapping):
        return False
    inner = {name: fields for name, fields in owned.items() if name != "."}
    if not inner:
        return _same(wanted, live, amounts=amounts)
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and _mappings_agree(wanted, live, inner, amounts=amounts)
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return isinstance(live, list) and _lists_agree(wanted, live, inner)
    return False


def _mappings_agree(wanted: AnyObject, live: AnyObject, owned: AnyObject, *, amounts: bool) -> bool:
    if any(name.startswith("f:") and name[2:] not in wanted for name in owned):
        return False
    for name, value in wanted.items():
        if name not in live:
            agrees = value in _SAYS_NOTHING  # the API server leaves out empty values
        else:
            agrees = _agree(value, live[name], owned.get(f"f:{name}"), amounts=amounts or name in _AMOUNTS)
        if not agrees:
            return False
    return True


def _lists_agree(wanted: Sequence[Any], live: Sequence[Any], owned: AnyObject) -> bool:
    """Whether lists agree whose items have keys (`k:{"name":"a"}`), or form a set (`v:"a"`)."""
    if len(owned) != len(wanted):
        return False
    for name, fields in owned.items():
        try:
            key = json.loads(name[2:])
        except ValueError:
            return False
        if name.startswith("v:"):
            agrees = key in wanted and key in live
        else:
            agrees = isinstance(key, dict) and _agree(_item(wanted, key), _item(live, key), fields)
        if not agrees:
            return False
    return True


def _item(items: Sequence[Any], key: AnyObject) -> Any:  # noqa: ANN401 - JSON
    """The item with these keys. An item without one of the keys has its default, as a port's `protocol`."""
    for item in items:
        if isinstance(item, Mapping) and all(item.get(name, value) == value for name, value in key.items()):
            return item
    return None


def _same(wanted: Any, live: Any, *, amounts: bool = False) -> bool:  # noqa: ANN401 - JSON
    """Whether parts that are owned as a whole agree. The live part may have the API server's defaults, and no more."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        return _mappings_same(wanted, live, amounts=amounts)
    if isinstance(wanted, (list, tuple)) and isinstance(live, list):
        if len(wanted) != len(live):
            return False
        return all(_same(*pair, amounts=amounts) for pair in zip(wanted, live, strict=True))
    if amounts and isinstance(wanted, (str, int, float)) and isinstance(live, (str, int, float)):
        return _amount(str(wanted)) == _amount(str(live))
    return bool(wanted == live)


def _mappings_same(wanted: AnyObject, live: AnyObject, *, amounts: bool) -> bool:
    for name in {*wanted, *live}:
        if name in wanted and name in live:
            is_same = _same(wanted[name], live[name], amounts=amounts or name in _AMOUNTS)
        else:
            value = wanted.get(name, live.get(name))
            is_same = value in _SAYS_NOTHING or value in _ADDED.get(name, ())
        if not is_same:
            return False
    return True


def _amount(quantity: str) -> Decimal | str:
    """The amount of a quantity, since 500m and 0.5 are the same. A text that is no quantity stays as it is."""
    try:
        return read(quantity)
    except ValueError:
        return quantity


class WritePlan(NamedTuple):
    """The operator's plan: the writes that turn the live objects into the wanted objects.

    An object that already matches is in no list.

    Attributes:
        apply: the objects to apply, each with the live object, if any.
        delete: the objects to delete.
        not_ours: objects of somebody else under a wanted name.
        going: objects that are being deleted. Once they are gone, the wanted objects can take their places.
    """

    apply: Sequence[tuple[Object, AnyObject | None]]
    delete: Sequence[AnyObject]
    not_ours: Sequence[AnyObject]
    going: Sequence[AnyObject]


def plan(owner: Key, uid: str, wanted: Iterable[Object], live: Mapping[Key, AnyObject]) -> WritePlan:
    """Compare the wanted objects with the live ones: all objects that the owner may control, by their names."""
    apply: list[tuple[Object, AnyObject | None]] = []
    delete: list[AnyObject] = []
    not_ours: list[AnyObject] = []
    going: list[AnyObject] = []
    wanted_by_key = {key_of(item): item for item in wanted}
    for key, item in wanted_by_key.items():
        there = live.get(key)
        if there is None:
            apply.append((item, None))
        elif not (_is_of(there, owner, uid) or _is_orphan(there)):
            not_ours.append(there)
        elif is_going(there):
            going.append(there)
        elif not is_as_wanted(item, there):
            apply.append((item, there))
    for key, there in live.items():
        if key in wanted_by_key or not _is_of(there, owner, uid):
            continue
        if is_going(there):
            going.append(there)
        else:
            delete.append(there)
    return WritePlan(apply, delete, not_ours, going)


def _is_of(there: AnyObject, owner: Key, uid: str) -> bool:
    return is_controlled_by(there, uid) or is_for(there, owner)


def _is_orphan(there: AnyObject) -> bool:
    """Whether the operator applied it, and it has lost its controller since (by an edit, or by --cascade=orphan)."""
    return bool(metadata(there).get("namespace")) and not controller_of(there) and applied_fields(there) is not None
