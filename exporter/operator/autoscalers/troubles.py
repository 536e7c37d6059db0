"""What of a GPUAutoscaler's spec cannot be meant, or surprises its author; why its target does not scale. Pure.

The schema in deploy/operator/crds.yaml refuses most of this, but an older one may be installed, and none knows which
metrics this version answers, and what each comes to when nothing works. What can be scaled has the subresource `scale`
(https://kubernetes.io/docs/reference/using-api/api-concepts/), which the API lists in an APIResourceList.
"""

from difflib import get_close_matches
from typing import Final, NamedTuple

from exporter.errors import Trouble
from exporter.lenient import mapping, mappings
from exporter.model.pods import OwnerReference
from exporter.operator.autoscalers.scaling_objects import tolerance_of
from exporter.operator.objects.quantities import in_thousandths
from exporter.operator.objects.resources import GPUAutoscalerSpec, ScaleTarget
from exporter.outputs.device_rows import METRICS_TO_ASK
from exporter.ownership.workloads import controller, is_object_name, is_top, read_owners

# The fields that have a reason of their own; each stands for those below it, too.
_REASONS = {"spec.scaleTargetRef": "InvalidTarget", "spec.metric": "MetricUnknown", "spec.behavior": "InvalidBehavior"}


def at(field: str, why: str, remedy: str, *, reason: str | None = None) -> Trouble:
    """What is wrong with a field."""
    return Trouble(reason or reason_of(field), f"{field}: {why}", remedy)


def reason_of(field: str) -> str:
    """The reason, as the status has it, for a field that cannot be used."""
    reasons = (reason for above, reason in _REASONS.items() if f"{field}.".startswith((f"{above}.", f"{above}[")))
    return next(reasons, "InvalidSpec")


# A HorizontalPodAutoscaler counts in thousandths; the cluster role takes no larger number (exporter/cluster/keda).
_LEAST_TARGET: Final = 0.001
_MOST_TARGET: Final = 2.0**53
_MOST_TOLERANCE: Final = 1_000_000
_MOST_PORT: Final = 65_535
# What is 0 where nothing works on a device. The others always have a value: memory, clocks, power, temperature.
FALLS_TO_ZERO = frozenset(
    {"sm_occupancy", "gpu_utilization", "pod_gpu_utilization_ratio", "pod_gpu_processes"}
    | {metric for metric in METRICS_TO_ASK if metric.endswith("_active")}
)


def why_invalid(spec: GPUAutoscalerSpec) -> Trouble | None:
    """The first field that cannot be used."""
    return _metric(spec.metric) or _target(spec.target) or _behavior(spec) or _address(spec.cluster_address)


def misgivings(spec: GPUAutoscalerSpec, *, keda: bool) -> Trouble | None:
    """What is asked for and will not happen, although the workload is scaled."""
    if spec.idle_seconds is None:
        return None
    if not keda:
        return at(
            "spec.idleSeconds",
            "without KEDA the workload never goes below one pod: a HorizontalPodAutoscaler goes to none only with the"
            " cluster's feature gate HPAScaleToZero, and not by a metric of pods",
            "install KEDA (deploy/keda), or leave idleSeconds out",
            reason="KedaMissing",
        )
    if spec.metric not in FALLS_TO_ZERO:
        return at(
            "spec.idleSeconds",
            f"{spec.metric} is above 0 on a GPU that nobody uses, so the workload never counts as idle",
            f"give one of {', '.join(sorted(FALLS_TO_ZERO))} as spec.metric, or leave idleSeconds out",
            reason="NeverIdle",
        )
    return None


def _metric(metric: str) -> Trouble | None:
    if metric in METRICS_TO_ASK:
        return None
    close = get_close_matches(metric, METRICS_TO_ASK, 3) or METRICS_TO_ASK
    return at("spec.metric", f"there is no metric {metric!r}", f"give {', '.join(close)}")


def _target(target: float) -> Trouble | None:
    if _LEAST_TARGET <= target <= _MOST_TARGET and in_thousandths(target) > 0:
        return None
    return at("spec.target", f"{target!r} is not allowed", f"give a number of at least {_LEAST_TARGET}")


def _behavior(spec: GPUAutoscalerSpec) -> Trouble | None:
    both = (("scaleUp", spec.behavior.scale_up), ("scaleDown", spec.behavior.scale_down)) if spec.behavior else ()
    for name, rules in both:
        if rules is None:
            continue
        try:
            is_bad = (tolerance_of(rules) or 0) > _MOST_TOLERANCE
        except ValueError:
            is_bad = True
        if is_bad:
            field = f"spec.behavior.{name}.tolerance"
            return at(field, f"{str(rules.tolerance)[:80]!r} is not allowed", "give a share of the target, such as 0.1")
    return None


def _address(address: str) -> Trouble | None:
    port = address.rpartition(":")[2]
    if port.isascii() and port.isdigit() and 0 < int(port) <= _MOST_PORT:
        return None
    return at("spec.clusterAddress", f"{address!r} has no port from 1 to {_MOST_PORT}", "give host:port")


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


class Resource(NamedTuple):
    """How a kind stands in paths, and whether its objects can be scaled: they have a subresource scale."""

    plural: str
    is_scalable: bool


def resource_of(ref: ScaleTarget, listed: object) -> Resource | None:
    """The target's kind in an APIResourceList; None where its group serves no such kind in namespaces."""
    resources = mappings(listed, "resources", MOST_RESOURCES)
    names = {name for item in resources if isinstance(name := item.get("name"), str)}
    for item in resources:
        name = item.get("name")
        # a subresource has the kind of what it takes: that of deployments/scale is Scale, but others have their own's
        if item.get("kind") != ref.kind or item.get("namespaced") is not True:
            continue
        if isinstance(name, str) and is_object_name(name):
            return Resource(name, f"{name}/scale" in names)
    return None


def why_not(ref: ScaleTarget, namespace: str, resource: Resource | None, item: object) -> Trouble | None:
    """Why the target cannot be scaled: `item`, of which there is none where that is None. None: it can."""
    if resource is None:
        return at(_KIND, f"the API serves no {ref.kind} of {ref.api_version}", "look at apiVersion and kind")
    if ref.kind in _INSTEAD:
        return at(_KIND, _INSTEAD[ref.kind], _USUAL)
    if not resource.is_scalable:
        return at(_KIND, f"a {ref.kind} of {ref.api_version} has no subresource scale", _USUAL)
    if item is None:
        remedy = "make it; until then nothing is scaled"
        return at(_NAME, f"there is no {ref.kind} {namespace}/{ref.name}", remedy, reason="TargetNotFound")
    return _named_otherwise(ref, controller(read_owners(mapping(item, "metadata").get("ownerReferences"))))


def _named_otherwise(ref: ScaleTarget, owner: OwnerReference | None) -> Trouble | None:
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
