"""What is to be written, so that the objects of a custom resource become those that it wants. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from exporter.operator.objects.changes import applied_fields, is_as_wanted
from exporter.operator.objects.kinds import Key, Object, controller_of, is_controlled_by, is_for, key_of, metadata
from exporter.operator.objects.parts import AnyObject, is_going


class Plan(NamedTuple):
    """`apply` is to be applied, each with what is there now, if anything; `delete` is to go.

    `kept` is as it is wanted. `not_ours` are objects of somebody else under a name that is wanted. `going` are objects
    that are being deleted: what is wanted in their place can be made once they are gone.
    """

    apply: Sequence[tuple[Object, AnyObject | None]]
    delete: Sequence[AnyObject]
    kept: Sequence[AnyObject]
    not_ours: Sequence[AnyObject]
    going: Sequence[AnyObject]


def plan(owner: Key, uid: str, wanted: Iterable[Object], live: Mapping[Key, AnyObject]) -> Plan:
    """Compare what is wanted with what is there, `live`: all that the owner may control, by what it is called."""
    apply: list[tuple[Object, AnyObject | None]] = []
    delete: list[AnyObject] = []
    kept: list[AnyObject] = []
    not_ours: list[AnyObject] = []
    going: list[AnyObject] = []
    names = set()
    for item in wanted:
        key = key_of(item)
        names.add(key)
        there = live.get(key)
        if there is None:
            apply.append((item, None))
        elif not _may_be_changed(there, owner, uid):
            not_ours.append(there)
        elif is_going(there):
            going.append(there)
        elif is_as_wanted(item, there):
            kept.append(there)
        else:
            apply.append((item, there))
    for key, there in live.items():
        if key not in names and (is_controlled_by(there, uid) or is_for(there, owner)):
            (going if is_going(there) else delete).append(there)
    return Plan(apply, delete, kept, not_ours, going)


def _may_be_changed(there: AnyObject, owner: Key, uid: str) -> bool:
    """Whether it is the owner's. One that this operator applied, and that nobody controls, lost its owner reference.

    That is somebody's edit, or a deletion of the owner that left its objects behind (kubectl delete --cascade=orphan).
    """
    if is_controlled_by(there, uid) or is_for(there, owner):
        return True
    return bool(metadata(there).get("namespace")) and not controller_of(there) and applied_fields(there) is not None
