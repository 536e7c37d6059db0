"""What the simulated dcgm-exporter measures: the 25 families of the default counter file, for each generation."""

from collections.abc import Callable
from dataclasses import dataclass, field

Value = Callable[[float, float], float]


def _always(number: float) -> Value:
    return lambda _busy, _seconds: number


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One measurement.

    `value` is a function of how busy the device is (0 to 1) and of the seconds since the start: it makes pages that are
    always the same. The values of a simulated node are its readings instead.

    `newer` is the name in DCGM 4.9, where the value is multiplied by `factor` since the unit is another. `oldest` is
    the name in the shell version (1.x), "" where that has no such family.
    """

    name: str
    help: str
    value: Value = field(default=_always(0))
    newer: str = ""
    factor: float = 1.0
    oldest: str = ""
    kind: str = "gauge"
    real: bool = False  # printed with decimals
    per_instance: bool = True  # also measured for MIG instances


def _between(low: float, high: float) -> Value:
    return lambda busy, _: low + (high - low) * busy


def _grows(per_second: float) -> Value:
    return lambda busy, seconds: seconds * per_second * (0.2 + busy)


_MIB = 1024.0 * 1024.0
_DEV, _PROF = "DCGM_FI_DEV_", "DCGM_FI_PROF_"


FAMILIES = (
    Family(
        name=_DEV + "SM_CLOCK",
        newer=_DEV + "SM_CLOCK_HERTZ",
        factor=1e6,
        oldest="dcgm_sm_clock",
        help="Clock of the streaming multiprocessors.",
        value=_between(345, 1980),
    ),
    Family(
        name=_DEV + "MEM_CLOCK",
        newer=_DEV + "MEM_CLOCK_HERTZ",
        factor=1e6,
        oldest="dcgm_memory_clock",
        help="Clock of the memory.",
        value=_always(2619),
    ),
    Family(
        name=_DEV + "MEMORY_TEMP",
        newer=_DEV + "MEMORY_TEMP_CELSIUS",
        oldest="dcgm_memory_temp",
        help="Temperature of the memory.",
        value=_between(38, 92),
    ),
    Family(
        name=_DEV + "GPU_TEMP",
        newer=_DEV + "GPU_TEMP_CELSIUS",
        oldest="dcgm_gpu_temp",
        help="Temperature of the GPU.",
        value=_between(30, 78),
    ),
    Family(
        name=_DEV + "POWER_USAGE",
        newer=_DEV + "BOARD_POWER_WATTS",
        oldest="dcgm_power_usage",
        help="Power drawn (in W).",
        value=_between(70, 690),
        real=True,
    ),
    Family(
        name=_DEV + "TOTAL_ENERGY_CONSUMPTION",
        newer=_DEV + "GPU_ENERGY_JOULES_TOTAL",
        factor=0.001,
        oldest="dcgm_total_energy_consumption",
        help="Energy since boot.",
        value=_grows(400_000),
        kind="counter",
    ),
    Family(
        name=_DEV + "PCIE_REPLAY_COUNTER",
        newer=_DEV + "PCIE_REPLAY_TOTAL",
        help="PCIe retries.",
        value=_always(0),
        kind="counter",
    ),
    Family(
        name=_DEV + "GPU_UTIL",
        newer=_DEV + "GPU_UTIL_RATIO",
        factor=0.01,
        oldest="dcgm_gpu_utilization",
        help="Utilization of the GPU.",
        value=_between(0, 100),
        per_instance=False,
    ),
    Family(
        name=_DEV + "MEM_COPY_UTIL",
        newer=_DEV + "MEMORY_UTIL_RATIO",
        factor=0.01,
        oldest="dcgm_mem_copy_utilization",
        help="Utilization of the memory.",
        value=_between(0, 70),
        per_instance=False,
    ),
    Family(
        name=_DEV + "ENC_UTIL",
        newer=_DEV + "ENC_UTIL_RATIO",
        factor=0.01,
        help="Utilization of the encoder.",
        value=_always(0),
        per_instance=False,
    ),
    Family(
        name=_DEV + "DEC_UTIL",
        newer=_DEV + "DEC_UTIL_RATIO",
        factor=0.01,
        help="Utilization of the decoder.",
        value=_always(0),
        per_instance=False,
    ),
    Family(
        name=_DEV + "XID_ERRORS",
        newer=_DEV + "XID_ERROR",
        oldest="dcgm_xid_errors",
        help="The last XID error.",
        value=_always(0),
    ),
    Family(
        name=_DEV + "FB_FREE",
        newer=_DEV + "FB_FREE_BYTES",
        factor=_MIB,
        oldest="dcgm_fb_free",
        help="Framebuffer memory free.",
        value=_between(81_000, 9_000),
    ),
    Family(
        name=_DEV + "FB_USED",
        newer=_DEV + "FB_USED_BYTES",
        factor=_MIB,
        oldest="dcgm_fb_used",
        help="Framebuffer memory used.",
        value=_between(0, 72_000),
    ),
    Family(
        name=_DEV + "FB_RESERVED",
        newer=_DEV + "FB_RESERVED_BYTES",
        factor=_MIB,
        help="Framebuffer memory reserved.",
        value=_always(559),
    ),
    Family(
        name=_DEV + "NVLINK_BANDWIDTH_TOTAL",
        newer=_DEV + "NVLINK_THROUGHPUT_TOTAL",
        help="Bandwidth over all NVLink lanes.",
        value=_grows(120),
        kind="counter",
    ),
    Family(
        name=_DEV + "VGPU_LICENSE_STATUS",
        newer=_DEV + "VGPU_LICENSE_STATUS",
        help="License status of the vGPU.",
        value=_always(0),
    ),
    Family(
        name=_DEV + "UNCORRECTABLE_REMAPPED_ROWS",
        newer=_DEV + "ROW_REMAP_UNCORRECTABLE_TOTAL",
        help="Rows remapped for uncorrectable errors.",
        value=_always(0),
        kind="counter",
    ),
    Family(
        name=_DEV + "CORRECTABLE_REMAPPED_ROWS",
        newer=_DEV + "ROW_REMAP_CORRECTABLE_TOTAL",
        help="Rows remapped for correctable errors.",
        value=_always(0),
        kind="counter",
    ),
    Family(
        name=_DEV + "ROW_REMAP_FAILURE",
        newer=_DEV + "ROW_REMAP_FAILED",
        help="Whether remapping a row failed.",
        value=_always(0),
    ),
    Family(
        name=_PROF + "GR_ENGINE_ACTIVE",
        newer=_PROF + "GR_ENGINE_UTIL_RATIO",
        help="Share of time the graphics engine was active.",
        value=_between(0, 1),
        real=True,
    ),
    Family(
        name=_PROF + "PIPE_TENSOR_ACTIVE",
        newer=_PROF + "TENSOR_UTIL_RATIO",
        help="Share of cycles the tensor pipe was active.",
        value=_between(0, 0.7),
        real=True,
    ),
    Family(
        name=_PROF + "DRAM_ACTIVE",
        newer=_PROF + "DRAM_UTIL_RATIO",
        help="Share of cycles the memory interface was active.",
        value=_between(0, 0.8),
        real=True,
    ),
    Family(
        name=_PROF + "PCIE_TX_BYTES",
        newer=_PROF + "PCIE_TX_BYTES",
        help="Bytes sent over PCIe a second.",
        value=_between(200_000, 4_300_000_000),
    ),
    Family(
        name=_PROF + "PCIE_RX_BYTES",
        newer=_PROF + "PCIE_RX_BYTES",
        help="Bytes received over PCIe a second.",
        value=_between(200_000, 2_600_000_000),
    ),
)
# A family of the shell version alone.
LOW_UTIL_VIOLATION = Family(
    name=_DEV + "LOW_UTIL_VIOLATION",
    oldest="dcgm_low_util_violation",
    help="Time throttled for low utilization.",
    value=_grows(3),
    kind="counter",
)


def more_families(count: int) -> tuple[Family, ...]:
    """`count` families: the default ones and, beside them, profiling families, as a long counter file asks for."""
    extra = tuple(
        Family(
            name=f"{_PROF}NVLINK_L{number // 2}_{'RX' if number % 2 else 'TX'}_BYTES",
            newer=f"{_PROF}NVLINK_L{number // 2}_{'RX' if number % 2 else 'TX'}_BYTES",
            help="Bytes over one NVLink lane a second.",
            value=_between(0, 20_000_000 + number),
        )
        for number in range(count - len(FAMILIES))
    )
    return (*FAMILIES, *extra)[:count]
