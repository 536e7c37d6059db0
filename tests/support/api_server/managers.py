"""metadata.managedFields: who owns which fields, and what an apply makes of an object."""

from dataclasses import dataclass, replace

from tests.support.api_server.answers import Object, Refused
from tests.support.api_server.fields import (
    UNOWNED,
    Path,
    Shape,
    difference,
    fields_of,
    from_fields_v1,
    merged,
    to_fields_v1,
    without,
)

APPLY, UPDATE = "Apply", "Update"


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Manager:
    """Who wrote, and how: a manager that applies is not the one of the same name that updates."""

    name: str
    operation: str
    subresource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """What a manager owns, in which API version, and since when."""

    fields: frozenset[Path]
    version: str
    time: str


Managed = dict[Manager, Owned]


def read_managed(item: Object) -> Managed:
    """The managers of an object."""
    return {
        Manager(
            name=entry["manager"], operation=entry["operation"], subresource=entry.get("subresource", "")
        ): Owned(
            fields=frozenset(from_fields_v1(entry["fieldsV1"])), version=entry["apiVersion"], time=entry.get("time", "")
        )
        for entry in item["metadata"].get("managedFields") or ()
    }  # fmt: skip


def write_managed(managed: Managed) -> list[Object]:
    """The entries of metadata.managedFields: those that apply before those that update, the oldest first."""
    order = sorted(managed, key=lambda manager: (manager.operation, managed[manager].time, manager))
    return [
        {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": managed[manager].version,
            "time": managed[manager].time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(managed[manager].fields),
            **({"subresource": manager.subresource} if manager.subresource else {}),
        }
        for manager in order
    ]


def updated(managed: Managed, before: Object, after: Object, shape: Shape, manager: Manager, time: str) -> Managed:
    """The owners after a manager has changed an object by anything but an apply: what it changed is its own."""
    changed, removed = difference(before, after, shape)
    kept = _less(managed, changed | removed)
    if changed:
        former = kept[manager].fields if manager in kept else frozenset()
        kept[manager] = Owned(fields=former | changed, version=after["apiVersion"], time=time)
    return kept


def applied(
    live: Object, wanted: Object, managed: Managed, shape: Shape, manager: Manager, time: str, *, force: bool
) -> tuple[Object, Managed]:
    """The object after an apply, and its managers.

    A field that the manager named before, and that nobody names now, is removed.

    Raises:
        Refused: 409 if the apply is not forced, and another manager owns one of its fields with another value.
    """
    named = frozenset(fields_of(wanted, shape)) - UNOWNED
    former = managed.get(manager)
    others = [path for other, owned in managed.items() if other != manager for path in owned.fields]
    gone = [
        path
        for path in (former.fields - named if former else ())
        if not any(other[: len(path)] == path for other in others)
    ]
    item = without(merged(live, wanted, shape), gone, shape)
    changed, removed = difference(live, item, shape)
    conflicts = sorted(
        (other, path)
        for other, owned in managed.items()
        for path in owned.fields & changed
        if other != manager and not force
    )
    if conflicts:
        raise _refused(conflicts, managed)
    kept = _less({other: owned for other, owned in managed.items() if other != manager}, changed | removed)
    if named:
        # an apply that changes nothing keeps the time of the last one
        is_same = former is not None and not changed and not removed
        kept[manager] = Owned(
            fields=named, version=wanted["apiVersion"], time=former.time if former and is_same else time
        )
    return item, kept


def _less(managed: Managed, paths: set[Path]) -> Managed:
    """The managers less some of their fields; one that has none left is none."""
    kept = {manager: replace(owned, fields=owned.fields - paths) for manager, owned in managed.items()}
    return {manager: owned for manager, owned in kept.items() if owned.fields}


def _refused(conflicts: list[tuple[Manager, Path]], managed: Managed) -> Refused:
    causes = []
    for manager, path in conflicts:
        who = f'"{manager.name}"' + (f' with subresource "{manager.subresource}"' if manager.subresource else "")
        using = f" using {managed[manager].version}" if manager.operation == UPDATE else ""
        why = f"conflict with {who}{using}"
        causes.append({"reason": "FieldManagerConflict", "message": why, "field": _in_words(path)})
    which = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    message = "\n".join(f"{cause['message']}: {cause['field']}" for cause in causes)
    return Refused(409, "Conflict", f"Apply failed with {which}: {message}", details={"causes": causes})


def _in_words(path: Path) -> str:
    """A path as conflicts name it: `.spec.replicas`. A real one writes the keys of items without quotes."""
    return "".join(f".{word[2:]}" if word.startswith("f:") else f"[{word[2:]}]" for word in path)
