"""Whose process it is that the CUDA probe counts, and which devices it numbers.

process ──► container, by /proc ──► owner, by its id ──► the devices that the kubelet gave it ──► those that it sees

A process that ended before /proc was read is in the container of its cgroup, if all others of that cgroup that were
seen are in one. Until its owner is known a process is nobody's, and its counts wait: an owner never changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from exporter.attribution.containers import Containers, owner_of
from exporter.attribution.held_devices import HeldDevices
from exporter.attribution.visible_devices import is_by_uuid, visible
from exporter.model.cuda import UNKNOWN_DEVICE, CudaDevice, CudaKey, CudaProcess, ProcessId, SeenProcess
from exporter.model.devices import DeviceKey, Inventory, Owners
from exporter.model.measured import Place
from exporter.model.pods import Owner

# Many times the containers that call CUDA on one node.
MOST_CGROUPS = 4_096
_TICK_NS = 10_000_000
# of cgroup v2, or 0 where it is not known: it tells nothing, as all processes are in it where v1 is in use
_ROOT_CGROUPS = (0, 1)


@dataclass(frozen=True, slots=True)
class Whose:
    """Whose a process is; None for one in no pod. `devices` are those that it sees, in the order of its ordinals."""

    owner: Owner | None
    devices: tuple[DeviceKey, ...] = ()

    def key(self, device: CudaDevice) -> CudaKey:
        """What a device of the process counts for."""
        known = 0 <= device.ordinal < len(self.devices)
        return self.owner, self.devices[device.ordinal] if known else UNKNOWN_DEVICE


class Facts(NamedTuple):
    """Who is in which container, who holds which device, and the devices there are."""

    tables: Sequence[Containers]
    owners: Owners
    inventory: Inventory


class _Seen(NamedTuple):
    """What /proc says of a process; without `is_sure` nobody knows what its environment is."""

    place: Place | None
    visible: str | None
    is_sure: bool = True


class ProcessOwners:
    """Finds whose processes are, and remembers what it learnt as long as somebody counts them."""

    def __init__(self) -> None:
        self._seen: dict[ProcessId, _Seen] = {}
        self._whose: dict[ProcessId, Whose] = {}
        self._of_cgroups: dict[int, _Seen | None] = {}  # None: its processes are in several containers
        self._held: HeldDevices | None = None

    @property
    def cgroups(self) -> int:
        """How many cgroups are remembered, of MOST_CGROUPS."""
        return len(self._of_cgroups)

    def learn(self, processes: Iterable[CudaProcess], seen: Iterable[SeenProcess]) -> None:
        """What /proc says of processes. Of one that goes on and of which it says nothing more, the last word counts."""
        by_start = {_start(each.id): each for each in seen}
        unseen = []
        for process in processes:
            found = by_start.get(_start(process.id))
            if found is not None:
                self._seen[process.id] = _Seen(found.place, found.visible)
                self._note(process.cgroup_id, self._seen[process.id])
            elif process.id not in self._seen and process.ended_ns is not None:
                unseen.append(process)
        for process in unseen:
            of_cgroup = self._of_cgroups.get(process.cgroup_id)
            if of_cgroup is not None:
                self._seen[process.id] = of_cgroup

    def whose(self, processes: Iterable[CudaProcess], facts: Facts) -> Mapping[ProcessId, Whose]:
        """Whose these are; those are left out of which it is not known yet."""
        if self._held is None or not self._held.is_of(facts.owners, facts.inventory):
            self._held = HeldDevices(facts.owners, facts.inventory)
        for process in processes:
            seen, before = self._seen.get(process.id), self._whose.get(process.id)
            if seen is None:
                continue
            owner = before.owner if before else _owner(seen.place, facts.tables)
            if owner is None and seen.place is not None and seen.place.is_of_pod:
                continue
            devices = self._devices(process, seen, owner, self._held)
            # a pod that has ended holds nothing any more, and what its processes did was on the devices that it held
            if before is None or (devices and devices != before.devices):
                self._whose[process.id] = Whose(owner, devices)
        return self._whose

    def keep(self, processes: AbstractSet[ProcessId]) -> None:
        """Forget all others."""
        for gone in self._seen.keys() - processes:
            del self._seen[gone]
            self._whose.pop(gone, None)

    @staticmethod
    def _devices(process: CudaProcess, seen: _Seen, owner: Owner | None, held: HeldDevices) -> tuple[DeviceKey, ...]:
        # what the program has set itself before its first call is later than what it was started with
        text = seen.visible if process.visible is None else process.visible
        if process.visible is None and not seen.is_sure:
            return ()
        if owner is None and seen.place is not None:
            return ()  # docker's, for example: the kubelet does not know what it was given
        devices, are_in_order = held.of(owner)
        return visible(devices, text) if are_in_order or is_by_uuid(text) else ()

    def _note(self, cgroup: int, seen: _Seen) -> None:
        """What the processes of a cgroup have in common."""
        if cgroup in _ROOT_CGROUPS:
            return
        before = self._of_cgroups.pop(cgroup, seen)
        if before is not None and before.place != seen.place:
            before = None
        elif before is not None and before.visible != seen.visible:
            before = before._replace(is_sure=False)
        self._of_cgroups[cgroup] = before
        if len(self._of_cgroups) > MOST_CGROUPS:
            del self._of_cgroups[next(iter(self._of_cgroups))]


def _start(process: ProcessId) -> tuple[int, int]:
    """The pid and the start in ticks, as /proc has it: the kernel's own clock is finer."""
    return process.pid, process.started_ns // _TICK_NS


def _owner(place: Place | None, tables: Sequence[Containers]) -> Owner | None:
    return owner_of(place, tables) if place is not None else None
