"""How calls of NVML fail (nvmlReturn_t of nvml.h), and what there is to do about it."""

from typing import Literal

from exporter.errors import SourceError, Unavailable

SUCCESS, UNINITIALIZED, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 0, 1, 3, 4, 6
DRIVER_NOT_LOADED, TIMEOUT, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND = 9, 10, 12, 13
GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH, NO_DATA = 15, 16, 18, 21
ARGUMENT_VERSION_MISMATCH, DEPRECATED, GPU_NOT_FOUND, UNKNOWN = 25, 26, 28, 999
# not of nvml.h: the bindings could not read the answer
NO_TEXT = -1

# The library has to be loaded anew: the driver went, came back, or is another one.
OF_LIBRARY = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH})
# Every further call about this GPU would fail, too, and some take 10 s to do so.
OF_GPU = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
# This library, this driver or this GPU does not have it: nothing is wrong.
LACKS = frozenset({NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND, NO_DATA, ARGUMENT_VERSION_MISMATCH, DEPRECATED})

_SAYS = {
    UNINITIALIZED: "NVML is not initialised any more: the driver was loaded anew",
    NOT_SUPPORTED: "not supported",
    NO_PERMISSION: "no permission",
    NOT_FOUND: "not found",
    DRIVER_NOT_LOADED: "NVML reaches no driver",
    TIMEOUT: "NVML gave up waiting for the driver",
    LIBRARY_NOT_FOUND: "a part of the library is missing",
    FUNCTION_NOT_FOUND: "the library does not have this call",
    GPU_IS_LOST: "the GPU is lost: it has fallen off the bus",
    RESET_REQUIRED: "the GPU needs a reset",
    VERSION_MISMATCH: "the library is of another version than the driver that runs",
    GPU_NOT_FOUND: "the GPU is not found",
    UNKNOWN: "the driver says: unknown error",
    NO_TEXT: "the answer is no text",
}
IN_A_POD = (
    "give the pod NVIDIA's runtime (runtimeClassName: nvidia) and the environment NVIDIA_VISIBLE_DEVICES=all and"
    " NVIDIA_DRIVER_CAPABILITIES=utility, or mount the node's libnvidia-ml.so.1 with /dev/nvidiactl and /dev/nvidia*"
)
_KERNEL_LOG = "look at the kernel's log (dmesg | grep -e NVRM -e Xid) and at nvidia-smi on the node"
REMEDY_OF_GPU = f"{_KERNEL_LOG}; drain the node, then reset the GPU or restart the node"
_REMEDIES = {
    UNINITIALIZED: "nothing, if the driver was upgraded: NVML is loaded again by itself",
    NO_PERMISSION: f"run as root; in a pod, {IN_A_POD}",
    DRIVER_NOT_LOADED: "is the kernel module loaded (lsmod | grep nvidia), and is /dev/nvidiactl here? In a pod, "
    + IN_A_POD,
    LIBRARY_NOT_FOUND: IN_A_POD,
    FUNCTION_NOT_FOUND: "upgrade NVIDIA's driver; without NVML all else goes on",
    VERSION_MISMATCH: "the driver was upgraded: restart this pod, so that it gets the new library, or else the node",
    GPU_IS_LOST: REMEDY_OF_GPU,
    RESET_REQUIRED: REMEDY_OF_GPU,
}

Scope = Literal["library", "gpu", "call"]


class Failed(Exception):
    """A call of NVML did not succeed. `call` is its name, `code` its nvmlReturn_t."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {_SAYS.get(code, f'NVML error {code}')}")
        self.call = call
        self.code = code

    @property
    def scope(self) -> Scope:
        """What else fails with it."""
        return "library" if self.code in OF_LIBRARY else "gpu" if self.code in OF_GPU else "call"

    @property
    def is_lack(self) -> bool:
        """Whether the call is only not to be had here."""
        return self.code in LACKS

    @property
    def is_timeout(self) -> bool:
        """Of a wait: nothing has come."""
        return self.code == TIMEOUT

    @property
    def is_no_sample(self) -> bool:
        """Of a call that tells what is newer than a moment: nothing is."""
        return self.code == NOT_FOUND

    @property
    def says(self) -> str:
        """What is so, without the call."""
        return _SAYS.get(self.code, f"NVML error {self.code}")


class NotThere(Exception):
    """No library of that name can be loaded; the text says why."""


def source_error(failed: Failed) -> SourceError:
    """The failure of a whole reading."""
    code = failed.code
    return Unavailable(
        "permission" if code == NO_PERMISSION else "missing" if code == LIBRARY_NOT_FOUND else "unreachable",
        str(failed),
        remedy=_REMEDIES.get(code, _KERNEL_LOG),
    )
