"""Whether the probe may run here: what it needs of the machine, and what the kernel's refusals mean."""

import os
import re
from errno import E2BIG, EACCES, ENOMEM, EPERM
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from exporter.errors import SourceError, Unavailable, Unsupported
from exporter.sources.cuda_probe.bpf_maps import BpfError

# The oldest kernel for each architecture. Cookies, which tell the probe's places apart, came with Linux 5.15. arm64's
# BPF compiler knows atomic operations that return a value since 5.18.
OLDEST_KERNELS = MappingProxyType({"x86_64": (5, 15), "aarch64": (5, 18)})
# since when many places are attached by one call
AT_ONCE_KERNEL = (6, 6)
_TYPES = Path("/sys/kernel/btf/vmlinux")
# Linux before 6.6 has no other way to attach than the one that takes SYS_ADMIN since July 2025 (CVE-2025-38466).
_CAPABILITIES = "the capabilities BPF, PERFMON, SYS_PTRACE and DAC_READ_SEARCH (before Linux 6.6 SYS_ADMIN, too)"


class Machine(NamedTuple):
    """What matters of a machine. `release` is that of `uname -r`; `types`: the kernel tells its structs' types."""

    release: str
    architecture: str
    types: bool


def this_machine() -> Machine:
    """The one that this runs on."""
    told = os.uname()
    return Machine(release=told.release, architecture=told.machine, types=_TYPES.exists())


def kernel_version(release: str) -> tuple[int, int]:
    """Its first two numbers; 0.0 where it has none."""
    numbers = re.match(r"(\d+)\.(\d+)", release)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def program_file(machine: Machine) -> Path:
    """The compiled cuda.bpf.c for this machine."""
    return Path(__file__).with_name(f"cuda.{machine.architecture}.bpf.o")


def check(machine: Machine, *, any_kernel: bool) -> None:
    """Go on where the probe is known to work.

    Raises:
        Unsupported: the machine is another one than those that it is made for. `any_kernel` overrides what may work.
        Unavailable: the program for the kernel was not built.
    """
    oldest = OLDEST_KERNELS.get(machine.architecture)
    if oldest is None:
        raise Unsupported(
            "unimplemented",
            f"the CUDA probe knows how {' and '.join(OLDEST_KERNELS)} pass arguments,"
            f" and this is {machine.architecture}",
            remedy="set --probe.mode off on such nodes",
        )
    if not any_kernel and kernel_version(machine.release) < oldest:
        raise Unsupported(
            "unimplemented",
            f"the CUDA probe needs Linux {'.'.join(map(str, oldest))} or later, and this is {machine.release}",
            remedy="a distribution may have what it needs in an older one: try it with --probe.any-kernel on",
        )
    if not any_kernel and not machine.types:
        raise Unsupported(
            "unimplemented",
            f"the kernel does not tell the types of its structs: there is no {_TYPES}",
            remedy="use a kernel with CONFIG_DEBUG_INFO_BTF, as those of distributions are",
        )
    if not program_file(machine).exists():
        raise Unavailable(
            "missing",
            f"this installation has no {program_file(machine).name}, the CUDA probe's program for the kernel",
            remedy="use the image or the wheel of a release, or run `make probe` where clang and libbpf-dev are",
        )


def without_library(error: OSError) -> SourceError:
    """Libbpf could not be loaded."""
    return Unavailable(
        "missing",
        f"the CUDA probe needs libbpf.so.1: {error}",
        remedy="install it (Debian: libbpf1); the image has it",
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
    said = f"; libbpf says: {error.printed}" if error.printed else ""
    return Unavailable(
        "refused",
        f"the kernel refuses the CUDA probe ({why}{said})",
        remedy="say so to the project with the kernel's version; meanwhile set --probe.mode off",
    )
