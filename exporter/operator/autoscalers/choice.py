"""A GPUAutoscaler, and all autoscalers of its namespace → the objects to apply and to delete, or a trouble. Pure.

With KEDA a ScaledObject scales, without it a HorizontalPodAutoscaler (HPA). **Never both**: KEDA scales by an HPA, too,
and each would undo the other's changes. So the wrong object is deleted first, and the right one is applied after no
trace of the wrong one is left: KEDA's webhook refuses a target that has an HPA ("already managed by the hpa",
apis/keda/v1alpha1/scaledobject_webhook.go), and two HPAs over the same pods stop each other (AmbiguousSelector,
pkg/controller/podautoscaler/horizontal.go). In between, the workload keeps its replicas.

While something is wrong with the GPUAutoscaler or its target, the applied object goes on scaling, and the status says
so. The object is deleted only if somebody else scales the target. Anybody may make HPAs and ScaledObjects, so a
malformed one belongs to nobody and scales nothing.

Tests: tests/operator/test_autoscalers.py.
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
# the kind that a ScaledObject means if it names none (KEDA's ParseGVKR)
_KEDAS_USUAL = "apps/v1", "Deployment"
_LONGEST_NAME = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceObjects:
    """The objects in the namespace of a GPUAutoscaler. Each has its apiVersion and kind, which list items lack.

    Attributes:
        keda: whether the API serves ScaledObjects.
        not_scalable: the reason why the target cannot be scaled, None if it can or if that is not known.
        scalers: all HPAs and ScaledObjects, whoever made them.
        autoscalers: all GPUAutoscalers, including this one.
    """

    keda: bool
    not_scalable: Trouble | None
    scalers: Sequence[AnyObject]
    autoscalers: Sequence[AnyObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedScaler:
    """The objects to delete, and then to apply. All other objects stay as they are, also the GPUAutoscaler's own.

    Attributes:
        apply: the objects to apply.
        delete: the objects to delete first.
        trouble: the reason why nothing is applied.
        misgiving: A part of the spec that will have no effect, although the object is applied.
        waits_for: the object that must be gone first, in words. Until then nothing is applied.
    """

    apply: tuple[Object, ...] = ()
    delete: tuple[AnyObject, ...] = ()
    trouble: Trouble | None = None
    misgiving: Trouble | None = None
    waits_for: str = ""


class Scalers(NamedTuple):
    """The objects that scale one target, by their owners. No object is in two of these lists.

    Attributes:
        own: the GPUAutoscaler's objects, whatever they scale.
        kedas: the HPAs that KEDA made for these, and those that an uninstalled KEDA left behind.
        others: the objects of other GPUAutoscalers, or of an earlier one of this name.
        foreign: the objects that this operator did not make.
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
) -> WantedScaler:
    """Decide what to apply and delete for a GPUAutoscaler.

    Args:
        spec: its spec.
        name: its name.
        namespace: its namespace.
        uid: its uid.
        there: the objects in the namespace.
        annotations: its annotations; a ScaledObject gets those that tell KEDA when to scale.
    """
    scalers = whose(spec.scale_target_ref, name, uid, there.scalers, keda=there.keda)
    via: Via = "keda" if there.keda else "hpa"
    taken = _scaled_by_other(spec, uid, there, scalers)
    if taken:
        left_behind = scalers.kedas if via == "hpa" else ()
        return WantedScaler(delete=_not_going([*scalers.own, *left_behind]), trouble=taken)
    trouble = (
        why_invalid(spec)
        or there.not_scalable
        or _name_taken(name, there.scalers, SCALERS[via])
        or (_not_adapted(spec) if via == "hpa" else None)
    )
    if trouble:
        return WantedScaler(trouble=with_what_stays(trouble, scalers.own))
    wrong, in_the_way = _not_wanted(name, uid, via, scalers, there.scalers)
    if in_the_way:
        return WantedScaler(delete=_not_going(wrong), waits_for=_until_gone(in_the_way[0]))
    if via == "keda":
        item = scaled_object(spec, name, namespace, uid, annotations)
    else:
        item = autoscaler(spec, name, namespace, uid)
    return WantedScaler(apply=(item,), misgiving=misgivings(spec, keda=via == "keda"))


def _not_wanted(
    name: str, uid: str, via: Via, scalers: Scalers, all_scalers: Iterable[AnyObject]
) -> tuple[list[AnyObject], list[AnyObject]]:
    """The objects to delete now, and all objects that must be gone before anything is applied."""
    wanted = SCALERS[via]
    wrong = [item for item in scalers.own if not _is_called(item, wanted, name)]
    if via == "hpa":
        # the garbage collector deletes them, too, but not while the API does not serve their owner's kind
        wrong += scalers.kedas
    going = [item for item in scalers.own if item not in wrong and is_going(item)]
    # objects of an earlier GPUAutoscaler of this name, or of one that must leave the target to this one
    others = [item for item in all_scalers if _is_called(item, wanted, name) and not is_controlled_by(item, uid)]
    return wrong, [*wrong, *scalers.others, *others, *going]


def _scaled_by_other(spec: GPUAutoscalerSpec, uid: str, there: NamespaceObjects, scalers: Scalers) -> Trouble | None:
    """The trouble that somebody else scales the target: an older GPUAutoscaler, or a foreign ScaledObject or HPA."""
    rival = older(spec.scale_target_ref, uid, there.autoscalers)
    if rival:
        by = f"{kinds.GPU_AUTOSCALER.name} {name_of(rival)}, which is older,"
    elif scalers.foreign:
        by = f"{_called(scalers.foreign[0])}, which no GPUAutoscaler made,"
    else:
        return None
    return at(
        REF,
        f"{by} scales it already",
        "delete one of the two: they would undo each other's changes",
        reason="TargetScaledByOther",
    )


def _name_taken(name: str, scalers: Sequence[AnyObject], kind: Kind) -> Trouble | None:
    """The trouble that an object of somebody else has the name of the GPUAutoscaler's object."""
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
    """The trouble, with a sentence on the GPUAutoscaler's `own` object, which goes on scaling."""
    if not own:
        return trouble
    stays = f"Meanwhile {_called(own[0])} stays as it was"
    if not trouble.remedy:
        return replace(trouble, message=f"{trouble.message}. {stays}")
    return replace(trouble, remedy=f"{trouble.remedy}. {stays}")


def _until_gone(item: AnyObject) -> str:
    is_stuck = is_a(item, SCALED_OBJECT) and is_going(item) and metadata(item).get("finalizers")
    holds = "; KEDA's finalizer is on it: does KEDA's operator run?" if is_stuck else ""
    return f"{_called(item)} to be deleted, since two autoscalers would undo each other's changes{holds}"


def _called(item: AnyObject) -> str:
    return f"{item.get('kind')} {name_of(item)}"


def _is_called(item: AnyObject, kind: Kind, name: str) -> bool:
    return is_a(item, kind) and name_of(item) == base_name(name)


def _not_going(items: Iterable[AnyObject]) -> tuple[AnyObject, ...]:
    return tuple(item for item in items if not is_going(item))


def used_of(item: AnyObject) -> AnyObject:
    """An object with only its name, its owner and its target. The rest is left out, since it may be large."""
    about = metadata(item)
    by = controller_of(item)
    target = mapping(item, "spec", "scaleTargetRef")
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


def _cut(item: AnyObject, *names: str) -> AnyObject:
    """The named fields that exist, each cut to the length of a long name."""
    return {name: str(item[name] or "")[:_LONGEST_NAME] for name in names if name in item}


def whose(ref: ScaleTarget, name: str, uid: str, scalers: Sequence[AnyObject], *, keda: bool) -> Scalers:
    """Sort the objects that scale the target by their owners. ScaledObjects come before HPAs.

    `keda` says whether KEDA may be there.
    """
    ordered = sorted(scalers, key=lambda item: not is_a(item, SCALED_OBJECT))
    own = [item for item in ordered if controller_of(item).get("uid") == uid]
    by_us = {uid_of(item) for item in ordered if is_an_autoscalers(item)}
    own_uids = {uid_of(item) for item in own}
    kedas = []
    others = []
    foreign = []
    for item in of_target(ref, ordered):
        if item in own:
            continue
        above = _scaled_object_above(item)
        uid_above = str(above.get("uid"))
        is_kedas = bool(above) and _is_labelled(item)
        is_left_behind = is_kedas and (not keda or above.get("name") == base_name(name))
        if uid_above in own_uids or is_left_behind:
            kedas.append(item)
        elif is_an_autoscalers(item) or uid_above in by_us or is_kedas:
            others.append(item)
        else:
            foreign.append(item)
    return Scalers(own, kedas, others, foreign)


def of_target(ref: ScaleTarget, items: Iterable[AnyObject]) -> Iterator[AnyObject]:
    """The objects whose spec.scaleTargetRef is this target, in any version of its group."""
    group = _group(ref.api_version)
    for item in items:
        target = mapping(item, "spec", "scaleTargetRef")
        if not target:
            continue
        usual_version, usual_kind = _KEDAS_USUAL if is_a(item, SCALED_OBJECT) else ("", "")
        version = target.get("apiVersion") or usual_version
        kind = target.get("kind") or usual_kind
        # an HPA may leave the version out
        is_of_group = not version or _group(version) == group
        if is_of_group and (kind, target.get("name")) == (ref.kind, ref.name):
            yield item


def _group(version: object) -> str:
    return str(version).rpartition("/")[0]


def older(ref: ScaleTarget, uid: str, autoscalers: Sequence[AnyObject]) -> AnyObject | None:
    """The target's oldest GPUAutoscaler that is older than the one with this uid; None if there is none.

    A GPUAutoscaler that is not in the list counts as the youngest.
    """
    me = next((_age(item) for item in autoscalers if uid_of(item) == uid), None)
    before = [
        item
        for item in of_target(ref, autoscalers)
        if uid_of(item) != uid and not is_going(item) and (me is None or _age(item) < me)
    ]
    return min(before, key=_age, default=None)


def is_an_autoscalers(item: AnyObject) -> bool:
    """Whether a GPUAutoscaler controls an object."""
    return is_a(controller_of(item), kinds.GPU_AUTOSCALER)


def is_a(item: AnyObject, kind: Kind) -> bool:
    """Whether an object is of this kind."""
    return item.get("apiVersion") == kind.api_version and item.get("kind") == kind.name


def _scaled_object_above(item: AnyObject) -> AnyObject:
    by = controller_of(item)
    is_scaled_object = by.get("kind") == SCALED_OBJECT.name and _group(by.get("apiVersion")) == SCALED_OBJECT.group
    return by if is_scaled_object else {}


def _is_labelled(item: AnyObject) -> bool:
    """Whether an object has the labels of a GPUAutoscaler's object. KEDA copies a ScaledObject's labels to its HPA."""
    own_labels = mapping(metadata(item), "labels")
    return all(own_labels.get(key) == value for key, value in _LABELS.items() if key != kinds.INSTANCE_LABEL)


def _age(item: AnyObject) -> tuple[str, str]:
    return str(metadata(item).get("creationTimestamp")), name_of(item)
