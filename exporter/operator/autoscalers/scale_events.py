"""The last change of the number of pods, from events and from what a status says of it. Pure.

Events are of core/v1 or events.k8s.io/v1; both tell the same of one event. They are gone after an hour or so, and some
never come (what emits them is limited in rate), so that the HPA's own `lastScaleTime` counts, too.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from exporter.operator.autoscalers.scalers import uid_of
from exporter.operator.objects.conditions import written
from exporter.operator.objects.parts import AnyObject, mapping, mappings
from exporter.operator.objects.status_texts import clean, count_of, innermost, time_of

MOST_EVENTS = 2000
# An HPA emits its event right before it writes its status.
_SAME_MOMENT = timedelta(seconds=5)
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)
_COUNT = "([0-9]{1,10})"
# of an HPA; several alike may have been put together under another beginning
_RESCALED = re.compile(rf"New size: {_COUNT}; reason: (.*)")
# of KEDA: from 0 to the first pods, and back
_BY_KEDA = {"KEDAScaleTargetActivated": "in use again", "KEDAScaleTargetDeactivated": "not in use for idleSeconds"}
_FROM_TO = re.compile(rf"from {_COUNT} to {_COUNT}(?:, (.*))?")
_UPDATED = re.compile(rf"update the target scale to {_COUNT}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastScale:
    """A change of the number of pods. What is not known is None, or ""."""

    time: datetime
    before: int | None = None
    after: int | None = None
    reason: str = ""

    def as_object(self) -> dict[str, Any]:
        """As it stands in the status."""
        said = {"time": written(self.time), "from": self.before, "to": self.after, "reason": self.reason or None}
        return {name: value for name, value in said.items() if value is not None}


def last_scale(events: Iterable[AnyObject], status: AnyObject | None, known: object) -> LastScale | None:
    """The last change, from the events of one HPA and its ScaledObject, the HPA's status, and what was known before."""
    told = _limited(events)
    changes = [
        change
        for change in (_by_hpa(status or {}, told), *map(_by_keda, told), _of_object(known))
        if change is not None
    ]
    newest = max(changes, key=lambda change: change.time, default=None)
    for change in changes:
        if newest is not None and newest.time - change.time <= _SAME_MOMENT:
            newest = _both(newest, change)
    return newest


def _both(one: LastScale, other: LastScale) -> LastScale:
    """One change of which two tell; nothing of the other, where that is another change of the same moment."""
    if None not in (one.after, other.after) and one.after != other.after:
        return one
    return LastScale(
        time=min(one.time, other.time),
        before=other.before if one.before is None else one.before,
        after=other.after if one.after is None else one.after,
        reason=one.reason or other.reason,
    )


def scaler_failure(events: Iterable[AnyObject], scaled: AnyObject | None) -> str:
    """What the cluster role said to KEDA's last question that failed; "" where KEDA tells of none.

    The HPA is told only that there was an error. When it was is left out: it is another time at each question.
    """
    failures = [
        (time, message)
        for event in _limited(events)
        if scaled is not None
        and event.get("reason") == "KEDAScalerFailed"
        and _about(event).get("uid") == uid_of(scaled)
        and (time := _time_of(event))
        and (message := innermost(_message(event)))
    ]
    if not failures:
        return ""
    _, message = max(failures)
    return f"the cluster role said: {message}"


def _by_hpa(status: AnyObject, events: Iterable[AnyObject]) -> LastScale | None:
    """What an HPA did last: its status says when, and an event of that moment says what and why.

    Right after a change, status.currentReplicas are those before it.
    """
    time = time_of(status.get("lastScaleTime"))
    if time is None:
        return None
    change = LastScale(time=time)
    for event in events:
        told, found = _time_of(event), _RESCALED.search(_message(event))
        if event.get("reason") == "SuccessfulRescale" and told and found and abs(told - time) <= _SAME_MOMENT:
            change = LastScale(time=time, after=count_of(int(found[1])), reason=found[2])
    current, wanted = count_of(status.get("currentReplicas")), count_of(status.get("desiredReplicas"))
    updated = [
        found for item in mappings(status, "conditions", 32) if (found := _UPDATED.search(clean(item.get("message"))))
    ]
    if not updated:
        return change
    after = count_of(int(updated[0][1]))
    return _both(change, LastScale(time=time, before=current if wanted == after != current else None, after=after))


def _by_keda(event: AnyObject) -> LastScale | None:
    """What KEDA did: from no pods to the first ones, or back."""
    time, reason = _time_of(event), event.get("reason")
    found = _FROM_TO.search(_message(event))
    if time is None or not found or not isinstance(reason, str) or reason not in _BY_KEDA:
        return None
    return LastScale(
        time=time, before=count_of(int(found[1])), after=count_of(int(found[2])), reason=found[3] or _BY_KEDA[reason]
    )


def _of_object(known: object) -> LastScale | None:
    """What status.lastScale said before."""
    if not isinstance(known, Mapping) or (time := time_of(known.get("time"))) is None:
        return None
    return LastScale(
        time=time,
        before=count_of(known.get("from")),
        after=count_of(known.get("to")),
        reason=clean(known.get("reason")),
    )


def _time_of(event: AnyObject) -> datetime | None:
    """When it happened for the last time; a series is of several alike."""
    times = (
        mapping(event, "series").get("lastObservedTime"),
        event.get("lastTimestamp") or event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp"),
        mapping(event, "metadata").get("creationTimestamp"),
    )
    return next((found for value in times if (found := time_of(value)) and found > _YEAR_ONE), None)


def _message(event: AnyObject) -> str:
    return clean(event.get("note") or event.get("message"))


def _about(event: AnyObject) -> AnyObject:
    return mapping(event, "regarding") or mapping(event, "involvedObject")


def _limited(events: Iterable[AnyObject]) -> list[AnyObject]:
    return [event for event, _ in zip(events, range(MOST_EVENTS), strict=False) if isinstance(event, Mapping)]
