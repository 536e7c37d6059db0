"""The families of dcgm-exporter that NVML can fill: names, types and units as dcgm-exporter has them until DCGM 4.8.

Those are the names that dashboards and rules ask for. All of dcgm-exporter's default counters are here, and of the
fuller counters file of daemonset.yaml what NVML knows, too. HELP is that file's, and a test holds the two together.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple


class Family(NamedTuple):
    """TYPE and HELP."""

    kind: Literal["gauge", "counter"]
    help: str


XID_ERRORS = "DCGM_FI_DEV_XID_ERRORS"
_GAUGES = {
    "SM_CLOCK": "Clock of the multiprocessors (in MHz).",
    "MEM_CLOCK": "Clock of the memory (in MHz).",
    "GPU_TEMP": "Temperature of the GPU (in C).",
    "MEMORY_TEMP": "Temperature of its memory (in C).",
    "POWER_USAGE": "Power drawn (in W).",
    "ENFORCED_POWER_LIMIT": "The power limit in force (in W).",
    "GPU_UTIL": "Share of time in which a kernel ran (in %).",
    "MEM_COPY_UTIL": "Share of time in which memory was read or written (in %).",
    "ENC_UTIL": "Use of the video encoder (in %).",
    "DEC_UTIL": "Use of the video decoder (in %).",
    "XID_ERRORS": "The last XID.",
    "FB_TOTAL": "Memory of the GPU (in MiB).",
    "FB_USED": "Memory in use (in MiB).",
    "FB_FREE": "Free memory (in MiB).",
    "FB_RESERVED": "Memory that the driver keeps for itself (in MiB).",
    "CLOCKS_EVENT_REASONS": "Why the clocks are lowered now (a bit mask).",
    "PCIE_LINK_GEN": "Generation of the PCIe link.",
    "PCIE_LINK_WIDTH": "Lanes of the PCIe link.",
    "NVLINK_BANDWIDTH_TOTAL": "Throughput of all NVLink lanes (in MB per second).",
    "ROW_REMAP_PENDING": "Whether a remapping waits for a reset of the GPU.",
    "ROW_REMAP_FAILURE": "Whether a remapping has failed.",
    "VGPU_LICENSE_STATUS": "Whether the vGPU has a licence.",
}
_PROFILED = {
    "GR_ENGINE_ACTIVE": "Share of time in which the graphics or compute engine was active (0 to 1).",
    "SM_ACTIVE": "Share of cycles in which a multiprocessor had a warp (0 to 1).",
    "SM_OCCUPANCY": "Resident warps as a share of the most that there can be (0 to 1).",
    "PIPE_TENSOR_ACTIVE": "Share of cycles in which the tensor pipe was active (0 to 1).",
    "PIPE_INT_ACTIVE": "Share of cycles in which the integer pipe was active (0 to 1).",
    "PIPE_FP16_ACTIVE": "Share of cycles in which the FP16 pipe was active (0 to 1).",
    "PIPE_FP32_ACTIVE": "Share of cycles in which the FP32 pipe was active (0 to 1).",
    "PIPE_FP64_ACTIVE": "Share of cycles in which the FP64 pipe was active (0 to 1).",
    "DRAM_ACTIVE": "Share of cycles in which the memory interface was active (0 to 1).",
    "PCIE_TX_BYTES": "Sent over PCIe (in bytes per second).",
    "PCIE_RX_BYTES": "Received over PCIe (in bytes per second).",
    "NVLINK_TX_BYTES": "Sent over NVLink (in bytes per second).",
    "NVLINK_RX_BYTES": "Received over NVLink (in bytes per second).",
}
_COUNTERS = {
    "TOTAL_ENERGY_CONSUMPTION": "Energy since the driver was loaded (in mJ).",
    "PCIE_REPLAY_COUNTER": "PCIe retries.",
    "POWER_VIOLATION": "Time of throttling for power (in ns).",
    "THERMAL_VIOLATION": "Time of throttling for heat (in ns).",
    "SYNC_BOOST_VIOLATION": "Time of throttling for a slower GPU of its group (in ns).",
    "BOARD_LIMIT_VIOLATION": "Time of throttling for the board's voltage limit (in ns).",
    "LOW_UTIL_VIOLATION": "Time at low clocks for want of work (in ns).",
    "RELIABILITY_VIOLATION": "Time of throttling for reliability (in ns).",
    "ECC_SBE_VOL_TOTAL": "Corrected memory errors since the driver was loaded.",
    "ECC_DBE_VOL_TOTAL": "Uncorrected memory errors since the driver was loaded.",
    "CORRECTABLE_REMAPPED_ROWS": "Rows of memory remapped for corrected errors.",
    "UNCORRECTABLE_REMAPPED_ROWS": "Rows of memory remapped for uncorrected errors.",
    "NVLINK_CRC_FLIT_ERROR_TOTAL": "NVLink flow control CRC errors (before Hopper).",
    "NVLINK_CRC_DATA_ERROR_TOTAL": "NVLink data CRC errors (before Hopper).",
    "NVLINK_REPLAY_ERROR_TOTAL": "NVLink replays (before Hopper).",
    "NVLINK_RECOVERY_ERROR_TOTAL": "NVLink recoveries (before Hopper).",
}
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {f"DCGM_FI_DEV_{name}": Family("gauge", text) for name, text in _GAUGES.items()}
    | {f"DCGM_FI_PROF_{name}": Family("gauge", text) for name, text in _PROFILED.items()}
    | {f"DCGM_FI_DEV_{name}": Family("counter", text) for name, text in _COUNTERS.items()}
)
# dcgm-exporter writes the error's meaning beside its number. In short, by NVIDIA's list of XIDs, what data centres see.
XIDS: Mapping[int, str] = MappingProxyType(
    {
        0: "No Error",
        8: "GPU stopped processing",
        13: "Graphics Engine Exception",
        31: "GPU memory page fault",
        32: "Invalid or corrupted push buffer stream",
        38: "Driver firmware error",
        43: "GPU stopped processing",
        45: "Preemptive cleanup, due to previous errors",
        48: "Double Bit ECC Error",
        61: "Internal micro-controller breakpoint/warning",
        62: "Internal micro-controller halt",
        63: "ECC page retirement or row remapping recording event",
        64: "ECC page retirement or row remapper recording failure",
        69: "Graphics Engine class error",
        74: "NVLINK Error",
        79: "GPU has fallen off the bus",
        92: "High single-bit ECC error rate",
        94: "Contained ECC error",
        95: "Uncontained ECC error",
        119: "GSP RPC Timeout",
        120: "GSP Error",
    }
)
