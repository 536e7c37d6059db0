"""What each owner of a GPU used of it: the driver's processes, the containers that they are in, the kubelet's word.

The kubelet says who holds a device. What a process uses counts for the holder that it runs in, and for nobody if it
runs elsewhere. A holder without a process uses nothing: that is 0, and not unknown. Where a process is in some pod and
nobody can say in whose, it may be any holder's that has no other process: then theirs is unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from exporter.accounting.measured import scale_down
from exporter.accounting.units import holders_of_units
from exporter.attribution.containers import Containers, owner_of
from exporter.model.devices import DeviceKey, Inventory, Owners
from exporter.model.driver import DriverReading, GpuProcess
from exporter.model.measured import HostProcesses, Measured, Total, Unowned, Use, WithoutOwner
from exporter.model.pods import Owner

NO_TOTALS: Mapping[DeviceKey, Total] = MappingProxyType({})
_Share = tuple[DeviceKey, Owner]
_NOTHING = Total()
_UNKNOWN = Use(memory_bytes=None, sm_ratio=None, processes=0)


def measure(
    reading: DriverReading,
    processes: HostProcesses | None,
    tables: Sequence[Containers],
    owners: Owners,
    totals: Mapping[DeviceKey, Total] = NO_TOTALS,
) -> Measured | None:
    """What each owner used; None where processes are not known, or were read before the driver was asked.

    Args:
        reading: the driver's word. Holders of devices that it does not know are left out.
        processes: those of the host; None where they cannot be seen.
        tables: who is in which container.
        owners: who holds which device.
        totals: what all together use of a device, by the driver's key. Parts that exceed it are scaled down.
    """
    # a pid may since have gone to another process: only what was read later can tell
    if reading.processes is None or processes is None or processes.read_at < reading.read_at:
        return None
    listed = each_once(reading.processes)
    keys = _Keys(owners, reading.inventory, (process.device for process in listed))
    owned: dict[_Share, list[GpuProcess]] = {}
    unowned = []
    for process in listed:
        judged = _judge(process, processes, reading.read_at, tables, keys)
        if isinstance(judged, Unowned):
            unowned.append(judged)
        else:
            owned.setdefault(judged, []).append(process)
    others: dict[DeviceKey, list[GpuProcess]] = {}
    for each in unowned:
        others.setdefault(keys.of(each.process.device), []).append(each.process)
    # an instance of a GPU that is held as a whole is a part of it, and so is its total
    of_all = {
        keys.of(device): total
        for device, total in totals.items()
        if not device.instance or keys.of(device) != keys.of(DeviceKey(uuid=device.uuid))
    }
    uses: dict[_Share, Use] = {}
    nobodys: dict[DeviceKey, Use] = {}
    of_owners = _uses(owned, unowned, keys, reading.unknown)
    for key in (*of_owners, *(key for key in others if key not in of_owners)):
        of_key, of_nobody = of_owners.get(key, {}), others.get(key, ())
        *scaled, rest = _within((*of_key.values(), _sum(of_nobody)), of_all.get(key, _NOTHING))
        uses.update(zip(((key, owner) for owner in of_key), scaled, strict=True))
        if of_nobody:
            nobodys[key] = rest
    return Measured(
        uses=MappingProxyType(uses),
        unowned=tuple(unowned),
        nobodys=MappingProxyType(nobodys),
        owned=MappingProxyType(owned),
        host=processes,
        unread=reading.unknown,
    )


def each_once(processes: Iterable[GpuProcess]) -> list[GpuProcess]:
    """One entry for a process on a device, in the order of coming.

    A process that computes and draws is in two of the driver's lists, with all its memory in each. One on an instance
    may be told of by the GPU, too.
    """
    merged: dict[tuple[DeviceKey, int], GpuProcess] = {}
    for process in processes:
        place = (process.device, process.pid)
        before = merged.get(place)
        merged[place] = process if before is None else _merged(before, process)
    on_instances = {(device.uuid, pid) for device, pid in merged if device.instance}
    return [
        process
        for (device, pid), process in merged.items()
        if device.instance or (device.uuid, pid) not in on_instances
    ]


def _merged(one: GpuProcess, other: GpuProcess) -> GpuProcess:
    memory = [process.memory_bytes for process in (one, other) if process.memory_bytes is not None]
    sm = [process.sm_ratio for process in (one, other) if process.sm_ratio is not None]
    return GpuProcess(
        pid=one.pid,
        device=one.device,
        memory_bytes=max(memory, default=None),
        sm_ratio=max(sm, default=None),
        kinds=one.kinds | other.kinds,
    )


class _Keys:
    """The devices that the driver knows and somebody holds, by the keys that owners have for them.

    The driver names an instance by its GPU and its number. `Owners` may go by another name, if samples do: the UUID of
    the instance, or the GPU's name or number. The instances of a GPU that is held as a whole count for the GPU.
    """

    def __init__(self, owners: Owners, inventory: Inventory, others: Iterable[DeviceKey]) -> None:
        """`others` are devices that may be missing in the inventory."""
        self.holders: dict[DeviceKey, frozenset[Owner]] = {}
        self.holders_of_units = holders_of_units(owners.units)
        self._held = owners.holders
        self._names: dict[DeviceKey, DeviceKey] = {}
        for gpu in inventory.gpus:
            names = tuple(name for name in (gpu.uuid, gpu.uuid.removeprefix("GPU-"), gpu.device, gpu.index) if name)
            self._add(DeviceKey(uuid=gpu.uuid), names)
            for mig in gpu.mig:
                self._add(DeviceKey(uuid=gpu.uuid, instance=mig.instance_id), names, mig.uuid)
        for device in others:
            if device not in self._names:
                self._add(device, (device.uuid, device.uuid.removeprefix("GPU-")))

    def of(self, device: DeviceKey) -> DeviceKey:
        """The key of a device of the driver; the device's own where nobody holds it."""
        return self._names.get(device, device)

    def of_gpu(self, uuid: str) -> set[DeviceKey]:
        """The keys of a GPU and of its instances."""
        return {key for device, key in self._names.items() if device.uuid == uuid}

    def instances(self, uuid: str, owner: Owner) -> set[DeviceKey]:
        """The keys of the GPU's instances that the owner holds."""
        of_gpu = (key for device, key in self._names.items() if device.uuid == uuid and device.instance)
        return {key for key in of_gpu if owner in self.holders[key]}

    def _add(self, device: DeviceKey, names: Sequence[str], mig: str = "") -> None:
        own = [DeviceKey(uuid=name, instance=device.instance) for name in names]
        whole = [DeviceKey(uuid=name) for name in names]
        for key in (*own, *((DeviceKey(uuid=mig),) if mig else ()), *whole):
            if key in self._held:
                self._names[device] = key
                self.holders[key] = frozenset(holder.owner for holder in self._held[key])
                return


def _judge(
    gpu_process: GpuProcess,
    processes: HostProcesses,
    read_at: float,
    tables: Sequence[Containers],
    keys: _Keys,
) -> tuple[DeviceKey, Owner] | Unowned:
    """The device and the owner that a process counts for, or why it counts for none."""
    process = processes.by_pid.get(gpu_process.pid)

    def without(reason: WithoutOwner, owner: Owner | None = None) -> Unowned:
        place = process.place if process and reason != "gone" else None
        return Unowned(process=gpu_process, reason=reason, place=place, owner=owner)

    if gpu_process.pid not in processes.asked_for:
        return without("unread")
    # one that was started after the driver had been asked has the pid of the one that the driver meant
    if process is None or process.started_at > read_at:
        return without("gone")
    if process.place is None:
        return without("no_container")
    if not process.place.is_of_pod:
        return without("other_container")
    owner = owner_of(process.place, tables)
    if owner is None:
        return without("unknown_container")
    device = gpu_process.device
    key = keys.of(device)
    if owner in keys.holders.get(key, ()) or owner in keys.holders_of_units:
        return key, owner
    instances = set() if device.instance else keys.instances(device.uuid, owner)
    if len(instances) == 1:
        return instances.pop(), owner
    return without("unknown_instance" if instances else "not_assigned", owner)


def _uses(
    owned: Mapping[_Share, Sequence[GpuProcess]], unowned: Iterable[Unowned], keys: _Keys, unread: Iterable[str]
) -> dict[DeviceKey, dict[Owner, Use]]:
    """What each holder of each device uses, in stable order, as the driver says it.

    `unread` are the UUIDs of GPUs of which the driver did not tell the processes.
    """
    nameless = {key for uuid in unread for key in keys.of_gpu(uuid)}
    spread: set[_Share] = set()
    for each in unowned:
        device = each.process.device
        if each.reason in ("unknown_container", "unread"):
            nameless.add(keys.of(device))
        elif each.reason == "unknown_instance" and each.owner:
            spread.update((key, each.owner) for key in keys.instances(device.uuid, each.owner))

    def use(key: DeviceKey, owner: Owner) -> Use:
        processes = owned.get((key, owner), ())
        if (key, owner) in spread:
            return Use(memory_bytes=None, sm_ratio=None, processes=len(processes))
        return _sum(processes) if processes or key not in nameless else _UNKNOWN

    uses = {key: {owner: use(key, owner) for owner in sorted(holders)} for key, holders in keys.holders.items()}
    for key, owner in sorted(owned):
        if owner not in keys.holders.get(key, ()):
            # it holds units of some GPU: that it uses this one, only its processes show
            uses.setdefault(key, {})[owner] = use(key, owner)
    return uses


def _sum(processes: Sequence[GpuProcess]) -> Use:
    memory = [process.memory_bytes for process in processes if process.memory_bytes is not None]
    sm = [process.sm_ratio for process in processes if process.sm_ratio is not None]
    return Use(
        memory_bytes=sum(memory) if len(memory) == len(processes) else None,
        sm_ratio=sum(sm, start=0.0) if len(sm) == len(processes) else None,
        processes=len({process.pid for process in processes}),
    )


def _within(uses: Sequence[Use], total: Total) -> Iterable[Use]:
    """What all use of a device, scaled down where it exceeds the total together."""
    parts = scale_down([use.memory_bytes or 0 for use in uses], total.memory_bytes)
    sm = sum(use.sm_ratio or 0.0 for use in uses)
    factor = total.sm_ratio / sm if sm > total.sm_ratio else 1.0
    for use, part in zip(uses, parts, strict=True):
        yield Use(
            memory_bytes=None if use.memory_bytes is None else part,
            sm_ratio=None if use.sm_ratio is None else use.sm_ratio * factor,
            processes=use.processes,
        )
