"""DCGM's readings of a simulated GPU and of its MIG instances, by the older name of each family.

On an instance's row dcgm-exporter repeats the whole GPU's values (its issues 257, 317), except memory and the profiling
counters. GPU_UTIL and MEM_COPY_UTIL are not measured on a MIG GPU.

Tests: tests/simulator/test_node.py.
"""

import math
from collections.abc import Mapping, Sequence

from exporter.simulator.job_phases import WorkloadUse, chance
from exporter.simulator.machine import LIMIT_MW, ROW_XIDS, VIOLATIONS, Machine
from exporter.simulator.parts import H100, PROFILES, Instance, SimulatedGpu

# A number, or several numbers with the labels that tell them apart.
Labels = tuple[tuple[str, str], ...]
Reading = float | Sequence[tuple[Labels, float]]
Readings = Mapping[str, Reading]

_DEV = "DCGM_FI_DEV_"
_PROF = "DCGM_FI_PROF_"
_MEMORY_MIB = H100.memory
_RESERVED_MIB = 559
_INSTANCE_RESERVED_MIB = 21
# the most per second, in one direction
_PCIE_BYTES = 50e9
_NVLINK_BYTES = 180e9
_QUIET_BYTES = 200_000  # the driver's own traffic per second
_MOST_MEMORY = 0.9  # the largest part of a device's memory that a container takes
_MIB = 2**20
# the mean seconds between two such events on a GPU
_SINGLE_BIT_EVERY = 9_000
_ROW_EVERY = 400_000
_REPLAY_EVERY = 6_000


def of_whole(machine: Machine, gpu: SimulatedGpu, later_ns: int) -> dict[str, Reading]:
    """The GPU's own row, `later_ns` after the last step of the machine's boards."""
    use = machine.use_of(gpu.uuid)
    used = _used(use)
    if gpu.instances:
        used = sum(_used(machine.use_of(mig.device_id), _of(mig)) for mig in gpu.instances)
    readings: dict[str, Reading] = {
        **of_gpu(machine, gpu, later_ns),
        **_memory(used, gpu.card.memory, _RESERVED_MIB),
        **_profiled(use),
    }
    if not gpu.instances:
        readings[_DEV + "GPU_UTIL"] = -(-use.activity * 100 // 1)
        readings[_DEV + "MEM_COPY_UTIL"] = use.dram * 100
    return readings


def of_instance(machine: Machine, instance: Instance) -> dict[str, Reading]:
    """The readings of a MIG instance itself. The rest of its row is `of_gpu`."""
    use = machine.use_of(instance.device_id)
    memory = _of(instance)
    return {**_memory(_used(use, memory), memory, _INSTANCE_RESERVED_MIB), **_profiled(use)}


def of_gpu(machine: Machine, gpu: SimulatedGpu, later_ns: int) -> dict[str, Reading]:
    """The readings of the whole GPU, which are on the rows of its instances, too."""
    board = machine.boards[gpu.uuid]
    use = machine.use_of(gpu.uuid)
    over_links = round(use.nvlink * _NVLINK_BYTES)
    readings: dict[str, Reading] = {
        "SM_CLOCK": board.sm_clock,
        "MEM_CLOCK": 2619,
        "GPU_TEMP": board.celsius,
        "MEMORY_TEMP": board.memory_celsius,
        "POWER_USAGE": board.power_mw / 1000,
        "ENFORCED_POWER_LIMIT": LIMIT_MW / 1000,
        "TOTAL_ENERGY_CONSUMPTION": board.energy_mj(later_ns),
        "ENC_UTIL": 0,
        "DEC_UTIL": 0,
        "CLOCKS_EVENT_REASONS": board.reasons,
        **{name: board.violation(name, later_ns) for name in VIOLATIONS},
        **dict.fromkeys(("SYNC_BOOST_VIOLATION", "BOARD_LIMIT_VIOLATION", "RELIABILITY_VIOLATION"), 0),
        "PCIE_LINK_GEN": 5,
        "PCIE_LINK_WIDTH": 16,
        "PCIE_MAX_LINK_GEN": 5,
        "PCIE_MAX_LINK_WIDTH": 16,
        "NVLINK_BANDWIDTH_TOTAL": 2 * over_links / 1_024_000,  # DCGM divides KiB by 1,000
        "VGPU_LICENSE_STATUS": 0,
        **_errors(machine, gpu.uuid),
    }
    return {
        **{_DEV + name: reading for name, reading in readings.items()},
        _PROF + "PCIE_TX_BYTES": _QUIET_BYTES + round(use.pcie * _PCIE_BYTES),
        _PROF + "PCIE_RX_BYTES": _QUIET_BYTES + round(use.pcie * 0.6 * _PCIE_BYTES),
        _PROF + "NVLINK_TX_BYTES": over_links,
        _PROF + "NVLINK_RX_BYTES": over_links,
        **dict(machine.nvlink.totals(machine.links[gpu.uuid], machine.seconds)),
    }


def of_links(machine: Machine, gpu: SimulatedGpu) -> dict[str, Reading]:
    """The readings of each of the GPU's links. Instances have no rows of them."""
    return dict(machine.nvlink.by_link(machine.links[gpu.uuid], machine.seconds))


def _errors(machine: Machine, uuid: str) -> dict[str, Reading]:
    """The counts of errors, which are rare."""
    seconds = machine.seconds
    rows = sum(error.xid in ROW_XIDS for error in machine.xids.get(uuid, ()))
    return {
        "ECC_SBE_VOL_TOTAL": int(seconds / _SINGLE_BIT_EVERY + chance(uuid, "single bit")),
        "ECC_DBE_VOL_TOTAL": rows,
        "CORRECTABLE_REMAPPED_ROWS": int(seconds / _ROW_EVERY + chance(uuid, "row")),
        "UNCORRECTABLE_REMAPPED_ROWS": rows,
        "ROW_REMAP_PENDING": int(rows > 0),
        "ROW_REMAP_FAILURE": 0,
        "PCIE_REPLAY_COUNTER": int(seconds / _REPLAY_EVERY + chance(uuid, "replay")),
    }


def most_bytes(gpus: Sequence[SimulatedGpu]) -> dict[str, int]:
    """The most bytes of each device that containers take."""
    mib = {mig.device_id: _of(mig) for gpu in gpus for mig in gpu.instances}
    mib |= {gpu.uuid: _MEMORY_MIB for gpu in gpus}
    return {device: int(memory * _MOST_MEMORY * _MIB) for device, memory in mib.items()}


def _of(instance: Instance) -> int:
    return PROFILES[instance.profile].memory


def _used(use: WorkloadUse, memory: int = _MEMORY_MIB) -> int:
    return math.ceil(
        use.memory * _MOST_MEMORY * memory
    )  # rounded up, so that it is no less than the sum of its processes


def _memory(used: int, total: int, reserved: int) -> dict[str, Reading]:
    return {
        _DEV + "FB_TOTAL": total,
        _DEV + "FB_USED": used,
        _DEV + "FB_FREE": total - reserved - used,
        _DEV + "FB_RESERVED": reserved,
    }


def _profiled(use: WorkloadUse) -> dict[str, Reading]:
    """The profiling counters' values inside a GPU or an instance, 0 to 1."""
    works = use.activity - min(use.activity, use.waits)
    polls = use.activity - works  # by a few warps, on some of the processors
    ratios = {
        "GR_ENGINE_ACTIVE": use.activity,
        "SM_ACTIVE": works * 0.9 + polls * 0.2,
        "SM_OCCUPANCY": works * 0.45 + polls * 0.05,
        "PIPE_TENSOR_ACTIVE": use.tensor,
        "DRAM_ACTIVE": use.dram,
        "PIPE_INT_ACTIVE": works * 0.12 + polls * 0.005,
        "PIPE_FP16_ACTIVE": works * 0.06,
        "PIPE_FP32_ACTIVE": works * 0.2,
        "PIPE_FP64_ACTIVE": 0.0,
    }
    return {_PROF + name: round(ratio, 6) for name, ratio in ratios.items()}
