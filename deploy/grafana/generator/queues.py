"""The dashboard of queues: what each may have, holds, uses and leaves idle, by queue and cohort, and who waits."""

from deploy.grafana.generator.dashboard import Dashboard
from deploy.grafana.generator.panels import (
    COUNT,
    GPUS,
    HOURS,
    IDLE,
    KWH,
    MONEY,
    PERCENT,
    USE,
    Query,
    Row,
    lines,
    stat,
)
from deploy.grafana.generator.promql import NAMESPACE, energy, hours, seen
from deploy.grafana.generator.tables import Column, table
from deploy.grafana.generator.variables import CLUSTER, DATASOURCE, PRICE, QUEUE
from deploy.grafana.generator.variables import NAMESPACE as NAMESPACES

_OF_CLUSTER = 'cluster=~"$cluster"'
_QUEUE = f'{_OF_CLUSTER}, queue=~"$queue"'
_BY_QUEUE = "cluster, queue"
_BY_COHORT = "cluster, cohort"
_BY_NAMESPACE = "cluster, namespace"
_POD = "cluster, namespace, pod"
# quotas of other resources, such as MIG profiles, are not in GPUs
_GPU = 'resource="nvidia.com/gpu"'
_SECONDS = "s"


def _queue(record: str, by: str = _BY_QUEUE, *more: str) -> str:
    return f"sum by ({by}) (queue:{record}{{{', '.join((_QUEUE, *more))}}})"


def _cohort(record: str, *more: str) -> str:
    return f"sum by ({_BY_COHORT}) (cohort:{record}{{{', '.join((_OF_CLUSTER, *more))}}})"


def _all(record: str) -> str:
    return f"sum({record}{{{_QUEUE}}})"


def _hours(of: str) -> str:
    return hours(of, "queue", _QUEUE, _BY_QUEUE)


_QUOTA = _queue("gpu_quota:sum", _BY_QUEUE, _GPU)
_HELD = _queue("pod_gpu_allocated:sum")
_ADMITTED = _queue("gpu_admitted:sum", _BY_QUEUE, _GPU)
_IDLE_NOW = _queue("pod_gpu_idle_seconds:rate5m")
_WAIT = f"max by ({_POD}) (pod:gpu_wait_seconds:max{{{NAMESPACE}}})"

DASHBOARD = Dashboard(
    name="queues",
    says="What each queue of Kueue or KAI Scheduler may have, holds, uses and leaves idle, and the pods that wait.",
    variables=[DATASOURCE, CLUSTER, QUEUE, NAMESPACES, PRICE],
    rows=[
        Row(
            panels=[
                stat("Held in queues", "GPUs that pods in these queues hold. A share or a MIG instance counts with "
                     "its part.",
                     _all("queue:pod_gpu_allocated:sum"), GPUS),
                stat("Held outside queues", "GPUs that pods without a queue hold, in all of the chosen clusters.",
                     f"sum(cluster:node_gpu_allocated:sum{{{_OF_CLUSTER}}})"
                     f" - sum(queue:pod_gpu_allocated:sum{{{_OF_CLUSTER}}})", GPUS),
                stat("Idle in queues", "Held GPUs on which nothing runs.",
                     _all("queue:pod_gpu_idle_seconds:rate5m"), GPUS, IDLE),
                stat("Idle of held", "Idle GPUs, as a part of the held ones.",
                     f"{_all('queue:pod_gpu_idle_seconds:rate5m')} / {_all('queue:pod_gpu_observed_seconds:rate5m')}",
                     PERCENT, IDLE, most=1),
                stat("Pods that wait", "Pods on no node yet that ask for GPUs.",
                     f"sum(namespace:pods_waiting:sum{{{NAMESPACE}}}) or vector(0)"),
                stat("GPUs waited for", "GPUs that the waiting pods ask for.",
                     f"sum(namespace:gpu_waited_for:sum{{{NAMESPACE}}}) or vector(0)", GPUS),
                stat("Longest wait", "Time since the oldest of these pods was created.",
                     f"max(namespace:gpu_wait_seconds:max{{{NAMESPACE}}}) or vector(0)", _SECONDS),
                stat("Workloads pending", "Workloads that Kueue has not admitted.",
                     f"{_all('queue:workloads_pending:sum')} or vector(0)"),
            ]
        ),
        Row(
            title="Queues",
            panels=[
                table("Now", "Quota and admitted are what Kueue and KAI say of nvidia.com/gpu; held, used and idle are "
                      "physical GPUs, by the exporter. A queue that holds more than its quota borrows.", _BY_QUEUE,
                      Column("Quota", _QUOTA, COUNT),
                      Column("Admitted", _ADMITTED, COUNT),
                      Column("Held", _HELD, COUNT),
                      Column("Used", _queue("pod_gpu_active_seconds:rate5m"), COUNT),
                      Column("Idle", _IDLE_NOW, COUNT),
                      Column("Held of quota", f"{_HELD} / ({_QUOTA} > 0)", PERCENT, USE),
                      Column("Workloads pending", _queue("workloads_pending:sum"), COUNT),
                      most_first="Held"),
                lines("Held by queue", "GPUs.", Query(_HELD, "{{queue}}"), unit=GPUS, stacked=True),
                lines("Idle by queue", "GPUs that are held while nothing runs on them.",
                      Query(_IDLE_NOW, "{{queue}}"), unit=GPUS, stacked=True),
                lines("Quota that nobody holds", "Quota less what is held; below 0, the queue borrows.",
                      Query(f"{_QUOTA} - ({_HELD} or {_QUOTA} * 0)", "{{queue}}"), unit=GPUS),
            ],
        ),
        Row(
            title="Cohorts",
            panels=[
                table("Cohorts", "ClusterQueues of Kueue that lend each other their quota.", _BY_COHORT,
                      Column("Quota", _cohort("gpu_quota:sum", _GPU), COUNT),
                      Column("Admitted", _cohort("gpu_admitted:sum", _GPU), COUNT),
                      Column("Held", _cohort("pod_gpu_allocated:sum"), COUNT),
                      Column("Used", _cohort("pod_gpu_active_seconds:rate5m"), COUNT),
                      Column("Idle", _cohort("pod_gpu_idle_seconds:rate5m"), COUNT),
                      most_first="Held"),
            ],
        ),
        Row(
            title="Who waits",
            panels=[
                table("Pods", "On no node yet, by kube-state-metrics. kubectl gpu queue says why, and in which queue.",
                      _POD,
                      Column("Asks for, GPUs", f"sum by ({_POD}) (pod:gpu_waited_for:sum{{{NAMESPACE}}})", COUNT),
                      Column("Waits", _WAIT, _SECONDS),
                      most_first="Waits"),
                lines("GPUs waited for, by namespace", "What pods on no node ask for.",
                      Query(f"sum by ({_BY_NAMESPACE}) (namespace:gpu_waited_for:sum{{{NAMESPACE}}})", "{{namespace}}"),
                      unit=GPUS, stacked=True),
                lines("Workloads pending, by queue", "Workloads of Kueue. Inadmissible ones wait for a change.",
                      Query(_queue("workloads_pending:sum", "cluster, queue, status"), "{{queue}} {{status}}")),
                lines("GPUs that they ask for", "Of Kueue 0.18 and later.",
                      Query(_queue("gpu_pending:sum", "cluster, queue, resource"), "{{queue}} {{resource}}")),
            ],
        ),
        Row(
            title="In the time range",
            panels=[
                table("GPU-hours by queue", "Pods that are gone count, too.", _BY_QUEUE,
                      Column("Held, GPU-h", _hours("allocated"), HOURS),
                      Column("Used, GPU-h", _hours("active"), HOURS),
                      Column("Idle, GPU-h", _hours("idle"), HOURS),
                      Column("Idle of held", f"{_hours('idle')} / {seen(_hours)}", PERCENT, IDLE),
                      Column("Cost", f"{_hours('allocated')} * $price", MONEY),
                      Column("Cost of idle", f"{_hours('idle')} * $price", MONEY),
                      Column("Energy", energy("queue", _QUEUE, _BY_QUEUE), KWH),
                      most_first="Held, GPU-h"),
            ],
        ),
    ],
)  # fmt: skip
