"""Server-side apply: what becomes of an object when a manager applies its part of it.

The rules are those of structured-merge-diff: what a manager no longer names, and no other owns, goes; what others own
with another value is a conflict, unless it is forced.
"""

from collections import defaultdict
from collections.abc import Iterable

from tests.support.api_server.answers import Json, Object, Refused
from tests.support.api_server.fields import (
    UNOWNED,
    Difference,
    Fields,
    Path,
    difference,
    fields_of,
    in_words,
    with_ancestors,
    without,
)
from tests.support.api_server.managers import APPLY, Managed, Manager, Owned, less
from tests.support.api_server.shapes import LEAF, MAP, Shape, element_of


def apply(
    live: Object, applied: Object, managed: Managed, shape: Shape, *, manager: Manager, time: str, force: bool
) -> tuple[Object, Managed]:
    """The object after an apply, and its managers; defaults are not filled in yet.

    Raises:
        Refused: 409 with the conflicts, where it is not forced.
    """
    version = str(applied.get("apiVersion", ""))
    everything = frozenset(fields_of(applied, shape))
    named = everything - UNOWNED
    former = managed.get(manager)
    now: Managed = {**managed, manager: Owned(fields=named, version=version, time=time)}
    merged = merge(live, applied, shape)
    if former is not None:
        # the name counts here: without it the metadata would go with the last label
        owned = [everything, *(owned.fields for owned in managed.values() if owned is not former)]
        merged = _less_what_nobody_owns(merged, former.fields, owned, shape)
    found = difference(live, merged, shape)
    conflicts = _conflicts(now, manager, found)
    if conflicts and not force:
        raise _refused(conflicts)
    now = less(now, found.added | found.modified | found.removed, but=manager)
    if former is not None and found.is_empty():
        # an apply that changes nothing has happened when the last one did, if it names the same
        now = {**now, manager: Owned(fields=named, version=version, time=former.time)} if named else now
    if not named:
        now.pop(manager, None)
    return merged, now


def merge(live: Json, applied: Json, shape: Shape) -> Json:
    """The live value with the applied one laid over it."""
    how = shape.how(applied)
    if how == LEAF or live is None or shape.how(live) != how:
        return applied
    if how == MAP:
        merged = dict(live)
        for name, inner in applied.items():
            merged[name] = merge(live.get(name), inner, shape.child(name))
        return merged
    return _merge_lists(live, applied, shape, how)


def _merge_lists(live: list[Json], applied: list[Json], shape: Shape, how: str) -> list[Json]:
    """The applied items in their order, and the live ones that it does not name where they stood."""
    old = {element_of(item, shape, how): item for item in live}
    new = {element_of(item, shape, how): item for item in applied}
    waiting = list(new)
    merged = []
    for word, item in old.items():
        if word not in new:
            merged.append(item)
            continue
        while waiting and word in waiting:
            following = waiting.pop(0)
            merged.append(merge(old.get(following), new[following], shape.item()))
    return [*merged, *(new[word] for word in waiting)]


def _less_what_nobody_owns(merged: Object, former: Fields, now: Iterable[Fields], shape: Shape) -> Object:
    """The object without what the manager has named before, and neither it nor another names now."""
    last = with_ancestors(former, shape)
    owned = with_ancestors((path for fields in now for path in fields), shape)
    everything = with_ancestors(_all_paths(merged, shape), shape)
    pruned = without(merged, last, shape) or {}
    kept = with_ancestors(_all_paths(pruned, shape), shape)
    pruned = without(merged, everything - (kept | owned), shape) or {}
    kept = with_ancestors(_all_paths(pruned, shape), shape)
    result: Object = without(merged, (everything - kept) & last, shape) or {}
    return result


def _all_paths(value: Json, shape: Shape) -> set[Path]:
    return set(fields_of(value, shape))


def _conflicts(managed: Managed, applier: Manager, found: Difference) -> list[tuple[str, Path]]:
    """Who else owns what is different now: the managers in words, and the paths."""
    changed = found.modified | found.added
    told = [
        (manager.in_words(owned.version), path)
        for manager, owned in managed.items()
        if manager != applier
        for path in owned.fields & changed
    ]
    return sorted(told)


def _refused(conflicts: list[tuple[str, Path]]) -> Refused:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": in_words(path)}
        for manager, path in conflicts
    ]
    if len(conflicts) == 1:
        manager, path = conflicts[0]
        message = f"Apply failed with 1 conflict: conflict with {manager}: {in_words(path)}"
    else:
        by_manager = defaultdict(list)
        for manager, path in conflicts:
            by_manager[manager].append(f"- {in_words(path)}")
        said = [f"conflicts with {manager}:\n" + "\n".join(paths) for manager, paths in by_manager.items()]
        message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(said)
    return Refused(409, "Conflict", message, details={"causes": causes})


def applier(name: str, subresource: str) -> Manager:
    """The manager that applies under a name."""
    return Manager(name=name, operation=APPLY, subresource=subresource)


def undeclared(value: Json, schema: Object, path: str = "") -> str | None:
    """The first field that a schema does not declare, as `.spec.interval`; None where it declares all."""
    if isinstance(value, list):
        items = schema.get("items") or {}
        told = (undeclared(item, items, f"{path}[{index}]") for index, item in enumerate(value))
        return next((found for found in told if found), None)
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return None
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    for name, inner in value.items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        if name not in known and not more:
            return f"{path}.{name}"
        found = undeclared(inner, known.get(name) or (more if isinstance(more, dict) else {}), f"{path}.{name}")
        if found:
            return found
    return None
