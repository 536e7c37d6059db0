"""What of a device in use the processes that are known to run on it do not account for. Pure.

So it is in virtual machines, under MPS before Volta, with confidential computing and on hosts that hide processes.
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
# What the driver itself takes of a GPU that nobody uses is below: up to 0.6 GiB. Beside it, the processes' memory adds
# up to what is in use but for some MiB; of a large GPU more may be lost in rounding.
_LEAST_UNEXPLAINED_BYTES = 2**30
_LEAST_UNEXPLAINED_PART = 0.1
# kernels' times are of other moments than the device's, so they differ by much for a while
_LEAST_UNEXPLAINED_RATIO = 0.1
_MOST_UNEXPLAINED_OF = 2


@dataclass(slots=True)
class _Explained:
    """What the processes that are known to run on a device account for.

    `of_servers` is the time of MPS' servers, whose kernels are their clients'. `has_processes`: there are any others.
    """

    memory_bytes: int = 0
    sm_ratio: float = 0.0
    of_servers: float = 0.0
    has_processes: bool = False


def unexplained_of(
    listed: Iterable[GpuProcess], unowned: Iterable[Unowned], keys: HeldKeys, totals: Mapping[DeviceKey, Total]
) -> dict[DeviceKey, Unexplained]:
    """What the processes that are known to run do not account for, by device; holders may have to do with it."""
    explained = _explained(listed, unowned, keys, totals)
    devices = set(keys.holders)
    if keys.unplaced:
        # whoever holds units or tokens may use any GPU
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
    reasons = {(one.process.device, one.process.pid): one.reason for one in unowned}
    explained: defaultdict[DeviceKey, _Explained] = defaultdict(_Explained)
    for process in listed:
        reason = reasons.get((process.device, process.pid))
        if reason in ("gone", "unread"):
            continue
        key = keys.of(process.device)
        of_device = explained[key]
        if reason == "mps_server":
            # all that it does is for its clients; before Volta it has their memory, too, and NVML does not list them
            of_device.of_servers += process.sm_ratio or 0.0
            continue
        # where it is not known what a process uses, the process may be what all of it is used by
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
