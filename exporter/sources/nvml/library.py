"""libnvidia-ml.so.1 and NVIDIA's bindings to it: its loading, the failures of its calls, and what to do about them.

Everything runs on the worker thread, since any call may hang. The bindings take 5 MB, and are imported only once a
library was found. They keep the library in their own module, so a process has one library, and its users are counted.
When the last user has gone, it is unloaded, so that the next user gets the file that is there by then, as after an
upgrade of the driver.

Tests: tests/sources/nvml/test_nvml_reader.py.
"""

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from exporter.errors import SourceError, Unavailable
from exporter.model.health import HealthReason
from exporter.sources.hearing import LISTENER

if TYPE_CHECKING:
    from types import ModuleType

SUCCESS = 0
UNINITIALIZED = 1
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
NO_DATA = 21
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
GPU_NOT_FOUND = 28
UNKNOWN = 999
# a code that is not in nvml.h: the bindings could not read the answer
NO_TEXT = -1

# With these codes the library must be loaded again: the driver went, came back, or is another driver.
OF_LIBRARY = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH})
# With these codes the library, the driver or the GPU lacks the call, and nothing is wrong.
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

# The health of a GPU that cannot be asked. Every further call about it would fail, too, and some take 10 s to fail.
LOST: Mapping[int, HealthReason] = {
    GPU_IS_LOST: HealthReason("nvml-lost", "NVML says that it has fallen off the bus", REMEDY_OF_GPU, "gone"),
    GPU_NOT_FOUND: HealthReason("nvml-lost", "NVML does not find it any more", REMEDY_OF_GPU, "gone"),
    RESET_REQUIRED: HealthReason("reset-required", "NVML says that it needs a reset", REMEDY_OF_GPU, "failing"),
}
UNASKED = HealthReason("nvml", "NVML cannot ask it", REMEDY_OF_GPU, "unknown")
Scope = Literal["library", "gpu", "call"]


class Failed(Exception):
    """A call of NVML did not succeed. `call` is its name, `code` its nvmlReturn_t."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {_SAYS.get(code, f'NVML error {code}')}")
        self.call = call
        self.code = code

    @property
    def scope(self) -> Scope:
        """The scope of the failure: what else fails, too."""
        return "library" if self.code in OF_LIBRARY else "gpu" if self.code in LOST else "call"


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


NAME = "libnvidia-ml.so.1"
# the most characters that are taken of a text of NVML's
MOST_GPUS = 256
MOST_PROCESSES = 4096
# NVML_INIT_FLAG_NO_GPUS: a node without GPUs is no failure
_NO_GPUS_IS_FINE = 1


class Library:
    """One user of the library. `calling` is the call that runs, or that ran last, for messages of other threads."""

    users = 0  # of the whole process
    _lock = threading.Lock()

    def __init__(self, path: str = NAME) -> None:
        """`path` is a file, or a name that the dynamic loader looks up."""
        self.calling = ""
        self.is_open = False
        self._path = path
        self._listener = LISTENER.get()
        self._bindings: ModuleType | None = None

    def open(self) -> None:
        """Load the library, if nobody has yet, and initialise it. Raises NotThere: there is none.

        Failed: it cannot start.
        """
        self.calling = "dlopen"
        self._load()
        try:
            self.call("nvmlInitWithFlags", _NO_GPUS_IS_FINE)
        except Failed:
            self._unload()
            raise
        self.is_open = True

    def close(self) -> None:
        """Let go of the library, even if that fails. Without `open` nothing is done."""
        if self.is_open:
            self.is_open = False
            with suppress(Failed):  # a driver that has gone cannot be told
                self.call("nvmlShutdown")
            self._unload()

    def call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - each call has an answer of its own
        """Call a function of the bindings, or make a struct of theirs, and return the result.

        Raises Failed: it does not succeed.
        """
        bindings = self._bindings
        assert bindings is not None, "not open"  # noqa: S101 - a fault of this program
        self.calling = name
        function = getattr(bindings, name, None)
        if function is None:
            raise self._failed(name, arguments, FUNCTION_NOT_FOUND)
        try:
            result = function(*arguments)
        except bindings.NVMLError as error:
            raise self._failed(name, arguments, error.value) from None
        except UnicodeDecodeError:
            raise self._failed(name, arguments, NO_TEXT) from None
        if self._listener is not None and name.startswith("nvml"):
            self._listener.called(name, arguments, result, SUCCESS)
        return result

    def _failed(self, name: str, arguments: tuple[object, ...], code: int) -> Failed:
        """The failure of a call, after the listener was told of it."""
        if self._listener is not None:
            self._listener.called(name, arguments, None, code)
        return Failed(name, code)

    def _load(self) -> None:
        import ctypes  # noqa: PLC0415 - only a node with NVML needs it

        with self._lock:
            handle = None if Library.users else _dlopen(self._path)
            import pynvml  # noqa: PLC0415 - see the head of this file

            if handle is not None:
                vars(pynvml)["nvmlLib"] = ctypes.CDLL(self._path, handle=handle)
            Library.users += 1
            self._bindings = pynvml

    def _unload(self) -> None:
        with self._lock:
            Library.users -= 1
            bindings = self._bindings
            self._bindings = None
            if not Library.users and bindings is not None:
                loaded = vars(bindings).pop("nvmlLib")
                vars(bindings)["nvmlLib"] = None
                bindings._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - its pointers lead into the library
                import ctypes  # noqa: PLC0415 - see _load

                dlclose = ctypes.CDLL(None).dlclose
                dlclose.argtypes = (ctypes.c_void_p,)
                dlclose(loaded._handle)  # noqa: SLF001 - ctypes has no other way


def _dlopen(path: str) -> int:
    """The handle of a library. Raises NotThere: it cannot be loaded.

    ctypes' own ways to load and unload hold the interpreter's lock: a file system that hangs would stop every thread.
    """
    import ctypes  # noqa: PLC0415 - see Library

    program = ctypes.CDLL(None)
    program.dlopen.argtypes = (ctypes.c_char_p, ctypes.c_int)
    program.dlopen.restype = ctypes.c_void_p
    program.dlerror.restype = ctypes.c_char_p
    handle: int | None = program.dlopen(os.fsencode(path), os.RTLD_NOW | os.RTLD_LOCAL)
    if not handle:
        raise NotThere((program.dlerror() or b"").decode("utf-8", "replace"))
    return handle
