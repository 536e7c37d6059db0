"""Whose process it is that the CUDA probe counts, and which devices it numbers.

process ──► container, by /proc ──► owner, by its id ──► the devices that the kubelet gave it ──► those that it sees

A container that finds more GPUs than it was given (a privileged one) numbers them all. Only a UUID tells then which one
it means.

A process that ended before /proc was read is in the container of its cgroup, if all others of that cgroup that are
seen, be it later, are in one. Until its owner is known a process is nobody's, and its counts wait: an owner never
changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType
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
# The kubelet's answer of a look may be a second old, so the word of the next look counts, too.
LOOKS = 2
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
    """Who is in which container, who holds which device, and the devices there are.

    `look` is the number of the look at the node that found out who holds what.
    """

    tables: Sequence[Containers]
    owners: Owners
    inventory: Inventory
    look: int = 0


class _Known(NamedTuple):
    """Where a process is, its CUDA_VISIBLE_DEVICES, and how many GPUs it finds (0: not known).

    Without `is_sure` nobody knows what the variable is.
    """

    place: Place | None
    visible: str | None
    gpu_files: int = 0
    is_sure: bool = True


class ProcessOwners:
    """Finds whose processes are, and remembers what it learnt as long as somebody counts them.

    `known` says of each whose it is, as `whose` found last.
    """

    def __init__(self) -> None:
        self._known: dict[ProcessId, _Known] = {}
        self._whose: dict[ProcessId, Whose] = {}
        self.known: Mapping[ProcessId, Whose] = MappingProxyType(self._whose)
        self._empty_since: dict[ProcessId, int] = {}  # looks by which their containers held nothing
        self._of_cgroups: dict[int, _Known | None] = {}  # None: its processes are in several containers
        self._unseen: dict[ProcessId, CudaProcess] = {}  # they ended before /proc said where they are
        self._held = HeldDevices(Owners(), Inventory())

    @property
    def cgroups(self) -> int:
        """How many cgroups are remembered, of MOST_CGROUPS."""
        return len(self._of_cgroups)

    def learn(self, processes: Iterable[CudaProcess], seen: Iterable[SeenProcess]) -> None:
        """What /proc says of processes of which nothing is known yet."""
        new = [process for process in processes if process.id not in self._known]
        if not new:
            return
        by_start = {_start(each.id): each for each in seen}
        for process in new:
            found = by_start.get(_start(process.id))
            if found is not None:
                known = _Known(found.place, found.visible, found.gpu_files, is_sure=not found.is_hidden)
                self._note(process.cgroup_id, known)
                self._known[process.id] = _of_process(process, known)
            elif process.ended_ns is not None:
                self._unseen[process.id] = process
        for process in tuple(self._unseen.values()):
            of_cgroup = self._of_cgroups.get(process.cgroup_id)
            if of_cgroup is not None:
                self._known[process.id] = _of_process(process, of_cgroup)
                del self._unseen[process.id]

    def whose(self, facts: Facts) -> Mapping[ProcessId, Whose]:
        """Whose each process is; without those of which it is not known yet."""
        is_new = not self._held.is_of(facts.owners, facts.inventory)
        if is_new:
            self._held = HeldDevices(facts.owners, facts.inventory)
        for id_, known in self._known.items():
            before = self._whose.get(id_)
            if before is not None and not is_new:
                continue
            owner = before.owner if before else _owner(known.place, facts.tables)
            if owner is None and known.place is not None and known.place.is_of_pod:
                continue
            devices = self._devices(known, owner)
            if before is None and owner is not None and not devices and self._may_be_late(id_, facts.look):
                continue
            # a pod that has ended holds nothing any more, and what its processes did was on the devices that it held
            if before is None or (devices and devices != before.devices):
                self._whose[id_] = Whose(owner, devices)
        return self.known

    def keep(self, processes: AbstractSet[ProcessId]) -> None:
        """Forget all others."""
        for gone in self._unseen.keys() - processes:
            del self._unseen[gone]
        for gone in self._known.keys() - processes:
            del self._known[gone]
            self._whose.pop(gone, None)
            self._empty_since.pop(gone, None)

    def _devices(self, known: _Known, owner: Owner | None) -> tuple[DeviceKey, ...]:
        if owner is None and known.place is not None:
            return ()  # in docker's container, for example: the kubelet does not know what that was given
        devices, are_in_order = self._held.of(owner)
        if known.is_sure and is_by_uuid(known.visible):
            return visible(devices, known.visible)
        gpus = {device.gpu for device in devices}
        if owner is not None and "" not in gpus and known.gpu_files > len(gpus):
            return ()  # it sees more GPUs than it was given: its first one may be another container's
        if not known.is_sure:
            # of several it may see any, in any order; of one that one, or none
            return visible(devices, None) if len(devices) == 1 else ()
        return visible(devices, known.visible) if are_in_order else ()

    def _may_be_late(self, process: ProcessId, look: int) -> bool:
        """Whether the word about who holds what may be from before the process' container was made."""
        return look - self._empty_since.setdefault(process, look) < LOOKS

    def _note(self, cgroup: int, known: _Known) -> None:
        """What the processes of a cgroup have in common."""
        if cgroup in _ROOT_CGROUPS:
            return
        before = self._of_cgroups.pop(cgroup, known)
        if before is not None and before.place != known.place:
            before = None
        elif before is not None and before != known:
            before = before._replace(is_sure=False)
        self._of_cgroups[cgroup] = before
        if len(self._of_cgroups) > MOST_CGROUPS:
            del self._of_cgroups[next(iter(self._of_cgroups))]


def _start(process: ProcessId) -> tuple[int, int]:
    """The pid and the start in ticks, as /proc has it: the kernel's own clock is finer."""
    return process.pid, process.started_ns // _TICK_NS


def _of_process(process: CudaProcess, known: _Known) -> _Known:
    """What a program has set itself before its first call is later than what it was started with."""
    return known if process.visible is None else known._replace(visible=process.visible, is_sure=True)


def _owner(place: Place | None, tables: Sequence[Containers]) -> Owner | None:
    return owner_of(place, tables) if place is not None else None
