"""The CUDA probe's counts in the kernel, per process and CUDA device, as the process itself numbers its devices.

Tests: tests/probe/test_counting.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from exporter.model.devices import DeviceKey
from exporter.model.measured import ProcessPlace
from exporter.model.nothing import NOTHING, nothing
from exporter.model.pods import Owner

# cudaMemcpyKind: 0 to 4; `default` is worked out by CUDA from the addresses, which the probe does not know.
Direction = Literal["host_to_host", "host_to_device", "device_to_host", "device_to_device", "default"]
DIRECTIONS: tuple[Direction, ...] = ("host_to_host", "host_to_device", "device_to_host", "device_to_device", "default")


class ProcessId(NamedTuple):
    """A process of the host: its pid in the first PID namespace, and its start (ns of the boot-time clock).

    The start tells it from a later process with the same pid. /proc/<pid>/stat has the start in ticks of 10 ms.
    """

    pid: int
    started_ns: int


class CudaDevice(NamedTuple):
    """A device as one process numbers it: `ordinal` is that of cudaSetDevice, 0 if the process never called it."""

    process: ProcessId
    ordinal: int


class CudaCounts(NamedTuple):
    """The counts of a process' requests to a device since its first call. Only `memory_bytes` ever falls.

    Launches, graph launches, copies and synchronisations count when they are called, even if they fail; threads, bytes,
    allocations and frees count when the call succeeds. Bytes are what the process asked for; the driver rounds them up.
    `memory_bytes` is allocated and not yet freed, and `peak_bytes` is the largest `memory_bytes` so far. `sync_ns` is
    the time spent waiting in synchronisations. `active_ns` is the time in which at least one stream had work that no
    synchronisation had ended. `errors` counts calls that did not return success, by cudaError_t or CUresult.

    It is a tuple, since thousands are made each second. probe/cuda_ledger.py relies on the order of the fields.
    """

    launches: int = 0
    threads: int = 0
    graph_launches: int = 0
    allocations: int = 0
    failed_allocations: int = 0
    frees: int = 0
    freed_bytes: int = 0
    syncs: int = 0
    sync_ns: int = 0
    active_ns: int = 0
    memory_bytes: int = 0
    peak_bytes: int = 0
    copies: tuple[int, ...] = (0,) * len(DIRECTIONS)
    copied_bytes: tuple[int, ...] = (0,) * len(DIRECTIONS)
    errors: Mapping[int, int] = NOTHING


class WorkSpan(NamedTuple):
    """A period (ns, monotonic clock) in which a process kept a device busy.

    `active_ns` is its length without short gaps.
    """

    device: CudaDevice
    begin_ns: int
    end_ns: int
    active_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaProcess:
    """A process that called CUDA.

    `cgroup_id` is the id of its cgroup of version 2 (1, the root, on a node that uses version 1). `visible` is what the
    program itself set CUDA_VISIBLE_DEVICES to before its first call; None if the probe did not see that. `ended_ns`
    is when its last thread ended, on the monotonic clock; None while it runs.
    """

    id: ProcessId
    cgroup_id: int = 0
    visible: str | None = None
    ended_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaReading:
    """All that the probe counted until `read_at_ns` (monotonic clock), and the spans since the previous reading.

    Every process of `counts` is in `processes`. `lost` counts what the probe could not record, by kind (processes,
    threads, allocations and others).
    """

    read_at_ns: int
    processes: Mapping[ProcessId, CudaProcess] = field(default_factory=nothing)
    counts: Mapping[CudaDevice, CudaCounts] = field(default_factory=nothing)
    spans: tuple[WorkSpan, ...] = ()
    lost: Mapping[str, int] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenProcess:
    """The facts in /proc about a process that maps CUDA: its container, and the devices that it may see.

    `visible` is CUDA_VISIBLE_DEVICES in its memory, or else in the environment of its start; None if it is not set.
    `is_hidden`: the exporter may read neither. `gpu_files` is the number of the GPUs' device files (/dev/nvidia<N>)
    that it sees; 0 if that is not known.
    """

    id: ProcessId
    place: ProcessPlace | None
    visible: str | None = None
    is_hidden: bool = False
    gpu_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaUse:
    """The requests to a device by all processes of a container, running or ended: see `CudaCounts`.

    `memory_bytes` is the memory that running processes have allocated. `peak_bytes` is the largest sum in a reading, or
    a process' largest peak, if that is larger. `released_bytes` is the memory that processes had not freed when they
    ended.
    Errors whose codes are not counted one by one are under OTHER_ERRORS. `active_seconds` counts a time in which
    several processes are active once.
    """

    counts: CudaCounts
    released_bytes: int = 0
    active_seconds: float = 0.0
    processes: int = 0


# The key in `CudaUse.counts.errors` of all codes that are not counted one by one. CUDA has no negative codes.
OTHER_ERRORS = -1

# The container and the device. The owner of processes in no pod is None (nobody). The device is UNKNOWN_DEVICE where it
# is not known which GPU a process means.
CudaKey = tuple[Owner | None, DeviceKey]
UNKNOWN_DEVICE = DeviceKey(uuid="")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CudaUses:
    """The requests to every device by every container, and the state of the probe.

    `programs` is the number of probed files, `failures` the number of files that could not be probed, by reason.
    `map_entries` has two numbers for each map in the kernel: its entries and its size. `unreadable` is the number of
    processes that the exporter may not look at, so that nobody knows whether they use CUDA.
    """

    uses: Mapping[CudaKey, CudaUse] = field(default_factory=nothing)
    programs: int = 0
    failures: Mapping[str, int] = field(default_factory=nothing)
    unreadable: int = 0
    lost: Mapping[str, int] = field(default_factory=nothing)
    map_entries: Mapping[str, tuple[int, int]] = field(default_factory=nothing)
