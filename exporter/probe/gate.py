"""The gate decides whether the probe may run on this machine, and puts the kernel's refusals into words.

Since Linux 6.11 on x86-64, a probed function returns through a system call of its own, uretprobe(2). Until a fix of
February 2025 (6.14, and stable kernels since then) a seccomp filter that does not know this call refuses it, and a
signal ends the program. That would happen in any container with its runtime's default profile. Distributions have the
fix in kernels with older numbers, so the number does not tell. The exporter therefore first probes a child of its own.
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

# The oldest kernel for each architecture. Linux 5.15 brought cookies, which tell the probe's places apart; on arm64,
# 5.18 brought atomic operations of BPF that return a value.
OLDEST_KERNELS = MappingProxyType({"x86_64": (5, 15), "aarch64": (5, 18)})
# the first kernel that attaches many places by one call
AT_ONCE_KERNEL = (6, 6)
_TYPES = Path("/sys/kernel/btf/vmlinux")
# Linux before 6.6 can attach only in the way that needs SYS_ADMIN since July 2025 (CVE-2025-38466).
_CAPABILITIES = "the capabilities BPF, PERFMON, SYS_PTRACE and DAC_READ_SEARCH (before Linux 6.6 SYS_ADMIN, too)"


class ProbedMachine(NamedTuple):
    """A machine: `release` as `uname -r` prints it; `types`: the kernel has BTF, the types of its structs."""

    release: str
    architecture: str
    types: bool


def this_machine() -> ProbedMachine:
    """The machine that the exporter runs on."""
    return ProbedMachine(release=os.uname().release, architecture=os.uname().machine, types=_TYPES.exists())


def kernel_version(release: str) -> tuple[int, int]:
    """The first two numbers of a release; (0, 0) if it has none."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def program_file(machine: ProbedMachine) -> Path:
    """The path of the compiled cuda.bpf.c for this machine."""
    return Path(__file__).with_name(f"cuda.{machine.architecture}.bpf.o")


def check(machine: ProbedMachine, *, any_kernel: bool) -> None:
    """Check that the probe is known to work on this machine.

    `any_kernel`: also let kernels pass on which it may work.

    Raises:
        Unsupported: the probe is not made for this machine.
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
    """The SourceError for a refusal of the kernel or of libbpf."""
    why = str(error)
    number = error.number
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
# the signals of a program that went wrong; another signal, as for a lack of memory, says nothing about the probe
_DEADLY = (signal.SIGILL, signal.SIGTRAP, signal.SIGBUS, signal.SIGSEGV, signal.SIGSYS)
# The function of the test. Hardly any other program calls it, since during the test it is probed in all programs.
_FUNCTION = "libbpf_major_version"
# The child's seccomp filter refuses system call 335 in the way of a runtime's profile, and lets all others pass.
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
    """Check that a probed program survives. Raises Unsupported: a child died; BpfError: the kernel refuses it."""
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
    """The path of this process' libbpf, and the place of the tested function, for `attach_uprobes`."""
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
