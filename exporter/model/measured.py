"""Processes and the containers that they are in, and what each owner of a GPU used of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from exporter.model.devices import DeviceKey
from exporter.model.driver import GpuProcess
from exporter.model.pods import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The container that a process is in, as its cgroups say.

    `container_id` has 64 hexadecimal digits; it is "" for a process of a pod that is in none of its containers.
    `pod_uid` is written with dashes, or without any for a static pod; "" where the cgroups do not say it. `is_of_pod`:
    it is the kubelet's container. Otherwise `engine` names who made it ("docker").
    """

    container_id: str
    pod_uid: str = ""
    is_of_pod: bool = True
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process of the host.

    `started_at` is in seconds of the monotonic clock, so that a process is told from a later one with the same pid.
    `place` is None for a process in no container. `command` and `user` (a uid) are "" unless somebody asked for them.
    """

    pid: int
    started_at: float
    place: Place | None
    command: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProcesses:
    """Processes of the host by pid, read from `read_at` on (seconds of the monotonic clock).

    `asked_for` are the pids that were looked for. One of these that is not in `by_pid` has ended.
    """

    by_pid: Mapping[int, Process]
    asked_for: frozenset[int]
    read_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedContainer:
    """A container id, whose it is, and the UID of its pod.

    `pod_uid` is "" for a static pod that the Kubernetes API tells of: the kubelet gives it another UID.
    """

    container_id: str
    owner: Owner
    pod_uid: str


# Why a process on a GPU counts for no owner of the GPU:
# gone - the process has ended, or another one has its pid now
# unread - nobody has looked which process it is: there are too many
# no_container - it runs in no container
# other_container - its container is not the kubelet's, but made by docker, for example
# unknown_container - it is in a pod, and nobody says in which container
# not_assigned - its container did not get the GPU from the kubelet
# unknown_instance - its container got several instances of the GPU, and the driver does not say which one it is on
WithoutOwner = Literal[
    "gone", "unread", "no_container", "other_container", "unknown_container", "not_assigned", "unknown_instance"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unowned:
    """A process on a GPU that counts for no owner of the GPU, and why. `owner` is that of its container, if known."""

    process: GpuProcess
    reason: WithoutOwner
    place: Place | None = None
    owner: Owner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What processes, mostly those of one container, use of one device; None where it is not known, never 0."""

    memory_bytes: int | None
    sm_ratio: float | None
    processes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What all use of a device: its memory, and the part of the time in which kernels ran (1 at most)."""

    memory_bytes: int | None = None
    sm_ratio: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """What each owner used of each device that the kubelet gave it, and the processes that count for nobody.

    Each process counts for one device at most, under the key by which `Owners` knows it. The memory of a device's
    owners is at most the device's. `nobodys` is what the processes of `unowned` use together, by device; a device that
    has none is left out. `sm_ns` is the time in which kernels ran since measuring began, in nanoseconds: by device, of
    each owner and, under None, which is always there, of the processes that count for nobody. It never falls as long as
    it is told. Devices of which it is not known for all of these are left out. `owned` are the processes that count for
    an owner; `host` is what /proc says of all of them. `unread` are the UUIDs of GPUs whose processes are not known.
    """

    uses: Mapping[tuple[DeviceKey, Owner], Use] = field(default_factory=lambda: MappingProxyType({}))
    unowned: tuple[Unowned, ...] = ()
    nobodys: Mapping[DeviceKey, Use] = field(default_factory=lambda: MappingProxyType({}))
    sm_ns: Mapping[DeviceKey, Mapping[Owner | None, int]] = field(default_factory=lambda: MappingProxyType({}))
    owned: Mapping[tuple[DeviceKey, Owner], Sequence[GpuProcess]] = field(default_factory=lambda: MappingProxyType({}))
    host: HostProcesses | None = None
    unread: frozenset[str] = frozenset()
