"""A GPUAutoscaler, and who scales what in its namespace → what is to be applied and deleted, or why not. Pure.

A ScaledObject scales where KEDA is, otherwise a HorizontalPodAutoscaler (HPA). **Never both**: KEDA scales by an HPA,
too, and each would undo what the other does. So the wrong one is deleted first, and the right one applied when no trace
of it is left: KEDA's webhook refuses a target that has an HPA ("already managed by the hpa",
apis/keda/v1alpha1/scaledobject_webhook.go), and two HPAs over the same pods stop each other (AmbiguousSelector,
pkg/controller/podautoscaler/horizontal.go). In between, the workload keeps its replicas.

While something is wrong with the GPUAutoscaler or its target, what was applied goes on scaling, and the status says so.
It goes only where somebody else scales the target. Anybody may have made the HPAs and ScaledObjects: one that has not
the form of its kind belongs to nobody and scales nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from exporter.errors import Trouble
from exporter.lenient import AnyObject, mapping
from exporter.operator.autoscalers.scaling_objects import ADAPTED, NAME, autoscaler, scaled_object
from exporter.operator.autoscalers.troubles import REF, at, misgivings, why_invalid
from exporter.operator.objects import kinds
from exporter.operator.objects.kinds import (
    SCALED_OBJECT,
    Kind,
    base_name,
    controller_of,
    is_controlled_by,
    metadata,
    name_of,
    uid_of,
)
from exporter.operator.objects.object_fields import is_going
from exporter.operator.objects.resources import GPUAutoscalerSpec, Object, ScaleTarget

Via = Literal["keda", "hpa"]
SCALERS: Mapping[Via, Kind] = {"keda": SCALED_OBJECT, "hpa": kinds.AUTOSCALER}
_LABELS = kinds.labels("", NAME)
# what a ScaledObject means that names no kind (KEDA's ParseGVKR)
_KEDAS_USUAL = "apps/v1", "Deployment"
_LONGEST_NAME = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceObjects:
    """What exists in the namespace of a GPUAutoscaler. Each object has its apiVersion and kind (list items have none).

    `keda` says whether the API serves ScaledObjects; `not_scalable` is why the target cannot be scaled, as far as that
    is known. `scalers` are all HPAs and ScaledObjects, whoever made them; `autoscalers` are all GPUAutoscalers,
    including this one.
    """

    keda: bool
    not_scalable: Trouble | None
    scalers: Sequence[AnyObject]
    autoscalers: Sequence[AnyObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """`delete` goes first. While `waits_for` says what is still there, nothing is applied: look again when it is gone.

    With a `trouble` nothing is applied either; with a `misgiving` not all will happen that is asked for.

    An object in neither `apply` nor `delete` stays as it is, also one of the GPUAutoscaler's own.
    """

    apply: tuple[Object, ...] = ()
    delete: tuple[AnyObject, ...] = ()
    trouble: Trouble | None = None
    misgiving: Trouble | None = None
    waits_for: str = ""


class Scalers(NamedTuple):
    """The objects that scale one target, by whose they are. No object is in two of these.

    `own` are the GPUAutoscaler's, whatever they scale. `kedas` are the HPAs that KEDA made for these, and what an
    uninstalled KEDA left behind. `others` belong to other GPUAutoscalers, or to an earlier one of this name. `foreign`
    are not this operator's.
    """

    own: Sequence[AnyObject]
    kedas: Sequence[AnyObject]
    others: Sequence[AnyObject]
    foreign: Sequence[AnyObject]


def desired(
    spec: GPUAutoscalerSpec,
    name: str,
    namespace: str,
    uid: str,
    there: NamespaceObjects,
    annotations: Mapping[str, str],
) -> Wanted:
    """What is to be done for the GPUAutoscaler of this name, namespace, uid and annotations."""
    scalers = whose(spec.scale_target_ref, name, uid, there.scalers, keda=there.keda)
    via: Via = "keda" if there.keda else "hpa"
    if taken := _scaled_by_other(spec, uid, there, scalers):
        left_behind = scalers.kedas if via == "hpa" else ()
        return Wanted(delete=_not_going([*scalers.own, *left_behind]), trouble=taken)
    trouble = (
        why_invalid(spec)
        or there.not_scalable
        or _name_taken(name, there.scalers, SCALERS[via])
        or (_not_adapted(spec) if via == "hpa" else None)
    )
    if trouble:
        return Wanted(trouble=with_what_stays(trouble, scalers.own))
    wrong, in_the_way = _not_wanted(name, uid, via, scalers, there.scalers)
    if in_the_way:
        return Wanted(delete=_not_going(wrong), waits_for=_until_gone(in_the_way[0]))
    if via == "keda":
        item = scaled_object(spec, name, namespace, uid, annotations)
    else:
        item = autoscaler(spec, name, namespace, uid)
    return Wanted(apply=(item,), misgiving=misgivings(spec, keda=via == "keda"))


def _not_wanted(
    name: str, uid: str, via: Via, scalers: Scalers, all_scalers: Iterable[AnyObject]
) -> tuple[list[AnyObject], list[AnyObject]]:
    """The objects to delete now, and all objects that must be gone before anything is applied."""
    wanted = SCALERS[via]
    wrong = [item for item in scalers.own if not _is_called(item, wanted, name)]
    if via == "hpa":
        # the garbage collector takes them, too, but not while it cannot ask for their owner's kind
        wrong += scalers.kedas
    going = [item for item in scalers.own if item not in wrong and is_going(item)]
    # they belong to an earlier GPUAutoscaler of this name, or to one that must leave the target to this one
    others = [item for item in all_scalers if _is_called(item, wanted, name) and not is_controlled_by(item, uid)]
    return wrong, [*wrong, *scalers.others, *others, *going]


def _scaled_by_other(spec: GPUAutoscalerSpec, uid: str, there: NamespaceObjects, scalers: Scalers) -> Trouble | None:
    """Whether somebody else scales the target: an older GPUAutoscaler, or a ScaledObject or an HPA of other making."""
    if rival := older(spec.scale_target_ref, uid, there.autoscalers):
        by = f"{kinds.GPU_AUTOSCALER.name} {name_of(rival)}, which is older,"
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


def _name_taken(name: str, scalers: Sequence[AnyObject], kind: Kind) -> Trouble | None:
    """Whether another owner's autoscaler already uses this name."""
    for item in scalers:
        if _is_called(item, kind, name) and not is_an_autoscalers(item):
            return at(
                "metadata.name",
                f"{kind.name} {name_of(item)} is there already, and is somebody else's",
                f"give the GPUAutoscaler another name, or delete that {kind.name}",
                reason="NameTaken",
            )
    return None


def _not_adapted(spec: GPUAutoscalerSpec) -> Trouble | None:
    if spec.metric in ADAPTED:
        return None
    return at(
        "spec.metric",
        f"without KEDA there is no {spec.metric}: prometheus-adapter has {', '.join(sorted(ADAPTED))}",
        "install KEDA (deploy/keda), or give one of these",
        reason="MetricNeedsKeda",
    )


def with_what_stays(trouble: Trouble, own: Sequence[AnyObject]) -> Trouble:
    """The trouble, with what scales all the same: `own` are the GPUAutoscaler's objects."""
    if not own:
        return trouble
    stays = f"Meanwhile {own[0]['kind']} {name_of(own[0])} stays as it was"
    if not trouble.remedy:
        return replace(trouble, message=f"{trouble.message}. {stays}")
    return replace(trouble, remedy=f"{trouble.remedy}. {stays}")


def _until_gone(item: AnyObject) -> str:
    is_stuck = is_a(item, SCALED_OBJECT) and is_going(item) and metadata(item).get("finalizers")
    holds = "; KEDA's finalizer is on it: does KEDA's operator run?" if is_stuck else ""
    what = f"{item.get('kind')} {name_of(item)}"
    return f"{what} to be deleted, since two autoscalers would undo each other's changes{holds}"


def _is_called(item: AnyObject, kind: Kind, name: str) -> bool:
    return is_a(item, kind) and name_of(item) == base_name(name)


def _not_going(items: Iterable[AnyObject]) -> tuple[AnyObject, ...]:
    return tuple(item for item in items if not is_going(item))


def used_of(item: AnyObject) -> AnyObject:
    """An object's name, its owner and what it scales. The rest is left out: it may be large."""
    about, by, target = metadata(item), controller_of(item), mapping(item, "spec", "scaleTargetRef")
    return {
        **_cut(item, "apiVersion", "kind"),
        "metadata": {
            **_cut(about, "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"),
            "labels": _cut(mapping(about, "labels"), *_LABELS),
            "finalizers": [True] if about.get("finalizers") else [],
            "ownerReferences": [{**_cut(by, "apiVersion", "kind", "name", "uid"), "controller": True}] if by else [],
        },
        "spec": {"scaleTargetRef": _cut(target, "apiVersion", "kind", "name")},
    }


def _cut(of: AnyObject, *names: str) -> AnyObject:
    """Those of the fields that exist, each cut to the length of a long name."""
    return {name: str(of[name] or "")[:_LONGEST_NAME] for name in names if name in of}


def whose(ref: ScaleTarget, name: str, uid: str, scalers: Sequence[AnyObject], *, keda: bool) -> Scalers:
    """Part the objects that scale the target; ScaledObjects come before HPAs. `keda`: it may be there."""
    ordered = sorted(scalers, key=lambda item: not is_a(item, SCALED_OBJECT))
    own = [item for item in ordered if controller_of(item).get("uid") == uid]
    by_us = {uid_of(item) for item in ordered if is_an_autoscalers(item)}
    kedas, others, foreign = list[AnyObject](), list[AnyObject](), list[AnyObject]()
    own_uids = {uid_of(item) for item in own}
    for item in of_target(ref, ordered):
        if item in own:
            continue
        above = _scaled_object_above(item)
        is_kedas = bool(above) and _is_labelled(item)
        if str(above.get("uid")) in own_uids or (is_kedas and (not keda or above.get("name") == base_name(name))):
            kedas.append(item)
        elif is_an_autoscalers(item) or str(above.get("uid")) in by_us or is_kedas:
            others.append(item)
        else:
            foreign.append(item)
    return Scalers(own, kedas, others, foreign)


def of_target(ref: ScaleTarget, items: Iterable[AnyObject]) -> Iterator[AnyObject]:
    """The objects whose spec.scaleTargetRef is this one, in whatever version of its group."""
    wanted = (ref.api_version.rpartition("/")[0], ref.kind, ref.name)
    for item in items:
        if not (target := mapping(item, "spec", "scaleTargetRef")):
            continue
        version, kind = _KEDAS_USUAL if is_a(item, SCALED_OBJECT) else ("", "")
        version, kind = target.get("apiVersion") or version, target.get("kind") or kind
        # an HPA may leave the version out
        group = str(version).rpartition("/")[0] if version else wanted[0]
        if (group, kind, target.get("name")) == wanted:
            yield item


def older(ref: ScaleTarget, uid: str, autoscalers: Sequence[AnyObject]) -> AnyObject | None:
    """This target's oldest GPUAutoscaler that precedes the one with this uid; one not in the list is the youngest."""
    me = next((_age(item) for item in autoscalers if uid_of(item) == uid), None)
    before = [
        item
        for item in of_target(ref, autoscalers)
        if uid_of(item) != uid and not is_going(item) and (me is None or _age(item) < me)
    ]
    return min(before, key=_age, default=None)


def is_an_autoscalers(item: AnyObject) -> bool:
    """Whether a GPUAutoscaler made it."""
    return is_a(controller_of(item), kinds.GPU_AUTOSCALER)


def is_a(item: AnyObject, kind: Kind) -> bool:
    """Whether an object is of this kind."""
    return item.get("apiVersion") == kind.api_version and item.get("kind") == kind.name


def _scaled_object_above(item: AnyObject) -> AnyObject:
    by = controller_of(item)
    group = str(by.get("apiVersion")).rpartition("/")[0]
    return by if (group, by.get("kind")) == (SCALED_OBJECT.group, SCALED_OBJECT.name) else {}


def _is_labelled(item: AnyObject) -> bool:
    """Whether it has labels as some GPUAutoscaler's object has: KEDA copies them from the ScaledObject to its HPA."""
    own_labels = mapping(metadata(item), "labels")
    return all(own_labels.get(key) == value for key, value in _LABELS.items() if key != kinds.INSTANCE_LABEL)


def _age(item: AnyObject) -> tuple[str, str]:
    return str(metadata(item).get("creationTimestamp")), name_of(item)
