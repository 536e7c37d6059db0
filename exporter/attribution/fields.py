"""DCGM's fields that add up over the owners of a device: what `--sharing split` divides.

By name, never by TYPE: dcgm-exporter types NVLINK_BANDWIDTH_TOTAL a counter, and it is a rate. A name that is not here
is not divided. Names of DCGM 4.9 stand beside those of before; the last ones are the shell version's (1.x).
"""

from enum import Enum


class Additive(Enum):
    """How a quantity is divided: an amount of this moment, or by what it grew."""

    GAUGE = "gauge"
    COUNTER = "counter"


ADDITIVE = {
    "DCGM_FI_PROF_PCIE_TX_BYTES": Additive.GAUGE,  # bytes/s
    "DCGM_FI_PROF_PCIE_RX_BYTES": Additive.GAUGE,
    "DCGM_FI_PROF_NVLINK_TX_BYTES": Additive.GAUGE,  # bytes/s
    "DCGM_FI_PROF_NVLINK_RX_BYTES": Additive.GAUGE,
    "DCGM_FI_DEV_FB_USED": Additive.GAUGE,  # MiB
    "DCGM_FI_DEV_FB_USED_BYTES": Additive.GAUGE,
    "DCGM_FI_DEV_POWER_USAGE": Additive.GAUGE,  # W
    "DCGM_FI_DEV_BOARD_POWER_WATTS": Additive.GAUGE,
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": Additive.GAUGE,  # MB/s
    "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL": Additive.GAUGE,
    "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND": Additive.GAUGE,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Additive.COUNTER,  # mJ
    "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL": Additive.COUNTER,
    "dcgm_power_usage": Additive.GAUGE,
    "dcgm_fb_used": Additive.GAUGE,
    "dcgm_total_energy_consumption": Additive.COUNTER,
}
