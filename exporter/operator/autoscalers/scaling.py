"""What scales says of itself → the last decision, the replicas, and what stops it. Pure.

An HPA tells in its status and in events (reasons and messages: kubernetes/kubernetes,
pkg/controller/podautoscaler/horizontal.go). KEDA tells in the ScaledObject's status, in events, and through its HPA
(kedacore/keda 2.20: apis/keda/v1alpha1, pkg/eventreason, pkg/scaling). All of it may be missing, malformed or somebody
else's: many may make events.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from exporter.errors import Trouble
from exporter.lenient import AnyObject, mapping, mappings, number, whole
from exporter.operator.autoscalers.choice import Via, is_a, name_of, uid_of
from exporter.operator.objects.fields import Condition, is_going, one_line, written
from exporter.operator.objects.kinds import AUTOSCALER, SCALED_OBJECT, is_controlled_by, metadata

MOST_CHARS = 1024
_MOST_TIME_CHARS = 40
# How Go prints the selector of a metric: it says what is in the ScaledObject's name anyway.
_SELECTOR = re.compile(
    r"[(/]&LabelSelector\{MatchLabels:map\[string\]string\{[^{}]{0,400}\},"
    r"MatchExpressions:\[\](?:LabelSelectorRequirement\{\})?,?\}\)?"
)
# grpc's errors, one in the other: the last one is the peer's own words
_GRPC = re.compile(r"(?:rpc error: )?code = [A-Za-z]{1,32} desc = ")


def clean(value: object) -> str:
    """A text on one line, of at most MOST_CHARS characters; "" where it is none."""
    if not isinstance(value, str):
        return ""
    return one_line(_SELECTOR.sub("", value[: 4 * MOST_CHARS]), MOST_CHARS)


def time_of(value: object) -> datetime | None:
    """A time as Kubernetes writes it, to the second; None where it is none."""
    if not isinstance(value, str) or len(value) > _MOST_TIME_CHARS:
        return None
    try:
        time = datetime.fromisoformat(value)
        return time.astimezone(UTC).replace(microsecond=0) if time.tzinfo else None
    except (ValueError, OverflowError):
        return None


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
        content = {"time": written(self.time), "from": self.before, "to": self.after, "reason": self.reason or None}
        return {name: value for name, value in content.items() if value is not None}


def last_scale(events: Iterable[AnyObject], status: AnyObject | None, remembered: object) -> LastScale | None:
    """The last change, from the events of one HPA and its ScaledObject, the HPA's status, and what was known before.

    Events go after an hour or so, and some never come (rate limits): so the HPA's own `lastScaleTime` counts, too.
    """
    limited = _limited(events)
    changes = [
        change
        for change in (_by_hpa(status or {}, limited), *map(_by_keda, limited), _of_object(remembered))
        if change is not None
    ]
    newest = max(changes, key=lambda change: change.time, default=None)
    for change in changes:
        if newest is not None and newest.time - change.time <= _SAME_MOMENT:
            newest = _both(newest, change)
    return newest


def _both(one: LastScale, other: LastScale) -> LastScale:
    """The change of which both tell. Where they tell of two changes of one moment, it is the first one's alone."""
    if None not in (one.after, other.after) and one.after != other.after:
        return one
    return LastScale(
        time=min(one.time, other.time),
        before=other.before if one.before is None else one.before,
        after=other.after if one.after is None else one.after,
        reason=one.reason or other.reason,
    )


def scaler_failure(events: Iterable[AnyObject], scaled: AnyObject | None) -> str:
    """What the cluster role said to KEDA's last failed question, without the changing time; "" where KEDA says none."""
    failures = [
        (time, message)
        for event in _limited(events)
        if scaled is not None
        and event.get("reason") == "KEDAScalerFailed"
        and _about(event).get("uid") == uid_of(scaled)
        and (time := _time_of(event))
        and (message := _GRPC.split(_message(event))[-1].strip())
    ]
    return f"the cluster role said: {max(failures)[1]}" if failures else ""


def _by_hpa(status: AnyObject, events: Iterable[AnyObject]) -> LastScale | None:
    """What an HPA did last: its status says when, and an event of that moment says what and why.

    Right after a change, status.currentReplicas are those before it.
    """
    time = time_of(status.get("lastScaleTime"))
    if time is None:
        return None
    change = LastScale(time=time)
    for event in events:
        event_time, match = _time_of(event), _RESCALED.search(_message(event))
        is_rescale = event.get("reason") == "SuccessfulRescale"
        if is_rescale and event_time and match and abs(event_time - time) <= _SAME_MOMENT:
            change = LastScale(time=time, after=whole(int(match[1])), reason=match[2])
    current, wanted = number(status, "currentReplicas"), number(status, "desiredReplicas")
    updated = [
        match for item in mappings(status, "conditions", 32) if (match := _UPDATED.search(clean(item.get("message"))))
    ]
    if not updated:
        return change
    after = whole(int(updated[0][1]))
    return _both(change, LastScale(time=time, before=current if wanted == after != current else None, after=after))


def _by_keda(event: AnyObject) -> LastScale | None:
    """What KEDA did: from no pods to the first ones, or back."""
    time, reason = _time_of(event), event.get("reason")
    match = _FROM_TO.search(_message(event))
    if time is None or not match or not isinstance(reason, str) or reason not in _BY_KEDA:
        return None
    return LastScale(
        time=time, before=whole(int(match[1])), after=whole(int(match[2])), reason=match[3] or _BY_KEDA[reason]
    )


def _of_object(remembered: object) -> LastScale | None:
    """What status.lastScale said before."""
    if not isinstance(remembered, Mapping) or (time := time_of(remembered.get("time"))) is None:
        return None
    return LastScale(
        time=time,
        before=number(remembered, "from"),
        after=number(remembered, "to"),
        reason=clean(remembered.get("reason")),
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
    return next((time for value in times if (time := time_of(value)) and time > _YEAR_ONE), None)


def _message(event: AnyObject) -> str:
    return clean(event.get("note") or event.get("message"))


def _about(event: AnyObject) -> AnyObject:
    return mapping(event, "regarding") or mapping(event, "involvedObject")


def _limited(events: Iterable[AnyObject]) -> list[AnyObject]:
    return [event for event, _ in zip(events, range(MOST_EVENTS), strict=False) if isinstance(event, Mapping)]


MOST_CONDITIONS = 32
# What an HPA or KEDA says, and what to do about it. `{address}` is spec.clusterAddress.
_REMEDIES = {
    "FailedGetPodsMetric": "see that prometheus-adapter runs with deploy/prometheus-adapter/values.yaml, and that"
    " Prometheus scrapes the node exporters (deploy/prometheus)",
    "FailedGetExternalMetric": "see that the cluster role answers KEDA at {address} (deploy/cluster.yaml with the lines"
    " of KEDA's); its log has the reason, too",
    "ScalingDisabled": "scale the workload to one pod or more by hand: at 0 a HorizontalPodAutoscaler rests",
    "AmbiguousSelector": "delete the other HorizontalPodAutoscaler, or make the selectors of the workloads differ",
    "FailedGetScale": "see that the workload is there, and that its kind has the subresource scale",
    "TriggerError": "see that the cluster role answers KEDA at {address}; KEDA leaves the replicas as they are",
    "Paused": "remove KEDA's annotation autoscaling.keda.sh/paused or paused-replicas from the ScaledObject",
    "Fallback": "remove spec.fallback from the ScaledObject: it scales by a number that nobody measured",
}
_USUAL_REMEDY = "see the events of {what}"


_NO_CONDITION = Condition("", "", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the autoscaler says.

    `has_spoken`: its controller has looked at it. `replicas` are the pods that there are, and `wanted` those that it
    wants; None where it does not say. `limited` says what keeps it from the number that the metric asks for, which is
    no trouble. `trouble` is why it does not scale.
    """

    has_spoken: bool = False
    replicas: int | None = None
    wanted: int | None = None
    last_scale: LastScale | None = None
    limited: str = ""
    is_idle: bool = False
    trouble: Trouble | None = None


def decision(
    via: Via, uid: str, address: str, scalers: Sequence[AnyObject], events: Iterable[AnyObject], before: object = None
) -> Decision:
    """What the object of the GPUAutoscaler with this uid says.

    `address` is spec.clusterAddress; `scalers` as in NamespaceObjects; `events` those of the namespace's HPAs and
    ScaledObjects, of core/v1 or events.k8s.io/v1; `before` is status.lastScale as it stands, which outlives events (one
    hour).
    """
    own = next((item for item in scalers if _is_own(item, uid, via)), None)
    if own is None:
        return Decision(last_scale=last_scale((), None, before))
    scaled = own if via == "keda" else None
    hpa = own if via == "hpa" else _made_for(own, scalers)
    usable = [event for event in events if isinstance(event, Mapping)]
    status = mapping(hpa, "status")
    conditions = read_conditions(status)
    trouble = _of_keda(scaled, address, usable) if scaled is not None else None
    if trouble is None and hpa is not None:
        trouble = _of_hpa(hpa, conditions, via, address, scaler_failure(usable, scaled))
    active, limited = (conditions.get(kind, _NO_CONDITION) for kind in ("ScalingActive", "ScalingLimited"))
    return Decision(
        has_spoken=bool(read_conditions(mapping(own, "status"))),
        # the API leaves out a currentReplicas of 0, and says 0 in desiredReplicas before the HPA has looked
        replicas=whole(status.get("currentReplicas", 0)) if conditions else None,
        wanted=whole(status.get("desiredReplicas", 0)) if conditions else None,
        last_scale=last_scale([event for event in usable if _is_of(event, own, hpa)], status, before),
        limited=limited.message if limited.status == active.status == "True" else "",
        is_idle=via == "keda" and active.reason == "ScalingDisabled",
        trouble=trouble,
    )


def read_conditions(status: AnyObject) -> Mapping[str, Condition]:
    """The conditions of a status by their type; of one that stands there twice the first."""
    conditions: dict[str, Condition] = {}
    for item in mappings(status, "conditions", MOST_CONDITIONS):
        if isinstance(kind := item.get("type"), str):
            conditions.setdefault(kind, Condition(*(clean(item.get(name)) for name in ("status", "reason", "message"))))
    return conditions


def _of_keda(scaled: AnyObject, address: str, events: Sequence[AnyObject]) -> Trouble | None:
    """Why KEDA does not scale as the ScaledObject says."""
    conditions = read_conditions(mapping(scaled, "status"))
    what = f"ScaledObject {name_of(scaled)}"
    paused, ready, fallback = (conditions.get(kind, _NO_CONDITION) for kind in ("Paused", "Ready", "Fallback"))
    if paused.status == "True":
        return _trouble("Paused", f"{what} is paused", what, address)
    if ready.status == "False":
        reason = ready.reason or "ScaledObjectNotReady"
        return _trouble(reason, _joined(f"{what}: {ready.message}", scaler_failure(events, scaled)), what, address)
    if fallback.status == "True":
        return _trouble("Fallback", f"{what}: {fallback.message}", what, address)
    return None


def _of_hpa(
    hpa: AnyObject, conditions: Mapping[str, Condition], via: Via, address: str, from_scaler: str
) -> Trouble | None:
    """Why the HPA does not scale. At 0 pods it rests: with KEDA somebody else brings the first one back."""
    what = f"HorizontalPodAutoscaler {name_of(hpa)}"
    for kind in ("AbleToScale", "ScalingActive"):
        condition = conditions.get(kind, _NO_CONDITION)
        if condition.status == "False" and not (via == "keda" and condition.reason == "ScalingDisabled"):
            reason = condition.reason or f"Not{kind}"
            return _trouble(reason, _joined(f"{what}: {condition.message}", from_scaler), what, address)
    return None


def _trouble(reason: str, message: str, what: str, address: str) -> Trouble:
    remedy = _REMEDIES.get(reason, _USUAL_REMEDY).format(address=address, what=what)
    word = "".join(letter for letter in reason if letter.isascii() and letter.isalnum())[:200]
    # a reason is a word that begins with a letter (the API refuses the status otherwise)
    return Trouble(word if word[:1].isalpha() else "NotScaling", message, remedy)


def _joined(message: str, from_scaler: str) -> str:
    return f"{message} ({from_scaler})" if from_scaler else message


def _is_own(item: AnyObject, uid: str, via: Via) -> bool:
    kind = SCALED_OBJECT if via == "keda" else AUTOSCALER
    return is_a(item, kind) and is_controlled_by(item, uid) and not is_going(item)


def _made_for(scaled: AnyObject, scalers: Sequence[AnyObject]) -> AnyObject | None:
    return next((item for item in scalers if is_a(item, AUTOSCALER) and is_controlled_by(item, uid_of(scaled))), None)


def _is_of(event: AnyObject, *items: AnyObject | None) -> bool:
    """Whether an event is of one of these objects, and not of one that had its name before."""
    about = _about(event)
    return any(
        about.get("kind") == item.get("kind") and about.get("uid") == uid_of(item)
        for item in items
        if item is not None and metadata(item).get("uid")
    )
