"""The dashboard of all GPUs: their number, their holders, and their use."""

from deploy.grafana.generator.dashboard import Dashboard
from deploy.grafana.generator.links import from_series
from deploy.grafana.generator.panels import (
    BAD,
    FULL,
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
    lines,
    new_xids,
    stat,
)
from deploy.grafana.generator.promql import CLUSTER, energy, free, hours, seen
from deploy.grafana.generator.tables import Column, table
from deploy.grafana.generator.variables import CLUSTER as CLUSTERS
from deploy.grafana.generator.variables import DATASOURCE, PRICE

_IN = f"{{{CLUSTER}}}"
_CAPACITY = f"sum(cluster:node_gpu_capacity:sum{_IN})"
_HELD = f"sum(cluster:node_gpu_allocated:sum{_IN})"
_USED = f"sum(cluster:pod_gpu_active_seconds:rate5m{_IN})"
_OBSERVED = f"sum(cluster:pod_gpu_observed_seconds:rate5m{_IN})"


def _hours(of: str) -> str:
    return hours(of, "namespace", CLUSTER, "namespace")


DASHBOARD = Dashboard(
    name="cluster",
    says="How many GPUs there are, who holds them, and how much of them is used.",
    variables=[DATASOURCE, CLUSTERS, PRICE],
    rows=[
        Row(
            panels=[
                stat("GPUs", "Physical GPUs of all nodes.", _CAPACITY),
                stat("Held", "The part of all GPUs that pods hold now. A share or a MIG instance counts with its part.",
                     f"{_HELD} / {_CAPACITY}", PERCENT, FULL, most=1),
                stat("Used of held", "How active the held GPUs are.", f"{_USED} / {_OBSERVED}", PERCENT, USE, most=1),
                stat("Held but idle", "GPUs that are held while nothing runs on them (activity below 5 %).",
                     f"sum(cluster:pod_gpu_idle_seconds:rate5m{_IN})", GPUS, IDLE),
                stat("Free, whole", "Healthy GPUs of which nobody holds a part. A pod that asks for a whole GPU "
                     "needs one.",
                     f"sum({free(CLUSTER)})", GPUS),
                stat("Power", "What all GPUs draw, held or not.",
                     f"sum(cluster:pod_gpu_energy_joules:rate5m{_IN})", WATTS),
                new_xids(CLUSTER),
                stat("Exporters down", "Nodes whose exporter does not answer: nobody sees their GPUs.",
                     'sum(1 - up{exporter="pod-gpu-metrics-exporter", metrics_path="/metrics", '
                     f"{CLUSTER}}})", levels=BAD),
            ]
        ),
        Row(
            title="Over time",
            panels=[
                lines("GPUs", "All GPUs, held GPUs and used GPUs.",
                      Query(_CAPACITY, "there are"), Query(_HELD, "held"), Query(_USED, "used"), unit=GPUS),
                lines("Held by namespace", "GPUs that each namespace holds.",
                      Query(f"sum by (namespace) (namespace:pod_gpu_allocated_seconds:rate5m{_IN})", "{{namespace}}"),
                      unit=GPUS, stacked=True, links=from_series("namespace", namespace="namespace")),
                lines("Used of held, by namespace", "0 to 1. With measured use it can exceed 1: a pod works more "
                      "than its share of the GPU.",
                      Query(f"sum by (namespace) (namespace:pod_gpu_active_seconds:rate5m{_IN}) / "
                            f"sum by (namespace) (namespace:pod_gpu_observed_seconds:rate5m{_IN})", "{{namespace}}"),
                      unit=PERCENT, links=from_series("namespace", namespace="namespace")),
                lines("Power by model", "What GPUs of each model draw, held or not.",
                      Query(f"sum by (model) (model:pod_gpu_energy_joules:rate5m{_IN})", "{{model}}"),
                      unit=WATTS, stacked=True),
            ],
        ),
        Row(
            title="Who, where and what",
            panels=[
                table("Namespaces", "What each namespace held and used in the time range.", "namespace",
                      Column("Held, GPU-h", _hours("allocated"), HOURS),
                      Column("Used", f'{_hours("active")} / {seen(_hours)}', PERCENT, USE),
                      Column("Idle, GPU-h", _hours("idle"), HOURS),
                      Column("Energy", energy("namespace", CLUSTER, "namespace"), KWH),
                      Column("Cost", f'{_hours("allocated")} * $price', MONEY),
                      most_first="Held, GPU-h"),
                table("Models", "GPUs of each model now.", "model",
                      Column("GPUs", f"sum by (model) (model:node_gpu_capacity:sum{_IN})", "short"),
                      Column("Held", f"sum by (model) (model:node_gpu_allocated:sum{_IN}) / "
                             f"sum by (model) (model:node_gpu_capacity:sum{_IN})", PERCENT, FULL),
                      Column("Used of held", f"sum by (model) (model:pod_gpu_active_seconds:rate5m{_IN}) / "
                             f"sum by (model) (model:pod_gpu_observed_seconds:rate5m{_IN})", PERCENT, USE),
                      Column("Power", f"sum by (model) (model:pod_gpu_energy_joules:rate5m{_IN})", WATTS),
                      most_first="GPUs", height=6),
                table("Nodes", "GPUs of each node now.", "cluster, node",
                      Column("GPUs", f"node:node_gpu_capacity:sum{_IN}", "short"),
                      Column("Held", f"node:node_gpu_allocated_per_node_gpu_capacity:ratio{_IN}", PERCENT, FULL),
                      Column("Free, whole", f"sum by (cluster, node) ({free(CLUSTER)})", "short"),
                      Column("Used of held",
                             f"node:pod_gpu_active_seconds_per_pod_gpu_allocated_seconds:ratio_rate5m{_IN}",
                             PERCENT, USE),
                      Column("Power", f"node:pod_gpu_energy_joules:rate5m{_IN}", WATTS),
                      Column("New XIDs", f"sum by (cluster, node) (xid:pod_gpu_xid_errors:new15m{_IN})", "short", BAD),
                      most_first="GPUs"),
            ],
        ),
    ],
)  # fmt: skip
