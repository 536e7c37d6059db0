"""A GPUAutoscaler, and what is there → what is to be applied and deleted, or why not. Pure.

One of two objects scales: a ScaledObject where KEDA is, otherwise a HorizontalPodAutoscaler (HPA). **Never both**: each
would undo what the other does, since KEDA, too, scales by an HPA of its own. So the wrong one is deleted first, and the
right one is applied only when no trace of the other is left. In the other order, KEDA's admission webhook refuses the
ScaledObject ("already managed by the hpa", apis/keda/v1alpha1/scaledobject_webhook.go), and two HPAs over the same pods
stop each other (AmbiguousSelector, pkg/controller/podautoscaler/horizontal.go). In between, the workload keeps the
replicas that it has.

While something is wrong with the GPUAutoscaler or its target, what was applied before stays as it is, and goes on
scaling: the status says so. It goes only where somebody else scales the target.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from exporter.operator.autoscalers.doubts import misgivings, why_invalid
from exporter.operator.autoscalers.hindrance import Hindrance, at
from exporter.operator.autoscalers.objects import (
    ADAPTED,
    autoscaler,
    object_name,
    scaled_object,
)
from exporter.operator.autoscalers.scalers import Scalers, is_a, is_an_autoscalers, name_of, older, uid_of, whose
from exporter.operator.autoscalers.targets import REF, Target, why_not
from exporter.operator.objects.kinds import AUTOSCALER, GPU_AUTOSCALER, SCALED_OBJECT, Kind, is_controlled_by, metadata
from exporter.operator.objects.parts import AnyObject, is_going
from exporter.operator.objects.resources import GPUAutoscalerSpec, Object

Via = Literal["keda", "hpa"]
# A target that is not there, and one that somebody else scales, are not watched: look again after this time.
LOOK_AGAIN_SECONDS = 30.0


class Reference(NamedTuple):
    """An object to delete. `uid` goes into the deletion's preconditions: another one of its name is not meant."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class There:
    """What a GPUAutoscaler finds in its namespace.

    Objects are as the API gave them, each with its apiVersion and kind, which the items of a list leave out.
    `keda`: whether ScaledObjects are served; None while that is not known. `scalers` are all HPAs and ScaledObjects of
    the namespace, of whomever, and `autoscalers` all its GPUAutoscalers, this one among them.
    """

    keda: bool | None
    target: Target
    scalers: Sequence[AnyObject]
    autoscalers: Sequence[AnyObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """`delete` goes first. While `waits_for` says what is still there, nothing is applied: look again when it is gone.

    Everything that is neither in `apply` nor in `delete` stays as it is, the GPUAutoscaler's own objects, too.
    """

    apply: tuple[Object, ...] = ()
    delete: tuple[Reference, ...] = ()
    trouble: Hindrance | None = None
    waits_for: str = ""


def desired(
    spec: GPUAutoscalerSpec, name: str, namespace: str, uid: str, there: There, annotations: Mapping[str, str]
) -> Wanted:
    """What is to be done for the GPUAutoscaler of this name, namespace, uid and annotations."""
    scalers = whose(spec.scale_target_ref, name, uid, there.scalers, keda=there.keda is not False)
    via: Via | None = None if there.keda is None else "keda" if there.keda else "hpa"
    if taken := _scaled_by_other(spec, uid, there, scalers):
        left_behind = scalers.kedas if via == "hpa" else ()
        return Wanted(delete=_deletions([*scalers.own, *left_behind]), trouble=taken)
    trouble = (
        why_invalid(spec)
        or why_not(spec.scale_target_ref, there.target, namespace)
        or _name_taken(name, there.scalers, via)
        or (_not_adapted(spec) if via == "hpa" else None)
    )
    if trouble:
        return Wanted(trouble=with_what_stays(trouble, scalers.own))
    if via is None:
        return Wanted(waits_for="the API server to say whether KEDA is installed")
    wrong, in_the_way = _not_wanted(name, uid, via, scalers, there.scalers)
    if in_the_way:
        return Wanted(delete=_deletions(wrong), waits_for=_until_gone(in_the_way[0]))
    if via == "keda":
        item = scaled_object(spec, name, namespace, uid, annotations)
    else:
        item = autoscaler(spec, name, namespace, uid)
    return Wanted(apply=(item,), trouble=misgivings(spec, keda=via == "keda"))


def _not_wanted(
    name: str, uid: str, via: Via, scalers: Scalers, all_scalers: Iterable[AnyObject]
) -> tuple[list[AnyObject], list[AnyObject]]:
    """What is to be deleted here, and all that has to be gone before something is applied."""
    wanted = SCALED_OBJECT if via == "keda" else AUTOSCALER
    wrong = [item for item in scalers.own if not is_a(item, wanted) or name_of(item) != object_name(name)]
    if via == "hpa":
        # the garbage collector takes them, too, but not while it cannot ask for their owner's kind
        wrong += scalers.kedas
    going = [item for item in scalers.own if item not in wrong and is_going(item)]
    # of a GPUAutoscaler that had this name before, or of one that must leave the target to this one
    others = [item for item in all_scalers if _is_called(item, wanted, name) and not is_controlled_by(item, uid)]
    return wrong, [*wrong, *scalers.others, *others, *going]


def _scaled_by_other(spec: GPUAutoscalerSpec, uid: str, there: There, scalers: Scalers) -> Hindrance | None:
    """Whether somebody else scales the target: an older GPUAutoscaler, or a ScaledObject or an HPA of other making."""
    if rival := older(spec.scale_target_ref, uid, there.autoscalers):
        by = f"{GPU_AUTOSCALER.name} {name_of(rival)}, which is older,"
    elif scalers.foreign:
        by = f"{scalers.foreign[0].get('kind')} {name_of(scalers.foreign[0])}, which is no GPUAutoscaler's,"
    else:
        return None
    return at(
        REF,
        f"{by} scales it already",
        "delete one of the two: they would undo each other's changes",
        reason="TargetScaledByOther",
    )


def _name_taken(name: str, scalers: Sequence[AnyObject], via: Via | None) -> Hindrance | None:
    """Whether the object's name is that of somebody else's, who scales another target."""
    kinds = {None: (SCALED_OBJECT, AUTOSCALER), "keda": (SCALED_OBJECT,), "hpa": (AUTOSCALER,)}[via]
    for item in scalers:
        if any(_is_called(item, kind, name) for kind in kinds) and not is_an_autoscalers(item):
            kind = str(item["kind"])
            return at(
                "metadata.name",
                f"{kind} {name_of(item)} is there already, and is somebody else's",
                f"give the GPUAutoscaler another name, or delete that {kind}",
                reason="NameTaken",
            )
    return None


def _not_adapted(spec: GPUAutoscalerSpec) -> Hindrance | None:
    if spec.metric in ADAPTED:
        return None
    return at(
        "spec.metric",
        f"without KEDA there is no {spec.metric}: prometheus-adapter has {', '.join(sorted(ADAPTED))}",
        "install KEDA (deploy/keda), or give one of these",
        reason="MetricNeedsKeda",
    )


def with_what_stays(trouble: Hindrance, own: Sequence[AnyObject]) -> Hindrance:
    """What is wrong, and what scales all the same: `own` are the GPUAutoscaler's objects."""
    if not own:
        return trouble
    return trouble._replace(message=f"{trouble.message}. Meanwhile {own[0]['kind']} {name_of(own[0])} stays as it was")


def _until_gone(item: AnyObject) -> str:
    is_stuck = is_a(item, SCALED_OBJECT) and is_going(item) and metadata(item).get("finalizers")
    holds = "; KEDA's finalizer is on it: does KEDA's operator run?" if is_stuck else ""
    what = f"{item.get('kind')} {name_of(item)}"
    return f"{what} to be deleted, since two autoscalers would undo each other's changes{holds}"


def _is_called(item: AnyObject, kind: Kind, name: str) -> bool:
    return is_a(item, kind) and name_of(item) == object_name(name)


def _deletions(items: Iterable[AnyObject]) -> tuple[Reference, ...]:
    return tuple(
        Reference(
            str(item.get("apiVersion")),
            str(item.get("kind")),
            str(metadata(item).get("namespace")),
            name_of(item),
            uid_of(item),
        )
        for item in items
        if not is_going(item)
    )
