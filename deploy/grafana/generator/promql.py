"""Parts of queries: selectors, and dcgm-exporter's fields under their names before and since DCGM 4.9.

The value of a device's rows depends on `--sharing` (docs/promql.md has the table of sums), and a query cannot ask for
the mode. Each function here makes a query that is right in all three modes, and says why.
"""

from collections.abc import Callable

CLUSTER = 'cluster=~"$cluster"'
NODE = f'{CLUSTER}, node=~"$node"'
GPU = f'{NODE}, UUID=~"$gpu"'
NAMESPACE = f'{CLUSTER}, namespace=~"$namespace"'
WORKLOAD = f'{NAMESPACE}, workload_name=~"$workload"'

OF_GPU = "cluster, node, gpu, UUID"
OF_DEVICE = f"{OF_GPU}, GPU_I_ID"
ROW = "cluster, node, namespace, pod, container, UUID, GPU_I_ID"  # the labels of the accounts' rows

# The older name, the factor that turns its values into the newer unit, and the newer name, "" if it is the same.
_FIELDS = {
    "activity": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"),
    "sm": ("DCGM_FI_PROF_SM_ACTIVE", "", "DCGM_FI_PROF_SM_UTIL_RATIO"),
    "occupancy": ("DCGM_FI_PROF_SM_OCCUPANCY", "", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO"),
    "tensor": ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"),
    "dram": ("DCGM_FI_PROF_DRAM_ACTIVE", "", "DCGM_FI_PROF_DRAM_UTIL_RATIO"),
    "temperature": ("DCGM_FI_DEV_GPU_TEMP", "", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"),
    "memory temperature": ("DCGM_FI_DEV_MEMORY_TEMP", "", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"),
    "power": ("DCGM_FI_DEV_POWER_USAGE", "", "DCGM_FI_DEV_BOARD_POWER_WATTS"),
    "power limit": ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "", "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS"),
    "sm clock": ("DCGM_FI_DEV_SM_CLOCK", " * 1e6", "DCGM_FI_DEV_SM_CLOCK_HERTZ"),
    "memory clock": ("DCGM_FI_DEV_MEM_CLOCK", " * 1e6", "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ"),
    "pcie sent": ("DCGM_FI_PROF_PCIE_TX_BYTES", "", ""),
    "pcie received": ("DCGM_FI_PROF_PCIE_RX_BYTES", "", ""),
    "nvlink sent": ("DCGM_FI_PROF_NVLINK_TX_BYTES", "", ""),
    "nvlink received": ("DCGM_FI_PROF_NVLINK_RX_BYTES", "", ""),
    "uncorrected": ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "", ""),
    "corrected": ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "", ""),
    "remapped": ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "", "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"),
    "pending": ("DCGM_FI_DEV_ROW_REMAP_PENDING", "", ""),
    "replays": ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL"),
    "lanes": ("DCGM_FI_DEV_PCIE_LINK_WIDTH", "", ""),
    "most lanes": ("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "", ""),
    "energy": ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"),
    "free": ("DCGM_FI_DEV_FB_FREE", "", "DCGM_FI_DEV_FB_FREE_BYTES"),
    "used": ("DCGM_FI_DEV_FB_USED", "", "DCGM_FI_DEV_FB_USED_BYTES"),
    "total": ("DCGM_FI_DEV_FB_TOTAL", "", "DCGM_FI_DEV_FB_CAPACITY_BYTES"),
}


def rows(field: str, where: str) -> str:
    """All rows of a field, by either of its names."""
    older, factor, newer = _FIELDS[field]
    return f"{older}{{{where}}}{factor}" + (f" or {newer}{{{where}}}" if newer else "")


def level(field: str, where: str, by: str = OF_DEVICE) -> str:
    """A device's temperature, clock or limit, which is the same on each owner's row in every mode."""
    return f"max by ({by}) ({rows(field, where)})"


def ratio(field: str, where: str) -> str:
    """The part (0 to 1) of a device that is at work.

    It is the same on each owner's row. Only with `split` and measured use, the rows are parts of it. The query knows
    this case by the free memory, which then is on a row without an owner although the device has owners.
    """
    here = f"on ({OF_DEVICE})"
    shared = rows(field, f'{where}, pod!="", gpu_shared="true"')
    free = rows("free", f'{where}, pod=""')
    return (
        f"sum by ({OF_DEVICE}) ({rows(field, where)}) and {here} ({shared}) and {here} ({free})"
        f" or {level(field, where)}"
    )


def flow(field: str, where: str) -> str:
    """The bytes per second of a GPU. With `split` they are the sum of its rows; else every row has all of them.

    The query knows `split` by the counter of energy, which then has a row for nobody beside that of an owner. One such
    device is enough for the whole node.
    """
    nobodys, owners = (rows("energy", f'{where}, pod{sign}""') for sign in ("=", "!="))
    return (
        f"sum by ({OF_GPU}) ({rows(field, where)}) and on (cluster, node) (({nobodys}) and on ({OF_DEVICE}) ({owners}))"
        f" or {level(field, where, OF_GPU)}"
    )


def memory(where: str, by: str = OF_DEVICE) -> str:
    """The part (0 to 1) of a device's memory that is used: one minus the free memory divided by all, both as sums.

    With `copy` each owner's row has both, with `split` a part of both. If there is no field for the total, the total is
    the sum of its parts. For a shared GPU with measured use the parts do not add up, and it is then left out.
    """
    free, total = rows("free", where), rows("total", where)
    shared = rows("used", f'{where}, gpu_shared="true"')
    return (
        f"1 - (sum by ({by}) ({free}) / sum by ({by}) ({total})"
        f" or (sum by ({by}) ({free}) / sum by ({by}) ({_total_of_parts(where)})) unless on ({by}) ({shared}))"
    )


def of_pods(field: str, where: str, by: str = "cluster, namespace, pod") -> str:
    """The mean over the devices of each pod. With `device`, nothing is known of the owners of a shared GPU."""
    return f"avg by ({by}) ({rows(field, where)} or {_held(rows(field, _NOBODYS), where)})"


def memory_of_pods(where: str, by: str) -> str:
    """The part (0 to 1) of the memory of each pod's devices that is used; see `memory`."""
    free, total, used = (
        f"sum by ({by}) ({_held(values, where)})"
        for values in (rows("free", _NOBODYS), rows("total", _NOBODYS), _total_of_parts(_NOBODYS))
    )
    return f"{memory(where, by)} or 1 - ({free} / {total} or {free} / {used})"


_NOBODYS = f'{CLUSTER}, pod=""'
_BY_INFO = "cluster, node, UUID, GPU_I_ID"


def _held(values: str, where: str) -> str:
    """A device's value for each of its holders, only on nodes whose samples name no owner (`--labels.owners off`)."""
    info = f'pod_gpu_info{{{where}, samples="without_owners"}}'
    return f"{info} * on ({_BY_INFO}) group_left () max by ({_BY_INFO}) ({values})"


def once(rows: str, label: str = "") -> str:
    """Each row of the accounts once, even if several jobs scrape its exporter. `label`: a further label of the rows."""
    return f"max by ({ROW}{label and ', '}{label}) ({rows})"


def named(expression: str) -> str:
    """Series that have only a GPU's UUID, with the label `gpu` added: its number on the node."""
    owners = f"max by ({OF_GPU}) (pod_gpu_device_owners{{{NODE}}})"
    return f"({expression}) * on (cluster, node, UUID) group_left (gpu) (0 * {owners} + 1)"


def devices(entity: str, where: str) -> str:
    """The number of holders of each device of a kind (regex). If a node has two exporters for a moment, one counts."""
    by = f"{OF_DEVICE}, entity"
    return f'max by ({by}) (pod_gpu_device_owners{{{where}, entity=~"{entity}"}})'


def free(where: str) -> str:
    """For each GPU: 1 if nobody holds any part of it, else 0. A GPU that is failing or gone does not count as free."""
    broken = f'pod_gpu_device_verdict{{{where}, verdict=~"failing|gone"}}'
    return f"({devices('gpu', where)} == bool 0) unless on (cluster, node, UUID) {broken}"


def watts(where: str, by: str) -> str:
    """The power. It is made of the accounts' energy, which is right in every mode."""
    return f"sum by ({by}) ({once(f'rate(pod_gpu_energy_joules_total{{{where}}}[$__rate_interval])')})"


def hours(of: str, level: str, where: str, by: str = "") -> str:
    """GPU-hours (allocated, active, observed, idle) in the time range, from a record with a sample each minute."""
    return f"sum{_by(by)}(sum_over_time({level}:pod_gpu_{of}_seconds:rate5m{{{where}}}[$__range])) / 60"


def seen(hours_of: Callable[[str], str]) -> str:
    """The GPU-hours held whose use was observed. If that has not been recorded for the whole time range, all hours."""
    return f"({hours_of('observed')} >= {hours_of('allocated')} / 2 or {hours_of('allocated')})"


def energy(level: str, where: str, by: str = "") -> str:
    """The energy in the time range, in kWh, likewise."""
    return f"sum{_by(by)}(sum_over_time({level}:pod_gpu_energy_joules:rate5m{{{where}}}[$__range])) / 60 / 1000"


def _total_of_parts(where: str) -> str:
    return " or ".join(
        f"DCGM_FI_DEV_FB_FREE{end}{{{where}}} + DCGM_FI_DEV_FB_USED{end}{{{where}}}"
        f" + DCGM_FI_DEV_FB_RESERVED{end}{{{where}}}"
        for end in ("", "_BYTES")
    )


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""


def parts(where: str, of: str, more: str) -> str:
    """The part of a GPU that each container holds, by the labels `of` of its rows, with `more` labels of the device."""
    return (
        f"max by ({of}) (pod_gpu_allocated_ratio{{{where}}}) * on ({of}) group_right ()"
        f" max by ({more}) (pod_gpu_info{{{where}}})"
    )


def xids(where: str, by: str) -> str:
    """The new XIDs in the time range."""
    return f"sum by ({by}) ({_new('pod_gpu_xid_errors_total', where, 'xid')}) > 0"


def link_errors(where: str, by: str) -> str:
    """The new errors of links in the time range."""
    return f"sum by ({by}) ({_new('pod_gpu_link_errors_total', where, 'kind, link')}) > 0"


def _new(family: str, where: str, label: str) -> str:
    """By how much each row grew in the time range. increase() would miss the first error of a row."""
    all_, most = f"{family}{{{where}}}", f"max_over_time({family}{{{where}}}[$__range])"
    return once(f"{most} - ({all_} offset $__range or {most} * 0)", label)
