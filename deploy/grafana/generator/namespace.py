"""The dashboard of a team: the GPUs that it holds, their use, and the cost."""

from deploy.grafana.generator.dashboard import Dashboard
from deploy.grafana.generator.links import from_series
from deploy.grafana.generator.panels import (
    BAD,
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
    stat,
    total,
)
from deploy.grafana.generator.promql import NAMESPACE, energy, hours, memory_of_pods, of_pods, once, seen, xids
from deploy.grafana.generator.tables import Column, table
from deploy.grafana.generator.variables import CLUSTER, DATASOURCE, PRICE
from deploy.grafana.generator.variables import NAMESPACE as NAMESPACES

_IN = f"{{{NAMESPACE}}}"
_POD = "cluster, namespace, pod"
_THROTTLED = once(
    f'rate(pod_gpu_throttled_seconds_total{{{NAMESPACE}, reason!="low_util"}}[$__rate_interval])', "reason"
)


def _now(of: str) -> str:
    return f"namespace:pod_gpu_{of}:rate5m{_IN}"


def _hours(of: str) -> str:
    return hours(of, "namespace", NAMESPACE)


def _of_pods(of: str) -> str:
    return hours(of, "pod", NAMESPACE, _POD)


DASHBOARD = Dashboard(
    name="namespace",
    says="What a namespace, or a team with several, holds, uses and costs.",
    variables=[DATASOURCE, CLUSTER, NAMESPACES, PRICE],
    since="now-24h",
    rows=[
        Row(
            panels=[
                stat("Held", "GPUs that pods of the namespace hold now. A share or a MIG instance counts with its "
                     "part.",
                     f'sum({_now("allocated_seconds")})', GPUS),
                stat("Used of held", "How active the held GPUs are.",
                     f'sum({_now("active_seconds")}) / sum({_now("observed_seconds")})', PERCENT, USE, most=1),
                stat("Held but idle", "GPUs that are held while nothing runs on them (activity below 5 %).",
                     f'sum({_now("idle_seconds")})', GPUS, IDLE),
                stat("Power", "What its GPUs draw.", f'sum({_now("energy_joules")})', WATTS),
                total("GPU-hours", "Held in the time range.", _hours("allocated"), HOURS),
                total("Idle GPU-hours", "Held idle in the time range.", _hours("idle"), HOURS, ("orange",)),
                total("Energy", "Used in the time range.", energy("namespace", NAMESPACE), KWH),
                total("Cost", "GPU-hours held, at the price above.", f'{_hours("allocated")} * $price', MONEY),
            ]
        ),
        Row(
            title="Over time",
            panels=[
                lines("Held and used", "GPUs of the namespaces that are chosen.",
                      Query(f'sum({_now("allocated_seconds")})', "held"),
                      Query(f'sum({_now("active_seconds")})', "used"), unit=GPUS),
                lines("Held by workload", "Pods without a known workload are one line.",
                      Query(f"sum by (namespace, workload_name) (pod:pod_gpu_allocated_seconds:rate5m{_IN})",
                            "{{namespace}}/{{workload_name}}"),
                      unit=GPUS, stacked=True,
                      links=from_series("workload", namespace="namespace", workload="workload_name")),
                lines("Used of held, by pod", "How active the GPUs of each pod are.",
                      Query(f"sum by ({_POD}) (pod:pod_gpu_active_seconds:rate5m{_IN}) / "
                            f"sum by ({_POD}) (pod:pod_gpu_observed_seconds:rate5m{_IN})", "{{namespace}}/{{pod}}"),
                      unit=PERCENT),
                lines("Power by pod", "Each owner of a shared GPU has a part of its power.",
                      Query(f"sum by ({_POD}) (pod:pod_gpu_energy_joules:rate5m{_IN})", "{{namespace}}/{{pod}}"),
                      unit=WATTS, stacked=True),
                lines("Tensor cores, by pod", "How much of the time the tensor pipes were active, the mean of the "
                      "pod's devices. A GPU may be active all day and do its work without them.",
                      Query(of_pods("tensor", NAMESPACE, _POD), "{{namespace}}/{{pod}}"), unit=PERCENT, most=1),
                lines("Memory, by pod", "The used part of its devices' memory. On a shared GPU without measured use "
                      "it is the whole GPU's. There is no value with --sharing split and measured use.",
                      Query(memory_of_pods(NAMESPACE, _POD), "{{namespace}}/{{pod}}"), unit=PERCENT, most=1),
            ],
        ),
        Row(
            title="Pods and workloads",
            panels=[
                table("Pods", "What each pod held in the time range. Pods that are gone count, too.",
                      _POD,
                      Column("Held, GPU-h", _of_pods("allocated"), HOURS),
                      Column("Used", f'{_of_pods("active")} / {seen(_of_pods)}', PERCENT, USE),
                      Column("Idle, GPU-h", _of_pods("idle"), HOURS),
                      Column("Energy", energy("pod", NAMESPACE, _POD), KWH),
                      Column("Cost", f'{_of_pods("allocated")} * $price', MONEY),
                      Column("Holds now, GPUs", f"sum by ({_POD}) ({once(f'pod_gpu_allocated_ratio{_IN}')})", "short"),
                      most_first="Held, GPU-h"),
                table("XIDs", "Errors that the driver reported in the time range for pods of the namespace.",
                      f"{_POD}, node, xid",
                      Column("Errors", xids(NAMESPACE, f"{_POD}, node, xid"), "short", BAD),
                      most_first="Errors", height=6),
                lines("Throttled", "GPUs whose clocks were lowered, by reason. Low clocks without work do not count.",
                      Query(f"sum by (pod, reason) ({_THROTTLED}) > 0", "{{pod}} {{reason}}"), unit=GPUS),
                lines("GPU-hours of each day", "Held in the 24 hours before each point.",
                      Query(f'sum by (namespace) (sum_over_time({_now("allocated_seconds")}[1d])) / 60',
                            "{{namespace}}"), unit=HOURS),
            ],
        ),
    ],
)  # fmt: skip
