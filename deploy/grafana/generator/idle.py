"""The dashboard of GPUs that are held and not used: their number, their holders, for how long, and the cost."""

from deploy.grafana.generator.dashboard import Dashboard
from deploy.grafana.generator.links import from_series
from deploy.grafana.generator.panels import (
    GPUS,
    HOURS,
    IDLE,
    KWH,
    MONEY,
    PERCENT,
    USE,
    WATTS,
    Query,
    Row,
    bars,
    lines,
    stat,
    total,
)
from deploy.grafana.generator.promql import NAMESPACE, energy, hours, memory_of_pods, once, seen
from deploy.grafana.generator.tables import Column, table
from deploy.grafana.generator.variables import CLUSTER, DATASOURCE, PRICE
from deploy.grafana.generator.variables import NAMESPACE as NAMESPACES

_IN = f"{{{NAMESPACE}}}"
_ALL = '{cluster=~"$cluster"}'
_POD = "cluster, namespace, pod"
_MEMORY = memory_of_pods(NAMESPACE, _POD)
_CONTAINER = f"node, {_POD}, container, UUID, GPU_I_ID"
_ACTIVE, _OBSERVED, _IDLE = (f"sum by ({_POD}) (pod:pod_gpu_{of}_seconds:rate5m{_IN})"
                              for of in ("active", "observed", "idle"))  # fmt: skip
_HOUR_IDLE = (
    f"pod_gpu_allocated_ratio{_IN} and pod_gpu_allocated_ratio{_IN} offset 1h and "
    f"increase(pod_gpu_idle_seconds_total{_IN}[1h]) > 0.95 * increase(pod_gpu_allocated_seconds_total{_IN}[1h])"
)
_WHOLE = f"on ({_POD}) pod_gpu_allocated_ratio{_IN} >= 1"
_HARDLY = f"quantile_over_time(0.95, ({_ACTIVE} / {_OBSERVED})[$__range:$__interval]) < 3 / 7 and {_WHOLE}"


def _hours(of: str) -> str:
    return hours(of, "namespace", NAMESPACE)


def _of_pods(of: str) -> str:
    return hours(of, "pod", NAMESPACE, _POD)


def _of_workloads(of: str) -> str:
    return hours(of, "workload", NAMESPACE, "cluster, namespace, workload_name")


DASHBOARD = Dashboard(
    name="idle",
    says="GPUs that are held while nothing runs on them: how many, by whom, for how long, and what it costs.",
    variables=[DATASOURCE, CLUSTER, NAMESPACES, PRICE],
    since="now-24h",
    rows=[
        Row(
            panels=[
                stat("Idle now", "GPUs that are held while nothing runs on them (activity below 5 %). A share or a "
                     "MIG instance counts with its part.",
                     f"sum(namespace:pod_gpu_idle_seconds:rate5m{_IN})", GPUS, IDLE),
                stat("Idle of held", "Idle GPUs, as a part of the held ones.",
                     f"sum(namespace:pod_gpu_idle_seconds:rate5m{_IN}) / "
                     f"sum(namespace:pod_gpu_observed_seconds:rate5m{_IN})", PERCENT, IDLE, most=1),
                stat("Idle for an hour", "Containers that have held a GPU idle for an hour.",
                     f"count({once(_HOUR_IDLE)}) or vector(0)", levels=("green", (1, "orange"))),
                total("Idle GPU-hours", "In the time range.", _hours("idle"), HOURS, ("orange",)),
                total("Cost of idle", "Idle GPU-hours, at the price above.",
                      f'{_hours("idle")} * $price', MONEY, ("orange",)),
                total("Wasted GPU-hours", "Held and not used: idle time, and the part of busy time in which the GPU "
                      "waited.",
                      f'{seen(_hours)} - {_hours("active")}', HOURS,
                      ("orange",)),
                stat("Power for nobody", "What GPUs draw while nobody holds them.",
                     'sum(namespace:pod_gpu_energy_joules:rate5m{cluster=~"$cluster", namespace=""})', WATTS),
                total("Energy for nobody", "Energy that GPUs drew in the time range while nobody held them.",
                      energy("namespace", 'cluster=~"$cluster", namespace=""'), KWH),
            ]
        ),
        Row(
            title="Over time",
            panels=[
                lines("Where the GPUs are", "Used, held but not used, and free: together all GPUs of the clusters.",
                      Query(f"sum(cluster:pod_gpu_active_seconds:rate5m{_ALL})", "used"),
                      Query(f"sum(cluster:pod_gpu_allocated_seconds:rate5m{_ALL}) - "
                            f"sum(cluster:pod_gpu_active_seconds:rate5m{_ALL})", "held, not used"),
                      Query(f"sum(cluster:node_gpu_capacity:sum{_ALL}) - sum(cluster:node_gpu_allocated:sum{_ALL})",
                            "free"), unit=GPUS, stacked=True),
                lines("Idle by namespace", "GPUs that each namespace holds idle.",
                      Query(f"sum by (namespace) (namespace:pod_gpu_idle_seconds:rate5m{_IN})", "{{namespace}}"),
                      unit=GPUS, stacked=True, links=from_series("namespace", namespace="namespace")),
            ],
        ),
        Row(
            title="Who",
            panels=[
                table("Holders that are idle now", "Containers whose device has been idle for 5 minutes, and how "
                      "long they were idle in the time range. Ask the first one first.", _CONTAINER,
                      Column("Holds, GPUs", f"max by ({_CONTAINER}) (pod_gpu_allocated_ratio{_IN}) and on "
                             f"({_CONTAINER}) (increase(pod_gpu_idle_seconds_total{_IN}[5m]) > 0.95 * "
                             f"increase(pod_gpu_allocated_seconds_total{_IN}[5m]))", "short"),
                      Column("Idle, GPU-h", f"max by ({_CONTAINER}) (increase(pod_gpu_idle_seconds_total{_IN}"
                             f"[$__range])) / 3600 and on ({_CONTAINER}) (increase(pod_gpu_idle_seconds_total{_IN}[5m])"
                             f" > 0.95 * increase(pod_gpu_allocated_seconds_total{_IN}[5m]))", HOURS),
                      most_first="Idle, GPU-h"),
                table("Pods", "Idle GPU-hours in the time range, also of pods that are gone.", _POD,
                      Column("Idle, GPU-h", _of_pods("idle"), HOURS),
                      Column("Idle of held", f'{_of_pods("idle")} / {seen(_of_pods)}', PERCENT, IDLE),
                      Column("Cost of idle", f'{_of_pods("idle")} * $price', MONEY),
                      Column("Held, GPU-h", _of_pods("allocated"), HOURS),
                      most_first="Idle, GPU-h"),
                table("Workloads", "Idle GPU-hours by workload. It needs --workload.labels.",
                      "cluster, namespace, workload_name",
                      Column("Idle, GPU-h", _of_workloads("idle"), HOURS),
                      Column("Idle of held", f'{_of_workloads("idle")} / {seen(_of_workloads)}', PERCENT, IDLE),
                      Column("Held, GPU-h", _of_workloads("allocated"), HOURS),
                      most_first="Idle, GPU-h"),
            ],
        ),
        Row(
            title="Could they do with less?",
            panels=[
                table("Whole GPUs that hardly work", "Pods that hold whole GPUs and use less than 3/7 of them for 95 "
                      "% of the time. A MIG instance or a share would do, if its memory is enough.", _POD,
                      Column("Used, 95 % of the time at most", _HARDLY, PERCENT, USE),
                      Column("Memory, at most", f"max_over_time(({_MEMORY})[$__range:$__interval]) "
                             f"and on ({_POD}) ({_HARDLY})", PERCENT),
                      Column("Holds, GPUs", f"sum by ({_POD}) ({once(f'pod_gpu_allocated_ratio{_IN}')}) "
                             f"and on ({_POD}) ({_HARDLY})", "short"),
                      most_first="Holds, GPUs"),
                bars("Memory taken, nothing run", "The part of their devices' memory that idle pods take. Nobody "
                     "else can use it.",
                     Query(f"({_MEMORY}) and on ({_POD}) ({_IDLE} > 0.95 * {_OBSERVED})",
                           "{{namespace}}/{{pod}}"), unit=PERCENT, levels=("green", (0.3, "orange")), most=1),
                lines("Pods that wait", "What each idle pod draws.",
                      Query(f"sum by ({_POD}) (pod:pod_gpu_energy_joules:rate5m{_IN}) and on ({_POD}) "
                            f"({_IDLE} > 0.95 * {_OBSERVED})", "{{namespace}}/{{pod}}"), unit=WATTS, stacked=True),
            ],
        ),
    ],
)  # fmt: skip
