"""libnvidia-ml.so.1 and NVIDIA's bindings to it. Everything here runs on the worker thread, since any of it may hang.

The bindings take 5 MB when imported, so they are imported once the library was found. They keep the library that they
use in their own module: there is one in a process, and users are counted. When the last one has gone, the library is
unloaded, so that the next one gets the file that is there by then: a driver's upgrade puts another one in its place.
"""

import os
import threading
from typing import TYPE_CHECKING, Any

from exporter.sources.nvml.failures import FUNCTION_NOT_FOUND, NO_TEXT, Failed, NotThere

if TYPE_CHECKING:
    from types import ModuleType

NAME = "libnvidia-ml.so.1"
# NVML_INIT_FLAG_NO_GPUS: a node without GPUs is no failure
_NO_GPUS_IS_FINE = 1


class _InProcess:
    """What all users of the process share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0


_SHARED = _InProcess()


class Library:
    """One user of the library. `calling` is the call that runs, or that ran last, for messages of other threads."""

    def __init__(self, path: str = NAME) -> None:
        """`path` is a file, or a name that the dynamic loader looks up."""
        self.calling = ""
        self.is_open = False
        self._path = path
        self._bindings: ModuleType | None = None

    def open(self) -> None:
        """Load the library, if nobody has yet, and initialise it.

        Raises:
            NotThere: there is no such library.
            Failed: it cannot be initialised.
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
        """Let go of it, whatever it says to that. Without `open` nothing is done."""
        if not self.is_open:
            return
        self.is_open = False
        try:
            self.call("nvmlShutdown")
        except Failed:
            pass  # a driver that has gone cannot be told
        finally:
            self._unload()

    def call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - each call has an answer of its own
        """What a function of the bindings returns.

        Raises:
            Failed: anything but success.
        """
        bindings = self._bindings
        assert bindings is not None, "not open"  # noqa: S101 - a fault of this program
        self.calling = name
        function = getattr(bindings, name, None)
        if function is None:
            raise Failed(name, FUNCTION_NOT_FOUND)
        try:
            return function(*arguments)
        except bindings.NVMLError as error:
            raise Failed(name, error.value) from None
        except UnicodeDecodeError:
            raise Failed(name, NO_TEXT) from None

    def _load(self) -> None:
        import ctypes  # noqa: PLC0415 - where there is no NVML nobody pays for it

        with _SHARED.lock:
            if not _SHARED.users:
                handle = _dlopen(self._path)
                import pynvml  # noqa: PLC0415 - see the head of this file

                vars(pynvml)["nvmlLib"] = ctypes.CDLL(self._path, handle=handle)
            else:
                import pynvml  # noqa: PLC0415
            _SHARED.users += 1
            self._bindings = pynvml

    def _unload(self) -> None:
        with _SHARED.lock:
            _SHARED.users -= 1
            bindings, self._bindings = self._bindings, None
            if not _SHARED.users and bindings is not None:
                loaded = vars(bindings).pop("nvmlLib")
                vars(bindings)["nvmlLib"] = None
                bindings._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001 - they point into what goes
                _dlclose(loaded._handle)  # noqa: SLF001 - ctypes has no other way


# ctypes' own ways to do these hold the interpreter's lock: a file system that hangs would stop every thread.


def _dlopen(path: str) -> int:
    """The handle of a library.

    Raises:
        NotThere: it cannot be loaded.
    """
    import ctypes  # noqa: PLC0415 - see Library

    program = ctypes.CDLL(None)
    program.dlopen.argtypes, program.dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
    program.dlerror.restype = ctypes.c_char_p
    handle: int | None = program.dlopen(os.fsencode(path), os.RTLD_NOW | os.RTLD_LOCAL)
    if not handle:
        raise NotThere((program.dlerror() or b"").decode("utf-8", "replace"))
    return handle


def _dlclose(handle: int) -> None:
    import ctypes  # noqa: PLC0415 - see Library

    program = ctypes.CDLL(None)
    program.dlclose.argtypes = (ctypes.c_void_p,)
    program.dlclose(handle)
