"""What a look saw of the memory of all devices, and which containers have ended by then.

Tests: tests/accounts/test_memory_looks.py, tests/accounts/test_out_of_memory.py.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from exporter.accounts.device_columns import Columns, DeviceColumns
from exporter.accounts.device_values import MEMORY_FIELDS, all_memory
from exporter.accounts.entries import COUNTS, AmountFamily, Entry
from exporter.accounts.out_of_memory import WINDOW_NS
from exporter.dcgm.fields import FIELDS
from exporter.model.accounts import SuspectedOutOfMemory, Suspicion
from exporter.model.devices import DeviceKey
from exporter.model.pods import ContainerEnd, Owner, PodsOfNames
from exporter.model.slices import Work
from exporter.model.snapshot import Snapshot

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUses

OUT_OF_MEMORY = "out_of_memory"
FAMILY = AmountFamily("pod_gpu_suspected_out_of_memory_total", OUT_OF_MEMORY, COUNTS, labels=("suspicion",))
_MOST_SUSPECTED = 8  # of one GPU
_SUSPICIONS = tuple(Suspicion)
_MIB = 2**20
# the number of cudaErrorMemoryAllocation in driver_types.h, and of CUDA_ERROR_OUT_OF_MEMORY in cuda.h
_NO_MEMORY = 2
_MOST_LOOKS = 64  # at the probe's counts, however short the interval
Ends = Mapping[Owner, Sequence[ContainerEnd]]
_FAMILIES: Mapping[bytes, tuple[int, float]] = {
    name.encode(): (MEMORY_FIELDS.index(field.name), field.times / field.per)
    for name, field in FIELDS.items()
    if field.name in MEMORY_FIELDS
}
_Device = tuple[Owner, str]  # a container, and the UUID of a GPU; "" if the probe does not know which one it is
_Users = Mapping[DeviceKey, Sequence[tuple[Owner, float]]]


def ends_of(pods_of_names: PodsOfNames) -> Ends:
    """The last end of each container, of the pods of a node and of those that are gone."""
    ends: dict[Owner, list[ContainerEnd]] = {}
    for (namespace, pod), of_name in pods_of_names.items():
        for named in of_name:
            for container, end in named.pod.ends.items():
                ends.setdefault(Owner(namespace=namespace, pod=pod, container=container), []).append(end)
    return ends


class DeviceMemory(NamedTuple):
    """The memory of a device in MiB: what is in use, and all of it (`all_memory`)."""

    used: float
    whole: float


class Suspect(NamedTuple):
    """A suspicion of one device, the entry that it may be counted to, and the list that keeps those of its GPU."""

    suspected: SuspectedOutOfMemory
    entry: Entry
    kept: list[SuspectedOutOfMemory]

    @property
    def rank(self) -> tuple[int, float, DeviceKey]:
        """The key that sorts suspicions of one end, the strongest first."""
        suspected = self.suspected
        return _SUSPICIONS.index(suspected.suspicion), -suspected.ratio, suspected.device


@dataclass(slots=True, kw_only=True, eq=False)
class MemoryAtLook:
    """The memory of all devices at a look, and the ends of containers that are known by then.

    `values` has the devices of which the page says both what is in use and all memory. `users` are the containers that
    use memory (MiB) of each device, as far as it is measured. `failed` counts the allocations of the last minute that
    failed for lack of memory, by container and GPU. `clock_set_ns` is by how much the machine's clock was set since the
    process started. `suspects` are this look's suspicions, by container and end.
    """

    values: Mapping[DeviceKey, DeviceMemory]
    ends: Ends
    users: _Users
    failed: Mapping[_Device, int]
    clock_set_ns: int = 0
    suspects: dict[tuple[Owner, ContainerEnd], list[Suspect]] = field(default_factory=dict)

    def moment(self, end: ContainerEnd) -> int:
        """The end as a moment of the looks' clock."""
        return round(end.at_seconds * 1e9) - self.clock_set_ns

    def failed_of(self, owner: Owner, uuid: str) -> int:
        """The container's allocations on a GPU that failed, and those of which the probe does not know the GPU."""
        return self.failed.get((owner, uuid), 0) + self.failed.get((owner, ""), 0)

    def settle(self) -> bool:
        """Count each end once, on the device that speaks most for it. Returns whether there was any suspicion."""
        for suspects in self.suspects.values():
            first, *others = sorted(suspects, key=lambda suspect: suspect.rank)
            first.entry.add(OUT_OF_MEMORY, 1, first.suspected.suspicion)
            first.kept.insert(0, replace(first.suspected, more_devices=len(others)))
            del first.kept[_MOST_SUSPECTED:]
        return bool(self.suspects)


class MemoryLooks:
    """Reads the memory of each look. It remembers the probe's counts of the last minute, to know their growth."""

    def __init__(self) -> None:
        self._columns = DeviceColumns(_FAMILIES)
        self._failed: deque[tuple[int, Mapping[_Device, int]]] = deque(maxlen=_MOST_LOOKS)

    def read(self, snapshot: Snapshot, ends: Ends | None, at_ns: int, clock_set_ns: int) -> Work[MemoryAtLook | None]:
        """The memory at a look of this moment; None if `ends` is None: nobody reads pods."""
        if ends is None:
            return None
        values: Mapping[DeviceKey, DeviceMemory] = {}
        if snapshot.joined is not None:
            values = _memory_of((yield from self._columns.read(snapshot.joined)))
        failed = self._failed_lately(_failed_by(snapshot.cuda), at_ns) if snapshot.cuda is not None else {}
        return MemoryAtLook(
            values=values, ends=ends, users=_users_of(snapshot), failed=failed, clock_set_ns=clock_set_ns
        )

    def _failed_lately(self, now: Mapping[_Device, int], at_ns: int) -> Mapping[_Device, int]:
        """The growth of each count in the last minute."""
        looks = self._failed
        while looks and looks[0][0] < at_ns - WINDOW_NS:
            looks.popleft()
        looks.append((at_ns, now))
        grown: dict[_Device, int] = {}
        for device, number in now.items():
            # a row that is new was at 0 before, but the first look has all that came before it
            before = looks[0][1].get(device, 0) if len(looks) > 1 else number
            if number > before:
                grown[device] = number - before
        return grown


def _memory_of(columns: Mapping[DeviceKey, Columns]) -> Mapping[DeviceKey, DeviceMemory]:
    """The memory of each device. If the page lacks what a GPU uses, it is the sum over its MIG instances."""
    of_instances: dict[str, float] = {}
    for key, of_device in columns.items():
        if key.instance and of_device[0]:
            of_instances[key.uuid] = of_instances.get(key.uuid, 0.0) + of_device[0][0]
    memory: dict[DeviceKey, DeviceMemory] = {}
    for key, of_device in columns.items():
        used, total, free, reserved = (values[0] if values else None for values in of_device)
        whole = all_memory(used, total, free, reserved) or 0.0
        in_use = of_instances.get(key.uuid) if used is None and not key.instance else used
        if in_use is not None and whole > 0:
            memory[key] = DeviceMemory(round(in_use, 3), round(whole, 3))
    return memory


def _failed_by(cuda: "CudaUses") -> Mapping[_Device, int]:
    """The allocations that failed for lack of memory since the probe began.

    The probe counts failed allocations whatever their error, and errors whatever their call: the lower number of both.
    """
    failed: dict[_Device, int] = {}
    for (owner, key), use in cuda.uses.items():
        number = min(use.counts.failed_allocations, use.counts.errors.get(_NO_MEMORY, 0))
        if owner is not None and number:
            failed[owner, key.uuid] = failed.get((owner, key.uuid), 0) + number
    return failed


def _users_of(snapshot: Snapshot) -> _Users:
    """The containers that use memory of each device, whether they hold it or not."""
    measured = snapshot.measured
    users: dict[DeviceKey, list[tuple[Owner, float]]] = {}
    for uses in (measured.uses, measured.strangers) if measured is not None else ():
        for (key, owner), use in uses.items():
            if use.memory_bytes:
                users.setdefault(key, []).append((owner, round(use.memory_bytes / _MIB, 1)))
    return users


def newest_of(kept: Iterable[Sequence[SuspectedOutOfMemory]], most: int = 100) -> tuple[SuspectedOutOfMemory, ...]:
    """The last suspicions of all GPUs, the newest first."""
    ends = [suspected for of_gpu in kept for suspected in of_gpu]
    return tuple(sorted(ends, key=lambda end: (-end.ended_ns, end.owner, end.device))[:most])
