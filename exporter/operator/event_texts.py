"""The operator's decisions and observations → Kubernetes events for people. Pure.

An event tells what was written, or what differs between two statuses. The same trouble on many nodes is one event.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from exporter.lenient import AnyObject, mapping, number, text
from exporter.operator.exporters.exporter_status import (
    EVENTS_WRITTEN,
    MOST_TROUBLES,
    NOT_OBSTACLES,
    by_kind,
    troubles_in,
)
from exporter.operator.objects.change_report import ObjectChange
from exporter.operator.objects.object_fields import condition, moment, word
from exporter.wording import and_listed, one_line

MOST_NOTE_BYTES = 1024  # the limit of events.k8s.io/v1
_MOST_NAMED = 5
_SAME_SECONDS = 10
_MOST_KINDS = 4
EventType = Literal["Normal", "Warning"]


class Event(NamedTuple):
    """An event about a custom resource. `reason` and `action` are one CamelCase word each, `note` is one line."""

    type: EventType
    reason: str
    action: str
    note: str


_TO_KEDA = "KEDA is there: a ScaledObject takes the place of the HorizontalPodAutoscaler"
_TO_HPA = "KEDA is gone: a HorizontalPodAutoscaler takes the place of the ScaledObject"
_SWITCHED = {
    "keda": Event("Normal", "SwitchedToKeda", "Apply", _TO_KEDA),
    "hpa": Event("Normal", "SwitchedToHpa", "Apply", _TO_HPA),
}


def events_of(old: AnyObject, new: AnyObject, changes: Sequence[ObjectChange] = ()) -> Sequence[Event]:
    """The events of a GPUExporter, from its old and its new status, and from the changes that were written for it."""
    of_status = (*_of_readiness(old, new), *_of_nodes(old, new), *_of_pod_events(old, new))
    return [noted(event) for event in (*_of_changes(old, new, changes), *of_status)]


def events_of_autoscaler(old: AnyObject, new: AnyObject, changes: Sequence[ObjectChange] = ()) -> Sequence[Event]:
    """The events of a GPUAutoscaler, likewise."""
    return [noted(event) for event in (*_of_changes(old, new, changes), *_of_scaling(old, new))]


def _of_changes(old: AnyObject, new: AnyObject, changes: Sequence[ObjectChange]) -> Iterator[Event]:
    """One event for all that was written, and one for each object that somebody else had changed."""
    events = []
    for verb in ("created", "updated", "deleted"):
        whats = [str(change) for change in changes if change.verb == verb and not change.by]
        if whats:
            events.append(f"{verb} {and_listed(whats, 12)}")
    if events:
        before, now = number(old, "observedGeneration"), number(new, "observedGeneration")
        why = "not all was as it is wanted" if before == now else f"for generation {now} of the spec"
        yield Event("Normal", "Applied", "Apply", f"{'; '.join(events)}: {why}")
    for change in changes:
        if change.by:
            yield Event(
                "Warning",
                "Corrected",
                "Apply",
                f"put {change} back to what is wanted: {and_listed(change.by, _MOST_NAMED)} had changed it -> change"
                " the custom resource instead",
            )


def _of_readiness(old: AnyObject, new: AnyObject) -> Iterator[Event]:
    """An event if the condition Ready of a GPUExporter has come, has gone, or has another obstacle."""
    before, now = condition(old, "Ready"), condition(new, "Ready")
    _, reason, message = now
    was_ready, was_without = before.status == "True", before.reason == "NoNodes"
    if now.status == "True":
        if reason == "NoNodes" and not (was_ready and was_without):
            yield Event("Normal", "NoNodes", "Roll", message)
        elif reason != "NoNodes" and (not was_ready or was_without):
            yield Event("Normal", "NodesReady", "Roll", message)
    elif reason and reason not in NOT_OBSTACLES:
        if now[1:] != before[1:]:
            yield Event("Warning", word(reason) or "NotReady", "Apply", message)
    elif was_ready and reason == "NodesNotReady":
        yield Event("Warning", "NodesNotReady", "Look", message)
    elif was_ready:
        yield Event("Normal", "RollingOut", "Roll", message)


def _of_nodes(old: AnyObject, new: AnyObject) -> Iterator[Event]:
    """Events of troubles that began, and of nodes whose troubles ended.

    If a status has too many troubles to name them all, only a new kind of trouble counts as begun.
    """
    if "troubles" not in new:
        return
    before, now = troubles_in(old), troubles_in(new)
    are_cut = MOST_TROUBLES in (len(before), len(now))
    # source and reason; the node, too, if both statuses name all troubles
    compared = slice(1, 3) if are_cut else slice(3)
    before_kinds = {trouble[compared] for trouble in before}
    began = [trouble for trouble in now if trouble[compared] not in before_kinds]
    over = set() if are_cut and now else {trouble.node for trouble in before} - {trouble.node for trouble in now}
    for kind in by_kind(began)[:_MOST_KINDS]:
        nodes = and_listed([trouble.node for trouble in kind], _MOST_NAMED)
        first = kind[0]
        yield Event("Warning", "NodeTrouble", "Look", f"{nodes}: {first.source} ({first.reason}): {first.message}")
    if over:
        verb = "has" if len(over) == 1 else "have"
        yield Event(
            "Normal",
            "NodesRecovered",
            "Look",
            f"{and_listed(sorted(over), _MOST_NAMED)} {verb} no trouble any more",
        )


def _of_pod_events(old: AnyObject, new: AnyObject) -> Iterator[Event]:
    """The event that says that events on pods are refused now, or are refused no more."""
    before, now = condition(old, EVENTS_WRITTEN), condition(new, EVENTS_WRITTEN)
    if now.status == "False" and now[1:] != before[1:]:
        yield Event("Warning", "EventsNotWritten", "Tell", now.message)
    elif now.status == "True" and before.status == "False":
        yield Event("Normal", "EventsWritten", "Tell", now.message)


def _of_scaling(old: AnyObject, new: AnyObject) -> Iterator[Event]:
    """Events of a GPUAutoscaler: it scales by another autoscaler, is ready or hindered, or the replicas changed."""
    via, before = text(new, "via"), text(old, "via")
    if before and via != before and via in _SWITCHED:
        yield _SWITCHED[via]
    was, now = condition(old, "Ready"), condition(new, "Ready")
    if now.status == "True":
        if was.status != "True":
            yield Event("Normal", "Ready", "Apply", now.message)
    elif now.status == "False" and now[1:] != was[1:]:
        kind: EventType = "Normal" if now.reason == "Waiting" else "Warning"
        yield Event(kind, word(now.reason) or "NotReady", "Apply", now.message)
    scale, last = mapping(new, "lastScale"), mapping(old, "lastScale")
    # a change before the operator's first look is no news
    if old and number(scale, "to") is not None and not _is_same_scale(scale, last):
        yield Event("Normal", "Scaled", "Scale", _scaled(scale))


def _is_same_scale(scale: AnyObject, last: AnyObject) -> bool:
    """Whether both are the same change. The autoscaler tells of it in an event, and a moment later in its status."""
    now, before = moment(scale, "time"), moment(last, "time")
    if now is None or before is None:
        return scale.get("time") == last.get("time") and scale.get("to") == last.get("to")
    return scale.get("to") == last.get("to") and abs((now - before).total_seconds()) <= _SAME_SECONDS


def _scaled(scale: AnyObject) -> str:
    came, went, reason = number(scale, "from"), number(scale, "to"), text(scale, "reason")
    there = f"to {went} replicas" if came is None else f"from {came} to {went} replicas"
    return f"scaled {there}{': ' if reason else ''}{reason}"


def noted(event: Event) -> Event:
    """The event, with its note on one line and no longer than the API allows."""
    note = one_line(event.note, MOST_NOTE_BYTES)
    if len(note.encode()) > MOST_NOTE_BYTES:
        note = f"{note.encode()[: MOST_NOTE_BYTES - 3].decode(errors='ignore')}…"
    return event._replace(note=note)
