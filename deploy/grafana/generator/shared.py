"""The dashboard of GPUs that several containers hold: time-sliced, by MPS, or cut into MIG instances."""

from deploy.grafana.generator.dashboard import Dashboard
from deploy.grafana.generator.panels import GPUS, IDLE, PERCENT, USE, WATTS, Query, Row, bars, lines, stat
from deploy.grafana.generator.promql import NODE as CHOSEN
from deploy.grafana.generator.promql import OF_DEVICE, ROW, devices, memory, named, once, ratio
from deploy.grafana.generator.tables import Column, table
from deploy.grafana.generator.variables import CLUSTER, DATASOURCE, NODES

_UUID = "cluster, node, UUID"
_ITS = "{{namespace}}/{{pod}} {{container}} {{GPU_I_ID}}"
_MIG = f'{CHOSEN}, GPU_I_ID!=""'
# a part of a GPU has a ratio below 1; if it is no MIG instance, it is a share
_SHARES = f'pod_gpu_allocated_ratio{{{CHOSEN}, GPU_I_ID=""}} < 1'
_HELD_OF_MIG = once(f"pod_gpu_allocated_ratio{{{_MIG}}}")
_PARTS = f"pod_gpu_allocated_ratio{{{CHOSEN}}} < 1"
_OF_PARTS = f"on ({ROW}) ({_PARTS})"


def _rate(family: str, where: str = CHOSEN) -> str:
    return f"max by ({ROW}) (rate(pod_gpu_{family}_total{{{where}}}[$__rate_interval]))"


def _of_held(of: str) -> str:
    return f"{_rate(f'{of}_seconds')} / {_rate('observed_seconds')} and {_OF_PARTS}"


DASHBOARD = Dashboard(
    name="shared",
    says="GPUs that are handed out in parts: time-sliced, by MPS, or as MIG instances.",
    variables=[DATASOURCE, CLUSTER, NODES],
    rows=[
        Row(
            panels=[
                stat("GPUs in shares", "GPUs of which containers hold shares (time-slicing, MPS).",
                     f"count(count by ({_UUID}) ({_SHARES})) or vector(0)"),
                stat("Containers on shares", "How many containers hold one.",
                     f"count({_SHARES}) or vector(0)"),
                stat("Devices with neighbours", "GPUs and MIG instances that several containers hold.",
                     f'sum({devices("gpu|mig", CHOSEN)} > bool 1)'),
                stat("Most neighbours", "The most containers on one device.", f'max({devices("gpu|mig", CHOSEN)})'),
                stat("GPUs in MIG instances", "GPUs that are cut.",
                     f'count(count by ({_UUID}) ({devices("mig", CHOSEN)})) or vector(0)'),
                stat("MIG instances", "How many there are.", f'count({devices("mig", CHOSEN)}) or vector(0)'),
                stat("Free MIG instances", "MIG instances that nobody holds.",
                     f'sum({devices("mig", CHOSEN)} == bool 0) or vector(0)'),
                stat("Held in parts", "All held shares and instances, added up to GPUs.",
                     f"sum({_PARTS}) or vector(0)", GPUS),
            ]
        ),
        Row(
            title="Shares",
            panels=[
                lines("Containers on each GPU", "GPUs that are not cut.", Query(devices("gpu", CHOSEN),
                      "{{node}} GPU {{gpu}}")),
                lines("Held of each GPU in shares", "The rest to 1 is free.",
                      Query(named(f"sum by ({_UUID}) ({_SHARES})"), "{{node}} GPU {{gpu}}"), unit=PERCENT, most=1),
                lines("Active", "How much of the time something ran on each GPU in shares, for any owner.",
                      Query(f"({ratio('activity', CHOSEN)}) and on ({_UUID}) ({_SHARES})", "{{node}} GPU {{gpu}}"),
                      unit=PERCENT, most=1),
                lines("Memory", "The used part of each shared GPU's memory. With measured use it needs the field of "
                      "the total memory.",
                      Query(f"({memory(CHOSEN)}) and on ({_UUID}) ({_SHARES})", "{{node}} GPU {{gpu}}"), unit=PERCENT,
                      most=1),
            ],
        ),
        Row(
            title="Who does what on them",
            panels=[
                table("Containers", "Who holds a share or a MIG instance now.", ROW,
                      Column("Part of the GPU", f"sum by ({ROW}) ({_PARTS})", "short"),
                      Column("Used of held", _of_held("active"), PERCENT, USE),
                      Column("Idle of held", _of_held("idle"), PERCENT, IDLE),
                      Column("Power", f"{_rate('energy_joules')} and {_OF_PARTS}", WATTS),
                      most_first="Part of the GPU"),
                lines("Kernels, measured", "The part of the time in which each container's kernels ran. Those of "
                      "several may run at a time. It needs measured use (NVML).",
                      Query(f"sum by ({ROW}) (pod_gpu_utilization_ratio{{{CHOSEN}}}) and {_OF_PARTS}", _ITS),
                      unit=PERCENT),
                lines("Memory, measured", "Memory of each container's processes. It needs measured use (NVML).",
                      Query(f"sum by ({ROW}) (pod_gpu_memory_used_bytes{{{CHOSEN}}}) and {_OF_PARTS}", _ITS),
                      unit="bytes", stacked=True),
                lines("Power", "An owner's part of the GPU's: by its kernels' time where that is measured, on MIG by "
                      "activity, else equal parts.",
                      Query(f"{_rate('energy_joules')} and {_OF_PARTS}", _ITS), unit=WATTS, stacked=True),
                lines("Processes", "Processes of each container; without a name, of no holder. It needs measured use "
                      "(NVML).",
                      Query(f"sum by ({ROW}) (pod_gpu_processes{{{CHOSEN}}}) and on ({_UUID}) ({_PARTS})", _ITS)),
            ],
        ),
        Row(
            title="MIG instances",
            panels=[
                lines("Active", "How much of the time something ran on each instance.",
                      Query(ratio("activity", _MIG), "{{node}} GPU {{gpu}} instance {{GPU_I_ID}}"), unit=PERCENT,
                      most=1),
                lines("Memory", "The used part of each instance's memory.",
                      Query(memory(_MIG), "{{node}} GPU {{gpu}} instance {{GPU_I_ID}}"), unit=PERCENT, most=1),
                bars("Held of each GPU that is cut", "By compute slices. The rest to 1 is free.",
                     Query(named(f"sum by ({_UUID}) ({_HELD_OF_MIG})"), "{{node}} GPU {{gpu}}"),
                     unit=PERCENT, levels=("green",), most=1),
                bars("Instances by profile", "How many of each profile are held.",
                     Query(f"count by (GPU_I_PROFILE) (count by ({OF_DEVICE}, GPU_I_PROFILE) (pod_gpu_info{{{_MIG}}}))",
                           "{{GPU_I_PROFILE}}"), unit="short", levels=("blue",)),
            ],
        ),
    ],
)  # fmt: skip
