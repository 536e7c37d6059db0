"""The page of Huawei's npu-exporter, for the NPUs of a simulated node. Pure: the node in, text out.

Its families, labels, HELP texts and timestamps are those of tests/data/vendors/huawei.prom. As the real one does, it
names the container that really has an NPU.
"""

from collections.abc import Callable, Mapping, Sequence

from exporter.simulator.allocators import given
from exporter.simulator.machine import Board, Machine
from exporter.simulator.parts import Pod, SimulatedGpu, bus_id

_HBM_MIB = 65_536
_SYSTEM_MIB = 3_392
_MODEL = "910B3-Ascend-V1"
_BUSY_MHZ = 1800
_IDLE_MHZ = 800
_NOBODY = ("", "", "")
# the board of an NPU, and the part of its memory that is used
_Value = Callable[[Board, float], float]
_FAMILIES: Mapping[str, tuple[str, _Value]] = {
    "aicore_current_freq": (
        "the npu ai core current frequency, unit is 'MHz'",
        lambda board, _: _BUSY_MHZ if board.activity else _IDLE_MHZ,
    ),
    "hbm_temperature": ("the npu hbm temperature, unit is 'C'", lambda board, _: round(board.memory_celsius)),
    "hbm_total_memory": ("the npu hbm total memory", lambda *_: _HBM_MIB),
    "hbm_used_memory": ("the npu hbm used memory", lambda _, used: _SYSTEM_MIB + round(used * 0.9 * _HBM_MIB)),
    "health_status": ("the npu health status", lambda *_: 1),
    "power": ("the npu power", lambda board, _: round(board.power_mw / 1000, 1)),
    "temperature": ("the npu temperature", lambda board, _: round(board.celsius)),
    "total_memory": ("the npu total memory", lambda *_: 0),
    "used_memory": ("the npu used memory", lambda *_: 0),
    "utilization": ("the ai core utilization", lambda board, _: round(board.activity * 100)),
}


def npu_page(machine: Machine, gpus: Sequence[SimulatedGpu], pods: Sequence[Pod], at_ms: int) -> str:
    """The page at a moment, in milliseconds since 1970."""
    holders = {part.uuid: names for names, parts in given(pods).items() for part in parts}
    labels = {gpu.uuid: _labels(gpu, holders.get(gpu.uuid, _NOBODY)) for gpu in gpus}
    lines = [
        "# HELP machine_npu_nums Amount of npu installed on the machine.",
        "# TYPE machine_npu_nums gauge",
        f"machine_npu_nums {len(gpus)}",
    ]
    for name, (text, value_of) in _FAMILIES.items():
        family = f"npu_chip_info_{name}"
        lines += (f"# HELP {family} {text}", f"# TYPE {family} gauge")
        for gpu in gpus:
            value = value_of(machine.boards[gpu.uuid], machine.use_of(gpu.uuid).memory)
            lines.append(f"{family}{{{labels[gpu.uuid]}}} {value} {at_ms}")
    return "\n".join(lines) + "\n"


def _labels(gpu: SimulatedGpu, holder: tuple[str, str, str]) -> str:
    namespace, pod, container = holder
    labels = {
        "container_name": container,
        "id": f"{gpu.index}",
        "model_name": _MODEL,
        "namespace": namespace,
        "pcie_bus_info": bus_id(gpu.index)[4:],
        "pod_name": pod,
        "vdie_id": gpu.uuid,
    }
    return ",".join(f'{name}="{value}"' for name, value in labels.items())
