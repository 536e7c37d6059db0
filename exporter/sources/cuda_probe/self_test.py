"""Whether a probed program survives here: one of our own is probed first, in a child of this process.

Since 6.11, Linux on x86-64 has a probed function return through a system call of its own, uretprobe(2). Until a fix of
February 2025 (6.14, and the stable kernels of then) a seccomp filter that does not know this call refuses it, and the
program ends by a signal: so would those of any container with its runtime's default profile. Distributions have the
fix in kernels of older numbers, so the number does not tell.
"""

import signal
import subprocess
import sys
from pathlib import Path

from exporter.errors import SourceError, Unsupported
from exporter.sources.cuda_probe import functions, gate
from exporter.sources.cuda_probe.elf import BadElf, function_offsets
from exporter.sources.cuda_probe.gate import Machine
from exporter.sources.cuda_probe.libbpf import NAME, Object

RISKY_SINCE = (6, 11)
_SECONDS = 20.0
# the signals of a program that went wrong; any other one, as of a lack of memory, says nothing of the probe
_DEADLY = (signal.SIGILL, signal.SIGTRAP, signal.SIGBUS, signal.SIGSEGV, signal.SIGSYS)
# A function that hardly any other program calls, for while it is tested it is probed in all of them.
_FUNCTION = "libbpf_major_version"
# The filter lets every system call pass but number 335, which is refused as a runtime's profile does it.
CHILD = f"""
import ctypes
library = ctypes.CDLL({NAME!r})
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 335), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
class Step(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("t", ctypes.c_uint8), ("f", ctypes.c_uint8), ("k", ctypes.c_uint32)]
class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("steps", ctypes.POINTER(Step))]
prctl = ctypes.CDLL(None).prctl
filter = Filter(len(steps), (Step * len(steps))(*steps))
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.byref(filter), 0, 0):
    raise SystemExit(3)
library.{_FUNCTION}()
"""


def check(loaded: Object, machine: Machine, child: str = CHILD) -> None:
    """Go on where programs survive.

    Raises:
        Unsupported: the child died of being probed.
        BpfError: the kernel does not let it be probed.
    """
    if machine.architecture != "x86_64" or gate.kernel_version(machine.release) < RISKY_SINCE:
        return
    links = loaded.attach_uprobes(functions.RETURNED, *_place(), at_return=True)
    try:
        ended = subprocess.run([sys.executable, "-I", "-S", "-c", child], timeout=_SECONDS, check=False)  # noqa: S603 - our own program
    except (OSError, subprocess.SubprocessError) as error:
        raise _untested(str(error)) from error
    finally:
        for link in links:
            link.close()
    if -ended.returncode in _DEADLY:
        raise Unsupported(
            "unimplemented",
            f"on this kernel ({machine.release}) probed programs die where a seccomp filter is in force, as it is in"
            " containers",
            remedy="update the kernel (6.14 and stable ones since February 2025 have the fix), or set --probe.mode off",
        )
    if ended.returncode:
        raise _untested(f"exit code {ended.returncode}")


def _place() -> tuple[str, list[tuple[int, int]]]:
    """The file of libbpf in this process, and the place of the function, as `attach_uprobes` has it."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        path = next(line.split(None, 5)[5] for line in maps.splitlines() if f"/{NAME}" in line)
        with Path(path).open("rb") as file:
            (offset, *_) = function_offsets(file.fileno(), {_FUNCTION})[_FUNCTION]
    except (OSError, StopIteration, KeyError, BadElf) as error:
        raise _untested(f"{NAME}: {error}") from error
    return path, [(offset, 0)]


def _untested(why: str) -> SourceError:
    return Unsupported(
        "unimplemented",
        f"whether probed programs survive on this kernel could not be tested ({why})",
        remedy="until it is known the CUDA probe stays off; set --probe.any-kernel on to go without the test",
    )
