"""The operator's changes of objects, and whether they undo a change of somebody else. Pure.

metadata.managedFields names the manager of each field. It does not tell who removed a field
(https://kubernetes.io/docs/reference/using-api/server-side-apply/).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.operator.objects.kinds import OPERATOR, metadata, name_of
from exporter.operator.objects.needs_write import content_of
from exporter.wording import listed, one_line

_MOST_FIELDS = 6
_MOST_MANAGERS = 5
_MOST_FIELDS_COMPARED = 100
_MOST_DEEP = 24
# A step on the way to a part in `managedFields`: its possible names, of which the first that is there counts.
_Step = tuple[str, ...]
# The first of these that tells the items of a list apart is its likely key.
_KEYS_OF_ITEMS = ("name", "mountPath", "uid", "containerPort", "port", "type")


class _PartOfObject(NamedTuple):
    path: str
    wanted: object
    live: object
    step: _Step


class ObjectChange(NamedTuple):
    """A change of an object: created, updated or deleted.

    `what` is the object. `fields` are the paths that differed from what is wanted. `by` are the managers that had
    changed them, other than the operator.
    """

    verb: Literal["created", "updated", "deleted"]
    what: str
    fields: tuple[str, ...] = ()
    by: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The object, and in brackets the fields."""
        return f"{self.what} ({listed(self.fields, _MOST_FIELDS)})" if self.fields else self.what


def change_of(wanted: AnyObject, there: AnyObject | None) -> ObjectChange:
    """The change that an apply of `wanted` makes. `there` is the object as read before, None if there was none."""
    what = called(wanted)
    if there is None:
        return ObjectChange("created", what)
    others = _fields_of_others(there)
    fields = []
    edited = []
    by: dict[str, None] = {}
    for path, steps in islice(_differences(content_of(wanted), there, "", (), 0), _MOST_FIELDS_COMPARED):
        fields.append(path)
        managers = [manager for manager, owned in others if _owns(owned, steps)]
        if managers:
            edited.append(path)
            by |= dict.fromkeys(managers)
    return ObjectChange("updated", what, tuple(edited or fields), tuple(by)[:_MOST_MANAGERS])


def _fields_of_others(item: AnyObject) -> Sequence[tuple[str, AnyObject]]:
    """Each other manager, and the fields that it changed last.

    A status belongs to its writer. Other subresources count, since `scale` changes the number of replicas, too.
    """
    return [
        (one_line(text(entry, "manager"), 128) or "somebody", mapping(entry, "fieldsV1"))
        for entry in mappings(metadata(item), "managedFields", 100)
        if text(entry, "manager") != OPERATOR and entry.get("subresource") != "status"
    ]


def called(item: AnyObject) -> str:
    """The object's name for people, such as "DaemonSet gpu"."""
    return one_line(f"{text(item, 'kind')} {name_of(item)}", 300)


def _differences(
    wanted: object, live: object, path: str, steps: tuple[_Step, ...], depth: int
) -> Iterator[tuple[str, tuple[_Step, ...]]]:
    """The deepest parts that differ from what is wanted: each with its path for people, and its steps."""
    parts = _parts_of(wanted, live, path) if depth < _MOST_DEEP else None
    if parts is not None:
        for part in parts:
            yield from _differences(part.wanted, part.live, part.path, (*steps, part.step), depth + 1)
    elif wanted != live and not (live is None and wanted in ("", [], {}, ())):
        yield path, steps


def _parts_of(wanted: object, live: object, path: str) -> Sequence[_PartOfObject] | None:
    """The parts of a mapping, or of a list of mappings; None where the value is to be compared as a whole."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        return [
            _PartOfObject(f"{path}.{name}" if path else str(name), value, live.get(name), (f"f:{name}",))
            for name, value in wanted.items()
        ]
    if isinstance(wanted, (list, tuple)) and isinstance(live, list) and len(wanted) == len(live):
        return _items_of(wanted, live, path)
    return None


def _items_of(wanted: Sequence[Any], live: Sequence[Any], path: str) -> Sequence[_PartOfObject] | None:
    """The items of a list of mappings, each with the live item of the same likely key. None if it is no such list."""
    if not wanted or not all(isinstance(item, Mapping) for item in (*wanted, *live)):
        return None
    key = next((key for key in _KEYS_OF_ITEMS if _tells(key, wanted)), None)
    if key is None or not _tells(key, live):
        return None
    there = {item[key]: item for item in live}
    parts = []
    for index, item in enumerate(wanted):
        name = item.get("name")
        if not isinstance(name, str):
            name = index
        parts.append(_PartOfObject(f"{path}[{name}]", item, there.get(item[key]), _step(item)))
    return parts


def _tells(key: str, items: Sequence[AnyObject]) -> bool:
    values = [item.get(key) for item in items]
    return all(isinstance(value, (str, int)) for value in values) and len({*values}) == len(values)


def _step(item: AnyObject) -> _Step:
    """The names that an item may have in `managedFields`: by one field, or by port and protocol."""
    protocol = item.get("protocol", "TCP")
    keys = [{name: item[name]} for name in ("name", "mountPath", "uid", "type") if name in item]
    keys += [{name: item[name], "protocol": protocol} for name in ("containerPort", "port") if name in item]
    return tuple(f"k:{json.dumps(key, separators=(',', ':'), sort_keys=True)}" for key in keys)


def _owns(owned: AnyObject, steps: Sequence[_Step]) -> bool:
    """Whether a manager owns the part at the end of these steps, or a part above it as a whole."""
    at: object = owned
    for step in steps:
        if not isinstance(at, Mapping):
            return False
        name = next((name for name in step if name in at), None)
        if name is None:
            return False
        at = at[name]
        if at == {}:
            return True
    # the part itself is the manager's (`.`), while fields below it may belong to others
    return isinstance(at, Mapping)
