"""The dashboard of one GPU: its use, its holders, and its health."""

from deploy.grafana.generator.dashboard import Dashboard
from deploy.grafana.generator.panels import (
    BAD,
    CELSIUS,
    FLOW,
    FULL,
    GPUS,
    HERTZ,
    IDLE,
    PERCENT,
    USE,
    WARM,
    WATTS,
    Query,
    Row,
    lines,
    new_xids,
    stat,
)
from deploy.grafana.generator.promql import (
    GPU as CHOSEN,
)
from deploy.grafana.generator.promql import (
    OF_GPU,
    devices,
    flow,
    level,
    link_errors,
    memory,
    once,
    parts,
    ratio,
    watts,
    xids,
)
from deploy.grafana.generator.tables import Column, table
from deploy.grafana.generator.variables import CLUSTER, DATASOURCE, GPU, NODE

_IN = f"{{{CHOSEN}}}"
_OWNER = "namespace, pod, container, GPU_I_ID"
_ITS = "{{namespace}}/{{pod}} {{container}} {{GPU_I_ID}}"
_DEVICE = "{{GPU_I_ID}}"


def _ratio(field: str, name: str) -> Query:
    return Query(ratio(field, CHOSEN), f"{name} {_DEVICE}")


_THROTTLED = once(f"rate(pod_gpu_throttled_seconds_total{_IN}[$__rate_interval])", "reason")


def _rate(family: str) -> str:
    return f"max by ({_OWNER}) (rate(pod_gpu_{family}_total{_IN}[$__rate_interval]))"


DASHBOARD = Dashboard(
    name="gpu",
    says="One GPU: what it and its MIG instances do, for which containers, and how healthy it is.",
    variables=[DATASOURCE, CLUSTER, NODE, GPU],
    rows=[
        Row(
            panels=[
                stat("Containers", "How many containers hold the GPU or a part of it.",
                     f'sum({devices("gpu|mig", CHOSEN)})'),
                stat("Held", "The part of the GPU that is held.",
                     f"sum({once(f'pod_gpu_allocated_ratio{_IN}')})", PERCENT,
                     most=1),
                stat("Active", "How much of the time something runs. With MIG, the most active instance.",
                     f'max({ratio("activity", CHOSEN)})', PERCENT, USE, most=1),
                stat("Memory", "The used part of its memory.", memory(CHOSEN, OF_GPU), PERCENT, FULL, most=1),
                stat("Power", "What it draws.", watts(CHOSEN, "cluster, node, UUID"), WATTS),
                stat("Temperature", "Near 90 degrees it lowers its clocks.", level("temperature", CHOSEN, OF_GPU),
                     CELSIUS, WARM),
                stat("Held but idle", "The part of a GPU that is held while nothing runs on it.",
                     f'sum({_rate("idle_seconds")})', PERCENT, IDLE, most=1),
                new_xids(CHOSEN),
            ]
        ),
        Row(
            title="For whom",
            panels=[
                table("Containers", "Which containers hold the GPU now, and which part.",
                      f"{_OWNER}, GPU_I_PROFILE, modelName, resource",
                      Column("Part of the GPU", parts(CHOSEN, _OWNER, f"{_OWNER}, GPU_I_PROFILE, modelName, resource"),
                             "short"), height=6),
                lines("Held", "Which part of the GPU each container holds.",
                      Query(f"max by ({_OWNER}) (pod_gpu_allocated_ratio{_IN})", _ITS), unit=PERCENT, stacked=True),
                lines("Used", "GPUs used by each container, as the accounts have it.",
                      Query(_rate("active_seconds"), _ITS), unit=GPUS, stacked=True),
                lines("Power", "What the GPU draws for each container. Without a name: for nobody.",
                      Query(_rate("energy_joules"), _ITS), unit=WATTS, stacked=True),
                lines("Memory, measured", "Memory of each container's processes. It needs measured use (NVML).",
                      Query(f"sum by ({_OWNER}) (pod_gpu_memory_used_bytes{_IN})", _ITS), unit="bytes", stacked=True),
            ],
        ),
        Row(
            title="What it does",
            panels=[
                lines("Engines", "How much of the time each engine worked: any of them, multiprocessors, tensor "
                      "pipes, memory. A MIG instance has its number.",
                      _ratio("activity", "any"), _ratio("sm", "multiprocessors"), _ratio("tensor", "tensor"),
                      _ratio("dram", "memory"), unit=PERCENT, most=1),
                lines("Occupancy", "Resident warps, of the most possible.",
                      _ratio("occupancy", "warps"), unit=PERCENT, most=1),
                lines("Memory", "The used part of its memory.", Query(memory(CHOSEN), f"used {_DEVICE}"),
                      unit=PERCENT, most=1),
                lines("Power", "What it draws, and its limit.",
                      Query(watts(CHOSEN, "cluster, node, UUID"), "drawn"),
                      Query(level("power limit", CHOSEN, OF_GPU), "limit"), unit=WATTS),
                lines("PCIe and NVLink", "Bytes a second.",
                      Query(flow("pcie received", CHOSEN), "PCIe, to it"),
                      Query(flow("pcie sent", CHOSEN), "PCIe, from it"),
                      Query(flow("nvlink received", CHOSEN), "NVLink, to it"),
                      Query(flow("nvlink sent", CHOSEN), "NVLink, from it"), unit=FLOW),
                lines("Clocks", "Of the multiprocessors, and of the memory.",
                      Query(level("sm clock", CHOSEN, OF_GPU), "multiprocessors"),
                      Query(level("memory clock", CHOSEN, OF_GPU), "memory"), unit=HERTZ),
            ],
        ),
        Row(
            title="Is it well?",
            panels=[
                lines("Temperature", "Of the GPU, and of its memory.",
                      Query(level("temperature", CHOSEN, OF_GPU), "GPU"),
                      Query(level("memory temperature", CHOSEN, OF_GPU), "memory"), unit=CELSIUS, levels=WARM),
                lines("Throttled", "How much of the time its clocks were lowered, by reason.",
                      Query(f"sum by (reason) ({_THROTTLED})", "{{reason}}"), unit=PERCENT),
                lines("Memory errors", "Since the driver was loaded.",
                      Query(level("uncorrected", CHOSEN, OF_GPU), "uncorrected"),
                      Query(level("corrected", CHOSEN, OF_GPU), "corrected"),
                      Query(level("remapped", CHOSEN, OF_GPU), "rows replaced")),
                table("XIDs", "Errors that the driver reported in the time range.", "namespace, pod, xid",
                      Column("Errors", xids(CHOSEN, "namespace, pod, xid"), "short", BAD),
                      most_first="Errors", height=6),
                table("Errors of links", "Errors in the time range, with the holder at that time. A row without a "
                      "link counts all links. Kinds overlap: a replay repairs a CRC error.",
                      "namespace, pod, link, kind",
                      Column("Errors", link_errors(CHOSEN, "namespace, pod, link, kind"), "short", BAD),
                      most_first="Errors", height=6),
            ],
        ),
    ],
)  # fmt: skip
