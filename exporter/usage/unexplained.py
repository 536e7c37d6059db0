"""The use of a device that its known processes do not account for. Pure.

There is such use in virtual machines, under MPS before Volta, with confidential computing and on hosts that hide
processes.

Tests: tests/usage/test_owner_use.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporter.model.devices import DeviceKey
from exporter.model.driver import GpuProcess
from exporter.model.measured import Total, Unexplained, Unowned, Use
from exporter.model.pods import Owner
from exporter.usage.held_keys import HeldKeys

_NOTHING = Total()
# The limit is above the memory that the driver itself takes of an unused GPU: up to 0.6 GiB. Apart from that, the
# processes' memory adds up to the memory in use but for some MiB. On a large GPU rounding may lose more.
_LEAST_UNEXPLAINED_BYTES = 2**30
_LEAST_UNEXPLAINED_PART = 0.1
# the times of processes and of the device are of different moments, so they differ by much for a while
_LEAST_UNEXPLAINED_RATIO = 0.1
_MOST_UNEXPLAINED_OF = 2


@dataclass(slots=True)
class _Explained:
    """The use of a device that its known processes account for.

    `of_servers` is the time of MPS' servers, which run the kernels of their clients. `has_processes`: there are other
    processes.
    """

    memory_bytes: int = 0
    sm_ratio: float = 0.0
    of_servers: float = 0.0
    has_processes: bool = False


def unexplained_of(
    listed: Iterable[GpuProcess], unowned: Iterable[Unowned], keys: HeldKeys, totals: Mapping[DeviceKey, Total]
) -> dict[DeviceKey, Unexplained]:
    """The use that known processes do not account for, by device, of devices that containers hold or may hold."""
    explained = _explained(listed, unowned, keys, totals)
    devices = set(keys.holders)
    if keys.unplaced:
        # a container with units or tokens may use any GPU
        devices.update(totals)
    unexplained: dict[DeviceKey, Unexplained] = {}
    for key in devices:
        what = _not_explained(totals.get(key, _NOTHING), explained.get(key) or _Explained())
        if what is not None:
            unexplained[key] = what
    return unexplained


def _explained(
    listed: Iterable[GpuProcess], unowned: Iterable[Unowned], keys: HeldKeys, totals: Mapping[DeviceKey, Total]
) -> Mapping[DeviceKey, _Explained]:
    """The use of each device by the processes that NVML lists and /proc has."""
    reasons = {(nobodys.process.device, nobodys.process.pid): nobodys.reason for nobodys in unowned}
    explained: defaultdict[DeviceKey, _Explained] = defaultdict(_Explained)
    for process in listed:
        reason = reasons.get((process.device, process.pid))
        if reason in ("gone", "unread"):
            continue
        key = keys.of(process.device)
        of_device = explained[key]
        if reason == "mps_server":
            # MPS' server works only for its clients; before Volta it also has their memory, and NVML does not list them
            of_device.of_servers += process.sm_ratio or 0.0
            continue
        # a process with an unknown use may account for all of the device's use
        total = totals.get(key, _NOTHING)
        memory_bytes = total.memory_bytes if process.memory_bytes is None else process.memory_bytes
        sm_ratio = total.least_sm_ratio if process.sm_ratio is None else process.sm_ratio
        of_device.memory_bytes += memory_bytes or 0
        of_device.sm_ratio += sm_ratio or 0.0
        of_device.has_processes = True
    return explained


def _not_explained(total: Total, explained: _Explained) -> Unexplained | None:
    in_use = total.memory_bytes or 0
    if in_use - explained.memory_bytes >= max(_LEAST_UNEXPLAINED_BYTES, _LEAST_UNEXPLAINED_PART * in_use):
        return "memory"
    ran = max(total.least_sm_ratio or 0.0, explained.sm_ratio + explained.of_servers)
    if ran - explained.sm_ratio >= _LEAST_UNEXPLAINED_RATIO and ran > _MOST_UNEXPLAINED_OF * explained.sm_ratio:
        return "kernels"
    if total.memory_bytes is None and total.least_sm_ratio is None and not explained.has_processes:
        return "all"
    return None


def why_unknown(
    unexplained: Mapping[DeviceKey, Unexplained],
    of_owners: Mapping[DeviceKey, Mapping[Owner, Use]],
    owned: Mapping[tuple[DeviceKey, Owner], Sequence[GpuProcess]],
) -> dict[DeviceKey, Unexplained]:
    """The reason why a holder's use is not known: it is `unexplained`, or not told of the holder's own processes."""
    unknown = {key for key, of_key in of_owners.items() for use in of_key.values() if use.sm_ratio is None}
    why = {key: what for key, what in unexplained.items() if key in unknown or key not in of_owners}
    for (key, _), of_owner in owned.items():
        if any(process.memory_bytes is None for process in of_owner):
            why.setdefault(key, "memory_of_processes")
        # no driver measures kernels on MIG instances
        if any(process.sm_ratio is None and not process.device.instance for process in of_owner):
            why.setdefault(key, "kernels_of_processes")
    return why
