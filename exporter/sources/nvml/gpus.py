"""The GPUs of a node as NVML knows them, their MIG instances, and the processes on them: their memory and busy time.

Tests: tests/sources/nvml/test_nvml_reader.py.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from exporter.dcgm.table import MEMORY_INFO
from exporter.model.devices import DeviceKey, InventoryGpu, MigInstance
from exporter.model.driver import GpuProcess, Kind
from exporter.sources.nvml.library import FUNCTION_NOT_FOUND, LACKS, NO_PERMISSION, NOT_FOUND, SUCCESS, Failed, Library

# Reads a struct's field as it is. The bindings check for every field whether it is text, which takes ten times as long.
_field = object.__getattribute__
# the value in nvmlProcessInfo_t if the GPU is not cut
NO_INSTANCE = 0xFFFFFFFF
# readings are a second apart, and samples may be, too
STANDS_SECONDS = 3.0
# NOT_FOUND: no sample since then. An empty list is a success without an answer.
NO_SAMPLE = (NOT_FOUND, SUCCESS)
MOST_PERCENT = 100  # drivers sometimes answer more, which means nothing
_CALLS: tuple[tuple[Kind, str], ...] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)


class ListedProcess(NamedTuple):
    """A process in NVML's lists. `part` is its compute instance; `memory` is None if it is not known."""

    pid: int
    kind: Kind
    instance: int
    part: int
    memory: int | None


class Busy(NamedTuple):
    """The part of the time (0 to 1) in which kernels ran on a GPU.

    `by_pid` has the part for each process, until `last_us`, the driver's time of the newest sample, which was read at
    `read_at`; None if it is not measured. `of_any` has the part for any kernel, at this reading and at the reading
    before, if the driver says it.
    """

    by_pid: Mapping[int, float] | None
    last_us: int
    read_at: float
    of_any: tuple[float, ...]


def listed(library: Library, handle: object) -> list[ListedProcess] | None:
    """The processes of a GPU or MIG instance, from all lists of this library; None without the list of compute.

    Raises Failed: the GPU or the library fails, or the caller may not ask.
    """
    entries: list[ListedProcess] | None = None
    for kind, call in _CALLS:
        try:
            infos = _newest(library, call, handle)
        except Failed as failed:
            if failed.scope != "call" or (failed.code == NO_PERMISSION and kind == "compute"):
                raise
            if kind == "compute":
                return None
            continue
        entries = entries or []
        entries += [
            ListedProcess(info.pid, kind, info.gpuInstanceId, info.computeInstanceId, info.usedGpuMemory)
            for info in infos
        ]
    return entries


def _newest(library: Library, call: str, handle: object) -> Any:  # noqa: ANN401 - the bindings have no types
    """The answer of the newest version of a call that the driver has.

    Two versions name the MIG instance; R510 has _v3.
    """
    try:
        return library.call(f"{call}_v3", handle)
    except Failed as failed:
        if failed.code != FUNCTION_NOT_FOUND:
            raise
        return library.call(f"{call}_v2", handle)


def busy(library: Library, handle: object, last: Busy | None, now: float) -> Busy:
    """The part of the time in which processes kept a GPU busy since `last`; 0 for a process without a sample.

    The driver takes a sample every second or more often. While it has no new sample of a working GPU, the last one
    counts. Raises Failed: the GPU itself fails, and not only this call.
    """
    of_any = _busy_of_any(library, handle, last)
    since_us = last.last_us if last else 0
    samples = _samples_since(library, handle, since_us)
    if samples is None:
        return Busy(None, since_us, now, of_any)
    percents, newest_us = _percents_by_pid(samples, since_us)
    works_now = any(of_any[-1:])
    if works_now and not percents and last and now - last.read_at < STANDS_SECONDS:
        return last._replace(of_any=of_any)
    ratios = {pid: sum(of_pid) / len(of_pid) / 100 for pid, of_pid in percents.items()}
    return Busy(ratios, newest_us, now, of_any)


def _busy_of_any(library: Library, handle: object, last: Busy | None) -> tuple[float, ...]:
    """See `Busy.of_any`; empty if the driver does not say it now."""
    rates = optional(library, "nvmlDeviceGetUtilizationRates", handle)
    if not rates or rates.gpu > MOST_PERCENT:
        return ()
    before = last.of_any[-1:] if last else ()
    return (*before, rates.gpu / 100)


def _samples_since(library: Library, handle: object, since_us: int) -> Iterable[Any] | None:
    """The processes' samples, none if there is no new one; None if the driver does not measure them."""
    try:
        samples: Iterable[Any] = library.call("nvmlDeviceGetProcessUtilization", handle, since_us)
    except Failed as failed:
        if failed.scope != "call":
            raise
        return () if failed.code in NO_SAMPLE else None
    return samples


def _percents_by_pid(samples: Iterable[Any], since_us: int) -> tuple[Mapping[int, list[int]], int]:
    """Each process' samples that are newer than `since_us`, and the time of the newest of all."""
    percents: defaultdict[int, list[int]] = defaultdict(list)
    newest_us = since_us
    for sample in samples:
        at_us = _field(sample, "timeStamp")
        if at_us <= since_us:
            continue
        newest_us = at_us if at_us > newest_us else newest_us  # noqa: FURB136 - max() takes several times as long
        pid = _field(sample, "pid")
        percent = _field(sample, "smUtil")
        if pid and percent <= MOST_PERCENT:
            percents[pid].append(percent)
    return percents, newest_us


def together(uuid: str, entries: Iterable[ListedProcess], ratios: Mapping[int, float] | None) -> list[GpuProcess]:
    """One process for each pid and MIG instance. Memory in several compute instances adds up, if all of it is known."""
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
        used = [memory for memory in parts.values() if memory is not None]
        processes.append(
            GpuProcess(
                pid=pid,
                device=DeviceKey(uuid=uuid, instance="" if instance == NO_INSTANCE else str(instance)),
                memory_bytes=sum(used) if len(used) == len(parts) else None,
                sm_ratio=None if ratios is None else ratios.get(pid, 0.0),
                kinds=frozenset(kinds[pid, instance]),
            )
        )
    return processes


_MIG_IS_ON = 1
_MOST_INSTANCES = 64
# NVML_GPU_INSTANCE_PROFILE_1_SLICE to _6_SLICE; those behind them have more media engines, and as many slices
_PROFILES = range(7)
_MIB = 1024**2
_GIB = 1024**3
# NVIDIA's own names of memory round up to eighths of a GPU's
_EIGHTHS = 8
# since R470 an instance is called "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
_PROFILE = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)$")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,90}")


@dataclass(slots=True, kw_only=True)
class NvmlGpu:
    """A GPU that answers. `instances` has the handles of its MIG devices, with their GPU instance ids."""

    handle: object
    in_inventory: InventoryGpu
    can_be_cut: bool
    is_cut: bool
    instances: list[tuple[object, int]]
    busy: Busy | None = field(default=None)


def read_gpu(library: Library, index: int) -> NvmlGpu:
    """All facts of one GPU. Only the UUID is necessary. Raises Failed: NVML cannot ask the GPU."""
    handle = library.call("nvmlDeviceGetHandleByIndex", index)
    uuid = _uuid(library, handle)
    minor = optional(library, "nvmlDeviceGetMinorNumber", handle)
    mode = optional(library, "nvmlDeviceGetMigMode", handle)
    is_cut = bool(mode) and mode[0] == _MIG_IS_ON
    instances = _instances(library, handle) if is_cut else []
    return NvmlGpu(
        handle=handle,
        in_inventory=InventoryGpu(
            uuid=uuid,
            index=str(index),
            device="" if minor is None else f"nvidia{minor}",
            mig=tuple(mig for _, mig in instances),
            slices=_slices(library, handle) if is_cut else None,
            serial=optional(library, "nvmlDeviceGetSerial", handle) or "",
        ),
        can_be_cut=bool(mode),
        is_cut=is_cut,
        instances=[(mig_handle, int(mig.instance_id)) for mig_handle, mig in instances],
    )


_V2 = 0x0200_0028  # nvmlMemory_v2 of nvml.h: version 2 of a struct of 40 bytes


class Memory(NamedTuple):
    """Memory in bytes.

    `reserved` is the driver's own, apart from `used`; before R510 it is None, and a part of `used`.
    """

    total: int
    used: int
    free: int
    reserved: int | None


def memory_of(library: Library, handle: object) -> Memory | None:
    """The memory of a GPU, or of the GPU instance of a MIG device, if it is told. Raises Failed: as `optional` does."""
    try:
        info = library.call(MEMORY_INFO, handle, _V2)
    except Failed as failed:
        if failed.scope != "call":
            raise
        if failed.code not in LACKS:
            return None
    else:
        return Memory(info.total, info.used, info.free, info.reserved)
    old = optional(library, MEMORY_INFO, handle)
    return Memory(old.total, old.used, old.free, None) if old else None


def optional(library: Library, call: str, *arguments: object) -> Any:  # noqa: ANN401 - see Library.call
    """The answer, or None if only this call fails. Raises Failed: the GPU or the library is gone."""
    try:
        return library.call(call, *arguments)
    except Failed as failed:
        if failed.scope != "call":
            raise
        return None


def _instances(library: Library, handle: object) -> list[tuple[object, MigInstance]]:
    """The MIG devices of a GPU with the handle of each, by NVML's index. Raises Failed: NVML cannot say."""
    most = optional(library, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    memory = optional(library, "nvmlDeviceGetMemoryInfo", handle)
    instances = []
    for number in range(min(most, _MOST_INSTANCES)):
        try:
            mig = library.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        except Failed as failed:
            if failed.code == NOT_FOUND:
                continue  # that place is empty
            raise
        instance = library.call("nvmlDeviceGetGpuInstanceId", mig)
        profile = _profile(library, mig, memory.total if memory else None)
        instances.append((mig, MigInstance(uuid=_uuid(library, mig), instance_id=str(instance), profile=profile)))
    return instances


def _slices(library: Library, handle: object) -> int | None:
    """The compute slices of the largest profile, which is the whole GPU."""
    profiles = [optional(library, "nvmlDeviceGetGpuInstanceProfileInfo", handle, number) for number in _PROFILES]
    return max((profile.sliceCount for profile in profiles if profile), default=None)


def _uuid(library: Library, handle: object) -> str:
    uuid: str = library.call("nvmlDeviceGetUUID", handle)
    if not _UUID.fullmatch(uuid):
        raise Failed("nvmlDeviceGetUUID", NOT_FOUND)
    return uuid


def _profile(library: Library, mig: object, total_bytes: int | None) -> str:
    """An instance's profile, by its name, else by its sizes; "" if neither is known."""
    named = _PROFILE.search(optional(library, "nvmlDeviceGetName", mig) or "")
    if named:
        return named.group(1)
    sizes = optional(library, "nvmlDeviceGetAttributes_v2", mig)
    if sizes is None or not total_bytes:
        return ""
    part_of_memory = math.ceil(sizes.memorySizeMB * _MIB / total_bytes * _EIGHTHS) / _EIGHTHS
    gigabytes = round(part_of_memory * math.ceil(total_bytes / _GIB))
    slices = sizes.gpuInstanceSliceCount
    compute_slices = sizes.computeInstanceSliceCount
    profile = f"{slices}g.{gigabytes}gb"
    return profile if compute_slices == slices else f"{compute_slices}c.{profile}"
