"""Processes, the containers that they are in, and the use that each owner of a GPU makes of it.

Tests: tests/usage/test_owner_use.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from exporter.model.devices import DeviceKey
from exporter.model.driver import GpuProcess
from exporter.model.nothing import nothing
from exporter.model.pods import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlace:
    """The container that a process is in, by its cgroups.

    `container_id` has 64 hexadecimal digits; "" for a process of a pod outside the pod's containers. `pod_uid` has
    dashes, unless the pod is static; "" if the cgroups do not say it. `is_of_pod`: the kubelet runs the container.
    Otherwise `engine` names the program that runs it ("docker").
    """

    container_id: str
    pod_uid: str = ""
    is_of_pod: bool = True
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the host. Its start (seconds, monotonic clock) tells it from a later process with the same pid.

    `place` is None outside containers. `name` is the kernel's name of its program, of at most 15 bytes, which a process
    can change. `command` and `user` (a uid) are "" unless the settings ask for them.
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

    `asked_for` are the pids that were looked up. A pid that is not in `by_pid` has ended.
    """

    by_pid: Mapping[int, Process]
    asked_for: frozenset[int]
    read_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Environments:
    """The variables that tell devices, in the environment of each container's first process.

    They were read from `read_at` on (seconds of the monotonic clock; minus infinity: not yet).
    """

    by_place: Mapping[ProcessPlace, Mapping[str, str]] = field(default_factory=nothing)
    read_at: float = -inf


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedContainer:
    """A container id, its owner, and its pod's UID ("" for a static pod of the API: the kubelet uses another UID)."""

    container_id: str
    owner: Owner
    pod_uid: str


# The reasons why a process on a GPU counts for no owner of the GPU. ownership/explain.py has their texts.
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
    """A process on a GPU that counts for no owner of the GPU, and the reason.

    `owner` is its own container, if known.
    """

    process: GpuProcess
    reason: WithoutOwner
    place: ProcessPlace | None = None
    owner: Owner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The use that processes, mostly of one container, make of one device. None: not known, which is never 0."""

    memory_bytes: int | None
    sm_ratio: float | None
    processes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The use that all processes make of a device: memory (bytes), and the part of the time with kernels (0 to 1).

    `least_sm_ratio` is the part of the time in which some kernel ran for certain; None if the driver does not say it.
    """

    memory_bytes: int | None = None
    sm_ratio: float = 1.0
    least_sm_ratio: float | None = None


# The use of a device that the listed processes do not account for. "all": the driver says nothing of the device that
# could tell. "…_of_processes": the driver does not say this value of some listed process.
Unexplained = Literal["memory", "kernels", "all", "memory_of_processes", "kernels_of_processes"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """The use that each owner made of each device that the kubelet gave it, and the processes that count for nobody.

    A process counts for one device at most, by the key of `Owners`. The owners of a device together use at most its
    memory.

    Attributes:
        uses: the use of each owner.
        unowned: the processes that count for no owner.
        nobodys: the use of all `unowned` processes of a device together, if there are any. Its `processes` does not
            count the servers of MPS.
        strangers: the part of `nobodys` that containers use whose pod does not hold the device.
        unnamed: the part of `nobodys` that all other processes use.
        sm_ns: the nanoseconds in which kernels ran since measuring began, by device and owner. The key None is always
            there, for the processes of nobody. A value never falls. Devices with an unknown time are left out.
        owned: the processes that count for an owner.
        host: the facts in /proc about all processes.
        unread: the UUIDs of GPUs whose processes are not known.
        unexplained: the devices whose holders' use is not known, and the reason.
    """

    uses: Mapping[tuple[DeviceKey, Owner], Use] = field(default_factory=nothing)
    unowned: tuple[Unowned, ...] = ()
    nobodys: Mapping[DeviceKey, Use] = field(default_factory=nothing)
    strangers: Mapping[tuple[DeviceKey, Owner], Use] = field(default_factory=nothing)
    unnamed: Mapping[DeviceKey, Use] = field(default_factory=nothing)
    sm_ns: Mapping[DeviceKey, Mapping[Owner | None, int]] = field(default_factory=nothing)
    owned: Mapping[tuple[DeviceKey, Owner], Sequence[GpuProcess]] = field(default_factory=nothing)
    host: HostProcesses | None = None
    unread: frozenset[str] = frozenset()
    unexplained: Mapping[DeviceKey, Unexplained] = field(default_factory=nothing)

    @property
    def lists_all(self) -> bool:
        """Whether the driver lists every process on the GPUs."""
        return not self.unread and all(what.endswith("_of_processes") for what in self.unexplained.values())
