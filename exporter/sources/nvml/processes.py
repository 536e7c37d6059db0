"""The processes on one GPU, as NVML lists them, and the part of the time in which each kept it busy."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from exporter.model.devices import DeviceKey
from exporter.model.driver import GpuProcess, Kind
from exporter.sources.nvml.failures import FUNCTION_NOT_FOUND, NO_PERMISSION, SUCCESS, Failed
from exporter.sources.nvml.library import Library

# A struct's field as it is. The bindings look at each whether it is text, which takes ten times as long.
_field = object.__getattribute__
# nvmlProcessInfo_t has this where the GPU is not cut
NO_INSTANCE = 0xFFFFFFFF
_MOST_PERCENT = 100  # the driver sometimes tells rubbish: what is above says nothing
_CALLS: tuple[tuple[Kind, str], ...] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
_VERSIONS = ("_v3", "_v2")  # drivers since R510 have _v3; both tell the MIG instance


class Listed(NamedTuple):
    """A process of one of NVML's lists. `part` is its compute instance, `memory` is None where it is not known."""

    pid: int
    kind: Kind
    instance: int
    part: int
    memory: int | None


class Busy(NamedTuple):
    """The part of the time (0 to 1) by pid since `last_us`, the driver's time of the newest sample."""

    ratios: Mapping[int, float]
    last_us: int


def listed(library: Library, handle: object) -> list[Listed] | None:
    """The processes of a GPU or MIG instance, of all lists that this library has; None where compute's is not had.

    Raises:
        Failed: it is more than one call's trouble, or the caller may not ask.
    """
    found: list[Listed] | None = None
    for kind, call in _CALLS:
        try:
            infos = _newest(library, call, handle)
        except Failed as failed:
            if failed.scope != "call" or (failed.code == NO_PERMISSION and kind == "compute"):
                raise
            if kind == "compute":
                return None
            continue
        found = found or []
        found += [_one(kind, info) for info in infos]
    return found


def _newest(library: Library, call: str, handle: object) -> Iterable[Any]:
    for version in _VERSIONS:
        try:
            infos: Iterable[Any] = library.call(call + version, handle)
        except Failed as failed:
            if failed.code != FUNCTION_NOT_FOUND or version == _VERSIONS[-1]:
                raise
        else:
            return infos
    return ()


def _one(kind: Kind, info: Any) -> Listed:  # noqa: ANN401 - the bindings have no types
    return Listed(info.pid, kind, info.gpuInstanceId, info.computeInstanceId, info.usedGpuMemory)


def busy(library: Library, handle: object, last: Busy | None) -> Busy | None:
    """How busy each process kept a GPU since `last`; None where that is not measured (a GPU that is cut, an old one).

    A process without a sample did nothing.

    Raises:
        Failed: it is more than this call's trouble.
    """
    since = last.last_us if last else 0
    try:
        samples = library.call("nvmlDeviceGetProcessUtilization", handle, since)
    except Failed as failed:
        if failed.scope != "call":
            raise
        # NOT_FOUND: no sample since then. An empty list is a success without an answer.
        return Busy({}, since) if failed.is_no_sample or failed.code == SUCCESS else None
    percents: defaultdict[int, list[int]] = defaultdict(list)
    newest = since
    for sample in samples:
        pid, at, percent = _field(sample, "pid"), _field(sample, "timeStamp"), _field(sample, "smUtil")
        newest = at if at > newest else newest  # noqa: FURB136 - max() takes several times as long
        if at > since and pid and percent <= _MOST_PERCENT:
            percents[pid].append(percent)
    return Busy({pid: sum(each) / len(each) / 100 for pid, each in percents.items()}, newest)


def together(uuid: str, entries: Iterable[Listed], ratios: Mapping[int, float] | None) -> list[GpuProcess]:
    """One process for each pid and MIG instance.

    A process that several lists name has its memory once. In a GPU instance it may have several compute instances,
    whose memories add up; where one of them is not known, the sum is not.
    """
    memories: defaultdict[tuple[int, int], dict[int, int | None]] = defaultdict(dict)
    kinds: defaultdict[tuple[int, int], set[Kind]] = defaultdict(set)
    for entry in entries:
        key = (entry.pid, entry.instance)
        kinds[key].add(entry.kind)
        parts = memories[key]
        before = parts.get(entry.part)
        parts[entry.part] = entry.memory if before is None else max(before, entry.memory or 0)
    processes = []
    for (pid, instance), parts in memories.items():
        known = [memory for memory in parts.values() if memory is not None]
        processes.append(
            GpuProcess(
                pid=pid,
                device=DeviceKey(uuid=uuid, instance="" if instance == NO_INSTANCE else str(instance)),
                memory_bytes=sum(known) if len(known) == len(parts) else None,
                sm_ratio=None if ratios is None else ratios.get(pid, 0.0),
                kinds=frozenset(kinds[pid, instance]),
            )
        )
    return processes
