"""The meanings of XIDs. dcgm-exporter writes the meaning of the last error beside its number."""

from collections.abc import Mapping
from types import MappingProxyType

UNKNOWN_XID = "Unknown Error"  # dcgm-exporter's own word
# In short, by NVIDIA's list of XIDs, what data centres see.
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
