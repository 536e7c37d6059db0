"""The XIDs that data centres see: what each means, what causes it mostly, and what to do.

By NVIDIA's catalogue of XIDs (docs.nvidia.com/deploy/xid-errors, r590) in our own words; where it tells GPUs apart, as
for A100 and later. The names are dcgm-exporter's, which writes that of the last error beside its number.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from exporter.model.health import Verdict

UNKNOWN_XID = "Unknown Error"  # dcgm-exporter's own word
_CONNECT = "connect it"
_WHEN_FREE = "reset the GPU when it is free"
_CONTAINED = "start the program again; reset the GPU when it is free"
_WATCH = "watch it; ask the vendor of the node"
_VENDOR = "ask the vendor of the node"
_NOTHING = "nothing: the GPU is well"
_APP = "mend the program: run it with compute-sanitizer, or cuda-gdb; start it again"
_AGAIN = "start the program again; if it comes back with other programs, ask the vendor of the node"
_RESET = "stop what runs on the GPU and reset it (nvidia-smi --gpu-reset); if it comes back, ask the vendor of the node"
_REBOOT = "drain the node and restart it; if it comes back, ask the vendor of the node"
_OTHERS = "look at the errors before it"
_LINK = (
    "look at nvidia-smi nvlink -e and at the switch; if it is fatal or comes back, reset the GPU, and check the link"
)
_CRASH = "a bug of the program"
_MEMORY = "failing memory of the GPU"
_FIRMWARE = "the GPU's own processor, or its firmware"


class XidMeaning(NamedTuple):
    """An XID in short, its usual cause, and what to do."""

    name: str
    cause: str = ""
    remedy: str = ""


_LOOK_UP = "look it up in NVIDIA's catalogue: https://docs.nvidia.com/deploy/xid-errors"
OTHER_XID = XidMeaning(UNKNOWN_XID, "", _LOOK_UP)
# what to do says how bad it is: nothing is wrong with a GPU whose program is to be mended or started again
_VERDICTS: Mapping[str, Verdict] = MappingProxyType(
    {
        **dict.fromkeys((_RESET, _REBOOT, _CONNECT, _VENDOR), "failing"),
        **dict.fromkeys((_WHEN_FREE, _CONTAINED, _WATCH, _LINK, _LOOK_UP), "degraded"),
    }
)
_FALLEN_OFF = 79
XIDS: Mapping[int, XidMeaning] = MappingProxyType(
    {
        0: XidMeaning("No Error"),
        8: XidMeaning("GPU stopped processing", _CRASH, _AGAIN),
        13: XidMeaning("Graphics Engine Exception", _CRASH, _APP),
        31: XidMeaning("GPU memory page fault", _CRASH, _APP),
        32: XidMeaning("Invalid or corrupted push buffer stream", "a poor PCIe connection, or the driver", _AGAIN),
        38: XidMeaning("Driver firmware error", "the driver", _AGAIN),
        43: XidMeaning("GPU stopped processing", "the program failed, and was ended", _NOTHING),
        45: XidMeaning(
            "Preemptive cleanup, due to previous errors", "the program was ended, or another error", _OTHERS
        ),
        46: XidMeaning("GPU stopped processing", "the GPU hangs", _RESET),
        48: XidMeaning("Double Bit ECC Error", _MEMORY, _RESET),
        54: XidMeaning("Auxiliary power is not connected to the GPU board", "cabling", _CONNECT),
        61: XidMeaning("Internal micro-controller breakpoint/warning", _FIRMWARE, _RESET),
        62: XidMeaning("Internal micro-controller halt", _FIRMWARE, _RESET),
        63: XidMeaning("ECC page retirement or row remapping recording event", _MEMORY, _WHEN_FREE),
        64: XidMeaning("ECC page retirement or row remapper recording failure", _MEMORY, _RESET),
        69: XidMeaning("Graphics Engine class error", _CRASH, _APP),
        74: XidMeaning("NVLINK Error", "a link, or the GPU or switch at its other end", _LINK),
        78: XidMeaning("vGPU Start Error", "driver and vGPU manager do not fit", "bring both to versions that fit"),
        79: XidMeaning("GPU has fallen off the bus", "PCIe connection, power, heat, or the GPU itself", _REBOOT),
        92: XidMeaning("High single-bit ECC error rate", _MEMORY, _WATCH),
        94: XidMeaning("Contained ECC error", _MEMORY, _CONTAINED),
        95: XidMeaning("Uncontained ECC error", _MEMORY, _RESET),
        109: XidMeaning("Context Switch Timeout Error", "the GPU hangs", _RESET),
        110: XidMeaning("Security Fault Error", "failing hardware", _REBOOT),
        119: XidMeaning("GSP RPC Timeout", _FIRMWARE, _RESET),
        120: XidMeaning("GSP Error", _FIRMWARE, _RESET),
        121: XidMeaning("C2C Error", "corrected errors between GPU and CPU", _WHEN_FREE),
        136: XidMeaning("Link Training Failed", "a link, or what is at its other end", _LINK),
        137: XidMeaning("NVLink Privilege Error", "a bug of the program on this GPU or a peer", _APP),
        140: XidMeaning("ECC Unrecovered Error", _MEMORY, _RESET),
        143: XidMeaning("GPU Initialization Error", _FIRMWARE, _RESET),
        **{
            144 + number: XidMeaning(f"NVLINK: {unit} Error", "a link, or what is at its other end", _LINK)
            for number, unit in enumerate(("SAW", "RLW", "TLW", "TREX", "NVLPW_CTRL", "NETIR", "MSE"))
        },
        154: XidMeaning("GPU Recovery Action Changed", "the error before it", "do what its text says"),
        155: XidMeaning("NVLINK: SW Defined Error", "a link went down, perhaps on purpose", _LINK),
        156: XidMeaning("Resource Retirement Event", _MEMORY, _RESET),
        157: XidMeaning("Resource Retirement Failure", _MEMORY, _VENDOR),
        158: XidMeaning("GPU Fatal Timeout", "the GPU hangs", _RESET),
        167: XidMeaning("PCIE_FATAL_TIMEOUT", "PCIe connection", _REBOOT),
        171: XidMeaning("Uncorrectable DRAM error", _MEMORY, _RESET),
        172: XidMeaning("Uncorrectable SRAM error", _MEMORY, _RESET),
    }
)


def verdict_of(code: int, *, is_fatal: bool = False) -> Verdict:
    """What an XID says of its GPU; `is_fatal` where its text says so, as that of NVLink's errors since Blackwell."""
    if code == _FALLEN_OFF:
        return "gone"
    return "failing" if is_fatal else _VERDICTS.get(XIDS.get(code, OTHER_XID).remedy, "ok")
