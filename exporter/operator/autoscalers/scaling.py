"""What scales says of itself → the last decision, the replicas, and what stops it. Pure.

An HPA tells in its status (conditions AbleToScale, ScalingActive and ScalingLimited) and in events; its reasons and
messages are from kubernetes/kubernetes, pkg/controller/podautoscaler/horizontal.go. KEDA tells in the status of the
ScaledObject (conditions Ready, Active, Fallback and Paused), in events, and through the HPA that it makes; they are
from kedacore/keda 2.20, apis/keda/v1alpha1, pkg/eventreason and pkg/scaling.

All of it may be missing, of another form, or written by somebody else: events are made by whoever may make some.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.operator.autoscalers.choice import Via
from exporter.operator.autoscalers.hindrance import Hindrance
from exporter.operator.autoscalers.scale_events import LastScale, last_scale, scaler_failure
from exporter.operator.autoscalers.scalers import is_a, name_of, uid_of
from exporter.operator.objects.kinds import AUTOSCALER, SCALED_OBJECT, is_controlled_by, metadata
from exporter.operator.objects.parts import AnyObject, is_going, mapping, mappings
from exporter.operator.objects.status_texts import clean, count_of

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


class Condition(NamedTuple):
    """A condition of somebody's status."""

    status: str
    reason: str
    message: str


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
    trouble: Hindrance | None = None


def decision(
    via: Via, uid: str, address: str, scalers: Sequence[AnyObject], events: Iterable[AnyObject], before: object = None
) -> Decision:
    """What the object of the GPUAutoscaler with this uid says.

    `address` is spec.clusterAddress; `scalers` as in There; `events` those of the namespace's HPAs and ScaledObjects,
    of core/v1 or events.k8s.io/v1; `before` is status.lastScale as it stands, which outlives events (one hour).
    """
    own = next((item for item in scalers if _is_own(item, uid, via)), None)
    if own is None:
        return Decision(last_scale=last_scale((), None, before))
    scaled = own if via == "keda" else None
    hpa = own if via == "hpa" else _made_for(own, scalers)
    told = [event for event in events if isinstance(event, Mapping)]
    status = _status(hpa)
    conditions = conditions_of(status)
    trouble = None
    if scaled is not None:
        trouble = _of_keda(scaled, address, told)
    if trouble is None and hpa is not None:
        trouble = _of_hpa(hpa, conditions, via, address, scaler_failure(told, scaled))
    active = conditions.get("ScalingActive")
    limited = conditions.get("ScalingLimited")
    is_limited = limited is not None and limited.status == "True" and active is not None and active.status == "True"
    return Decision(
        has_spoken=bool(conditions_of(_status(own))),
        # the API leaves out a currentReplicas of 0, and says 0 in desiredReplicas before the HPA has looked
        replicas=count_of(status.get("currentReplicas", 0)) if conditions else None,
        wanted=count_of(status.get("desiredReplicas", 0)) if conditions else None,
        last_scale=last_scale([event for event in told if _is_of(event, own, hpa)], status, before),
        limited=limited.message if is_limited and limited else "",
        is_idle=via == "keda" and active is not None and active.reason == "ScalingDisabled",
        trouble=trouble,
    )


def conditions_of(status: AnyObject) -> Mapping[str, Condition]:
    """The conditions of a status by their type; of one that stands there twice the first."""
    found: dict[str, Condition] = {}
    for item in mappings(status, "conditions", MOST_CONDITIONS):
        if isinstance(kind := item.get("type"), str):
            found.setdefault(kind, Condition(*(clean(item.get(name)) for name in ("status", "reason", "message"))))
    return found


def _of_keda(scaled: AnyObject, address: str, events: Sequence[AnyObject]) -> Hindrance | None:
    """Why KEDA does not scale as the ScaledObject says."""
    conditions = conditions_of(_status(scaled))
    what = f"ScaledObject {name_of(scaled)}"
    ready = conditions.get("Ready")
    if _is(conditions.get("Paused"), "True"):
        return _trouble("Paused", f"{what} is paused", what, address)
    if ready is not None and ready.status == "False":
        reason = ready.reason or "ScaledObjectNotReady"
        return _trouble(reason, _joined(f"{what}: {ready.message}", scaler_failure(events, scaled)), what, address)
    if _is(conditions.get("Fallback"), "True"):
        return _trouble("Fallback", f"{what}: {conditions['Fallback'].message}", what, address)
    return None


def _of_hpa(
    hpa: AnyObject, conditions: Mapping[str, Condition], via: Via, address: str, from_scaler: str
) -> Hindrance | None:
    """Why the HPA does not scale. At 0 pods it rests: with KEDA somebody else brings the first one back."""
    what = f"HorizontalPodAutoscaler {name_of(hpa)}"
    for kind in ("AbleToScale", "ScalingActive"):
        said = conditions.get(kind)
        if said is None or said.status != "False" or (via == "keda" and said.reason == "ScalingDisabled"):
            continue
        reason = said.reason or f"Not{kind}"
        return _trouble(reason, _joined(f"{what}: {said.message}", from_scaler), what, address)
    return None


def _trouble(reason: str, message: str, what: str, address: str) -> Hindrance:
    remedy = _REMEDIES.get(reason, _USUAL_REMEDY).format(address=address, what=what)
    word = "".join(letter for letter in reason if letter.isascii() and letter.isalnum())[:200]
    # a reason is a word that begins with a letter (the API refuses the status otherwise)
    return Hindrance(word if word[:1].isalpha() else "NotScaling", f"{message} -> {remedy}")


def _joined(message: str, from_scaler: str) -> str:
    return f"{message} ({from_scaler})" if from_scaler else message


def _is(condition: Condition | None, status: str) -> bool:
    return condition is not None and condition.status == status


def _is_own(item: AnyObject, uid: str, via: Via) -> bool:
    kind = SCALED_OBJECT if via == "keda" else AUTOSCALER
    return is_a(item, kind) and is_controlled_by(item, uid) and not is_going(item)


def _made_for(scaled: AnyObject, scalers: Sequence[AnyObject]) -> AnyObject | None:
    """The HPA that KEDA made for a ScaledObject."""
    return next(
        (item for item in scalers if is_a(item, AUTOSCALER) and is_controlled_by(item, uid_of(scaled))),
        None,
    )


def _is_of(event: AnyObject, *items: AnyObject | None) -> bool:
    """Whether an event is of one of these objects, and not of one that had its name before."""
    about = event.get("regarding") or event.get("involvedObject")
    return isinstance(about, Mapping) and any(
        item is not None and about.get("kind") == item.get("kind") and about.get("uid") == uid_of(item)
        for item in items
        if item is not None and metadata(item).get("uid")
    )


def _status(item: AnyObject | None) -> AnyObject:
    return mapping(item or {}, "status")
