"""The bytes of the maps as a reading: what the C structs hold, and that no bytes break it."""

import re
import struct
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from exporter.model.cuda import CudaCounts, CudaDevice, CudaReading, ProcessId, WorkSpan
from exporter.probe import functions, map_records
from exporter.probe.map_records import LOST, RawMaps, decode
from tests.support.places import ROOT

C = ROOT / "exporter" / "probe"
PROCESS = ProcessId(4711, 123_456_789_000)
DEVICE = CudaDevice(PROCESS, 2)
ID = struct.pack("=IIQ", *PROCESS[:1], 0, PROCESS.started_ns)
DEVICE_ID = struct.pack("=IIQ", PROCESS.pid, 2, PROCESS.started_ns)
NOW = 9_000
ENTRIES = st.tuples(st.binary(max_size=2_100), st.binary(max_size=2_100))


def sums(**told: int) -> bytes:
    names = re.findall(r"\w+(?=[,;\[])", _struct("sums").partition("struct stream")[0].replace("u64", ""))
    numbers: list[int] = []
    for name in names:
        kinds = 5 if name in ("copies", "copied") else 1
        numbers += [told.pop(name, 0)] if kinds == 1 else [told.pop(f"{name}_{kind}", 0) for kind in range(kinds)]
    assert not told
    return struct.pack(f"={len(numbers)}Q", *numbers) + bytes(24 * map_records.STREAMS)


def _struct(name: str) -> str:
    text = re.sub(r"//[^\n]*", "", (C / "layout.bpf.h").read_text())
    found = re.search(rf"struct {name} \{{(.*?)\}};", text, re.DOTALL)
    assert found
    return re.sub(r"\[\d\]", "", found[1])


def reading(*, ended: bool = False, thread_ended: int = 0, **raw: object) -> CudaReading:
    of = RawMaps(processes=(ID, struct.pack("=QQ", 77, thread_ended)), **raw)  # type: ignore[arg-type]
    return decode(of, NOW, {PROCESS} if ended else ())


def test_counts_of_a_device() -> None:
    value = sums(
        launches=1,
        threads=2,
        graph_launches=3,
        allocations=4,
        failed_allocations=5,
        frees=6,
        memory=7,
        peak=8,
        freed=9,
        copies_1=10,
        copied_2=11,
        syncs=12,
        sync_ns=13,
        active_ns=14,
    )
    errors = struct.pack("=IIQII", PROCESS.pid, 2, PROCESS.started_ns, 35, 0), struct.pack("=Q", 15)
    assert reading(devices=(DEVICE_ID, value), errors=errors).counts == {
        DEVICE: CudaCounts(
            launches=1,
            threads=2,
            graph_launches=3,
            allocations=4,
            failed_allocations=5,
            frees=6,
            memory_bytes=7,
            peak_bytes=8,
            freed_bytes=9,
            copies=(0, 10, 0, 0, 0),
            copied_bytes=(0, 0, 11, 0, 0),
            syncs=12,
            sync_ns=13,
            active_ns=14,
            errors=MappingProxyType({35: 15}),
        )
    }


def test_the_time_that_still_runs_counts_until_the_reading() -> None:
    value = sums(active_ns=100, open_since=NOW - 30, open=1)
    assert reading(devices=(DEVICE_ID, value)).counts[DEVICE].active_ns == 130


def test_of_a_process_that_has_ended_until_its_end() -> None:
    value = sums(active_ns=100, open_since=NOW - 30, open=1)
    told = reading(devices=(DEVICE_ID, value), ended=True, thread_ended=NOW - 20)
    assert told.counts[DEVICE].active_ns == 110
    assert told.processes[PROCESS].ended_ns == NOW - 20


def test_a_thread_that_ends_is_not_the_process_end() -> None:
    assert reading(thread_ended=NOW - 20).processes[PROCESS].ended_ns is None


def test_what_began_after_the_reading_takes_nothing_away() -> None:
    value = sums(active_ns=100, open_since=NOW + 30, open=1)
    assert reading(devices=(DEVICE_ID, value)).counts[DEVICE].active_ns == 100


def test_a_time_without_a_stream_that_works_does_not_run() -> None:
    value = sums(active_ns=100, open_since=NOW - 30)
    assert reading(devices=(DEVICE_ID, value)).counts[DEVICE].active_ns == 100


def test_processes_of_which_a_thread_has_ended() -> None:
    other = struct.pack("=IIQ", 4712, 0, 5)
    values = struct.pack("=QQQQ", 77, NOW - 20, 77, 0)
    assert map_records.with_ended_threads(ID + other, values) == [PROCESS]


def test_memory_that_was_freed_before_its_allocation_was_read() -> None:
    value = sums(memory=(1 << 64) - 5)
    assert reading(devices=(DEVICE_ID, value)).counts[DEVICE].memory_bytes == 0


def test_visible_devices_and_cgroup() -> None:
    process = reading(visible=(ID, b"GPU-1,\xff2".ljust(map_records.MOST_VISIBLE, b"\0"))).processes[PROCESS]
    assert (process.visible, process.cgroup_id) == ("GPU-1,\ufffd2", 77)


def test_spans_and_what_was_lost() -> None:
    span = struct.pack("=IIQQQQ", PROCESS.pid, 2, PROCESS.started_ns, 10, 20, 7)
    other = struct.pack("=IIQQQQ", 1, 2, 3, 10, 20, 7)
    told = reading(spans=[span, other, span[:-1], span + b"x"], lost=range(len(LOST)))
    assert told.spans == (WorkSpan(DEVICE, 10, 20, 7),)
    assert told.lost == {name: place for place, name in enumerate(LOST)}


def test_keys_are_those_that_are_read() -> None:
    assert map_records.key_of(PROCESS) == ID
    assert map_records.key_of(DEVICE.process, DEVICE.ordinal) == DEVICE_ID
    addresses = struct.pack("=QII", 1, PROCESS.pid, PROCESS.started_ns & 0xFFFFFFFF) + struct.pack("=QII", 2, 3, 4)
    assert map_records.addresses_of(addresses, {PROCESS}) == [addresses[:16]]


def test_every_shape_has_the_number_that_the_kernels_side_gives_it() -> None:
    text = (C / "cuda.bpf.c").read_text()
    enum = re.search(r"enum shape \{(.*?)PER_THREAD", text, re.DOTALL)
    assert enum
    names = [name.strip().removesuffix(" = 1") for name in enum[1].split(",") if name.strip()]
    assert [name.lower() for name in names] == list(functions.SHAPES)
    assert set(re.findall(r"case (CU\w*_\w+):", text)) == set(names)


def test_every_place_of_lost_has_a_name() -> None:
    enum = re.search(r"enum full \{(.*?)FULL_KINDS", (C / "layout.bpf.h").read_text(), re.DOTALL)
    assert enum
    names = [name.split("//")[0].strip().rstrip(",") for name in enum[1].splitlines()]
    assert [name.removeprefix("FULL_").lower() for name in names if name] == list(LOST)


# issue 13, "Must show" 7
@given(ENTRIES, ENTRIES, ENTRIES, ENTRIES, st.lists(st.integers(0, 1 << 64)), st.lists(st.binary(max_size=100)))
def test_any_bytes_are_a_reading(
    processes: tuple[bytes, bytes],
    devices: tuple[bytes, bytes],
    errors: tuple[bytes, bytes],
    visible: tuple[bytes, bytes],
    lost: list[int],
    spans: list[bytes],
) -> None:
    ended = map_records.with_ended_threads(*processes)[::2]
    told = decode(RawMaps(processes, devices, errors, visible, lost, spans), NOW, ended)
    assert all(device.process in told.processes for device in told.counts)
    assert all(span.begin_ns <= span.end_ns and span.device.process in told.processes for span in told.spans)
    assert all(counts.memory_bytes >= 0 and counts.active_ns >= 0 for counts in told.counts.values())
