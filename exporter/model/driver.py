"""What NVIDIA's driver says of a node at a moment: its GPUs, how they are cut, and the processes that run on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from exporter.model.devices import DeviceKey, Inventory

# How a process uses a GPU: CUDA, graphics, or CUDA as a client of MPS.
Kind = Literal["compute", "graphics", "mps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """One process on one GPU or MIG instance.

    `pid` is that of the PID namespace of the host, where the exporter shares it. `device` is the UUID of the physical
    GPU with the GPU instance id ("" for a GPU that is not cut). `memory_bytes` is None where the driver does not know.
    `sm_ratio` is the part of the time since the reading before (0 to 1) in which its kernels ran; None where the driver
    does not measure it. `kinds` has one kind at least.
    """

    pid: int
    device: DeviceKey
    memory_bytes: int | None
    sm_ratio: float | None
    kinds: frozenset[Kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReading:
    """What the driver said at `read_at` (seconds of the monotonic clock). Equal only to itself.

    `processes` are sorted by device and pid, one for each device that a process is on; None where they are not known.
    `unknown` are the UUIDs of GPUs whose processes are not among them: what has no process there may have one.
    `memory_used` is what all together use of a device, in bytes, where the driver tells it.
    """

    inventory: Inventory = field(default_factory=Inventory)
    processes: tuple[GpuProcess, ...] | None = None
    unknown: frozenset[str] = frozenset()
    memory_used: Mapping[DeviceKey, int] = field(default_factory=lambda: MappingProxyType({}))
    read_at: float
