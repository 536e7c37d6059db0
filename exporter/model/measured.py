"""Processes and the containers that they are in, and what each owner of a GPU used of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from exporter.model.devices import DeviceKey
from exporter.model.driver import GpuProcess
from exporter.model.pods import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """The container that a process is in, by its cgroups.

    `container_id` has 64 hexadecimal digits; "" for a process of a pod outside the pod's containers. `pod_uid` has
    dashes, except that of a static pod; "" where the cgroups do not say it. `is_of_pod`: it is the kubelet's container.
    Otherwise `engine` names who made it ("docker").
    """

    container_id: str
    pod_uid: str = ""
    is_of_pod: bool = True
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the host; its start tells it from a later process with the same pid (seconds, monotonic clock).

    `place` is None outside containers. `name` is what the kernel calls its program, in 15 bytes at most; a process can
    change it. `command` and `user` (a uid) are "" unless the user asks for them.
    """

    pid: int
    started_at: float
    place: ProcessPlace | None
    name: str = ""
    command: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProcesses:
    """Processes of the host by pid, read from `read_at` on (seconds of the monotonic clock).

    `asked_for` are the pids that were looked up: those that are not in `by_pid` have ended.
    """

    by_pid: Mapping[int, Process]
    asked_for: frozenset[int]
    read_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedContainer:
    """A container id, its owner, and its pod's UID ("" for a static pod of the API: the kubelet uses another UID)."""

    container_id: str
    owner: Owner
    pod_uid: str


# why a process on a GPU counts for no owner of the GPU; ownership/explain.py has the words
WithoutOwner = Literal[
    "gone",
    "unread",
    "mps_server",
    "no_container",
    "other_container",
    "unknown_container",
    "not_assigned",
    "unresolved",
    "unknown_instance",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unowned:
    """A process on a GPU that counts for no owner of the GPU, and why. `owner` is its container's, if known."""

    process: GpuProcess
    reason: WithoutOwner
    place: ProcessPlace | None = None
    owner: Owner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What processes, mostly of one container, use of one device; None where it is not known, never 0."""

    memory_bytes: int | None
    sm_ratio: float | None
    processes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What all processes use of a device: memory, and the part of the time in which kernels ran (1 at most).

    `least_sm_ratio` is the part in which some kernel ran for sure. None where the driver does not say it.
    """

    memory_bytes: int | None = None
    sm_ratio: float = 1.0
    least_sm_ratio: float | None = None


# What of a device no process that is listed accounts for; "all": nothing of the device is known that could tell. Of
# processes that are listed: what the driver does not say of some.
Unexplained = Literal["memory", "kernels", "all", "memory_of_processes", "kernels_of_processes"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """What each owner used of each device that the kubelet gave it, and the processes that count for nobody.

    A process counts for one device at most, by the key of `Owners`. The owners of a device use at most its memory.
    `nobodys` is what the processes of `unowned` use together, by device, if there are any; its `processes` leave MPS'
    servers out. Of these, `strangers` is what containers use whose pod does not hold the device, and `unnamed` what all
    others use. `sm_ns` is the time in which kernels ran since measuring began, in nanoseconds: by device, of each owner
    and, under None, always, of nobody's processes. It never falls; devices with an unknown time are left out. `owned`
    are the processes that count for an owner; `host` is what /proc says of all. `unread` are the UUIDs of GPUs whose
    processes are not known. `unexplained` has the devices of which holders' use is not known, and why.
    """

    uses: Mapping[tuple[DeviceKey, Owner], Use] = field(default_factory=lambda: MappingProxyType({}))
    unowned: tuple[Unowned, ...] = ()
    nobodys: Mapping[DeviceKey, Use] = field(default_factory=lambda: MappingProxyType({}))
    strangers: Mapping[tuple[DeviceKey, Owner], Use] = field(default_factory=lambda: MappingProxyType({}))
    unnamed: Mapping[DeviceKey, Use] = field(default_factory=lambda: MappingProxyType({}))
    sm_ns: Mapping[DeviceKey, Mapping[Owner | None, int]] = field(default_factory=lambda: MappingProxyType({}))
    owned: Mapping[tuple[DeviceKey, Owner], Sequence[GpuProcess]] = field(default_factory=lambda: MappingProxyType({}))
    host: HostProcesses | None = None
    unread: frozenset[str] = frozenset()
    unexplained: Mapping[DeviceKey, Unexplained] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def lists_all(self) -> bool:
        """Whether no process can be there that the driver does not list."""
        return not self.unread and all(what.endswith("_of_processes") for what in self.unexplained.values())
