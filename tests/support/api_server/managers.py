"""metadata.managedFields: who owns which fields of an object, and since when."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.support.api_server.answers import Json, Object
from tests.support.api_server.fields import (
    Fields,
    Path,
    difference,
    from_fields_v1,
    to_fields_v1,
)
from tests.support.api_server.shapes import Shape

APPLY, UPDATE = "Apply", "Update"


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Manager:
    """Who wrote, and how: one that applies is another than one of the same name that updates."""

    name: str
    operation: str
    subresource: str = ""
    version: str = ""  # of an update alone: an apply replaces what the same manager applied in another version

    def in_words(self, version: str) -> str:
        """As conflicts name it."""
        told = f'"{self.name}"' + (f' with subresource "{self.subresource}"' if self.subresource else "")
        return f"{told} using {version}" if self.operation == UPDATE else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """What a manager owns, in which version, since when; a scale subresource's writes have no time."""

    fields: Fields
    version: str
    time: str | None


Managed = dict[Manager, Owned]


def read_managed(item: Object) -> Managed:
    """The managers of an object, as its metadata tell."""
    managed: Managed = {}
    for entry in item.get("metadata", {}).get("managedFields") or ():
        version = str(entry.get("apiVersion", ""))
        manager = Manager(
            name=str(entry.get("manager", "")),
            operation=str(entry.get("operation", UPDATE)),
            subresource=str(entry.get("subresource", "")),
            version=version if entry.get("operation") != APPLY else "",
        )
        fields = frozenset(from_fields_v1(entry.get("fieldsV1") or {}))
        managed[manager] = Owned(fields=fields, version=version, time=entry.get("time"))
    return managed


def write_managed(managed: Mapping[Manager, Owned]) -> list[Object]:
    """The entries of metadata.managedFields: those that apply before those that update, the oldest first."""
    entries = []
    order = sorted(managed, key=lambda manager: (manager.operation, managed[manager].time or "", manager))
    for manager in order:
        owned = managed[manager]
        entry: Object = {"manager": manager.name, "operation": manager.operation, "apiVersion": owned.version}
        if owned.time is not None:
            entry["time"] = owned.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": to_fields_v1(owned.fields)}
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    return entries


def after_update(
    managed: Managed, before: Json, after: Json, shape: Shape, *, manager: Manager, time: str | None
) -> Managed:
    """The owners after a manager has changed an object by anything but an apply: what it changed is its own."""
    found = difference(before, after, shape)
    taken = found.added | found.modified
    kept = less(managed, taken | found.removed)
    if taken:
        former = kept[manager].fields if manager in kept else frozenset()
        version = manager.version
        kept[manager] = Owned(fields=frozenset(former | taken), version=version, time=time)
    return kept


def less(managed: Managed, paths: set[Path], *, but: Manager | None = None) -> Managed:
    """The managers less some of their fields; one that has none left is none."""
    kept: Managed = {}
    for manager, owned in managed.items():
        fields = owned.fields if manager == but else owned.fields - paths
        if fields:
            kept[manager] = replace(owned, fields=fields)
    return kept
