"""What the operator decided and saw → Kubernetes events for people. Pure.

An event is told when something changes, not each time it is seen: what an event says is the difference of two statuses,
or what was written.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from exporter.operator.parts import AnyObject

MOST_NOTE_CHARS = 1024  # of events.k8s.io/v1


class Event(NamedTuple):
    """An event about a custom resource. `action` is what was done or looked at, `note` one line for people."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


class Change(NamedTuple):
    """Something that was written: created, updated or deleted.

    `what` is the object, as in "DaemonSet gpu". `fields` are the paths that are other than before, and `by` who had
    changed them, where somebody else than the operator had.
    """

    verb: Literal["created", "updated", "deleted"]
    what: str
    fields: tuple[str, ...] = ()
    by: tuple[str, ...] = ()


def change_of(wanted: AnyObject, there: AnyObject | None) -> Change:
    """What an apply of `wanted` changes about `there`, the object as it was read before; None: there was none."""
    raise NotImplementedError


def deletion_of(there: AnyObject) -> Change:
    """An object that is not wanted any more was deleted."""
    raise NotImplementedError


def events_of(old: AnyObject, new: AnyObject, changes: Sequence[Change] = ()) -> Sequence[Event]:
    """The events of a GPUExporter: from its status before and now, and what was written for it."""
    raise NotImplementedError


def events_of_autoscaler(old: AnyObject, new: AnyObject, changes: Sequence[Change] = ()) -> Sequence[Event]:
    """The same of a GPUAutoscaler."""
    raise NotImplementedError
