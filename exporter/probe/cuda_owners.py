"""Finds the owner of each process that the CUDA probe counts, and the devices behind the process' ordinals.

process ──► container, by /proc ──► owner, by its id ──► the devices that the kubelet gave it ──► those that it sees

A privileged container sees more GPUs than the kubelet gave it, and numbers them all. Then only a UUID identifies a GPU.

A process that ended before /proc was read belongs to the container of its cgroup, if all processes that are seen in
that cgroup, then or later, are in the same container. Counts of a process wait until its owner is known, since an owner
never changes.

CUDA_VISIBLE_DEVICES lists the devices that a process may use, in the order of cudaSetDevice (CUDA Programming Guide,
"CUDA Environment Variables"):

    2,0                                the container's third GPU, then its first
    GPU-8932f937,GPU-40f717b2-3f5c…    GPUs by UUID; its first characters are enough if only one GPU has them
    MIG-<uuid>                         a MIG instance
    MIG-GPU-<uuid>/<gi>/<ci>           a MIG instance, as drivers before R470 write it

The first entry decides the kind of all entries. An entry that means no device, or several, ends the list. C's strtoul
reads the numbers, so `1gpu` is 1. If a device is named twice, no device is visible. (PyTorch follows the last three
rules: torch/cuda/__init__.py.) Blanks around entries do not count.

With MIG a process sees only one device: the first instance that it may see (MIG User Guide, "CUDA Device Enumeration").
A GPU that is cut stands for its first instance. This module ignores CUDA_DEVICE_ORDER. By default CUDA puts the fastest
GPU first; if all GPUs have the same model, that is the order of their indices.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from exporter.model.cuda import UNKNOWN_DEVICE, CudaDevice, CudaKey, CudaProcess, ProcessId, SeenProcess
from exporter.model.devices import DeviceKey, Inventory, InventoryGpu, Owners
from exporter.model.measured import ProcessPlace
from exporter.model.memo import Memo
from exporter.model.pods import Owner
from exporter.usage.process_owners import Containers, owner_of

_NUMBER = re.compile(r"\+?([0-9]+)")
_MOST_DIGITS = 6
_MOST_ENTRIES = 256  # 16 GPUs with 7 compute instances each have 112
_OLD_MIG = re.compile(r"MIG-(GPU-[^/]+)/([0-9]{1,6})/([0-9]{1,6})")


class VisibleDevice(NamedTuple):
    """A device of a container: its key, the GPU's UUID (GPU-…) and, of a MIG instance, its UUID and GPU_I_ID."""

    key: DeviceKey
    gpu: str
    mig: str = ""
    instance: str = ""


def visible(devices: Sequence[VisibleDevice], text: str | None) -> tuple[DeviceKey, ...]:
    """The devices that a process sees, in the order of its ordinals.

    `devices` are the container's, by the GPU's index, then by instance. `text` is CUDA_VISIBLE_DEVICES (None: not set).
    """
    seen = tuple(devices) if text is None else _named(devices, text)
    instance = next((device for device in seen if device.mig or device.instance), None)
    return tuple(device.key for device in seen) if instance is None else (instance.key,)


def is_by_uuid(text: str | None) -> bool:
    """Whether the text has the same meaning in any order of the container's devices."""
    return text is not None and text.lstrip().startswith(("GPU-", "MIG-"))


def _named(devices: Sequence[VisibleDevice], text: str) -> tuple[VisibleDevice, ...]:
    """The devices that the text's entries mean. All entries are of the same kind as the first."""
    names_instances = text.lstrip().startswith("MIG-")
    names_uuids = is_by_uuid(text)
    by_uuid: dict[str, VisibleDevice] = {}
    for device in devices:
        by_uuid.setdefault(device.gpu, device)  # a GPU that is cut stands for its first instance
    gpus = tuple(by_uuid.values())
    named: dict[str, VisibleDevice] = {}
    for entry in map(str.strip, text.split(",", _MOST_ENTRIES)[:_MOST_ENTRIES]):
        if names_instances:
            fitting = _instances(devices, entry)[:1]
        elif names_uuids:
            fitting = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.gpu.startswith(entry)]
        else:
            fitting = _by_number(gpus, entry)
        if len(fitting) != 1:
            break
        # compute instances of the same GPU instance are devices of their own
        name = entry if names_instances else fitting[0].gpu
        if name in named:
            return ()
        named[name] = fitting[0]
    return tuple(named.values())


def _by_number(gpus: Sequence[VisibleDevice], entry: str) -> Sequence[VisibleDevice]:
    number = _NUMBER.match(entry)
    digits = number[1].lstrip("0") if number else ""
    index = int(digits or "0") if len(digits) <= _MOST_DIGITS else len(gpus)
    return gpus[index : index + 1] if number else ()


def _instances(devices: Sequence[VisibleDevice], entry: str) -> Sequence[VisibleDevice]:
    old = _OLD_MIG.fullmatch(entry)
    of_old = old.group(1, 2) if old else None
    return [
        device for device in devices if of_old == (device.gpu, device.instance) or (device.mig and entry == device.mig)
    ]


# the index of a GPU that the inventory does not have
_NOWHERE = -1
_INDEX = re.compile("[0-9]{1,6}")
_Placed = tuple[int, VisibleDevice]


class HeldDevices:
    """The devices of each container, in CUDA's order, for one state of the owners and of the inventory."""

    def __init__(self, owners: Owners, inventory: Inventory) -> None:
        self._inventory = inventory
        self._gpus: dict[str, tuple[int, InventoryGpu]] = {}
        self._instances: dict[str, tuple[int, InventoryGpu, str]] = {}
        for place, gpu in enumerate(_in_order(inventory.gpus)):
            for name in gpu.names:
                self._gpus.setdefault(name, (place, gpu))
            for mig in gpu.mig:
                self._instances[mig.uuid] = place, gpu, mig.instance_id
        placed: dict[Owner | None, list[_Placed]] = {}
        for key, holders in owners.holders.items():
            devices = tuple(self._devices(key))
            for owner in {holder.owner for holder in holders}:
                placed.setdefault(owner, []).extend(devices)
        # gpu-manager and allocators choose the GPU, and the kubelet does not name it
        for owner in owners.unplaced:
            placed.pop(owner, None)
        placed[None] = [device for key in self._keys(owners) for device in self._devices(key)]
        self._of = {owner: _sorted(devices) for owner, devices in placed.items()}

    def of(self, owner: Owner | None) -> tuple[Sequence[VisibleDevice], bool]:
        """The devices of a container (None: all, for a process in no container), and whether their order is known.

        Instances of a GPU that a container holds as a whole have the GPU's key.
        """
        return self._of.get(owner, ((), True))

    def _keys(self, owners: Owners) -> Iterator[DeviceKey]:
        for gpu in _in_order(self._inventory.gpus):
            names = {*gpu.names, *(mig.uuid for mig in gpu.mig)}
            of_gpu = [key for key in owners.holders if key.uuid in names]
            if any(not key.instance and key.uuid in gpu.names for key in of_gpu) or not gpu.mig:
                yield next((key for key in of_gpu if not key.instance), DeviceKey(uuid=gpu.uuid))
                continue
            for mig in gpu.mig:
                own = (key for key in of_gpu if key.uuid == mig.uuid or key.instance == mig.instance_id)
                yield next(own, DeviceKey(uuid=gpu.uuid, instance=mig.instance_id))

    def _devices(self, key: DeviceKey) -> Iterator[_Placed]:
        """The devices that CUDA lists for this key."""
        if key.uuid in self._instances:
            place, gpu, instance = self._instances[key.uuid]
            yield place, VisibleDevice(key, gpu.uuid, key.uuid, instance)
        elif key.uuid in self._gpus:
            place, gpu = self._gpus[key.uuid]
            fitting = [mig for mig in gpu.mig if key.instance in ("", mig.instance_id)]
            for mig in fitting:
                yield place, VisibleDevice(key, gpu.uuid, mig.uuid, mig.instance_id)
            if not fitting:
                yield place, VisibleDevice(key, gpu.uuid, "", key.instance)
        elif key.uuid.startswith("MIG-"):
            yield _NOWHERE, VisibleDevice(key, "", key.uuid)
        else:
            yield _NOWHERE, VisibleDevice(key, key.uuid, "", key.instance)


def _in_order(gpus: Sequence[InventoryGpu]) -> Sequence[InventoryGpu]:
    """The GPUs by index. If one has no index, they stay in the driver's order, which is the order on the bus."""
    if all(_INDEX.fullmatch(gpu.index) for gpu in gpus):
        return sorted(gpus, key=lambda gpu: int(gpu.index))
    return gpus


def _sorted(placed: list[_Placed]) -> tuple[Sequence[VisibleDevice], bool]:
    are_in_order = len(placed) < 2 or all(place != _NOWHERE for place, _ in placed)  # noqa: PLR2004 - one has an order
    devices = sorted(placed, key=lambda device: (device[0], len(device[1].instance), device[1].instance))
    return tuple(device for _, device in devices), are_in_order


# This is many times the number of containers that call CUDA on one node.
MOST_CGROUPS = 4_096
# the kubelet's answer at a look may be a second old, so the next look counts, too
LOOKS = 2
_TICK_NS = 10_000_000
# 0: not known; 1: the root of cgroup v2, in which all processes are if the node uses v1
_ROOT_CGROUPS = (0, 1)


@dataclass(frozen=True, slots=True)
class ProcessOwner:
    """A process' owner (None: in no pod), and the devices that it sees, in the order of its ordinals."""

    owner: Owner | None
    devices: tuple[DeviceKey, ...] = ()

    def key(self, device: CudaDevice) -> CudaKey:
        """The key of the row for which a device of the process counts."""
        is_listed = 0 <= device.ordinal < len(self.devices)
        return self.owner, self.devices[device.ordinal] if is_listed else UNKNOWN_DEVICE


class OwnerFacts(NamedTuple):
    """The containers, the owners and the devices of the node. `look` is the number of the look that saw them."""

    tables: Sequence[Containers]
    owners: Owners
    inventory: Inventory
    look: int = 0


class _Learnt(NamedTuple):
    """A process' container, its CUDA_VISIBLE_DEVICES (certain if `is_sure`), and its number of GPUs (0: not known)."""

    place: ProcessPlace | None
    visible: str | None
    gpu_files: int = 0
    is_sure: bool = True


class ProcessOwners:
    """Finds the owners of processes, and remembers them while the processes count.

    `whose_by_id` is the last `whose`.
    """

    def __init__(self) -> None:
        self._learnt: dict[ProcessId, _Learnt] = {}
        self._whose: dict[ProcessId, ProcessOwner] = {}
        self.whose_by_id: Mapping[ProcessId, ProcessOwner] = MappingProxyType(self._whose)
        self._empty_since: dict[ProcessId, int] = {}  # the look since which their container holds nothing
        self._of_cgroups: dict[int, _Learnt | None] = {}  # None: the cgroup's processes are in several containers
        self._unseen: dict[ProcessId, CudaProcess] = {}  # processes that ended before /proc told their container
        self._held = Memo(HeldDevices(Owners(), Inventory()))

    @property
    def cgroups(self) -> int:
        """The number of cgroups that are remembered; at most MOST_CGROUPS."""
        return len(self._of_cgroups)

    def learn(self, processes: Iterable[CudaProcess], seen: Iterable[SeenProcess]) -> None:
        """Note the places of new processes in /proc."""
        new = [process for process in processes if process.id not in self._learnt]
        if not new:
            return
        by_start = {_start(process.id): process for process in seen}
        for process in new:
            in_proc = by_start.get(_start(process.id))
            if in_proc is not None:
                learnt = _Learnt(in_proc.place, in_proc.visible, in_proc.gpu_files, is_sure=not in_proc.is_hidden)
                self._note(process.cgroup_id, learnt)
                self._learnt[process.id] = _of_process(process, learnt)
            elif process.ended_ns is not None:
                self._unseen[process.id] = process
        for process in tuple(self._unseen.values()):
            of_cgroup = self._of_cgroups.get(process.cgroup_id)
            if of_cgroup is not None:
                self._learnt[process.id] = _of_process(process, of_cgroup)
                del self._unseen[process.id]

    def whose(self, facts: OwnerFacts) -> Mapping[ProcessId, ProcessOwner]:
        """The owner of each process whose owner is known."""
        is_new = not self._held.is_of(facts.owners, facts.inventory)
        self._held.of(HeldDevices, facts.owners, facts.inventory)
        for id_, learnt in self._learnt.items():
            before = self._whose.get(id_)
            if before is None:
                found_owner = self._find(id_, learnt, facts)
                if found_owner is not None:
                    self._whose[id_] = found_owner
            elif is_new:
                devices = self._devices(learnt, before.owner)
                # a pod that has ended holds nothing now, but its processes worked on the devices that it held
                if devices and devices != before.devices:
                    self._whose[id_] = ProcessOwner(before.owner, devices)
        return self.whose_by_id

    def _find(self, id_: ProcessId, learnt: _Learnt, facts: OwnerFacts) -> ProcessOwner | None:
        """The owner of a process; None while it may become known later."""
        place = learnt.place
        owner = owner_of(place, facts.tables) if place else None
        if owner is None and place is not None and place.is_of_pod:
            return None
        devices = self._devices(learnt, owner)
        if owner is not None and not devices and self._may_be_late(id_, facts.look):
            return None
        return ProcessOwner(owner, devices)

    def keep(self, processes: AbstractSet[ProcessId]) -> None:
        """Forget all other processes."""
        for gone in self._unseen.keys() - processes:
            del self._unseen[gone]
        for gone in self._learnt.keys() - processes:
            del self._learnt[gone]
            self._whose.pop(gone, None)
            self._empty_since.pop(gone, None)

    def _devices(self, learnt: _Learnt, owner: Owner | None) -> tuple[DeviceKey, ...]:
        if owner is None and learnt.place is not None:
            return ()  # the process is in docker's container, for example: the kubelet does not know its devices
        devices, are_in_order = self._held.value.of(owner)
        if learnt.is_sure and is_by_uuid(learnt.visible):
            return visible(devices, learnt.visible)
        gpus = {device.gpu for device in devices}
        if owner is not None and "" not in gpus and learnt.gpu_files > len(gpus):
            return ()  # it sees more GPUs than it holds, so its first GPU may be another container's
        if not learnt.is_sure:
            # if it holds several, it may see any of them in any order; if it holds one, it sees that one or none
            return visible(devices, None) if len(devices) == 1 else ()
        return visible(devices, learnt.visible) if are_in_order else ()

    def _may_be_late(self, process: ProcessId, look: int) -> bool:
        """Whether the kubelet's answer may be older than the process' container."""
        return look - self._empty_since.setdefault(process, look) < LOOKS

    def _note(self, cgroup: int, learnt: _Learnt) -> None:
        """Keep the facts that all processes of a cgroup share."""
        if cgroup in _ROOT_CGROUPS:
            return
        before = self._of_cgroups.pop(cgroup, learnt)
        if before is not None and before.place != learnt.place:
            before = None
        elif before is not None and before != learnt:
            before = before._replace(is_sure=False)
        self._of_cgroups[cgroup] = before
        if len(self._of_cgroups) > MOST_CGROUPS:
            del self._of_cgroups[next(iter(self._of_cgroups))]


def _start(process: ProcessId) -> tuple[int, int]:
    """The pid and the start in ticks, as /proc has them. The kernel's own clock is finer."""
    return process.pid, process.started_ns // _TICK_NS


def _of_process(process: CudaProcess, learnt: _Learnt) -> _Learnt:
    """The facts of a process: CUDA_VISIBLE_DEVICES as set before the first call comes before the one at its start."""
    return learnt if process.visible is None else learnt._replace(visible=process.visible, is_sure=True)
