"""The use that each owner makes of a GPU, from the driver's processes, their containers and the kubelet's assignments.

A process counts for its own container if that holds the device, else for the only container of its pod that does, else
for nobody. A container that uses a device which its pod does not hold is a stranger there. A holder without a process
uses 0. If a process runs in a pod and its container is not known, it may belong to any holder without a process: the
use of these holders is then unknown. Their use is also unknown if the processes that NVML lists do not explain all
memory in use, or all the time in which kernels ran. NVML lists no process, or not all, or pids that are not the host's,
in virtual machines, under MPS before Volta, with confidential computing, and on hosts that hide processes.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from types import MappingProxyType

from exporter.dividing.measured_values import scale_down
from exporter.model.devices import DeviceKey, Owners
from exporter.model.driver import DriverReading, GpuProcess
from exporter.model.measured import HostProcesses, Measured, Process, Total, Unexplained, Unowned, Use, WithoutOwner
from exporter.model.nothing import NOTHING
from exporter.model.pods import Owner
from exporter.usage.held_keys import HeldKeys
from exporter.usage.process_owners import Containers, owner_of
from exporter.usage.unexplained import unexplained_of, why_unknown

NO_TOTALS: Mapping[DeviceKey, Total] = NOTHING
_Share = tuple[DeviceKey, Owner]
_NOTHING = Total()
_UNKNOWN = Use(memory_bytes=None, sm_ratio=None, processes=None)
# nvidia-cuda-mps-server, cut to the kernel's length of a name. Its control daemon has the same name, but uses no GPU.
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
    """The use of each owner; None if processes are not known, or were read before the driver was asked.

    Holders of devices that `reading` does not name are left out.

    Args:
        reading: the driver's answer on processes on GPUs.
        processes: the processes of the host.
        tables: the containers of these processes.
        owners: the holders of devices.
        totals: the use of all processes of a device, by the driver's key. Parts that exceed it are scaled down.
        unresolved: pods with an assignment that resolves to no device, which are no strangers anywhere; None if nobody
            knows the holders.
        known_at: when the kubelet named the holders (seconds of the monotonic clock). A process that started later is
            no stranger.
    """
    # another process may have a pid by now, so only processes that were read after the driver's answer can tell
    if reading.processes is None or processes is None or processes.read_at < reading.read_at:
        return None
    listed = each_once(reading.processes)
    keys = HeldKeys(owners, reading.inventory, (process.device for process in listed), unresolved, known_at)
    owned: dict[_Share, list[GpuProcess]] = {}
    unowned: list[Unowned] = []
    for process in listed:
        share = _judge(process, processes, reading.read_at, tables, keys)
        if isinstance(share, Unowned):
            unowned.append(share)
        else:
            owned.setdefault(share, []).append(process)
    return _measured(reading, processes, listed, owned, unowned, keys, _by_key(totals, keys))


def _measured(
    reading: DriverReading,
    processes: HostProcesses,
    listed: Sequence[GpuProcess],
    owned: Mapping[_Share, Sequence[GpuProcess]],
    unowned: Sequence[Unowned],
    keys: HeldKeys,
    totals: Mapping[DeviceKey, Total],
) -> Measured:
    """The use of holders, of strangers and of nobody, from processes that have been judged."""
    unexplained = unexplained_of(listed, unowned, keys, totals)
    of_owners = _uses(owned, unowned, keys, reading.unknown, unexplained)
    uses, of_others = _within_totals(of_owners, _others(unowned, keys), totals)
    strangers: dict[_Share, Use] = {}
    unnamed: dict[DeviceKey, Use] = {}
    for key, of_key in of_others.items():
        for owner, use in of_key.items():
            if owner is None:
                unnamed[key] = use
            else:
                strangers[key, owner] = use
    return Measured(
        uses=MappingProxyType(uses),
        unowned=tuple(unowned),
        nobodys=MappingProxyType({key: _together([*of_key.values()]) for key, of_key in of_others.items()}),
        strangers=MappingProxyType(strangers),
        unnamed=MappingProxyType(unnamed),
        owned=MappingProxyType(owned),
        host=processes,
        unread=reading.unknown,
        unexplained=MappingProxyType(why_unknown(unexplained, of_owners, owned)),
    )


def _by_key(totals: Mapping[DeviceKey, Total], keys: HeldKeys) -> dict[DeviceKey, Total]:
    """The totals by the keys of `Owners`.

    An instance of a GPU that a container holds as a whole has no total of its own.
    """
    by_key: dict[DeviceKey, Total] = {}
    for device, total in totals.items():
        key = keys.of(device)
        is_part_of_whole = device.instance and key == keys.of(DeviceKey(uuid=device.uuid))
        if not is_part_of_whole:
            by_key[key] = total
    return by_key


def _within_totals(
    of_owners: Mapping[DeviceKey, Mapping[Owner, Use]],
    of_others: Mapping[DeviceKey, Mapping[Owner | None, Use]],
    totals: Mapping[DeviceKey, Total],
) -> tuple[dict[_Share, Use], dict[DeviceKey, dict[Owner | None, Use]]]:
    """The uses of owners and of all others, scaled down together if their sum exceeds a device's total."""
    uses: dict[_Share, Use] = {}
    others: dict[DeviceKey, dict[Owner | None, Use]] = {}
    for key in dict.fromkeys((*of_owners, *of_others)):
        owners_here = of_owners.get(key, {})
        others_here = of_others.get(key, {})
        scaled = iter(_within((*owners_here.values(), *others_here.values()), totals.get(key, _NOTHING)))
        for owner in owners_here:
            uses[key, owner] = next(scaled)
        if others_here:
            others[key] = dict(zip(others_here, scaled, strict=True))
    return uses, others


def each_once(processes: Iterable[GpuProcess]) -> list[GpuProcess]:
    """One entry for each process on a device, in order.

    The driver lists a process twice if it both computes and draws, with all its memory each time. It may also list a
    process on an instance again with the GPU.
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


def _judge(
    gpu_process: GpuProcess, processes: HostProcesses, read_at: float, tables: Sequence[Containers], keys: HeldKeys
) -> _Share | Unowned:
    """The device and the owner for which a process counts, or the reason why it counts for nobody."""
    process = processes.by_pid.get(gpu_process.pid)
    if gpu_process.pid not in processes.asked_for:
        return Unowned(process=gpu_process, reason="unread", place=process.place if process else None)
    # a process that started after the driver was asked has got the pid of an earlier process
    if process is None or process.started_at > read_at:
        return Unowned(process=gpu_process, reason="gone", place=None)
    owner = owner_of(process.place, tables) if process.place else None
    shares = _shares_of(gpu_process.device, owner, keys) if owner is not None else []
    if len(shares) == 1:
        return shares[0]
    reason = "unknown_instance" if shares else _why_nobody(gpu_process, process, owner, keys)
    return Unowned(process=gpu_process, reason=reason, place=process.place, owner=owner)


def _shares_of(device: DeviceKey, owner: Owner, keys: HeldKeys) -> list[_Share]:
    """The shares of a device for which an owner's process may count.

    If there are several, nobody knows which one it is.
    """
    key = keys.of(device)
    holder = keys.holder_for(key, owner)
    if holder is not None:
        return [(key, holder)]
    if device.instance:
        return []
    return [(instance, owner) for instance in keys.instances(device.uuid, owner)]


def _why_nobody(gpu_process: GpuProcess, process: Process, owner: Owner | None, keys: HeldKeys) -> WithoutOwner:
    if process.name == _MPS_SERVER:
        return "mps_server"
    if owner is not None:
        may_hold = keys.may_hold(keys.of(gpu_process.device), owner, process.started_at)
        return "unresolved" if may_hold else "not_assigned"
    if process.place is None:
        return "no_container"
    return "unknown_container" if process.place.is_of_pod else "other_container"


def _others(unowned: Iterable[Unowned], keys: HeldKeys) -> dict[DeviceKey, dict[Owner | None, Use]]:
    """The use that each stranger makes of a device and, under None, the use of all other processes of nobody."""
    processes: defaultdict[DeviceKey, dict[Owner | None, list[Unowned]]] = defaultdict(dict)
    for of_nobody in unowned:
        stranger = of_nobody.owner if of_nobody.reason == "not_assigned" else None
        processes[keys.of(of_nobody.process.device)].setdefault(stranger, []).append(of_nobody)
    uses: dict[DeviceKey, dict[Owner | None, Use]] = {}
    for key, by_owner in processes.items():
        uses[key] = {owner: _sum_of(of_owner) for owner, of_owner in by_owner.items()}
    return uses


def _sum_of(unowned: Sequence[Unowned]) -> Use:
    # MPS' server is overhead of its clients, and does not count as a process
    pids = {of_nobody.process.pid for of_nobody in unowned if of_nobody.reason != "mps_server"}
    return _sum([of_nobody.process for of_nobody in unowned], len(pids))


def _uses(
    owned: Mapping[_Share, Sequence[GpuProcess]],
    unowned: Iterable[Unowned],
    keys: HeldKeys,
    unread: Iterable[str],
    unexplained: Mapping[DeviceKey, Unexplained],
) -> dict[DeviceKey, dict[Owner, Use]]:
    """The use of each holder of each device, in stable order. `unread` are the UUIDs of GPUs with unknown processes."""
    nameless, spread = _without_share(unowned, keys)
    nameless.update(unexplained)
    for uuid in unread:
        nameless.update(keys.of_gpu(uuid))

    def use(key: DeviceKey, owner: Owner) -> Use:
        processes = owned.get((key, owner), ())
        if (key, owner) in spread or (not processes and key in nameless):
            return _UNKNOWN
        used = _sum(processes, len({process.pid for process in processes}))
        if not used.sm_ratio and unexplained.get(key) == "kernels":
            # the owner has processes, and one of them may run the kernels that belong to no listed process
            return replace(used, sm_ratio=None)
        return used

    uses: dict[DeviceKey, dict[Owner, Use]] = {}
    for key, holders in keys.holders.items():
        uses[key] = {owner: use(key, owner) for owner in sorted(holders)}
    for key, owner in sorted(owned):
        if owner not in keys.holders.get(key, ()):
            # the owner holds units of some GPU: only its processes show that it uses this GPU
            uses.setdefault(key, {})[owner] = use(key, owner)
    return uses


def _without_share(unowned: Iterable[Unowned], keys: HeldKeys) -> tuple[set[DeviceKey], set[_Share]]:
    """The devices with processes that may be any holder's, and the shares that may have a process of their owner."""
    nameless: set[DeviceKey] = set()
    spread: set[_Share] = set()
    for of_nobody in unowned:
        device = of_nobody.process.device
        owner = of_nobody.owner
        if of_nobody.reason in ("unknown_container", "unread"):
            nameless.add(keys.of(device))
        elif of_nobody.reason == "unknown_instance" and owner:
            spread.update((key, owner) for key in keys.instances(device.uuid, owner))
    return nameless, spread


def _sum(parts: Sequence[GpuProcess | Use], processes: int) -> Use:
    """The sum of these uses. A value that is not known of one of them is not known of the sum."""
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
    """The uses, scaled down if their sum exceeds the total."""
    parts = scale_down([use.memory_bytes or 0 for use in uses], total.memory_bytes)
    sm = sum(use.sm_ratio or 0.0 for use in uses)
    factor = total.sm_ratio / sm if sm > total.sm_ratio else 1.0
    for use, part in zip(uses, parts, strict=True):
        yield Use(
            memory_bytes=None if use.memory_bytes is None else part,
            sm_ratio=None if use.sm_ratio is None else use.sm_ratio * factor,
            processes=use.processes,
        )
