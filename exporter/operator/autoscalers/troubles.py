"""The troubles of a GPUAutoscaler: a spec that cannot be used or will surprise, and a target that cannot scale. Pure.

The schema in deploy/operator/crds.yaml refuses most such specs. But an older one may be installed, and no schema knows
which metrics this version answers, nor the value of each on an idle GPU. A target that can be scaled has the
subresource `scale` (https://kubernetes.io/docs/reference/using-api/api-concepts/), which an APIResourceList lists.

Tests: tests/operator/test_autoscalers.py, tests/operator/test_targets.py.
"""

from difflib import get_close_matches
from typing import Final, NamedTuple

from exporter.errors import Trouble
from exporter.lenient import mapping, mappings, text
from exporter.model.pods import OwnerReference
from exporter.operator.autoscalers.scaling_objects import tolerance_of
from exporter.operator.objects.quantities import in_thousandths
from exporter.operator.objects.resources import GPUAutoscalerSpec, ScaleTarget
from exporter.outputs.device_rows import METRICS_TO_ASK
from exporter.ownership.workloads import controller, is_object_name, is_top, read_owners

# The fields that have a reason of their own, which holds for the fields below them, too.
_REASONS = {"spec.scaleTargetRef": "InvalidTarget", "spec.metric": "MetricUnknown", "spec.behavior": "InvalidBehavior"}


def at(field: str, why: str, remedy: str, *, reason: str | None = None) -> Trouble:
    """A trouble with a field of the spec."""
    return Trouble(reason or reason_of(field), f"{field}: {why}", remedy)


def reason_of(field: str) -> str:
    """The reason in the status for a field that cannot be used."""
    reasons = (reason for above, reason in _REASONS.items() if f"{field}.".startswith((f"{above}.", f"{above}[")))
    return next(reasons, "InvalidSpec")


# A HorizontalPodAutoscaler counts in thousandths; the cluster role takes no larger number (exporter/cluster/keda).
_LEAST_TARGET: Final = 0.001
_MOST_TARGET: Final = 2.0**53
_MOST_TOLERANCE: Final = 1_000_000
_MOST_PORT: Final = 65_535
# The metrics that are 0 on an idle device. The others are always above 0: memory, clocks, power, temperature.
FALLS_TO_ZERO = frozenset(
    {"sm_occupancy", "gpu_utilization", "pod_gpu_utilization_ratio", "pod_gpu_processes"}
    | {metric for metric in METRICS_TO_ASK if metric.endswith("_active")}
)


def why_invalid(spec: GPUAutoscalerSpec) -> Trouble | None:
    """The trouble of the first field that cannot be used; None if all can."""
    return _metric(spec.metric) or _target(spec.target) or _behavior(spec) or _address(spec.cluster_address)


def misgivings(spec: GPUAutoscalerSpec, *, keda: bool) -> Trouble | None:
    """The trouble of a field that will have no effect, although the workload is scaled; None if there is none."""
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
# A LeaderWorkerSet makes StatefulSets, and these are the workloads of its pods.
_NAMED_OTHERWISE = {("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "the StatefulSets that it makes"}


class Resource(NamedTuple):
    """A kind's name in paths, and whether its objects can be scaled, since they have the subresource scale."""

    plural: str
    is_scalable: bool


def resource_of(ref: ScaleTarget, listed: object) -> Resource | None:
    """The target's kind in an APIResourceList; None if its group serves no such kind in namespaces."""
    resources = mappings(listed, "resources", MOST_RESOURCES)
    names = {text(item, "name") for item in resources}
    for item in resources:
        name = text(item, "name")
        # A subresource lists the kind of its content. Most have another kind, as deployments/scale has Scale, but some
        # have that of their object.
        if item.get("kind") != ref.kind or item.get("namespaced") is not True:
            continue
        if is_object_name(name):
            return Resource(name, f"{name}/scale" in names)
    return None


def why_not(ref: ScaleTarget, namespace: str, resource: Resource | None, item: object) -> Trouble | None:
    """The reason why a target cannot be scaled; None if it can.

    Args:
        ref: the target as the spec names it.
        namespace: its namespace.
        resource: its kind, None if the API does not serve it.
        item: the target itself, None if it does not exist.
    """
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
    """The reason why this target has no metrics of its own; None if it has.

    A pod's workload is the topmost of its controllers, or the first one that is a Deployment or the like. A target with
    a controller above it has no metrics of its own, and that controller undoes an autoscaler's changes.
    """
    group = ref.api_version.rpartition("/")[0]
    made = _NAMED_OTHERWISE.get((group, ref.kind))
    if made:
        return at(_KIND, f"metrics of a {ref.kind}'s pods are those of {made}", "name one of these")
    reference = OwnerReference(api_version=ref.api_version, kind=ref.kind, name=ref.name, uid="", is_controller=True)
    if owner is None or is_top(reference):
        return None
    return at(
        REF,
        f"{ref.kind} {ref.name} belongs to {owner.kind} {owner.name}, whose replicas it has",
        f"name {owner.kind} {owner.name}",
    )
