"""The operator's changes of objects, and whether they undo a change of somebody else. Pure.

metadata.managedFields names the manager of each field. It does not tell who removed a field
(https://kubernetes.io/docs/reference/using-api/server-side-apply/).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.operator.objects.kinds import OPERATOR
from exporter.operator.objects.needs_write import content_of
from exporter.wording import listed, one_line

_MOST_FIELDS = 6
_MOST_MANAGERS = 5
_MOST_FOUND = 100
_MOST_DEEP = 24
# A step on the way to a part in `managedFields`: its possible names, of which the first that is there counts.
_Step = tuple[str, ...]


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
    others = [
        (one_line(text(entry, "manager"), 128) or "somebody", mapping(entry, "fieldsV1"))
        for entry in mappings(mapping(there, "metadata"), "managedFields", 100)
        # a status belongs to its writer; other subresources count, since `scale` changes the number of replicas, too
        if text(entry, "manager") != OPERATOR and entry.get("subresource") != "status"
    ]
    fields, edited, by = [], [], dict[str, None]()
    for path, steps in _differences(content_of(wanted), there, "", (), 0):
        fields.append(path)
        managers = [manager for manager, owned in others if _owns(owned, steps)]
        if managers:
            edited.append(path)
            by.update(dict.fromkeys(managers))
        if len(fields) == _MOST_FOUND:
            break
    return ObjectChange("updated", what, tuple(edited or fields), tuple(by)[:_MOST_MANAGERS])


def called(item: AnyObject) -> str:
    """The object's name for people, such as "DaemonSet gpu"."""
    return one_line(f"{text(item, 'kind')} {text(mapping(item, 'metadata'), 'name')}", 300)


def _differences(
    wanted: object, live: object, path: str, steps: tuple[_Step, ...], depth: int
) -> Iterator[tuple[str, tuple[_Step, ...]]]:
    """The deepest parts that differ from what is wanted: each with its path for people, and its steps."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping) and depth < _MOST_DEEP:
        for name, value in wanted.items():
            inner = f"{path}.{name}" if path else str(name)
            yield from _differences(value, live.get(name), inner, (*steps, (f"f:{name}",)), depth + 1)
    elif (pairs := _paired(wanted, live)) is not None and depth < _MOST_DEEP:
        for index, (value, there, step) in enumerate(pairs):
            name = value.get("name")
            inner = f"{path}[{name if isinstance(name, str) else index}]"
            yield from _differences(value, there, inner, (*steps, step), depth + 1)
    elif wanted != live and not (live is None and wanted in ("", [], {}, ())):
        yield path, steps


def _paired(wanted: object, live: object) -> Sequence[tuple[Mapping[str, Any], object, _Step]] | None:
    """The items of a list of mappings, each with the live item of the same likely key, and its step.

    None if it is no such list.
    """
    if not isinstance(wanted, (list, tuple)) or not isinstance(live, list) or len(wanted) != len(live):
        return None
    if not wanted or not all(isinstance(item, Mapping) for item in (*wanted, *live)):
        return None
    key = next(
        (key for key in ("name", "mountPath", "uid", "containerPort", "port", "type") if _tells(key, wanted)), ""
    )
    if not key or not _tells(key, live):
        return None
    there = {item[key]: item for item in live}
    return [(item, there.get(item[key]), _step(item)) for item in wanted]


def _tells(key: str, items: Sequence[Mapping[str, Any]]) -> bool:
    values = [item.get(key) for item in items]
    return all(isinstance(value, (str, int)) for value in values) and len({*values}) == len(values)


def _step(item: Mapping[str, Any]) -> _Step:
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
