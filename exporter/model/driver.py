"""One answer of NVIDIA's driver about a node: its GPUs, how they are cut, and the processes that run on them.

Tests: tests/outputs/test_findings.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from exporter.model.devices import DeviceKey, Inventory
from exporter.model.gpu_links import GpuLinks
from exporter.model.health import HealthReason
from exporter.model.nothing import nothing


class Host(NamedTuple):
    """The node's driver and kernel.

    `driver_version` is the version of NVIDIA's kernel module; "" if it is not loaded, or does not say its version.
    `kernel` and `architecture` are the release and the machine of uname(2).
    """

    driver_version: str
    kernel: str
    architecture: str


# The reason why a process cannot open a device file: the file's mode, the cgroup's rules for devices, or a security
# module such as SELinux, although the mode would allow it. "" for none.
Refusal = Literal["", "mode", "cgroup", "security_module"]


class DeviceFile(NamedTuple):
    """A character device of NVIDIA's driver, and what keeps this process from opening it."""

    path: str
    refusal: Refusal = ""


# How a process uses a GPU: CUDA, graphics, or CUDA as a client of MPS.
Kind = Literal["compute", "graphics", "mps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """One process on one GPU or MIG instance.

    `pid` is the host's, if the exporter shares the host's PID namespace. `device` is the UUID of the physical GPU with
    the GPU instance id ("" for a GPU that is not cut). `sm_ratio` is the part of the time since the previous reading (0
    to 1) in which its kernels ran. `sm_ratio` and `memory_bytes` are None if the driver does not say them. `kinds`
    has at least one kind.
    """

    pid: int
    device: DeviceKey
    memory_bytes: int | None
    sm_ratio: float | None
    kinds: frozenset[Kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReading:
    """The driver's answer at `read_at` (seconds of the monotonic clock). Equal only to itself.

    Attributes:
        processes: one entry for each device of each process, sorted by device and pid. None: not known.
        unknown: the UUIDs of GPUs whose processes are not known, and so not in `processes`.
        memory_used: the bytes that all processes together use of a device, where the driver says it.
        busy: the part of the time in which kernels ran on a device. If this reading and the one before say different
            things of the same moment, the lower value counts.
        lost: the UUIDs of GPUs that cannot be asked, each with the reason.
        links: the links of GPUs by UUID, as they were when the GPUs were last read.
    """

    inventory: Inventory = field(default_factory=Inventory)
    processes: tuple[GpuProcess, ...] | None = None
    unknown: frozenset[str] = frozenset()
    memory_used: Mapping[DeviceKey, int] = field(default_factory=nothing)
    busy: Mapping[DeviceKey, float] = field(default_factory=nothing)
    lost: Mapping[str, HealthReason] = field(default_factory=nothing)
    links: Mapping[str, GpuLinks] = field(default_factory=nothing)
    read_at: float
