"""What each owner of a GPU used of it: from the driver's processes, their containers and the kubelet's assignments.

A process counts for the holder of the device in whose container it runs, or in whose pod, if that holds the device
through one container alone; and else for nobody. A container that uses a device which its pod does not hold is a
stranger there. A holder without a process uses 0. If the container of a process in a pod is not known, it may be that
of any holder without a process: the use of these is then unknown. So it is where the processes that NVML lists leave
memory in use, or the time in which kernels ran, unexplained: in virtual machines, under MPS before Volta, with
confidential computing and on hosts that hide processes NVML lists none, or not all, or by pids that are not the host's.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType

from exporter.dividing.measured import scale_down
from exporter.model.devices import DeviceKey, Inventory, Owners
from exporter.model.driver import DriverReading, GpuProcess
from exporter.model.measured import HostProcesses, Measured, Total, Unexplained, Unowned, Use, WithoutOwner
from exporter.model.pods import Owner
from exporter.usage.containers import Containers, owner_of

NO_TOTALS: Mapping[DeviceKey, Total] = MappingProxyType({})
_Share = tuple[DeviceKey, Owner]
_NOTHING = Total()
_UNKNOWN = Use(memory_bytes=None, sm_ratio=None, processes=None)
# What the driver itself takes of a GPU that nobody uses is below: up to 0.6 GiB. Beside it, the processes' memory adds
# up to what is in use but for some MiB; of a large GPU more may be lost in rounding.
_LEAST_UNEXPLAINED_BYTES = 2**30
_LEAST_UNEXPLAINED_PART = 0.1
# kernels' times are of other moments than the device's, so they differ by much for a while
_LEAST_UNEXPLAINED_RATIO = 0.1
_MOST_UNEXPLAINED_OF = 2
# nvidia-cuda-mps-server, as far as the kernel keeps a name. Its control daemon has the same one, and uses no GPU.
_MPS_SERVER = "nvidia-cuda-mps"


def measure(
    reading: DriverReading,
    processes: HostProcesses | None,
    tables: Sequence[Containers],
    owners: Owners,
    totals: Mapping[DeviceKey, Total] = NO_TOTALS,
    unresolved: Collection[tuple[str, str]] | None = (),
    known_at: float = inf,
) -> Measured | None:
    """What each owner used; None where processes are not known, or were read before the driver was asked.

    Holders of devices that `reading` does not name are left out. `processes` are those of the host, `tables` their
    containers. `totals` are what all processes use of a device, by the driver's key: parts that exceed it are scaled
    down. `unresolved` are the pods that hold something of which nobody knows which device it is; None where it is not
    known who holds what: such pods are no strangers anywhere. Nor are those whose processes started after `known_at`
    (seconds of the monotonic clock), when the kubelet said who holds what.
    """
    # a pid may since have gone to another process: only what was read later can tell
    if reading.processes is None or processes is None or processes.read_at < reading.read_at:
        return None
    listed = each_once(reading.processes)
    keys = _Keys(owners, reading.inventory, (process.device for process in listed), unresolved, known_at)
    owned: dict[_Share, list[GpuProcess]] = {}
    unowned = []
    for process in listed:
        judged = _judge(process, processes, reading.read_at, tables, keys)
        if isinstance(judged, Unowned):
            unowned.append(judged)
        else:
            owned.setdefault(judged, []).append(process)
    others = _others(unowned, keys)
    # an instance of a GPU that is held as a whole is a part of it, and so is its total
    of_all = {
        keys.of(device): total
        for device, total in totals.items()
        if not device.instance or keys.of(device) != keys.of(DeviceKey(uuid=device.uuid))
    }
    uses: dict[_Share, Use] = {}
    unexplained = _unexplained(listed, unowned, keys, of_all)
    of_owners = _uses(owned, unowned, keys, reading.unknown, unexplained)
    for key in (*of_owners, *(key for key in others if key not in of_owners)):
        of_key, of_nobody = of_owners.get(key, {}), others.get(key, {})
        scaled = [*_within((*of_key.values(), *of_nobody.values()), of_all.get(key, _NOTHING))]
        uses.update(zip(((key, owner) for owner in of_key), scaled, strict=False))
        if of_nobody:
            others[key] = dict(zip(of_nobody, scaled[len(of_key) :], strict=True))
    return Measured(
        uses=MappingProxyType(uses),
        unowned=tuple(unowned),
        nobodys=MappingProxyType({key: _together([*of_key.values()]) for key, of_key in others.items()}),
        strangers=MappingProxyType(
            {(key, owner): use for key, of_key in others.items() for owner, use in of_key.items() if owner}
        ),
        unnamed=MappingProxyType({key: of_key[None] for key, of_key in others.items() if None in of_key}),
        owned=MappingProxyType(owned),
        host=processes,
        unread=reading.unknown,
        unexplained=MappingProxyType(_why_unknown(unexplained, of_owners, owned)),
    )


def each_once(processes: Iterable[GpuProcess]) -> list[GpuProcess]:
    """One entry for each process on a device, in order.

    The driver lists a process that computes and draws twice, with all its memory each time. It may list a process on an
    instance with the GPU, too.
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
    kinds = one.kinds | other.kinds
    return replace(one, memory_bytes=max(memory, default=None), sm_ratio=max(sm, default=None), kinds=kinds)


class _Keys:
    """The devices that the driver knows and somebody holds, by the keys that `Owners` has for them.

    The driver names an instance by its GPU and its number. `Owners` follows the samples, which may use the UUID of the
    instance, or the GPU's name or number. Instances of a GPU that is held as a whole count for the GPU.
    """

    def __init__(
        self,
        owners: Owners,
        inventory: Inventory,
        others: Iterable[DeviceKey],
        unresolved: Collection[tuple[str, str]] | None,
        known_at: float,
    ) -> None:
        """`others` are devices that may be missing in the inventory. The rest is as in `measure`."""
        self._unresolved = unresolved
        self._known_at = known_at
        self.holders: dict[DeviceKey, frozenset[Owner]] = {}
        self.unplaced = owners.unplaced
        self._held = owners.holders
        self._names: dict[DeviceKey, DeviceKey] = {}
        for gpu in inventory.gpus:
            self._add(DeviceKey(uuid=gpu.uuid), gpu.names)
            for mig in gpu.mig:
                self._add(DeviceKey(uuid=gpu.uuid, instance=mig.instance_id), gpu.names, mig.uuid)
        for device in others:
            if device not in self._names:
                self._add(device, (device.uuid, device.uuid.removeprefix("GPU-")))

    def of(self, device: DeviceKey) -> DeviceKey:
        """The key of a driver's device; the driver's own where nobody holds the device."""
        return self._names.get(device, device)

    def of_gpu(self, uuid: str) -> set[DeviceKey]:
        """The keys of a GPU and of its instances."""
        return {key for device, key in self._names.items() if device.uuid == uuid}

    def holder_for(self, device: DeviceKey, owner: Owner) -> Owner | None:
        """The holder for whom a container's processes count: itself, or the only one in its pod."""
        if owner in self.holders.get(device, ()) or owner in self.unplaced:
            return owner
        of_pod = self._of_pod(device, owner)
        return of_pod[0] if len(of_pod) == 1 else None

    def may_hold(self, device: DeviceKey, owner: Owner, started_at: float) -> bool:
        """Whether the pod of an owner, whose process started then, may hold the device, for all that is known."""
        if started_at > self._known_at or self._unresolved is None:
            return True
        return (owner.namespace, owner.pod) in self._unresolved or bool(self._of_pod(device, owner))

    def instances(self, uuid: str, owner: Owner) -> set[DeviceKey]:
        of_gpu = (key for device, key in self._names.items() if device.uuid == uuid and device.instance)
        return {key for key in of_gpu if owner in self.holders[key]}

    def _of_pod(self, device: DeviceKey, owner: Owner) -> list[Owner]:
        holders = self.holders.get(device, ())
        return [each for each in holders if (each.namespace, each.pod) == (owner.namespace, owner.pod)]

    def _add(self, device: DeviceKey, names: Sequence[str], mig: str = "") -> None:
        own = [DeviceKey(uuid=name, instance=device.instance) for name in names]
        whole = [DeviceKey(uuid=name) for name in names]
        for key in (*own, *((DeviceKey(uuid=mig),) if mig else ()), *whole):
            if key in self._held:
                self._names[device] = key
                self.holders[key] = frozenset(holder.owner for holder in self._held[key])
                return


def _judge(
    gpu_process: GpuProcess, processes: HostProcesses, read_at: float, tables: Sequence[Containers], keys: _Keys
) -> tuple[DeviceKey, Owner] | Unowned:
    """The device and the owner that a process counts for, or why it counts for nobody."""
    process = processes.by_pid.get(gpu_process.pid)

    def without(reason: WithoutOwner, owner: Owner | None = None) -> Unowned:
        place = process.place if process and reason != "gone" else None
        return Unowned(process=gpu_process, reason=reason, place=place, owner=owner)

    if gpu_process.pid not in processes.asked_for:
        return without("unread")
    # a process that started after the driver was asked got the pid of another one
    if process is None or process.started_at > read_at:
        return without("gone")
    owner = owner_of(process.place, tables) if process.place else None
    if owner is not None:
        device = gpu_process.device
        key = keys.of(device)
        if holder := keys.holder_for(key, owner):
            return key, holder
        instances = set() if device.instance else keys.instances(device.uuid, owner)
        if instances:
            return (instances.pop(), owner) if len(instances) == 1 else without("unknown_instance", owner)
    if process.name == _MPS_SERVER:
        return without("mps_server", owner)
    if owner is not None:
        may_hold = keys.may_hold(keys.of(gpu_process.device), owner, process.started_at)
        return without("unresolved" if may_hold else "not_assigned", owner)
    if process.place is None:
        return without("no_container")
    return without("unknown_container" if process.place.is_of_pod else "other_container")


def _others(unowned: Iterable[Unowned], keys: _Keys) -> dict[DeviceKey, dict[Owner | None, Use]]:
    """What each stranger uses of a device, and, under None, what all other processes of nobody use."""
    others: defaultdict[DeviceKey, dict[Owner | None, list[Unowned]]] = defaultdict(dict)
    for each in unowned:
        stranger = each.owner if each.reason == "not_assigned" else None
        others[keys.of(each.process.device)].setdefault(stranger, []).append(each)
    return {key: {owner: _sum_of(some) for owner, some in of_key.items()} for key, of_key in others.items()}


def _sum_of(unowned: Sequence[Unowned]) -> Use:
    # MPS' server is overhead of its clients, and no process of its own
    pids = {each.process.pid for each in unowned if each.reason != "mps_server"}
    return _sum([each.process for each in unowned], len(pids))


def _unexplained(
    listed: Iterable[GpuProcess], unowned: Iterable[Unowned], keys: _Keys, totals: Mapping[DeviceKey, Total]
) -> dict[DeviceKey, Unexplained]:
    """What the processes that are known to run do not account for, by device; holders may have to do with it."""
    reasons = {(each.process.device, each.process.pid): each.reason for each in unowned}
    memory: defaultdict[DeviceKey, int] = defaultdict(int)
    kernels: defaultdict[DeviceKey, float] = defaultdict(float)
    of_servers: defaultdict[DeviceKey, float] = defaultdict(float)
    for process in listed:
        key, reason = keys.of(process.device), reasons.get((process.device, process.pid))
        total = totals.get(key, _NOTHING)
        if reason == "mps_server":
            # all that it does is for its clients; before Volta it has their memory, too, and NVML does not list them
            of_servers[key] += process.sm_ratio or 0.0
        elif reason not in ("gone", "unread"):
            # where it is not known what a process uses, the process may be what all of it is used by
            memory[key] += (process.memory_bytes if process.memory_bytes is not None else total.memory_bytes) or 0
            kernels[key] += (process.sm_ratio if process.sm_ratio is not None else total.least_sm_ratio) or 0.0
    unexplained: dict[DeviceKey, Unexplained] = {}
    # whoever holds units or tokens may use any GPU
    for key in {*keys.holders, *(totals if keys.unplaced else ())}:
        total = totals.get(key, _NOTHING)
        in_use, ran = total.memory_bytes or 0, max(total.least_sm_ratio or 0.0, kernels[key] + of_servers[key])
        if in_use - memory.get(key, 0) >= max(_LEAST_UNEXPLAINED_BYTES, _LEAST_UNEXPLAINED_PART * in_use):
            unexplained[key] = "memory"
        elif ran - kernels[key] >= _LEAST_UNEXPLAINED_RATIO and ran > _MOST_UNEXPLAINED_OF * kernels[key]:
            unexplained[key] = "kernels"
        elif total.memory_bytes is None and total.least_sm_ratio is None and key not in memory:
            unexplained[key] = "all"
    return unexplained


def _why_unknown(
    unexplained: Mapping[DeviceKey, Unexplained],
    of_owners: Mapping[DeviceKey, Mapping[Owner, Use]],
    owned: Mapping[_Share, Sequence[GpuProcess]],
) -> dict[DeviceKey, Unexplained]:
    """Why something is not known of what holders use: what is `unexplained`, or not said of their own processes."""
    unknown = {key for key, of_key in of_owners.items() for use in of_key.values() if use.sm_ratio is None}
    why = {key: what for key, what in unexplained.items() if key in unknown or key not in of_owners}
    for (key, _), of_owner in owned.items():
        if any(process.memory_bytes is None for process in of_owner):
            why.setdefault(key, "memory_of_processes")
        # on MIG instances no driver measures it
        if any(process.sm_ratio is None and not process.device.instance for process in of_owner):
            why.setdefault(key, "kernels_of_processes")
    return why


def _uses(
    owned: Mapping[_Share, Sequence[GpuProcess]],
    unowned: Iterable[Unowned],
    keys: _Keys,
    unread: Iterable[str],
    unexplained: Mapping[DeviceKey, Unexplained],
) -> dict[DeviceKey, dict[Owner, Use]]:
    """What each holder of each device uses, in stable order. `unread` are the UUIDs of GPUs with unknown processes."""
    nameless = {key for uuid in unread for key in keys.of_gpu(uuid)}
    nameless.update(unexplained)
    spread: set[_Share] = set()
    for each in unowned:
        device = each.process.device
        if each.reason in ("unknown_container", "unread"):
            nameless.add(keys.of(device))
        elif each.reason == "unknown_instance" and each.owner:
            spread.update((key, each.owner) for key in keys.instances(device.uuid, each.owner))

    def use(key: DeviceKey, owner: Owner) -> Use:
        processes = owned.get((key, owner), ())
        if (key, owner) in spread or (not processes and key in nameless):
            return _UNKNOWN
        used = _sum(processes, len({process.pid for process in processes}))
        # it has processes, and one of them may run the kernels that no process is named for
        is_idle_by_ignorance = not used.sm_ratio and unexplained.get(key) == "kernels"
        return replace(used, sm_ratio=None) if is_idle_by_ignorance else used

    uses = {key: {owner: use(key, owner) for owner in sorted(holders)} for key, holders in keys.holders.items()}
    for key, owner in sorted(owned):
        if owner not in keys.holders.get(key, ()):
            # it holds units of some GPU: only its processes show that it uses this one
            uses.setdefault(key, {})[owner] = use(key, owner)
    return uses


def _sum(parts: Sequence[GpuProcess | Use], processes: int) -> Use:
    """All of these as one. What is not known of one is not known of all."""
    memory = [part.memory_bytes for part in parts if part.memory_bytes is not None]
    sm = [part.sm_ratio for part in parts if part.sm_ratio is not None]
    return Use(
        memory_bytes=sum(memory) if len(memory) == len(parts) else None,
        sm_ratio=sum(sm, start=0.0) if len(sm) == len(parts) else None,
        processes=processes,
    )


def _together(uses: Sequence[Use]) -> Use:
    return _sum(uses, sum(use.processes or 0 for use in uses))


def _within(uses: Sequence[Use], total: Total) -> Iterable[Use]:
    """The uses, scaled down where their sum exceeds the total."""
    parts = scale_down([use.memory_bytes or 0 for use in uses], total.memory_bytes)
    sm = sum(use.sm_ratio or 0.0 for use in uses)
    factor = total.sm_ratio / sm if sm > total.sm_ratio else 1.0
    for use, part in zip(uses, parts, strict=True):
        yield Use(
            memory_bytes=None if use.memory_bytes is None else part,
            sm_ratio=None if use.sm_ratio is None else use.sm_ratio * factor,
            processes=use.processes,
        )


_NS = 1_000_000_000


@dataclass(slots=True)
class _Time:
    """Nanoseconds, and the number of the last reading that was counted or looked at."""

    ns: int
    reading: int


class SmTimes:
    """Adds up the time in which kernels ran, by device and owner (None: processes that count for nobody).

    A reading counts once for each owner, however often it is measured: owners change between two readings, and pages of
    several sources may name different ones. An owner begins at 0 with its first reading, and is forgotten after a
    reading without it.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[DeviceKey, Owner | None], _Time] = {}
        self._last: DriverReading | None = None
        self._number = 0
        self._step_seconds = 0.0

    def pause(self) -> None:
        """From here on it is not known what runs: the time up to the next reading counts for nobody."""
        self._last = None

    def add(self, reading: DriverReading, measured: Measured | None) -> Measured | None:
        """`measured` with the times of all up to this reading."""
        before, self._last = self._last, reading
        if measured is None:
            return None
        if reading is not before:
            # a reading covers the time since the previous one
            self._step_seconds = max(0.0, reading.read_at - before.read_at) if before else 0.0
            self._number += 1
            self._times = {of: time for of, time in self._times.items() if time.reading >= self._number - 1}
        ratios: dict[DeviceKey, dict[Owner | None, float | None]] = {}
        for (device, owner), use in measured.uses.items():
            ratios.setdefault(device, {})[owner] = use.sm_ratio
        for device, of_device in ratios.items():
            nobodys = measured.nobodys.get(device)
            of_device[None] = nobodys.sm_ratio if nobodys else 0.0
        times = {device: self._add(device, of_device) for device, of_device in ratios.items()}
        times_known = {device: of_device for device, of_device in times.items() if of_device is not None}
        return replace(measured, sm_ns=MappingProxyType(times_known))

    def _add(self, device: DeviceKey, ratios: Mapping[Owner | None, float | None]) -> Mapping[Owner | None, int] | None:
        """The times on a device; None, and nothing is added, where somebody's ratio is not known."""
        is_known = None not in ratios.values()
        times: dict[Owner | None, int] = {}
        for owner, ratio in ratios.items():
            time = self._times.setdefault((device, owner), _Time(0, self._number))
            if time.reading != self._number and is_known:
                time.ns += round((ratio or 0.0) * self._step_seconds * _NS)
            time.reading = self._number
            times[owner] = time.ns
        return MappingProxyType(times) if is_known else None
