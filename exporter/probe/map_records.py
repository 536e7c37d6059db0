"""The decoder of the probe's maps and ring into a reading. Pure. cuda.bpf.c has the layouts.

Numbers are in the machine's byte order. Bytes of an incomplete entry are left out.
"""

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from exporter.model.cuda import DIRECTIONS, CudaCounts, CudaDevice, CudaProcess, CudaReading, ProcessId, WorkSpan

PROCESS_ID = DEVICE_ID = struct.Struct("=IIQ")
ERROR_ID = struct.Struct("=IIQII")
ADDRESS_ID = struct.Struct("=QII")
_PROCESS = struct.Struct("=QQ")
_COUNT = struct.Struct("=Q")
_SPAN = struct.Struct("=IIQQQQ")
STREAMS = 32
_NUMBERS = 9 + 2 * len(DIRECTIONS) + 2 + 6
_STREAM_BYTES = 24
_SUMS = struct.Struct(f"={_NUMBERS}Q{STREAMS * _STREAM_BYTES}x")
MOST_VISIBLE = 512
_VISIBLE = struct.Struct(f"{MOST_VISIBLE}s")
# the fields of the array `lost`, in order
LOST = ("processes", "threads", "devices", "allocations", "errors", "streams", "spans", "unreadable")
_SIGN = 1 << 63

# The keys of a map, one after the other, and its values.
Entries = tuple[bytes, bytes]
NOTHING: Entries = (b"", b"")


class RawMaps(NamedTuple):
    """The bytes that were read, by map. `lost` has a value for each name of LOST."""

    processes: Entries = NOTHING
    devices: Entries = NOTHING
    errors: Entries = NOTHING
    visible: Entries = NOTHING
    lost: Sequence[int] = ()
    spans: Sequence[bytes] = ()


def with_ended_threads(keys: bytes, values: bytes) -> list[ProcessId]:
    """The processes in the map `processes` with a thread that has ended; the whole process may have ended."""
    return [
        ProcessId(pid, started)
        for (pid, _, started), (_, thread_ended) in _rows(PROCESS_ID, _PROCESS, keys, values)
        if thread_ended
    ]


def decode(raw: RawMaps, read_at_ns: int, ended: Collection[ProcessId]) -> CudaReading:
    """Decode a reading. `read_at_ns` is a monotonic time before the maps were read.

    The counts of `ended` processes are final.
    """
    processes = _processes(raw, ended)
    errors = _errors(raw)
    counts = {}
    for (pid, ordinal, started), numbers in _rows(DEVICE_ID, _SUMS, *raw.devices):
        device = CudaDevice(ProcessId(pid, started), ordinal)
        process = processes.get(device.process)
        if process is None:
            continue
        until_ns = read_at_ns if process.ended_ns is None else process.ended_ns
        counts[device] = _counts(numbers, until_ns, errors.get(device, {}))
    return CudaReading(
        read_at_ns=read_at_ns,
        processes=MappingProxyType(processes),
        counts=MappingProxyType(counts),
        spans=tuple(_spans(raw.spans, processes)),
        lost=MappingProxyType(dict(zip(LOST, raw.lost, strict=False))),
    )


def _processes(raw: RawMaps, ended: Collection[ProcessId]) -> dict[ProcessId, CudaProcess]:
    visible: dict[ProcessId, str] = {}
    for (pid, _, started), (text,) in _rows(PROCESS_ID, _VISIBLE, *raw.visible):
        visible[ProcessId(pid, started)] = text.partition(b"\0")[0].decode("utf-8", "replace")
    processes: dict[ProcessId, CudaProcess] = {}
    for (pid, _, started), (cgroup_id, thread_ended) in _rows(PROCESS_ID, _PROCESS, *raw.processes):
        id_ = ProcessId(pid, started)
        ended_ns = thread_ended if id_ in ended else None
        processes[id_] = CudaProcess(id=id_, cgroup_id=cgroup_id, visible=visible.get(id_), ended_ns=ended_ns)
    return processes


def _errors(raw: RawMaps) -> Mapping[CudaDevice, dict[int, int]]:
    """The number of times that each error code was returned, by device."""
    errors: defaultdict[CudaDevice, dict[int, int]] = defaultdict(dict)
    for (pid, ordinal, started, code, _), (times,) in _rows(ERROR_ID, _COUNT, *raw.errors):
        errors[CudaDevice(ProcessId(pid, started), ordinal)][code] = times
    return errors


def key_of(process: ProcessId, ordinal: int = 0) -> bytes:
    """A process' key in the maps `processes` and `visible`; with an ordinal, its device's key in `devices`."""
    return DEVICE_ID.pack(process.pid, ordinal, process.started_ns)


def key_of_error(device: CudaDevice, code: int) -> bytes:
    """The key of a device's error code in the map `errors`."""
    return ERROR_ID.pack(device.process.pid, device.ordinal, device.process.started_ns, code, 0)


def addresses_of(keys: bytes, processes: Collection[ProcessId]) -> list[bytes]:
    """The keys of the map `allocations` that belong to these processes."""
    of_processes = {(process.pid, process.started_ns & 0xFFFFFFFF) for process in processes}
    addresses = []
    for number, (_, pid, started) in enumerate(ADDRESS_ID.iter_unpack(keys)):
        if (pid, started) in of_processes:
            start = number * ADDRESS_ID.size
            addresses.append(keys[start : start + ADDRESS_ID.size])
    return addresses


def _rows(
    key: struct.Struct, value: struct.Struct, keys: bytes, values: bytes
) -> Iterator[tuple[tuple[Any, ...], ...]]:
    keys = keys[: len(keys) // key.size * key.size]
    values = values[: len(values) // value.size * value.size]
    return zip(key.iter_unpack(keys), value.iter_unpack(values), strict=False)


def _counts(numbers: tuple[int, ...], until_ns: int, errors: dict[int, int]) -> CudaCounts:
    """The counts of a device by the numbers of its record in cuda.bpf.c. Streams still busy count until `until_ns`."""
    launches, threads, graph_launches, allocations, failed, frees, memory, peak, freed, *rest = numbers
    kinds = len(DIRECTIONS)
    syncs, sync_ns, active_ns, open_since, streams, *_ = rest[2 * kinds :]
    # if a thread begins work while another one ends it, a beginning may be noted although no stream is busy
    if open_since and streams:
        active_ns += max(0, until_ns - open_since)
    return CudaCounts(
        launches=launches,
        threads=threads,
        graph_launches=graph_launches,
        allocations=allocations,
        failed_allocations=failed,
        frees=frees,
        # two processors count at the same time, so a release may be read before its allocation
        memory_bytes=0 if memory >= _SIGN else memory,
        peak_bytes=peak,
        freed_bytes=freed,
        copies=tuple(rest[:kinds]),
        copied_bytes=tuple(rest[kinds : 2 * kinds]),
        syncs=syncs,
        sync_ns=sync_ns,
        active_ns=active_ns,
        errors=MappingProxyType(errors),
    )


def _spans(records: Iterable[bytes], processes: Mapping[ProcessId, CudaProcess]) -> Iterator[WorkSpan]:
    for record in records:
        if len(record) != _SPAN.size:
            continue
        pid, ordinal, started, begin, end, active = _SPAN.unpack(record)
        process = ProcessId(pid, started)
        if process in processes and begin <= end:
            yield WorkSpan(CudaDevice(process, ordinal), begin, end, min(active, end - begin))
