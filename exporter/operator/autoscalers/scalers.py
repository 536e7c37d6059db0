"""Who scales what: the HPAs, ScaledObjects and GPUAutoscalers of a namespace, and how they belong together. Pure.

They are as the API gave them, and anybody may have made them: what is of another form is nobody's and scales nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter.operator.autoscalers.objects import labels, object_name
from exporter.operator.objects.kinds import GPU_AUTOSCALER, SCALED_OBJECT, Kind, controller_of, metadata
from exporter.operator.objects.names import INSTANCE_LABEL
from exporter.operator.objects.parts import AnyObject, is_going, mapping
from exporter.operator.objects.resources import ScaleTarget

# what a ScaledObject means that names no kind (KEDA's ParseGVKR)
_KEDAS_USUAL = "apps/v1", "Deployment"
_LONGEST_NAME = 512


class Scalers(NamedTuple):
    """The objects that scale one target, by whose they are. No object is in two of these.

    `own` are the GPUAutoscaler's, whatever they scale; `kedas` are the HPAs that KEDA made for these, and all that it
    left behind where it is gone; `others` are of other GPUAutoscalers, or of one that had this name before; `foreign`
    are not this operator's.
    """

    own: Sequence[AnyObject]
    kedas: Sequence[AnyObject]
    others: Sequence[AnyObject]
    foreign: Sequence[AnyObject]


def used_of(item: AnyObject) -> AnyObject:
    """What an object that may scale something is called, whose it is, and what it scales. All else may be large."""
    about, by, target = metadata(item), controller_of(item), mapping(item, "spec", "scaleTargetRef")
    return {
        **_cut(item, "apiVersion", "kind"),
        "metadata": {
            **_cut(about, "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"),
            "labels": _cut(mapping(about, "labels"), *labels("")),
            "finalizers": [True] if about.get("finalizers") else [],
            "ownerReferences": [{**_cut(by, "apiVersion", "kind", "name", "uid"), "controller": True}] if by else [],
        },
        "spec": {"scaleTargetRef": _cut(target, "apiVersion", "kind", "name")},
    }


def _cut(of: AnyObject, *names: str) -> AnyObject:
    """Those of the fields that there are, and no more of each than would fit into a name."""
    return {name: str(of[name] or "")[:_LONGEST_NAME] for name in names if name in of}


def whose(ref: ScaleTarget, name: str, uid: str, scalers: Sequence[AnyObject], *, keda: bool) -> Scalers:
    """Part the objects that scale the target; ScaledObjects come before HPAs. `keda`: it may be there."""
    ordered = sorted(scalers, key=lambda item: not is_a(item, SCALED_OBJECT))
    own = [item for item in ordered if controller_of(item).get("uid") == uid]
    by_us = {uid_of(item) for item in ordered if is_an_autoscalers(item)}
    kedas: list[AnyObject] = []
    others: list[AnyObject] = []
    foreign: list[AnyObject] = []
    own_uids = {uid_of(item) for item in own}
    for item in of_target(ref, ordered):
        if item in own:
            continue
        above = _scaled_object_above(item)
        is_kedas = bool(above) and _is_labelled(item)
        if str(above.get("uid")) in own_uids or (is_kedas and (not keda or above.get("name") == object_name(name))):
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
        spec = item.get("spec")
        target = spec.get("scaleTargetRef") if isinstance(spec, Mapping) else None
        if not isinstance(target, Mapping):
            continue
        version, kind = _KEDAS_USUAL if is_a(item, SCALED_OBJECT) else ("", "")
        version, kind = target.get("apiVersion") or version, target.get("kind") or kind
        # an HPA may leave the version out
        group = str(version).rpartition("/")[0] if version else wanted[0]
        if (group, kind, target.get("name")) == wanted:
            yield item


def older(ref: ScaleTarget, uid: str, autoscalers: Sequence[AnyObject]) -> AnyObject | None:
    """The oldest GPUAutoscaler of this target that comes before the one with this uid: all of them agree on it.

    One that is not in the list was made just now, and is the youngest.
    """
    me = next((_age(item) for item in autoscalers if uid_of(item) == uid), None)
    before = [
        item
        for item in of_target(ref, autoscalers)
        if uid_of(item) != uid and not is_going(item) and (me is None or _age(item) < me)
    ]
    return min(before, key=_age, default=None)


def is_an_autoscalers(item: AnyObject) -> bool:
    """Whether a GPUAutoscaler made it."""
    return is_a(controller_of(item), GPU_AUTOSCALER)


def is_a(item: AnyObject, kind: Kind) -> bool:
    """Whether an object is of this kind."""
    return item.get("apiVersion") == kind.api_version and item.get("kind") == kind.name


def name_of(item: AnyObject) -> str:
    """Its name."""
    return str(metadata(item).get("name"))


def uid_of(item: AnyObject) -> str:
    """Its uid."""
    return str(metadata(item).get("uid"))


def _scaled_object_above(item: AnyObject) -> AnyObject:
    by = controller_of(item)
    group = str(by.get("apiVersion")).rpartition("/")[0]
    return by if (group, by.get("kind")) == (SCALED_OBJECT.group, SCALED_OBJECT.name) else {}


def _is_labelled(item: AnyObject) -> bool:
    """Whether it has labels as some GPUAutoscaler's object has: KEDA copies them from the ScaledObject to its HPA."""
    said = metadata(item).get("labels")
    if not isinstance(said, Mapping):
        return False
    return all(said.get(key) == value for key, value in labels("").items() if key != INSTANCE_LABEL)


def _age(item: AnyObject) -> tuple[str, str]:
    return str(metadata(item).get("creationTimestamp")), name_of(item)
