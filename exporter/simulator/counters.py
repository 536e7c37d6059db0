"""Which families a simulated dcgm-exporter has: by its generation, and by the counters file that it is given.

- default: the file that comes with dcgm-exporter. From 4.8.3 on it types NVLINK_BANDWIDTH_TOTAL a gauge, before that a
  counter (dcgm-exporter pull request 658 says why that was wrong: DCGM makes a rate of it, in MB a second);
- full: the file that this project's daemonset.yaml gives to dcgm-exporter.

The shell version (1.x) has no such file, and one list of its own.
"""

from dataclasses import replace

from exporter.simulator.families import FAMILIES, Family

COUNTERS = ("default", "full")
NVLINK = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
_SHELL, _OLDER = "1", "3"
_NS = 1e-9

# Field, type and help, as the ConfigMap in daemonset.yaml has them. A test holds the two together.
FULL = """\
DCGM_FI_DEV_GPU_UTIL, gauge, Share of time in which a kernel ran (in %).
DCGM_FI_DEV_MEM_COPY_UTIL, gauge, Share of time in which memory was read or written (in %).
DCGM_FI_DEV_ENC_UTIL, gauge, Use of the video encoder (in %).
DCGM_FI_DEV_DEC_UTIL, gauge, Use of the video decoder (in %).
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Share of time in which the graphics or compute engine was active (0 to 1).
DCGM_FI_PROF_SM_ACTIVE, gauge, Share of cycles in which a multiprocessor had a warp (0 to 1).
DCGM_FI_PROF_SM_OCCUPANCY, gauge, Resident warps as a share of the most that there can be (0 to 1).
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, Share of cycles in which the tensor pipe was active (0 to 1).
DCGM_FI_PROF_PIPE_INT_ACTIVE, gauge, Share of cycles in which the integer pipe was active (0 to 1).
DCGM_FI_PROF_PIPE_FP16_ACTIVE, gauge, Share of cycles in which the FP16 pipe was active (0 to 1).
DCGM_FI_PROF_PIPE_FP32_ACTIVE, gauge, Share of cycles in which the FP32 pipe was active (0 to 1).
DCGM_FI_PROF_PIPE_FP64_ACTIVE, gauge, Share of cycles in which the FP64 pipe was active (0 to 1).
DCGM_FI_PROF_DRAM_ACTIVE, gauge, Share of cycles in which the memory interface was active (0 to 1).
DCGM_FI_DEV_FB_TOTAL, gauge, Memory of the GPU (in MiB).
DCGM_FI_DEV_FB_USED, gauge, Memory in use (in MiB).
DCGM_FI_DEV_FB_FREE, gauge, Free memory (in MiB).
DCGM_FI_DEV_FB_RESERVED, gauge, Memory that the driver keeps for itself (in MiB).
DCGM_FI_DEV_SM_CLOCK, gauge, Clock of the multiprocessors (in MHz).
DCGM_FI_DEV_MEM_CLOCK, gauge, Clock of the memory (in MHz).
DCGM_FI_DEV_GPU_TEMP, gauge, Temperature of the GPU (in C).
DCGM_FI_DEV_MEMORY_TEMP, gauge, Temperature of its memory (in C).
DCGM_FI_DEV_POWER_USAGE, gauge, Power drawn (in W).
DCGM_FI_DEV_ENFORCED_POWER_LIMIT, gauge, The power limit in force (in W).
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy since the driver was loaded (in mJ).
DCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, Why the clocks are lowered now (a bit mask).
DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, How often the clocks were lowered since the start.
DCGM_FI_DEV_POWER_VIOLATION, counter, Time of throttling for power (in ns).
DCGM_FI_DEV_THERMAL_VIOLATION, counter, Time of throttling for heat (in ns).
DCGM_FI_DEV_SYNC_BOOST_VIOLATION, counter, Time of throttling for a slower GPU of its group (in ns).
DCGM_FI_DEV_BOARD_LIMIT_VIOLATION, counter, Time of throttling for the board's voltage limit (in ns).
DCGM_FI_DEV_LOW_UTIL_VIOLATION, counter, Time at low clocks for want of work (in ns).
DCGM_FI_DEV_RELIABILITY_VIOLATION, counter, Time of throttling for reliability (in ns).
DCGM_FI_DEV_XID_ERRORS, gauge, The last XID.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since the start.
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, counter, Corrected memory errors since the driver was loaded.
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, counter, Uncorrected memory errors since the driver was loaded.
DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS, counter, Rows of memory remapped for corrected errors.
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS, counter, Rows of memory remapped for uncorrected errors.
DCGM_FI_DEV_ROW_REMAP_PENDING, gauge, Whether a remapping waits for a reset of the GPU.
DCGM_FI_DEV_ROW_REMAP_FAILURE, gauge, Whether a remapping has failed.
DCGM_FI_DEV_PCIE_LINK_GEN, gauge, Generation of the PCIe link.
DCGM_FI_DEV_PCIE_LINK_WIDTH, gauge, Lanes of the PCIe link.
DCGM_FI_DEV_PCIE_REPLAY_COUNTER, counter, PCIe retries.
DCGM_FI_PROF_PCIE_TX_BYTES, gauge, Sent over PCIe (in bytes per second).
DCGM_FI_PROF_PCIE_RX_BYTES, gauge, Received over PCIe (in bytes per second).
DCGM_FI_PROF_NVLINK_TX_BYTES, gauge, Sent over NVLink (in bytes per second).
DCGM_FI_PROF_NVLINK_RX_BYTES, gauge, Received over NVLink (in bytes per second).
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, gauge, Throughput of all NVLink lanes (in MB per second).
DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL, counter, NVLink flow control CRC errors (before Hopper).
DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL, counter, NVLink data CRC errors (before Hopper).
DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL, counter, NVLink replays (before Hopper).
DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL, counter, NVLink recoveries (before Hopper).
DCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, Whether the vGPU has a licence.
"""
# dcgm-exporter counts these itself, since 4.8.3; an older one ends at a name that it does not know
_NEW = ("DCGM_EXP_CLOCK_EVENTS_TOTAL", "DCGM_EXP_XID_ERRORS_TOTAL")
# What the default file does not have under another name in DCGM 4.9, with the factor that makes its unit. The rest keep
# their names as far as is known.
_RENAMED = {
    "DCGM_FI_PROF_SM_ACTIVE": ("DCGM_FI_PROF_SM_UTIL_RATIO", 1.0),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", 1.0),
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": ("DCGM_FI_PROF_INT_UTIL_RATIO", 1.0),
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": ("DCGM_FI_PROF_FP16_UTIL_RATIO", 1.0),
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": ("DCGM_FI_PROF_FP32_UTIL_RATIO", 1.0),
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": ("DCGM_FI_PROF_FP64_UTIL_RATIO", 1.0),
    "DCGM_FI_DEV_FB_TOTAL": ("DCGM_FI_DEV_FB_CAPACITY_BYTES", 1024.0 * 1024.0),
    "DCGM_FI_DEV_POWER_VIOLATION": ("DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", _NS),
    "DCGM_FI_DEV_THERMAL_VIOLATION": ("DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", _NS),
}
_REAL = ("DCGM_FI_PROF_SM_", "DCGM_FI_PROF_PIPE_", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT")
# The shell version writes these besides those of the default file that it has.
_OF_SHELL = tuple(
    Family(
        name=f"DCGM_FI_DEV_{name.upper()}",
        oldest=f"dcgm_{name}",
        help=f"Time of throttling for {reason} (in ns).",
        kind="counter",
    )
    for name, reason in (("power_violation", "power"), ("thermal_violation", "heat"))
)
# Not in either file: how often each XID came in the last minutes. A GPU without one has a 0 without the label `xid`.
XID_COUNT = Family(
    name="DCGM_EXP_XID_ERRORS_COUNT",
    newer="DCGM_EXP_XID_ERRORS_COUNT",
    help="Count of XID Errors within user-specified time window (see xid-count-window-size param).",
)


def families_of(generation: str, counters: str = "default") -> tuple[Family, ...]:
    """The families of a generation (see pages.py) with one of the COUNTERS."""
    if generation == _SHELL:
        return (*FAMILIES, *_OF_SHELL)
    if counters == "full":
        wanted = [_full(line) for line in FULL.splitlines()]
        return tuple(family for family in wanted if generation != _OLDER or family.name not in _NEW)
    if generation == _OLDER:
        return FAMILIES
    return tuple(replace(family, kind="gauge") if family.name == NVLINK else family for family in FAMILIES)


def _full(line: str) -> Family:
    name, kind, text = line.split(", ", 2)
    if name in _DEFAULT:
        return replace(_DEFAULT[name], kind=kind, help=text)
    newer, factor = _RENAMED.get(name, (name, 1.0))
    return Family(name=name, newer=newer, factor=factor, help=text, kind=kind, real=name.startswith(_REAL))


_DEFAULT = {family.name: family for family in FAMILIES}
