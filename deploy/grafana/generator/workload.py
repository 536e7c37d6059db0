"""The dashboard of a workload and its use of GPUs: a deployment, a job, or whatever --workload.labels names.

For a model server it has the energy and cost of 1,000 tokens, too, if Prometheus also scrapes the server.
"""

from deploy.grafana.generator.dashboard import Dashboard
from deploy.grafana.generator.panels import (
    FLOW,
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
from deploy.grafana.generator.promql import (
    NAMESPACE as NAMESPACES,
)
from deploy.grafana.generator.promql import (
    WORKLOAD as CHOSEN,
)
from deploy.grafana.generator.promql import (
    energy,
    hours,
    memory_of_pods,
    of_pods,
    seen,
)
from deploy.grafana.generator.tables import Column, table
from deploy.grafana.generator.variables import CLUSTER, DATASOURCE, NAMESPACE, PRICE, WORKLOAD

_IN = f"{{{CHOSEN}}}"
_POD = "cluster, namespace, pod"
_WORKLOAD = "cluster, namespace, workload_name"
_USED = (
    f"sum by ({_POD}) (pod:pod_gpu_active_seconds:rate5m{_IN}) / "
    f"sum by ({_POD}) (pod:pod_gpu_observed_seconds:rate5m{_IN})"
)
_RATIO = f"workload:pod_gpu_active_seconds_per_pod_gpu_allocated_seconds:ratio_rate5m{_IN}"


def _now(of: str) -> str:
    return f"workload:pod_gpu_{of}:rate5m{_IN}"


def _its(expression: str) -> str:
    """The series of the workload's pods, by their names, since dcgm-exporter's samples lack the workload's name."""
    return f"({expression}) and on ({_POD}) pod_gpu_allocated_ratio{_IN}"


def _hours(of: str) -> str:
    return hours(of, "workload", CHOSEN, _WORKLOAD)


def _per_1000_tokens(of: str) -> str:
    return f"served_model:pod_gpu_{of}_per_1000_tokens:ratio_rate5m{_IN}"


def _served(expression: str, word: str = "") -> Query:
    """A query by model. If a server does not name its model, the legend is the workload's name alone."""
    return Query(expression, f"{word}{{{{workload_name}}}} {{{{model_name}}}}")


def _pods(field: str) -> Query:
    return Query(_its(of_pods(field, NAMESPACES)), "{{pod}}")


DASHBOARD = Dashboard(
    name="workload",
    says="How well the pods of a workload use their GPUs. It needs --workload.labels, and the shipped recording rules.",
    variables=[DATASOURCE, CLUSTER, NAMESPACE, WORKLOAD, PRICE],
    rows=[
        Row(
            panels=[
                stat("Pods with GPUs", "How many pods of the workload hold GPUs now.",
                     f"count(count by ({_POD}) (pod_gpu_allocated_ratio{_IN}))"),
                stat("Held", "GPUs. A share or a MIG instance counts with its part.",
                     f'sum({_now("allocated_seconds")})', GPUS),
                stat("Used of held", "How active the held GPUs are.",
                     f'sum({_now("active_seconds")}) / sum({_now("observed_seconds")})', PERCENT, USE, most=1),
                stat("Held but idle", "GPUs on which nothing runs (activity below 5 %).",
                     f'sum({_now("idle_seconds")})', GPUS, IDLE),
                stat("Power", "What its GPUs draw.", f'sum({_now("energy_joules")})', WATTS),
                total("GPU-hours", "Held in the time range.", hours("allocated", "workload", CHOSEN), HOURS),
                total("Energy", "Used in the time range.", energy("workload", CHOSEN), KWH),
                stat("Slowest to fastest", "The least active pod as a part of the most active one. In a training that "
                     "waits for its slowest pod it should be near 1.",
                     f"min({_USED}) / max({_USED})", PERCENT, most=1),
            ]
        ),
        Row(
            title="Pod by pod",
            panels=[
                lines("Used of held", "How active the GPUs of each pod are.", Query(_USED, "{{pod}}"), unit=PERCENT),
                lines("Memory", "The used part of its devices' memory. On a shared GPU without measured use it is "
                      "the whole GPU's. There is no value with --sharing split and measured use.",
                      Query(_its(memory_of_pods(NAMESPACES, _POD)), "{{pod}}"), unit=PERCENT, most=1),
                lines("Multiprocessors", "How much of the time a multiprocessor had work. Far below “used”, the work "
                      "is too small for the GPU.", _pods("sm"), unit=PERCENT, most=1),
                lines("Tensor cores", "How much of the time the tensor pipes were active.", _pods("tensor"),
                      unit=PERCENT, most=1),
                lines("Memory bandwidth", "How much of the time memory was read or written. Near 1 the workload waits "
                      "for memory, not for arithmetic.", _pods("dram"), unit=PERCENT, most=1),
                lines("Power", "Each owner of a shared GPU has a part of its power.",
                      Query(f"sum by ({_POD}) (pod:pod_gpu_energy_joules:rate5m{_IN})", "{{pod}}"), unit=WATTS,
                      stacked=True),
                lines("PCIe", "The mean of the pod's devices. High values mean that data does not stay on the GPU.",
                      Query(_its(of_pods("pcie received", NAMESPACES)), "to {{pod}}"),
                      Query(_its(of_pods("pcie sent", NAMESPACES)), "from {{pod}}"), unit=FLOW),
                lines("NVLink", "The mean of the pod's devices.",
                      Query(_its(of_pods("nvlink received", NAMESPACES)), "to {{pod}}"),
                      Query(_its(of_pods("nvlink sent", NAMESPACES)), "from {{pod}}"), unit=FLOW),
            ],
        ),
        Row(
            title="Model servers",
            panels=[
                lines("Generated tokens a second", "What the servers of a model count: vLLM, SGLang, TGI, "
                      "TensorRT-LLM, NIM, and Triton with one of these.",
                      _served(f"served_model:generation_tokens:rate5m{_IN}")),
                lines("Energy of 1,000 tokens", "Joules that the model's pods draw, with their part of shared GPUs. "
                      "There is no value without tokens.",
                      _served(_per_1000_tokens("energy_joules")), unit="joule"),
                lines("GPU-seconds of 1,000 tokens", "If far more is held than used, the server has more GPU than it "
                      "needs.",
                      _served(_per_1000_tokens("allocated_seconds"), "held by "),
                      _served(_per_1000_tokens("active_seconds"), "used by "), unit="s"),
                lines("Cost of 1,000 tokens", "GPU-seconds held, at the price above, without energy.",
                      _served(f'{_per_1000_tokens("allocated_seconds")} / 3600 * $price'), unit=MONEY),
            ],
        ),
        Row(
            title="The time range as a whole",
            panels=[
                bars("Used, 95 % of the time at most", "The activity is higher for only 5 % of the time. If it stays "
                     "below a seventh, the smallest MIG instance would do.",
                     Query(f"quantile_over_time(0.95, {_RATIO}[$__range])", "{{namespace}}/{{workload_name}}"),
                     unit=PERCENT, levels=USE, most=1),
                bars("Used, half of the time at most", "The median of the activity.",
                     Query(f"quantile_over_time(0.5, {_RATIO}[$__range])", "{{namespace}}/{{workload_name}}"),
                     unit=PERCENT, levels=USE, most=1),
                table("Workloads", "What each workload held and used in the time range.", _WORKLOAD,
                      Column("Held, GPU-h", _hours("allocated"), HOURS),
                      Column("Used", f'{_hours("active")} / {seen(_hours)}', PERCENT, USE),
                      Column("Idle, GPU-h", _hours("idle"), HOURS),
                      Column("Energy", energy("workload", CHOSEN, _WORKLOAD), KWH),
                      most_first="Held, GPU-h"),
                table("Devices", "What its containers hold now. A share or a MIG instance counts with its part.",
                      "namespace, pod, container, node, UUID, GPU_I_ID",
                      Column("Part of the GPU", "max by (namespace, pod, container, node, UUID, GPU_I_ID) "
                             f"(pod_gpu_allocated_ratio{_IN})", "short"), most_first="Part of the GPU"),
            ],
        ),
    ],
)  # fmt: skip
