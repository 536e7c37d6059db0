"""What OpenCost asks Prometheus about GPUs, and how it makes costs of the answers.

Facts of its source: modules/prometheus-source/pkg/prom/metricsquerier.go for the queries (in older ones
pkg/costmodel/allocation.go, which do not ask by `uid`), and pkg/costmodel/allocation_helpers.go for the rest:
applyGPUsAllocated, calculateStartAndEnd, applyNodesToPod. Its cluster filter is empty, and `cluster_id` its cluster
label, unless it is told otherwise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_OF_CONTAINER = 'container!="", container!="POD", node!=""'
# `window` is the span, `resolution` the time between the samples of what runs
PODS = "avg(kube_pod_container_status_running{{}} != 0) by (pod, namespace, cluster_id)[{window}:{resolution}]"
ALLOCATED = (
    f"avg(avg_over_time(container_gpu_allocation{{{{{_OF_CONTAINER}}}}}[{{window}}]))"
    " by (container, pod, namespace, node, uid, cluster_id)"
)
PRICES = "avg(avg_over_time(node_gpu_hourly_cost{{}}[{window}])) by (node, uid, cluster_id, instance_type, provider_id)"
COUNTS = "avg(avg_over_time(node_gpu_count{{}}[{window}])) by (cluster_id, node, uid, provider_id)"
# what the rules record under OpenCost's own names
OF_OPENCOST = {"container_gpu_allocation", "node_gpu_count"}

Answer = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class Costs:
    """By pod (namespace and name) what its GPUs cost, and by node what all of its GPUs cost an hour."""

    of_pods: Mapping[tuple[str, str], float]
    of_nodes_per_hour: Mapping[str, float]


def costs(
    hours: Mapping[tuple[str, str], float],
    allocated: Iterable[Answer],
    prices: Iterable[Answer],
    counts: Iterable[Answer],
) -> Costs:
    """As OpenCost makes them: `hours` are those in which pods ran, the others what its queries answer."""
    of_nodes = {labels["node"]: value for labels, value in prices}
    of_pods = dict.fromkeys(hours, 0.0)
    for labels, gpus in allocated:
        pod = labels["namespace"], labels["pod"]
        of_pods[pod] += gpus * hours[pod] * of_nodes[labels["node"]]
    return Costs(of_pods, {labels["node"]: count * of_nodes[labels["node"]] for labels, count in counts})
