"""The fields that dcgm-exporter exports where a GPUExporter names none: the list of daemonset.yaml. A table of data.

Tests hold it to deploy/kustomize/sidecar/counters.csv. It goes with the version of dcgm-exporter in pods.py, which ends
at a field that it does not know.
"""

# field, type, help
COUNTERS = """\
# how busy: of the GPU as a whole (not on MIG instances)
DCGM_FI_DEV_GPU_UTIL, gauge, Share of time in which a kernel ran (in %).
DCGM_FI_DEV_MEM_COPY_UTIL, gauge, Share of time in which memory was read or written (in %).
DCGM_FI_DEV_ENC_UTIL, gauge, Use of the video encoder (in %).
DCGM_FI_DEV_DEC_UTIL, gauge, Use of the video decoder (in %).
# how busy: by the profiling counters (data centre GPUs since Volta; of a MIG instance, too)
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Share of time in which the graphics or compute engine was active (0 to 1).
DCGM_FI_PROF_SM_ACTIVE, gauge, Share of cycles in which a multiprocessor had a warp (0 to 1).
DCGM_FI_PROF_SM_OCCUPANCY, gauge, Resident warps as a share of the most that there can be (0 to 1).
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, Share of cycles in which the tensor pipe was active (0 to 1).
DCGM_FI_PROF_PIPE_INT_ACTIVE, gauge, Share of cycles in which the integer pipe was active (0 to 1).
DCGM_FI_PROF_PIPE_FP16_ACTIVE, gauge, Share of cycles in which the FP16 pipe was active (0 to 1).
DCGM_FI_PROF_PIPE_FP32_ACTIVE, gauge, Share of cycles in which the FP32 pipe was active (0 to 1).
DCGM_FI_PROF_PIPE_FP64_ACTIVE, gauge, Share of cycles in which the FP64 pipe was active (0 to 1).
DCGM_FI_PROF_DRAM_ACTIVE, gauge, Share of cycles in which the memory interface was active (0 to 1).
# memory
DCGM_FI_DEV_FB_TOTAL, gauge, Memory of the GPU (in MiB).
DCGM_FI_DEV_FB_USED, gauge, Memory in use (in MiB).
DCGM_FI_DEV_FB_FREE, gauge, Free memory (in MiB).
DCGM_FI_DEV_FB_RESERVED, gauge, Memory that the driver keeps for itself (in MiB).
# clocks, temperatures, power
DCGM_FI_DEV_SM_CLOCK, gauge, Clock of the multiprocessors (in MHz).
DCGM_FI_DEV_MEM_CLOCK, gauge, Clock of the memory (in MHz).
DCGM_FI_DEV_GPU_TEMP, gauge, Temperature of the GPU (in C).
DCGM_FI_DEV_MEMORY_TEMP, gauge, Temperature of its memory (in C).
DCGM_FI_DEV_POWER_USAGE, gauge, Power drawn (in W).
DCGM_FI_DEV_ENFORCED_POWER_LIMIT, gauge, The power limit in force (in W).
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy since the driver was loaded (in mJ).
# throttling
DCGM_FI_DEV_CLOCKS_EVENT_REASONS, gauge, Why the clocks are lowered now (a bit mask).
DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, How often the clocks were lowered since the start.
DCGM_FI_DEV_POWER_VIOLATION, counter, Time of throttling for power (in ns).
DCGM_FI_DEV_THERMAL_VIOLATION, counter, Time of throttling for heat (in ns).
DCGM_FI_DEV_SYNC_BOOST_VIOLATION, counter, Time of throttling for a slower GPU of its group (in ns).
DCGM_FI_DEV_BOARD_LIMIT_VIOLATION, counter, Time of throttling for the board's voltage limit (in ns).
DCGM_FI_DEV_LOW_UTIL_VIOLATION, counter, Time at low clocks for want of work (in ns).
DCGM_FI_DEV_RELIABILITY_VIOLATION, counter, Time of throttling for reliability (in ns).
# errors
DCGM_FI_DEV_XID_ERRORS, gauge, The last XID.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since the start.
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, counter, Corrected memory errors since the driver was loaded.
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, counter, Uncorrected memory errors since the driver was loaded.
DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS, counter, Rows of memory remapped for corrected errors.
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS, counter, Rows of memory remapped for uncorrected errors.
DCGM_FI_DEV_ROW_REMAP_PENDING, gauge, Whether a remapping waits for a reset of the GPU.
DCGM_FI_DEV_ROW_REMAP_FAILURE, gauge, Whether a remapping has failed.
# PCIe and NVLink
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
# of the driver
DCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, Whether the vGPU has a licence.
DCGM_FI_DRIVER_VERSION, label, Version of the driver.
"""


def _rows() -> dict[str, str]:
    lines = (line for line in COUNTERS.splitlines() if line and not line.startswith("#"))
    return {line.partition(",")[0]: line for line in lines}


# the line of each field, by its name
ROWS = _rows()


def counters_csv(fields: tuple[str, ...] | None) -> str:
    """The file that dcgm-exporter reads. A field that COUNTERS does not have becomes a gauge, with its name as help."""
    if fields is None:
        return COUNTERS
    return "".join(f"{ROWS.get(name) or f'{name}, gauge, {name}.'}\n" for name in fields)
