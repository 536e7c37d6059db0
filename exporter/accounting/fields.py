"""DCGM's fields by the names of their families: the one table of what the exporter knows of them.

- `json`: the field of /container/metrics that holds the value. `times` and `per` turn the family's unit into the
  field's unit, since the names of DCGM 4.9 have other units than the older ones;
- `additive`: whether the value adds up over the owners of a device. `--sharing split` divides these. The name decides,
  never the TYPE: dcgm-exporter types NVLINK_BANDWIDTH_TOTAL a counter, but it is a rate;
- `of_gpu`: whether an additive value is the whole GPU's, which dcgm-exporter repeats on the row of each MIG instance.
  Memory is the instance's own.

A family that is not in the table is copied to each owner, and has no JSON field. The names in lower case are those of
the shell version (1.x), which dcgm-exporter still writes with its 1.x-compatibility-metrics.csv.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class Additive(Enum):
    """How a quantity is divided: a gauge by its present amount, a counter by its increases."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Field:
    """What is known of one family. The JSON value is the sample's value * `times` / `per`; `json` "" is no field."""

    json: str = ""
    times: int = 1
    per: int = 1
    additive: Additive | None = None
    of_gpu: bool = False


_GAUGE, _COUNTER = Additive.GAUGE, Additive.COUNTER
_PER_MIB = 1024 * 1024
_PERCENT = 100
_NS = 1_000_000_000
_PER_MHZ = 1_000_000

_PROF = {
    "SM_ACTIVE": Field("sm_active"),  # 0 to 1, as all ratios
    "SM_UTIL_RATIO": Field("sm_active"),
    "SM_OCCUPANCY": Field("sm_occupancy"),
    "SM_OCCUPANCY_RATIO": Field("sm_occupancy"),
    "PIPE_TENSOR_ACTIVE": Field("tensor_active"),
    "TENSOR_UTIL_RATIO": Field("tensor_active"),
    "DRAM_ACTIVE": Field("dram_active"),
    "DRAM_UTIL_RATIO": Field("dram_active"),
    "PCIE_TX_BYTES": Field("pcie_tx_bytes", additive=_GAUGE, of_gpu=True),  # bytes/s
    "PCIE_RX_BYTES": Field("pcie_rx_bytes", additive=_GAUGE, of_gpu=True),
    "NVLINK_TX_BYTES": Field("nvlink_tx_bytes", additive=_GAUGE, of_gpu=True),  # bytes/s
    "NVLINK_RX_BYTES": Field("nvlink_rx_bytes", additive=_GAUGE, of_gpu=True),
    "GR_ENGINE_ACTIVE": Field("graphics_engine_active"),
    "GR_ENGINE_UTIL_RATIO": Field("graphics_engine_active"),
    "PIPE_INT_ACTIVE": Field("int_pipe_active"),
    "INT_UTIL_RATIO": Field("int_pipe_active"),  # inferred from its neighbours, not seen
    "PIPE_FP16_ACTIVE": Field("fp16_pipe_active"),
    "FP16_UTIL_RATIO": Field("fp16_pipe_active"),  # inferred
    "PIPE_FP32_ACTIVE": Field("fp32_pipe_active"),
    "FP32_UTIL_RATIO": Field("fp32_pipe_active"),
    "PIPE_FP64_ACTIVE": Field("fp64_pipe_active"),
    "FP64_UTIL_RATIO": Field("fp64_pipe_active"),
}
_DEV = {
    "FB_TOTAL": Field("framebuffer_total", additive=_GAUGE),  # MiB
    "FB_CAPACITY_BYTES": Field("framebuffer_total", per=_PER_MIB, additive=_GAUGE),
    "FB_USED": Field("framebuffer_used", additive=_GAUGE),  # MiB
    "FB_USED_BYTES": Field("framebuffer_used", per=_PER_MIB, additive=_GAUGE),
    "FB_FREE": Field("framebuffer_free", additive=_GAUGE),  # MiB
    "FB_FREE_BYTES": Field("framebuffer_free", per=_PER_MIB, additive=_GAUGE),
    "FB_RESERVED": Field(additive=_GAUGE),  # MiB
    "FB_RESERVED_BYTES": Field(additive=_GAUGE),
    "PCIE_LINK_GEN": Field("pcie_link_gen"),
    "PCIE_LINK_WIDTH": Field("pcie_link_width"),
    "GPU_TEMP": Field("temperature"),  # °C
    "GPU_TEMP_CELSIUS": Field("temperature"),
    "MEMORY_TEMP": Field("memory_temperature"),  # °C
    "MEMORY_TEMP_CELSIUS": Field("memory_temperature"),
    "POWER_USAGE": Field("power_usage", additive=_GAUGE, of_gpu=True),  # W
    "BOARD_POWER_WATTS": Field("power_usage", additive=_GAUGE, of_gpu=True),
    "GPU_UTIL": Field("gpu_utilization"),  # percent
    "GPU_UTIL_RATIO": Field("gpu_utilization", times=_PERCENT),
    "CLOCKS_EVENT_REASONS": Field("clocks_event_reasons"),  # a bit mask
    "CLOCK_THROTTLE_REASONS": Field("clocks_event_reasons"),
    "XID_ERRORS": Field("xid_errors"),  # the last XID
    "XID_ERROR": Field("xid_errors"),
    "POWER_VIOLATION": Field("power_violation"),  # ns
    "GPU_POWER_THROTTLE_SECONDS_TOTAL": Field("power_violation", times=_NS),
    "THERMAL_VIOLATION": Field("thermal_violation"),  # ns
    "GPU_THERMAL_THROTTLE_SECONDS_TOTAL": Field("thermal_violation", times=_NS),
    "SM_CLOCK": Field("sm_clock"),  # MHz
    "SM_CLOCK_HERTZ": Field("sm_clock", per=_PER_MHZ),  # inferred
    "MEM_CLOCK": Field("mem_clock"),  # MHz
    "MEM_CLOCK_HERTZ": Field("mem_clock", per=_PER_MHZ),  # inferred
    "NVLINK_BANDWIDTH_TOTAL": Field(additive=_GAUGE, of_gpu=True),  # MB/s
    "NVLINK_THROUGHPUT_TOTAL": Field(additive=_GAUGE, of_gpu=True),
    "NVLINK_THROUGHPUT_BYTES_PER_SECOND": Field(additive=_GAUGE, of_gpu=True),
    "TOTAL_ENERGY_CONSUMPTION": Field(additive=_COUNTER, of_gpu=True),  # mJ
    "GPU_ENERGY_JOULES_TOTAL": Field(additive=_COUNTER, of_gpu=True),
}
_SHELL = {
    "dcgm_sm_clock": Field("sm_clock"),
    "dcgm_memory_clock": Field("mem_clock"),
    "dcgm_gpu_temp": Field("temperature"),
    "dcgm_memory_temp": Field("memory_temperature"),
    "dcgm_power_usage": Field("power_usage", additive=_GAUGE, of_gpu=True),
    "dcgm_gpu_utilization": Field("gpu_utilization"),
    "dcgm_xid_errors": Field("xid_errors"),
    "dcgm_fb_free": Field("framebuffer_free", additive=_GAUGE),
    "dcgm_fb_used": Field("framebuffer_used", additive=_GAUGE),
    "dcgm_power_violation": Field("power_violation"),
    "dcgm_thermal_violation": Field("thermal_violation"),
    "dcgm_nvlink_bandwidth_total": Field(additive=_GAUGE, of_gpu=True),
    "dcgm_total_energy_consumption": Field(additive=_COUNTER, of_gpu=True),
}
FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        **{f"DCGM_FI_PROF_{name}": known for name, known in _PROF.items()},
        **{f"DCGM_FI_DEV_{name}": known for name, known in _DEV.items()},
        **_SHELL,
        # the names of DCGM 4.9 (_RATIO) never had a shell version
        **{f"dcgm_fi_prof_{name.lower()}": known for name, known in _PROF.items() if not name.endswith("_RATIO")},
    }
)
ADDITIVE: Mapping[str, Additive] = MappingProxyType(
    {name: known.additive for name, known in FIELDS.items() if known.additive is not None}
)
OF_GPU = frozenset(name for name, known in FIELDS.items() if known.of_gpu)
ACTIVITY = frozenset(name for name, known in FIELDS.items() if known.json == "graphics_engine_active")
