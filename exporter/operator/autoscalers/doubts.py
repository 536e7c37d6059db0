"""What of a GPUAutoscaler's spec cannot be meant, or will not do what its author thinks. Pure.

The schema in deploy/operator/crds.yaml refuses most of this before. An older one may be installed, and what the schema
cannot know is here: the metrics that this version answers, and what each comes to when nothing works.
"""

from difflib import get_close_matches
from typing import Final

from exporter.operator.autoscalers.hindrance import Hindrance, at
from exporter.operator.autoscalers.objects import tolerance_of
from exporter.operator.objects.quantities import in_thousandths
from exporter.operator.objects.resources import GPUAutoscalerSpec
from exporter.outputs.objects import METRICS_TO_ASK

# A HorizontalPodAutoscaler counts in thousandths; the cluster role takes no larger number (exporter/cluster/keda).
_LEAST_TARGET: Final = 0.001
_MOST_TARGET: Final = 2.0**53
_MOST_TOLERANCE: Final = 1_000_000
_MOST_PORT: Final = 65_535
# What is 0 where nothing works on a device. The others always have a value: memory, clocks, power, temperature.
FALLS_TO_ZERO = frozenset(
    {
        "sm_active",
        "sm_occupancy",
        "tensor_active",
        "dram_active",
        "graphics_engine_active",
        "gpu_utilization",
        "int_pipe_active",
        "fp16_pipe_active",
        "fp32_pipe_active",
        "fp64_pipe_active",
        "pod_gpu_utilization_ratio",
        "pod_gpu_processes",
    }
)


def why_invalid(spec: GPUAutoscalerSpec) -> Hindrance | None:
    """The first field that cannot be used."""
    return _metric(spec.metric) or _numbers(spec) or _behavior(spec) or _address(spec.cluster_address)


def misgivings(spec: GPUAutoscalerSpec, *, keda: bool) -> Hindrance | None:
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
            blocks=False,
        )
    if spec.metric not in FALLS_TO_ZERO:
        return at(
            "spec.idleSeconds",
            f"{spec.metric} is above 0 on a GPU that nobody uses, so the workload never counts as idle",
            f"give one of {', '.join(sorted(FALLS_TO_ZERO))} as spec.metric, or leave idleSeconds out",
            reason="NeverIdle",
            blocks=False,
        )
    return None


def _metric(metric: str) -> Hindrance | None:
    if metric in METRICS_TO_ASK:
        return None
    close = get_close_matches(metric, METRICS_TO_ASK, 3) or METRICS_TO_ASK
    return at("spec.metric", f"there is no metric {metric!r}", f"give {', '.join(close)}")


def _numbers(spec: GPUAutoscalerSpec) -> Hindrance | None:
    if not _LEAST_TARGET <= spec.target <= _MOST_TARGET or in_thousandths(spec.target) <= 0:
        return at("spec.target", f"{spec.target!r} is not allowed", f"give a number of at least {_LEAST_TARGET}")
    if spec.max_replicas < max(1, spec.min_replicas):
        why = f"{spec.max_replicas} is below spec.minReplicas, {spec.min_replicas}, or below 1"
        return at("spec.maxReplicas", why, "raise it, or lower minReplicas")
    if not spec.min_replicas and spec.idle_seconds is None:
        return at("spec.minReplicas", "0 needs spec.idleSeconds", "give idleSeconds, or 1 and more")
    return None


def _behavior(spec: GPUAutoscalerSpec) -> Hindrance | None:
    both = (("scaleUp", spec.behavior.scale_up), ("scaleDown", spec.behavior.scale_down)) if spec.behavior else ()
    for name, rules in both:
        try:
            tolerance = tolerance_of(rules) if rules else None
        except ValueError:
            tolerance = None
            is_bad = True
        else:
            is_bad = tolerance is not None and tolerance > _MOST_TOLERANCE
        if rules and is_bad:
            field = f"spec.behavior.{name}.tolerance"
            return at(field, f"{str(rules.tolerance)[:80]!r} is not allowed", "give a share of the target, such as 0.1")
    return None


def _address(address: str) -> Hindrance | None:
    port = address.rpartition(":")[2]
    if port.isascii() and port.isdigit() and 0 < int(port) <= _MOST_PORT:
        return None
    return at("spec.clusterAddress", f"{address!r} has no port from 1 to {_MOST_PORT}", "give host:port")
