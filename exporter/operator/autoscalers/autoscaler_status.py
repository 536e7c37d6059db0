"""A GPUAutoscaler, its objects, and the words of HPA and KEDA → its status: replicas, last change, trouble. Pure.

A field that is not known now keeps its old value.

An HPA tells its decisions in its status and in events (reasons and messages: kubernetes/kubernetes,
pkg/controller/podautoscaler/horizontal.go). KEDA tells its decisions in the ScaledObject's status, in events, and
through its HPA (kedacore/keda 2.20: apis/keda/v1alpha1, pkg/eventreason, pkg/scaling). All of these may be missing,
malformed or of somebody else, since many may make events.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from exporter.errors import Trouble
from exporter.lenient import AnyObject, mapping, mappings, number, text, whole
from exporter.operator.autoscalers.choice import SCALERS, Via, WantedScaler, is_a
from exporter.operator.objects.kinds import AUTOSCALER, is_controlled_by, metadata, name_of, uid_of
from exporter.operator.objects.object_fields import (
    Condition,
    base_status,
    condition,
    is_going,
    moment,
    word,
    written,
)
from exporter.operator.objects.resources import Object
from exporter.wording import one_line

MOST_CHARS = 1024
# The selector of a metric, as Go prints it. It only repeats the ScaledObject's name.
_SELECTOR = re.compile(
    r"[(/]&LabelSelector\{MatchLabels:map\[string\]string\{[^{}]{0,400}\},"
    r"MatchExpressions:\[\](?:LabelSelectorRequirement\{\})?,?\}\)?"
)
# the beginning of a gRPC error; of nested errors, the last one is the peer's own
_GRPC = re.compile(r"(?:rpc error: )?code = [A-Za-z]{1,32} desc = ")


def _clean(content: str) -> str:
    """A text on one line, of at most MOST_CHARS characters."""
    return one_line(_SELECTOR.sub("", content[: 4 * MOST_CHARS]), MOST_CHARS)


def _condition(status: AnyObject, kind: str) -> Condition:
    return Condition(*map(_clean, condition(status, kind)))


MOST_EVENTS = 2000
# An HPA emits its event right before it writes its status, so the two are at most this far apart.
_SAME_MOMENT = timedelta(seconds=5)
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)
_COUNT = "([0-9]{1,10})"
# the note of an HPA's event; if several events were put together, the note begins with other words
_RESCALED = re.compile(rf"New size: {_COUNT}; reason: (.*)")
# KEDA's events of scaling from 0 to the first pods, and back
_BY_KEDA = {"KEDAScaleTargetActivated": "in use again", "KEDAScaleTargetDeactivated": "not in use for idleSeconds"}
_FROM_TO = re.compile(rf"from {_COUNT} to {_COUNT}(?:, (.*))?")
_UPDATED = re.compile(rf"update the target scale to {_COUNT}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastScale:
    """A change of the number of pods. An unknown field is None, or ""."""

    time: datetime
    before: int | None = None
    after: int | None = None
    reason: str = ""

    def as_object(self) -> Object:
        """The change in the form of the status."""
        content = {"time": written(self.time), "from": self.before, "to": self.after, "reason": self.reason or None}
        return {name: value for name, value in content.items() if value is not None}


def _last_scale(events: Sequence[AnyObject], status: AnyObject, remembered: object) -> LastScale | None:
    """The last change, from the events of an HPA and its ScaledObject, the HPA's status, and the old `remembered` one.

    Events are deleted after an hour or so, and some are never written (rate limits). So the HPA's own `lastScaleTime`
    counts, too.
    """
    all_changes = (_by_hpa(status, events), *map(_by_keda, events), _of_object(mapping(remembered)))
    changes = [change for change in all_changes if change is not None]
    newest = max(changes, key=lambda change: change.time, default=None)
    for change in changes:
        if newest is not None and newest.time - change.time <= _SAME_MOMENT:
            newest = _both(newest, change)
    return newest


def _both(change: LastScale, other: LastScale) -> LastScale:
    """Two reports of one change, joined. If they are two changes of the same moment, only `one` counts."""
    if None not in (change.after, other.after) and change.after != other.after:
        return change
    return LastScale(
        time=min(change.time, other.time),
        before=other.before if change.before is None else change.before,
        after=other.after if change.after is None else change.after,
        reason=change.reason or other.reason,
    )


def _scaler_failure(events: Iterable[AnyObject], scaled: AnyObject | None) -> str:
    """The cluster role's answer to KEDA's last failed question, without its time; "" if KEDA tells none."""
    if scaled is None:
        return ""
    failures = []
    for event in events:
        if event.get("reason") != "KEDAScalerFailed" or mapping(event, "regarding").get("uid") != uid_of(scaled):
            continue
        time = _time_of(event)
        message = _GRPC.split(_clean(text(event, "note")))[-1].strip()
        if time and message:
            failures.append((time, message))
    return f"the cluster role said: {max(failures)[1]}" if failures else ""


def _by_hpa(status: AnyObject, events: Iterable[AnyObject]) -> LastScale | None:
    """The last change by an HPA. Its status has the time, and an event of that moment has the number and the reason.

    Right after a change, status.currentReplicas is still the number before it.
    """
    time = moment(status, "lastScaleTime")
    if time is None:
        return None
    change = LastScale(time=time)
    for event in events:
        event_time = _time_of(event)
        match = _RESCALED.search(_clean(text(event, "note")))
        is_rescale = event.get("reason") == "SuccessfulRescale"
        if is_rescale and event_time and match and abs(event_time - time) <= _SAME_MOMENT:
            change = LastScale(time=time, after=whole(int(match[1])), reason=match[2])
    messages = (_clean(text(item, "message")) for item in mappings(status, "conditions", MOST_CONDITIONS))
    updated = next(filter(None, map(_UPDATED.search, messages)), None)
    if updated is None:
        return change
    before = number(status, "currentReplicas")
    after = whole(int(updated[1]))
    if before == after or number(status, "desiredReplicas") != after:
        before = None
    return _both(change, LastScale(time=time, before=before, after=after))


def _by_keda(event: AnyObject) -> LastScale | None:
    """The change by KEDA that an event tells: from no pods to the first ones, or back."""
    time = _time_of(event)
    usual_reason = _BY_KEDA.get(text(event, "reason"))
    match = _FROM_TO.search(_clean(text(event, "note")))
    if time is None or not match or not usual_reason:
        return None
    return LastScale(
        time=time, before=whole(int(match[1])), after=whole(int(match[2])), reason=match[3] or usual_reason
    )


def _of_object(remembered: AnyObject) -> LastScale | None:
    """The change that status.lastScale tells."""
    time = moment(remembered, "time")
    if time is None:
        return None
    return LastScale(
        time=time,
        before=number(remembered, "from"),
        after=number(remembered, "to"),
        reason=_clean(text(remembered, "reason")),
    )


def _time_of(event: AnyObject) -> datetime | None:
    """The time of an event, in whole seconds; of a series, the time of the last one."""
    times = (
        moment(mapping(event, "series"), "lastObservedTime"),
        moment(event, "deprecatedLastTimestamp"),
        moment(event, "eventTime"),
        moment(event, "deprecatedFirstTimestamp"),
        moment(metadata(event), "creationTimestamp"),
    )
    return next((time.replace(microsecond=0) for time in times if time and time > _YEAR_ONE), None)


MOST_CONDITIONS = 32
# By the reason that an HPA or KEDA gives: what to do about it. `{address}` is spec.clusterAddress.
_REMEDIES = {
    "FailedGetPodsMetric": "see that prometheus-adapter runs with deploy/prometheus-adapter/values.yaml, and that"
    " Prometheus scrapes the node exporters (deploy/prometheus)",
    "FailedGetExternalMetric": "see that the cluster role answers KEDA at {address} (deploy/cluster.yaml with the lines"
    " for KEDA); its log has the reason, too",
    "ScalingDisabled": "scale the workload to one pod or more by hand: at 0 a HorizontalPodAutoscaler does nothing",
    "AmbiguousSelector": "delete the other HorizontalPodAutoscaler, or make the selectors of the workloads differ",
    "FailedGetScale": "see that the workload is there, and that its kind has the subresource scale",
    "TriggerError": "see that the cluster role answers KEDA at {address}; KEDA leaves the replicas as they are",
    "Paused": "remove KEDA's annotation autoscaling.keda.sh/paused or paused-replicas from the ScaledObject",
    "Fallback": "remove spec.fallback from the ScaledObject: it scales by a number that nobody measured",
}
_USUAL_REMEDY = "see the events of {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision of an HPA or of KEDA.

    Attributes:
        has_spoken: whether the controller of the object has looked at it.
        replicas: the present number of pods, None if unknown.
        wanted: the number of pods that it wants, None if unknown.
        last_scale: the last change of the number.
        limited: the bound that keeps it from the number by the metric, in words. This is no trouble.
        is_idle: whether the workload has no pods since nothing used its GPUs.
        trouble: the reason why it does not scale.
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
    """Read the decision from the objects that scale for a GPUAutoscaler.

    Args:
        via: the kind of object that scales.
        uid: the GPUAutoscaler's uid.
        address: its spec.clusterAddress.
        scalers: all HPAs and ScaledObjects of the namespace, as in NamespaceObjects.
        events: the events of the namespace's HPAs and ScaledObjects.
        before: the present status.lastScale, which outlives events (one hour).
    """
    own = next((item for item in scalers if _is_own(item, via, uid)), None)
    if own is None:
        return Decision(last_scale=_last_scale((), {}, before))
    hpa = own if via == "hpa" else _hpa_of_keda(own, scalers)
    usable = [event for event in islice(events, MOST_EVENTS) if isinstance(event, Mapping)]
    status = mapping(hpa, "status")
    has_spoken = bool(mappings(status, "conditions"))
    active = _condition(status, "ScalingActive")
    limited = _condition(status, "ScalingLimited")
    return Decision(
        has_spoken=bool(mappings(mapping(own, "status"), "conditions")),
        # the API leaves out a currentReplicas of 0, and desiredReplicas is 0 until the HPA has looked
        replicas=whole(status.get("currentReplicas", 0)) if has_spoken else None,
        wanted=whole(status.get("desiredReplicas", 0)) if has_spoken else None,
        last_scale=_last_scale([event for event in usable if _is_of(event, own, hpa)], status, before),
        limited=limited.message if limited.status == active.status == "True" else "",
        is_idle=via == "keda" and active.reason == "ScalingDisabled",
        trouble=_why_it_does_not_scale(via, address, own, hpa, usable),
    )


def _is_own(item: AnyObject, via: Via, uid: str) -> bool:
    """Whether an object is the one by which the GPUAutoscaler with this uid scales."""
    return is_controlled_by(item, uid) and not is_going(item) and is_a(item, SCALERS[via])


def _hpa_of_keda(scaled: AnyObject, scalers: Iterable[AnyObject]) -> AnyObject | None:
    """The HPA that KEDA made for a ScaledObject."""
    uid = uid_of(scaled)
    return next((item for item in scalers if is_a(item, AUTOSCALER) and is_controlled_by(item, uid)), None)


def _why_it_does_not_scale(
    via: Via, address: str, own: AnyObject, hpa: AnyObject | None, events: Sequence[AnyObject]
) -> Trouble | None:
    trouble = None
    from_scaler = ""
    if via == "keda":
        trouble = _of_keda(own, address, events)
        from_scaler = _scaler_failure(events, own)
    if trouble is None and hpa is not None:
        return _of_hpa(hpa, via, address, from_scaler)
    return trouble


def _of_keda(scaled: AnyObject, address: str, events: Sequence[AnyObject]) -> Trouble | None:
    """The reason why KEDA does not scale as the ScaledObject says; None if it does."""
    what = f"ScaledObject {name_of(scaled)}"
    status = mapping(scaled, "status")
    if _condition(status, "Paused").status == "True":
        return _trouble("Paused", f"{what} is paused", what, address)
    ready = _condition(status, "Ready")
    if ready.status == "False":
        reason = ready.reason or "ScaledObjectNotReady"
        return _trouble(reason, _joined(f"{what}: {ready.message}", _scaler_failure(events, scaled)), what, address)
    fallback = _condition(status, "Fallback")
    if fallback.status == "True":
        return _trouble("Fallback", f"{what}: {fallback.message}", what, address)
    return None


def _of_hpa(hpa: AnyObject, via: Via, address: str, from_scaler: str) -> Trouble | None:
    """The reason why the HPA does not scale; None if it does.

    With KEDA, an HPA that rests at 0 pods is no trouble, since KEDA starts the first pod.
    """
    what = f"HorizontalPodAutoscaler {name_of(hpa)}"
    for kind in ("AbleToScale", "ScalingActive"):
        status, reason, message = _condition(mapping(hpa, "status"), kind)
        if status == "False" and not (via == "keda" and reason == "ScalingDisabled"):
            reason = reason or f"Not{kind}"
            return _trouble(reason, _joined(f"{what}: {message}", from_scaler), what, address)
    return None


def _trouble(reason: str, message: str, what: str, address: str) -> Trouble:
    remedy = _REMEDIES.get(reason, _USUAL_REMEDY).format(address=address, what=what)
    return Trouble(word(reason) or "NotScaling", message, remedy)


def _joined(message: str, from_scaler: str) -> str:
    return f"{message} ({from_scaler})" if from_scaler else message


def _is_of(event: AnyObject, *items: AnyObject | None) -> bool:
    """Whether an event is about one of these objects, and not about an earlier one of its name."""
    about = mapping(event, "regarding")
    return any(
        about.get("kind") == item.get("kind") and about.get("uid") == uid_of(item)
        for item in items
        if item is not None and metadata(item).get("uid")
    )


# The fields about the object that scales.
_OF_SCALER = ("via", "currentReplicas", "desiredReplicas")
_WHAT = {"keda": "KEDA scales the workload", "hpa": "a HorizontalPodAutoscaler scales the workload"}


def autoscaler_status(
    owner: AnyObject,
    now: datetime,
    *,
    wanted: WantedScaler | None,
    via: Via | None = None,
    decision: Decision | None = None,
    obstacles: Sequence[Trouble] = (),
) -> Object:
    """The whole status.

    Args:
        owner: the GPUAutoscaler with its present status.
        now: the time, in UTC.
        wanted: the objects to apply and delete; None if the API server did not tell which objects there are.
        via: the kind of object that scales; None if nothing scales.
        decision: the decision of that object; None if it is not known.
        obstacles: the reasons why the object could not be written, the worst first.
    """
    old = mapping(owner, "status")
    status = base_status(owner, {"Ready": _ready(wanted or WantedScaler(), via, decision, obstacles)}, now)
    if wanted is None:
        status |= {name: old[name] for name in _OF_SCALER if name in old}
    if via:
        status["via"] = via
    if decision is not None:
        last = decision.last_scale.as_object() if decision.last_scale else None
        numbers = {"currentReplicas": decision.replicas, "desiredReplicas": decision.wanted, "lastScale": last}
        status |= {name: value for name, value in numbers.items() if value is not None}
    elif "lastScale" in old:
        # the API server forgets events after an hour
        status["lastScale"] = old["lastScale"]
    return status


def _ready(wanted: WantedScaler, via: Via | None, decision: Decision | None, obstacles: Sequence[Trouble]) -> Condition:
    """The condition Ready: the first trouble, else how the autoscaler scales. `via` None: nothing scales yet."""
    for trouble in (*obstacles, wanted.trouble):
        if trouble is not None:
            return Condition("False", trouble.reason, str(trouble))
    if wanted.waits_for:
        return Condition("False", "Waiting", f"it waits for {wanted.waits_for}")
    if decision is None or via is None or not decision.has_spoken:
        return Condition("Unknown", "Starting", "the autoscaler has just been made, and has not read its metric yet")
    if decision.trouble is not None:
        return Condition("False", decision.trouble.reason, str(decision.trouble))
    if wanted.misgiving is not None:
        return Condition("True", wanted.misgiving.reason, str(wanted.misgiving))
    if decision.is_idle:
        return Condition("True", "Idle", "nothing has used the workload's GPUs for idleSeconds: it has no pods")
    limited = f", within its bounds: {decision.limited}" if decision.limited else ""
    return Condition("True", "Limited" if limited else "Scaling", f"{_WHAT[via]}{limited}")
