"""A GPUAutoscaler → the object that scales for it, as it is applied. Pure: equal specs give equal objects.

A ScaledObject and a HorizontalPodAutoscaler mean the same. A pod's value is the mean of the metric over its devices,
and the number of pods is the one with which the mean over the pods is `target`. KEDA asks the cluster role, which gives
the sum over the pods (docs/cluster.md). Without KEDA, the HorizontalPodAutoscaler asks prometheus-adapter for each
pod's value (deploy/prometheus-adapter/values.yaml).

The meaning of KEDA's fields is from kedacore/keda 2.20: apis/keda/v1alpha1/scaledobject_types.go, and for scaling to
zero and back pkg/scaling/executor/scale_scaledobjects.go.

Tests: tests/operator/test_autoscaler_objects.py.
"""

from collections.abc import Mapping
from decimal import Decimal

from exporter.operator.objects import kinds
from exporter.operator.objects.kinds import Kind, base_name, labels, owner
from exporter.operator.objects.quantities import in_thousandths, plain, read, written
from exporter.operator.objects.resources import Behavior, GPUAutoscalerSpec, Object, ScalingRules, as_object

NAME = "pod-gpu-metrics-autoscaler"  # the value of the label NAME_LABEL
# https://keda.sh/docs/latest/concepts/scaling-deployments/: paused, paused-replicas, force-activation and the like
_TELLS_KEDA = "autoscaling.keda.sh/"


# By metric: the custom metric of deploy/prometheus-adapter/values.yaml, and its factor to the value of
# /container/metrics. A test compares this with the file.
ADAPTED = {
    "gpu_utilization": ("gpu_utilization", 1),
    "graphics_engine_active": ("gpu_graphics_engine_active", 100),
    "framebuffer_used": ("gpu_memory_used_mib", 1),
    "power_usage": ("gpu_power_watts", 1),
    "pod_gpu_utilization_ratio": ("gpu_own_utilization", 100),
    "pod_gpu_memory_used_bytes": ("gpu_own_memory_bytes", 1),
}


def scaled_object(
    spec: GPUAutoscalerSpec, name: str, namespace: str, uid: str, annotations: Mapping[str, str]
) -> Object:
    """A ScaledObject with one trigger, by which KEDA asks the cluster role about the workload.

    It has those of the GPUAutoscaler's `annotations` that tell KEDA when to scale: to pause, or to stay above zero.
    KEDA's other annotations are left out, since they might take the workload away from an autoscaler of somebody else.
    """
    ref = spec.scale_target_ref
    wanted: Object = {
        "scaleTargetRef": as_object(ref),
        "minReplicaCount": spec.min_replicas,
        "maxReplicaCount": spec.max_replicas,
    }
    if spec.idle_seconds is not None:
        # initialCooldownPeriod is for a workload without any use since the ScaledObject was made. KEDA's default is 0.
        wanted |= {"cooldownPeriod": spec.idle_seconds, "initialCooldownPeriod": spec.idle_seconds}
        if spec.min_replicas:
            # must be below minReplicaCount; if that is 0, the workload goes to 0 anyway
            wanted["idleReplicaCount"] = 0
    behavior = _behavior(spec.behavior)
    if behavior:
        wanted["advanced"] = {"horizontalPodAutoscalerConfig": {"behavior": behavior}}
    wanted["triggers"] = [
        {
            "type": "external",
            "metricType": "AverageValue",
            "metadata": {
                "scalerAddress": spec.cluster_address,
                "metric": spec.metric,
                "target": plain(in_thousandths(spec.target)),
                "workload": f"{ref.kind.lower()}:{ref.name}",
            },
        }
    ]
    item = _object(kinds.SCALED_OBJECT, name, namespace, uid, wanted)
    handed_on = {key: value for key, value in annotations.items() if key.startswith(_TELLS_KEDA)}
    if handed_on:
        item["metadata"]["annotations"] = handed_on
    return item


def autoscaler(spec: GPUAutoscalerSpec, name: str, namespace: str, uid: str) -> Object:
    """A HorizontalPodAutoscaler, which never goes below one pod.

    To go to 0, it would need the cluster's feature gate HPAScaleToZero, and a metric that is not one of pods.

    Raises:
        KeyError: prometheus-adapter has no such metric.
    """
    adapted, times = ADAPTED[spec.metric]
    target = {"type": "AverageValue", "averageValue": written(in_thousandths(spec.target) * times)}
    wanted: Object = {
        "scaleTargetRef": as_object(spec.scale_target_ref),
        "minReplicas": max(1, spec.min_replicas),
        "maxReplicas": spec.max_replicas,
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": adapted}, "target": target}}],
    }
    behavior = _behavior(spec.behavior)
    if behavior:
        wanted["behavior"] = behavior
    return _object(kinds.AUTOSCALER, name, namespace, uid, wanted)


def tolerance_of(rules: ScalingRules) -> Decimal | None:
    """The tolerance as a share of the target. Raises ValueError if it is no quantity."""
    return None if rules.tolerance is None else read(rules.tolerance)


def _object(kind: Kind, name: str, namespace: str, uid: str, spec: Object) -> Object:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {
            "name": base_name(name),
            "namespace": namespace,
            "labels": labels(name, NAME),
            "ownerReferences": [owner(name, uid, kinds.GPU_AUTOSCALER.name)],
        },
        "spec": spec,
    }


def _behavior(behavior: Behavior | None) -> Object:
    if behavior is None:
        return {}
    directions = {"scaleUp": _rules(behavior.scale_up), "scaleDown": _rules(behavior.scale_down)}
    return {name: rules for name, rules in directions.items() if rules}


def _rules(rules: ScalingRules | None) -> Object:
    if rules is None:
        return {}
    item: Object = as_object(rules)
    tolerance = tolerance_of(rules)
    if tolerance is not None:
        item["tolerance"] = written(tolerance)
    return item
