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
from exporter.operator.objects.object_fields import Condition, condition, moment, word
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
    written = []
    for verb in ("created", "updated", "deleted"):
        whats = [str(change) for change in changes if change.verb == verb and not change.by]
        if whats:
            written.append(f"{verb} {and_listed(whats, 12)}")
    if written:
        generation = number(new, "observedGeneration")
        why = f"for generation {generation} of the spec"
        if generation == number(old, "observedGeneration"):
            why = "something was not as wanted"
        yield Event("Normal", "Applied", "Apply", f"{'; '.join(written)}: {why}")
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
    before = condition(old, "Ready")
    now = condition(new, "Ready")
    was_ready = before.status == "True"
    if now.status == "True":
        has_nodes = now.reason != "NoNodes"
        if was_ready and has_nodes == (before.reason != "NoNodes"):
            return
        if has_nodes:
            yield Event("Normal", "NodesReady", "Roll", now.message)
        else:
            yield Event("Normal", "NoNodes", "Roll", now.message)
    elif now.reason and now.reason not in NOT_OBSTACLES:
        if _is_other(before, now):
            yield Event("Warning", word(now.reason) or "NotReady", "Apply", now.message)
    elif was_ready and now.reason == "NodesNotReady":
        yield Event("Warning", "NodesNotReady", "Look", now.message)
    elif was_ready:
        yield Event("Normal", "RollingOut", "Roll", now.message)


def _is_other(before: Condition, now: Condition) -> bool:
    return (now.reason, now.message) != (before.reason, before.message)


def _of_nodes(old: AnyObject, new: AnyObject) -> Iterator[Event]:
    """Events of troubles that began, and of nodes whose troubles ended.

    If a status has too many troubles to name them all, only a new kind of trouble counts as begun.
    """
    if "troubles" not in new:
        return
    before = troubles_in(old)
    now = troubles_in(new)
    are_cut = MOST_TROUBLES in (len(before), len(now))
    # source and reason; the node, too, if both statuses name all troubles
    compared = slice(1, 3) if are_cut else slice(3)
    kinds_before = {trouble[compared] for trouble in before}
    began = [trouble for trouble in now if trouble[compared] not in kinds_before]
    for kind in by_kind(began)[:_MOST_KINDS]:
        nodes = and_listed([trouble.node for trouble in kind], _MOST_NAMED)
        first = kind[0]
        yield Event("Warning", "NodeTrouble", "Look", f"{nodes}: {first.source} ({first.reason}): {first.message}")
    recovered = {trouble.node for trouble in before} - {trouble.node for trouble in now}
    if recovered and not (are_cut and now):
        verb = "has" if len(recovered) == 1 else "have"
        nodes = and_listed(sorted(recovered), _MOST_NAMED)
        yield Event("Normal", "NodesRecovered", "Look", f"{nodes} {verb} no trouble any more")


def _of_pod_events(old: AnyObject, new: AnyObject) -> Iterator[Event]:
    """The event that says that events on pods are refused now, or are refused no more."""
    before = condition(old, EVENTS_WRITTEN)
    now = condition(new, EVENTS_WRITTEN)
    if now.status == "False" and _is_other(before, now):
        yield Event("Warning", "EventsNotWritten", "Tell", now.message)
    elif now.status == "True" and before.status == "False":
        yield Event("Normal", "EventsWritten", "Tell", now.message)


def _of_scaling(old: AnyObject, new: AnyObject) -> Iterator[Event]:
    """Events of a GPUAutoscaler: it scales by another autoscaler, is ready or hindered, or the replicas changed."""
    via = text(new, "via")
    via_before = text(old, "via")
    if via_before and via != via_before and via in _SWITCHED:
        yield _SWITCHED[via]
    before = condition(old, "Ready")
    now = condition(new, "Ready")
    if now.status == "True":
        if before.status != "True":
            yield Event("Normal", "Ready", "Apply", now.message)
    elif now.status == "False" and _is_other(before, now):
        kind: EventType = "Normal" if now.reason == "Waiting" else "Warning"
        yield Event(kind, word(now.reason) or "NotReady", "Apply", now.message)
    scale = mapping(new, "lastScale")
    # a change before the operator's first look is no news
    if old and number(scale, "to") is not None and not _is_same_scale(scale, mapping(old, "lastScale")):
        yield Event("Normal", "Scaled", "Scale", _scaled(scale))


def _is_same_scale(scale: AnyObject, last: AnyObject) -> bool:
    """Whether both are the same change. The autoscaler tells of it in an event, and a moment later in its status."""
    if scale.get("to") != last.get("to"):
        return False
    now = moment(scale, "time")
    before = moment(last, "time")
    if now is None or before is None:
        return bool(scale.get("time") == last.get("time"))
    return abs((now - before).total_seconds()) <= _SAME_SECONDS


def _scaled(scale: AnyObject) -> str:
    before = number(scale, "from")
    change = f"to {number(scale, 'to')} replicas"
    if before is not None:
        change = f"from {before} {change}"
    reason = text(scale, "reason")
    return f"scaled {change}: {reason}" if reason else f"scaled {change}"


def noted(event: Event) -> Event:
    """The event, with its note on one line and no longer than the API allows."""
    note = one_line(event.note, MOST_NOTE_BYTES)
    if len(note.encode()) > MOST_NOTE_BYTES:
        note = f"{note.encode()[: MOST_NOTE_BYTES - 3].decode(errors='ignore')}…"
    return event._replace(note=note)
