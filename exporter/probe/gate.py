"""Whether the probe may run here: what it needs of the machine, and what the kernel's refusals mean.

Since Linux 6.11 on x86-64, a probed function returns through a system call of its own, uretprobe(2). Until a fix of
February 2025 (6.14, and stable kernels since then) a seccomp filter that does not know this call refuses it, and a
signal ends the program: so it would be in any container with its runtime's default profile. Distributions have the fix
in kernels with older numbers, so the number does not tell. The exporter therefore first probes a child of its own.
"""

import os
import re
import signal
import subprocess
import sys
from errno import E2BIG, EACCES, ENOMEM, EPERM
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from exporter.errors import SourceError, Unavailable, Unsupported
from exporter.probe import functions
from exporter.probe.elf import BadElf, function_offsets
from exporter.probe.libbpf import NAME, BpfError, Object

# The oldest kernel for each architecture. Cookies, which tell the probe's places apart, came with Linux 5.15. arm64's
# BPF compiler knows atomic operations that return a value since 5.18.
OLDEST_KERNELS = MappingProxyType({"x86_64": (5, 15), "aarch64": (5, 18)})
# since when many places are attached by one call
AT_ONCE_KERNEL = (6, 6)
_TYPES = Path("/sys/kernel/btf/vmlinux")
# Linux before 6.6 has no other way to attach than the one that takes SYS_ADMIN since July 2025 (CVE-2025-38466).
_CAPABILITIES = "the capabilities BPF, PERFMON, SYS_PTRACE and DAC_READ_SEARCH (before Linux 6.6 SYS_ADMIN, too)"


class ProbedMachine(NamedTuple):
    """`release` is that of `uname -r`; `types`: the kernel tells its structs' types."""

    release: str
    architecture: str
    types: bool


def this_machine() -> ProbedMachine:
    """The machine that the exporter runs on."""
    return ProbedMachine(release=os.uname().release, architecture=os.uname().machine, types=_TYPES.exists())


def kernel_version(release: str) -> tuple[int, int]:
    """Its first two numbers; 0.0 where it has none."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def program_file(machine: ProbedMachine) -> Path:
    """The compiled cuda.bpf.c for this machine."""
    return Path(__file__).with_name(f"cuda.{machine.architecture}.bpf.o")


def check(machine: ProbedMachine, *, any_kernel: bool) -> None:
    """Go on where the probe is known to work.

    Raises Unsupported: the machine is another one than those that it is made for. `any_kernel` overrides what may work.
    Unavailable: the program for the kernel was not built.
    """
    oldest = OLDEST_KERNELS.get(machine.architecture)
    if oldest is None:
        raise Unsupported(
            f"the CUDA probe knows how {' and '.join(OLDEST_KERNELS)} pass arguments,"
            f" and this is {machine.architecture}",
            remedy="set --probe.mode off on such nodes",
        )
    if not any_kernel and kernel_version(machine.release) < oldest:
        raise Unsupported(
            f"the CUDA probe needs Linux {'.'.join(map(str, oldest))} or later, and this is {machine.release}",
            remedy="a distribution may have what it needs in an older one: try it with --probe.any-kernel on",
        )
    if not any_kernel and not machine.types:
        raise Unsupported(
            f"the kernel does not tell the types of its structs: there is no {_TYPES}",
            remedy="use a kernel with CONFIG_DEBUG_INFO_BTF, as those of distributions are",
        )
    if not program_file(machine).exists():
        raise Unavailable(
            "missing",
            f"this installation has no {program_file(machine).name}, the CUDA probe's program for the kernel",
            remedy="use the image or the wheel of a release, or run `make probe` where clang and libbpf-dev are",
        )


def refused(error: BpfError) -> SourceError:
    """The kernel, or libbpf, refused something."""
    why, number = str(error), error.number
    if number in (EPERM, EACCES):
        return Unavailable(
            "permission",
            f"the CUDA probe is not permitted here ({why})",
            remedy=f"give the exporter {_CAPABILITIES}, and see kernel.unprivileged_bpf_disabled,"
            " kernel.perf_event_paranoid and the seccomp profile; or set --probe.mode off",
        )
    if number in (ENOMEM, E2BIG):
        return Unavailable(
            "refused",
            f"the CUDA probe's maps do not fit into memory ({why})",
            remedy="raise the memory limit: the maps take 13 MiB",
        )
    printed = f"; libbpf says: {error.printed}" if error.printed else ""
    return Unavailable(
        "refused",
        f"the kernel refuses the CUDA probe ({why}{printed})",
        remedy="say so to the project with the kernel's version; meanwhile set --probe.mode off",
    )


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


def check_survival(loaded: Object, machine: ProbedMachine, child: str = CHILD) -> None:
    """Go on where programs survive. Raises Unsupported: the child died of it. BpfError: the kernel refuses it."""
    if machine.architecture != "x86_64" or kernel_version(machine.release) < RISKY_SINCE:
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
        f"whether probed programs survive on this kernel could not be tested ({why})",
        remedy="until it is known the CUDA probe stays off; set --probe.any-kernel on to go without the test",
    )
