"""What is known of each field of DCGM: one row a field, in the order of the counters file; all else is made of it.

The names up to DCGM 4.8 are those that dashboards and rules ask for. DCGM 4.9 has others, mostly with other units. The
names in lower case are those of the shell version (1.x); dcgm-exporter writes them still with its
1.x-compatibility-metrics.csv, which has names of its own besides.
"""

from itertools import chain

from exporter.dcgm.row import (
    EVENTS,
    FIELD_VALUES,
    GPM_METRICS,
    LICENCES,
    MEMORY_INFO,
    Additive,
    DcgmField,
    Kind,
    NvmlCall,
    Unit,
)

_BUSY_AT_ALL = ("hw.gpu.utilization", "hw.gpu.task", "general")


def _ratio(name: str, metric: int, text: str, json: tuple[str, int], newer: str) -> DcgmField:
    accounts, otel = (("activity", 6), _BUSY_AT_ALL) if name == "GR_ENGINE_ACTIVE" else (None, None)
    nvml = NvmlCall(GPM_METRICS, (metric,))
    new = (f"PROF_{newer}", Unit.RATIO)
    text = f"Share of {text} (0 to 1)."
    return DcgmField(f"PROF_{name}", text, Unit.RATIO, new, nvml, json, accounts=accounts, otel=otel)


def _traffic(name: str, metric: int, text: str, json: tuple[str, int]) -> DcgmField:
    nvml = NvmlCall(GPM_METRICS, (metric,))
    text = f"{text} (in bytes per second)."
    otel = {"PCIE_TX_BYTES": "transmit", "PCIE_RX_BYTES": "receive"}.get(name)
    return DcgmField(
        f"PROF_{name}",
        text,
        Unit.BYTES_PER_SECOND,
        None,
        nvml,
        json,
        additive=Additive.GAUGE,
        of_gpu=True,
        otel=("hw.gpu.io", "network.io.direction", otel) if otel else None,
    )


def _memory(
    name: str, place: int, text: str, newer: str, json: tuple[str, int] | None = None, oldest: str = ""
) -> DcgmField:
    nvml = NvmlCall(MEMORY_INFO, take=place)
    new = (f"DEV_FB_{newer}_BYTES", Unit.BYTES)
    otel = {"TOTAL": ("hw.gpu.memory.limit", "", ""), "USED": ("hw.gpu.memory.usage", "", "")}.get(name)
    return DcgmField(
        f"DEV_FB_{name}",
        f"{text} (in MiB).",
        Unit.MIB,
        new,
        nvml,
        json,
        oldest=oldest,
        additive=Additive.GAUGE,
        otel=otel,
    )


def _violation(
    name: str, policy: int, text: str, newer: tuple[str, Unit] | None = None, json: tuple[str, int] | None = None
) -> DcgmField:
    """`policy` is a number of nvmlPerfPolicyType_t."""
    return DcgmField(
        f"DEV_{name}_VIOLATION",
        f"{text} (in ns).",
        Unit.NANOSECONDS,
        newer,
        NvmlCall("nvmlDeviceGetViolationStatus", (policy,), take=1),
        json,
        "counter",
        oldest=f"dcgm_{name.lower()}_violation",
        accounts=("violations", 0),
    )


def _errors(
    name: str,
    text: str,
    nvml: NvmlCall,
    newer: str = "",
    kind: Kind = "counter",
    otel: tuple[str, str, str] | None = None,
) -> DcgmField:
    new = (f"DEV_{newer}", Unit.NUMBER) if newer else None
    return DcgmField(f"DEV_{name}", text, Unit.NUMBER, new, nvml, None, kind, otel=otel)


_BUSY = (
    DcgmField(
        "DEV_GPU_UTIL",
        "Share of time in which a kernel ran (in %).",
        Unit.PERCENT,
        ("DEV_GPU_UTIL_RATIO", Unit.RATIO),
        NvmlCall("nvmlDeviceGetUtilizationRates", take=0),
        ("gpu_utilization", 18),
        oldest="dcgm_gpu_utilization",
        accounts=("utilization", 4),
        otel=_BUSY_AT_ALL,
    ),
    DcgmField(
        "DEV_MEM_COPY_UTIL",
        "Share of time in which memory was read or written (in %).",
        Unit.PERCENT,
        ("DEV_MEMORY_UTIL_RATIO", Unit.RATIO),
        NvmlCall("nvmlDeviceGetUtilizationRates", take=1),
        oldest="dcgm_mem_copy_utilization",
    ),
    DcgmField(
        "DEV_ENC_UTIL",
        "Use of the video encoder (in %).",
        Unit.PERCENT,
        ("DEV_ENC_UTIL_RATIO", Unit.RATIO),
        NvmlCall("nvmlDeviceGetEncoderUtilization", take=0),
        otel=("hw.gpu.utilization", "hw.gpu.task", "encoder"),
    ),
    DcgmField(
        "DEV_DEC_UTIL",
        "Use of the video decoder (in %).",
        Unit.PERCENT,
        ("DEV_DEC_UTIL_RATIO", Unit.RATIO),
        NvmlCall("nvmlDeviceGetDecoderUtilization", take=0),
        otel=("hw.gpu.utilization", "hw.gpu.task", "decoder"),
    ),
)
_GR_ENGINE = "time in which the graphics or compute engine was active"
_PROFILED = (
    _ratio("GR_ENGINE_ACTIVE", 1, _GR_ENGINE, ("graphics_engine_active", 9), "GR_ENGINE_UTIL_RATIO"),
    _ratio("SM_ACTIVE", 2, "cycles in which a multiprocessor had a warp", ("sm_active", 1), "SM_UTIL_RATIO"),
    DcgmField(
        "PROF_SM_OCCUPANCY",
        "Resident warps as a share of the most that there can be (0 to 1).",
        Unit.RATIO,
        ("PROF_SM_OCCUPANCY_RATIO", Unit.RATIO),
        NvmlCall(GPM_METRICS, (3,)),
        ("sm_occupancy", 2),
    ),
    _ratio(
        "PIPE_TENSOR_ACTIVE", 5, "cycles in which the tensor pipe was active", ("tensor_active", 3), "TENSOR_UTIL_RATIO"
    ),
    _ratio(
        "PIPE_INT_ACTIVE", 4, "cycles in which the integer pipe was active", ("int_pipe_active", 19), "INT_UTIL_RATIO"
    ),
    _ratio(
        "PIPE_FP16_ACTIVE", 13, "cycles in which the FP16 pipe was active", ("fp16_pipe_active", 20), "FP16_UTIL_RATIO"
    ),
    _ratio(
        "PIPE_FP32_ACTIVE", 12, "cycles in which the FP32 pipe was active", ("fp32_pipe_active", 21), "FP32_UTIL_RATIO"
    ),
    _ratio(
        "PIPE_FP64_ACTIVE", 11, "cycles in which the FP64 pipe was active", ("fp64_pipe_active", 22), "FP64_UTIL_RATIO"
    ),
    _ratio("DRAM_ACTIVE", 10, "cycles in which the memory interface was active", ("dram_active", 4), "DRAM_UTIL_RATIO"),
)
_MEMORY = (
    _memory("TOTAL", 0, "Memory of the GPU", "CAPACITY", ("framebuffer_total", 10)),
    _memory("USED", 1, "Memory in use", "USED", ("framebuffer_used", 11), "dcgm_fb_used"),
    _memory("FREE", 2, "Free memory", "FREE", ("framebuffer_free", 12), "dcgm_fb_free"),
    _memory("RESERVED", 3, "Memory that the driver keeps for itself", "RESERVED"),
)
_BOARD = (
    DcgmField(
        "DEV_SM_CLOCK",
        "Clock of the multiprocessors (in MHz).",
        Unit.MEGAHERTZ,
        ("DEV_SM_CLOCK_HERTZ", Unit.HERTZ),
        NvmlCall("nvmlDeviceGetClockInfo", (1,)),  # nvmlClockType_t
        ("sm_clock", 27),
        oldest="dcgm_sm_clock",
    ),
    DcgmField(
        "DEV_MEM_CLOCK",
        "Clock of the memory (in MHz).",
        Unit.MEGAHERTZ,
        ("DEV_MEMORY_CLOCK_HERTZ", Unit.HERTZ),
        NvmlCall("nvmlDeviceGetClockInfo", (2,)),
        ("mem_clock", 28),
        oldest="dcgm_memory_clock",
    ),
    DcgmField(
        "DEV_GPU_TEMP",
        "Temperature of the GPU (in C).",
        Unit.CELSIUS,
        ("DEV_GPU_TEMP_CELSIUS", Unit.CELSIUS),
        NvmlCall("nvmlDeviceGetTemperatureV", (0,), older="nvmlDeviceGetTemperature"),  # nvmlTemperatureSensors_t
        ("temperature", 15),
        oldest="dcgm_gpu_temp",
        otel=("hw.temperature", "hw.sensor_location", "gpu"),
    ),
    DcgmField(
        "DEV_MEMORY_TEMP",
        "Temperature of its memory (in C).",
        Unit.CELSIUS,
        ("DEV_MEMORY_TEMP_CELSIUS", Unit.CELSIUS),
        NvmlCall(FIELD_VALUES, (82,)),
        ("memory_temperature", 16),
        oldest="dcgm_memory_temp",
        otel=("hw.temperature", "hw.sensor_location", "memory"),
    ),
    DcgmField(
        "DEV_POWER_USAGE",
        "Power drawn (in W).",
        Unit.WATTS,
        ("DEV_BOARD_POWER_WATTS", Unit.WATTS),
        NvmlCall("nvmlDeviceGetPowerUsage"),
        ("power_usage", 17),
        oldest="dcgm_power_usage",
        additive=Additive.GAUGE,
        of_gpu=True,
        accounts=("power", 6),
        otel=("hw.power", "", ""),
    ),
    DcgmField(
        "DEV_POWER_USAGE_INSTANT",
        "Power drawn at this moment (in W).",
        Unit.WATTS,
        ("DEV_BOARD_POWER_RAW_WATTS", Unit.WATTS),
        additive=Additive.GAUGE,
        of_gpu=True,
        is_in_file=False,
    ),
    DcgmField(
        "DEV_ENFORCED_POWER_LIMIT",
        "The power limit in force (in W).",
        Unit.WATTS,
        ("DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", Unit.WATTS),
        nvml=NvmlCall("nvmlDeviceGetEnforcedPowerLimit"),
    ),
    DcgmField(
        "DEV_TOTAL_ENERGY_CONSUMPTION",
        "Energy since the driver was loaded (in mJ).",
        Unit.MILLIJOULES,
        ("DEV_GPU_ENERGY_JOULES_TOTAL", Unit.JOULES),
        NvmlCall("nvmlDeviceGetTotalEnergyConsumption"),
        None,
        "counter",
        oldest="dcgm_total_energy_consumption",
        additive=Additive.COUNTER,
        of_gpu=True,
        accounts=("energy", 3),
        otel=("hw.energy", "", ""),
    ),
)
_THROTTLING = (
    DcgmField(
        "DEV_CLOCKS_EVENT_REASONS",
        "Why the clocks are lowered now (a bit mask).",
        nvml=NvmlCall("nvmlDeviceGetCurrentClocksEventReasons", older="nvmlDeviceGetCurrentClocksThrottleReasons"),
        json=("clocks_event_reasons", 23),
        also=("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",),
        accounts=("reasons", 0),
    ),
    DcgmField("EXP_CLOCK_EVENTS_TOTAL", "How often the clocks were lowered since the start.", kind="counter"),
    _violation(
        "POWER",
        0,
        "Time of throttling for power",
        ("DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", Unit.SECONDS),
        ("power_violation", 25),
    ),
    _violation(
        "THERMAL",
        1,
        "Time of throttling for heat",
        ("DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", Unit.SECONDS),
        ("thermal_violation", 26),
    ),
    _violation("SYNC_BOOST", 2, "Time of throttling for a slower GPU of its group"),
    _violation("BOARD_LIMIT", 3, "Time of throttling for the board's voltage limit"),
    _violation("LOW_UTIL", 4, "Time at low clocks for want of work"),
    _violation("RELIABILITY", 5, "Time of throttling for reliability"),
)
_ECC, _ROWS = "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetRemappedRows"
_ERRORS = (
    DcgmField(
        "DEV_XID_ERRORS",
        "The last XID.",
        Unit.NUMBER,
        ("DEV_XID_ERROR", Unit.NUMBER),
        NvmlCall(EVENTS),
        ("xid_errors", 24),
        oldest="dcgm_xid_errors",
        accounts=("xids", 0),
    ),
    DcgmField("EXP_XID_ERRORS_TOTAL", "XIDs since the start.", kind="counter", accounts=("xid_totals", 0)),
    DcgmField(
        "EXP_XID_ERRORS_COUNT",
        "Count of XID Errors within user-specified time window (see xid-count-window-size param).",
        accounts=("xid_counts", 0),
        is_in_file=False,
    ),
    # the arguments are of nvmlMemoryErrorType_t and nvmlEccCounterType_t
    _errors(
        "ECC_SBE_VOL_TOTAL",
        "Corrected memory errors since the driver was loaded.",
        NvmlCall(_ECC, (0, 0)),
        otel=("hw.errors", "error.type", "corrected"),
    ),
    _errors(
        "ECC_DBE_VOL_TOTAL",
        "Uncorrected memory errors since the driver was loaded.",
        NvmlCall(_ECC, (1, 0)),
        otel=("hw.errors", "error.type", "uncorrected"),
    ),
    _errors(
        "CORRECTABLE_REMAPPED_ROWS",
        "Rows of memory remapped for corrected errors.",
        NvmlCall(_ROWS, take=0),
        "ROW_REMAP_CORRECTABLE_TOTAL",
    ),
    _errors(
        "UNCORRECTABLE_REMAPPED_ROWS",
        "Rows of memory remapped for uncorrected errors.",
        NvmlCall(_ROWS, take=1),
        "ROW_REMAP_UNCORRECTABLE_TOTAL",
    ),
    _errors(
        "ROW_REMAP_PENDING",
        "Whether a remapping waits for a reset of the GPU.",
        NvmlCall(_ROWS, take=2),
        kind="gauge",
        otel=("hw.status", "hw.state", "degraded"),
    ),
    _errors(
        "ROW_REMAP_FAILURE",
        "Whether a remapping has failed.",
        NvmlCall(_ROWS, take=3),
        "ROW_REMAP_FAILED",
        "gauge",
        otel=("hw.status", "hw.state", "predicted_failure"),
    ),
    DcgmField(
        "DEV_RETIRED_PENDING",
        "Whether a page of memory waits for a reset of the GPU to be retired (before Ampere).",
        newer=("DEV_PAGE_RETIRED_PENDING", Unit.NUMBER),
        nvml=NvmlCall(FIELD_VALUES, (31,)),
        is_in_file=False,
        otel=("hw.status", "hw.state", "degraded"),
    ),
)
_LINKS = (
    DcgmField(
        "DEV_PCIE_LINK_GEN",
        "Generation of the PCIe link.",
        nvml=NvmlCall("nvmlDeviceGetCurrPcieLinkGeneration"),
        json=("pcie_link_gen", 13),
    ),
    DcgmField(
        "DEV_PCIE_LINK_WIDTH",
        "Lanes of the PCIe link.",
        nvml=NvmlCall("nvmlDeviceGetCurrPcieLinkWidth"),
        json=("pcie_link_width", 14),
    ),
    _errors("PCIE_REPLAY_COUNTER", "PCIe retries.", NvmlCall("nvmlDeviceGetPcieReplayCounter"), "PCIE_REPLAY_TOTAL"),
    _traffic("PCIE_TX_BYTES", 20, "Sent over PCIe", ("pcie_tx_bytes", 5)),
    _traffic("PCIE_RX_BYTES", 21, "Received over PCIe", ("pcie_rx_bytes", 6)),
    _traffic("NVLINK_TX_BYTES", 61, "Sent over NVLink", ("nvlink_tx_bytes", 7)),
    _traffic("NVLINK_RX_BYTES", 60, "Received over NVLink", ("nvlink_rx_bytes", 8)),
    DcgmField(
        "DEV_NVLINK_BANDWIDTH_TOTAL",
        "Throughput of all NVLink lanes (in MB per second).",
        Unit.MEGABYTES_PER_SECOND,
        ("DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", Unit.BYTES_PER_SECOND),
        NvmlCall(FIELD_VALUES, (138, 139)),  # what was sent and received over all links, in KiB
        also=("DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL", "dcgm_nvlink_bandwidth_total"),
        additive=Additive.GAUGE,
        of_gpu=True,
    ),
    *(
        _errors(f"NVLINK_{name}_ERROR_TOTAL", f"NVLink {text} (before Hopper).", NvmlCall(FIELD_VALUES, (number,)))
        for name, number, text in (
            ("CRC_FLIT", 38, "flow control CRC errors"),
            ("CRC_DATA", 45, "data CRC errors"),
            ("REPLAY", 52, "replays"),
            ("RECOVERY", 59, "recoveries"),
        )
    ),
)
_DRIVER = (
    DcgmField("DEV_VGPU_LICENSE_STATUS", "Whether the vGPU has a licence.", nvml=NvmlCall(LICENCES)),
    DcgmField("DRIVER_VERSION", "Version of the driver.", kind="label"),
)
GROUPS = (
    ("how busy: of the GPU as a whole (not on MIG instances)", _BUSY),
    ("how busy: by the profiling counters (data centre GPUs since Volta; of a MIG instance, too)", _PROFILED),
    ("memory", _MEMORY),
    ("clocks, temperatures, power", _BOARD),
    ("throttling", _THROTTLING),
    ("errors", _ERRORS),
    ("PCIe and NVLink", _LINKS),
    ("of the driver", _DRIVER),
)
TABLE = tuple(chain.from_iterable(rows for _, rows in GROUPS))
