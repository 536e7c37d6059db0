"""What a GPUAutoscaler scales: which path of the API it has, whether it can be scaled, and who owns it. Pure.

What can be scaled has the subresource `scale` (https://kubernetes.io/docs/reference/using-api/api-concepts/), which
the API tells in the list of what a version of a group serves (APIResourceList).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from exporter.attribution.workloads import controller, is_object_name, is_top, read_owners
from exporter.model.pods import OwnerReference
from exporter.operator.autoscalers.hindrance import Hindrance, at
from exporter.operator.objects.resources import ScaleTarget

REF = "spec.scaleTargetRef"
_KIND = f"{REF}.kind"
_NAME = f"{REF}.name"
MOST_RESOURCES = 2000
_USUAL = "name a Deployment or a StatefulSet"
_INSTEAD = {
    "DaemonSet": "a DaemonSet has one pod on each of its nodes, and no number of replicas",
    "Job": "a Job runs to its end, and has no replicas that could be scaled",
    "CronJob": "a CronJob makes Jobs, and has no replicas",
    "Pod": "a Pod is one, and has no replicas",
}
# It makes StatefulSets, and the pods' metrics are those StatefulSets'.
_NAMED_OTHERWISE = {("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "the StatefulSets that it makes"}

State = Literal["found", "missing", "no_kind", "not_scalable", "unknown"]


class Resource(NamedTuple):
    """How a kind stands in paths, and whether its objects can be scaled."""

    plural: str
    is_scalable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is there of the target.

    `unknown`: the operator may not look, or could not; nothing is refused for that. `owner` is its controller, None
    where it has none or nobody knows.
    """

    state: State
    owner: OwnerReference | None = None


def group_path(ref: ScaleTarget) -> str:
    """Where the API tells what it serves of the target's group and version (an APIResourceList)."""
    return f"/{'apis' if '/' in ref.api_version else 'api'}/{ref.api_version}"


def object_path(ref: ScaleTarget, resource: Resource, namespace: str) -> str:
    """The path of the target. With /scale behind it, that of its subresource, which needs a right of its own."""
    return f"{group_path(ref)}/namespaces/{namespace}/{resource.plural}/{ref.name}"


def resource_of(ref: ScaleTarget, listed: object) -> Resource | None:
    """The target's kind in an APIResourceList; None where its group serves no such kind in namespaces."""
    items = listed.get("resources") if isinstance(listed, Mapping) else None
    found = [item for item in (items if isinstance(items, list) else ())[:MOST_RESOURCES] if isinstance(item, Mapping)]
    names = {name for item in found if isinstance(name := item.get("name"), str)}
    for item in found:
        name = item.get("name")
        # a subresource has the kind of what it takes: that of deployments/scale is Scale, but others have their own's
        if item.get("kind") != ref.kind or item.get("namespaced") is not True:
            continue
        if isinstance(name, str) and is_object_name(name):
            return Resource(name, f"{name}/scale" in names)
    return None


def target_of(resource: Resource | None, item: object) -> Target:
    """What is there, by the target's kind in the API and by the target itself, None where there is no such object."""
    if resource is None:
        return Target(state="no_kind")
    if not resource.is_scalable:
        return Target(state="not_scalable")
    if item is None:
        return Target(state="missing")
    metadata = item.get("metadata") if isinstance(item, Mapping) else None
    owners = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    return Target(state="found", owner=controller(read_owners(owners)))


def why_not(ref: ScaleTarget, target: Target, namespace: str) -> Hindrance | None:
    """Why the target cannot be scaled; None where nothing is known that forbids it."""
    if ref.kind in _INSTEAD and target.state != "no_kind":
        return at(_KIND, _INSTEAD[ref.kind], _USUAL)
    match target.state:
        case "no_kind":
            return at(_KIND, f"the API serves no {ref.kind} of {ref.api_version}", "look at apiVersion and kind")
        case "not_scalable":
            return at(_KIND, f"a {ref.kind} of {ref.api_version} has no subresource scale", _USUAL)
        case "missing":
            return at(
                _NAME,
                f"there is no {ref.kind} {namespace}/{ref.name}",
                "make it; until then nothing is scaled",
                reason="TargetNotFound",
            )
        case _:
            return _named_otherwise(ref, target.owner)


def _named_otherwise(ref: ScaleTarget, owner: OwnerReference | None) -> Hindrance | None:
    """Why no metric is this target's.

    A pod's workload is the topmost of its controllers, or the first that is a Deployment or the like: what stands
    below another one has no metric of its own, and its owner undoes what an autoscaler does to it.
    """
    group = ref.api_version.rpartition("/")[0]
    if made := _NAMED_OTHERWISE.get((group, ref.kind)):
        return at(_KIND, f"metrics of a {ref.kind}'s pods are those of {made}", "name one of these")
    reference = OwnerReference(api_version=ref.api_version, kind=ref.kind, name=ref.name, uid="", is_controller=True)
    if owner is None or is_top(reference):
        return None
    return at(
        REF,
        f"{ref.kind} {ref.name} belongs to {owner.kind} {owner.name}, whose replicas it has",
        f"name {owner.kind} {owner.name}",
    )
