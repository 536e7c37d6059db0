"""The probe in the kernel of this machine, over programs that say exactly what they did."""

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.model.cuda import CudaReading
from exporter.probe import map_records
from exporter.probe import probe as module
from exporter.probe.probe import Probe
from tests.cuda.probing import NarrowProc, counted, is_true, probing, process_of, until
from tests.cuda.programs import Program, Variant, built

# Each thread has a device, streams of its own and memory; the barriers keep the peak of a device what it is.
THREAD = """
    device {device};
    repeat 20; launch {stream} 2 3 4 32 2 1 200000; launchex {stream} 5 1 1 7 3 1 100000; end;
    graph {stream} 1000000;
    malloc {slot}0 1000; mallocasync {slot}1 2000 {stream}; managed {slot}2 4096; barrier;
    free {slot}0; freeasync {slot}1 {stream}; barrier;
    malloc {slot}3 2000000000000; free {slot}9;
    copy 1 4096; copy 2 100; copy 3 7; copyasync 1 11 {stream}; copyasync 4 13 {stream};
    launch {stream} 1 1 1 1 1 1 -98; launch {stream} 1 1 1 2000 1 1 0; {api_only}
    record {stream} {stream}; query {stream}; eventsync {stream}; destroy {stream};
    launch 0 1 1 1 256 1 1 150000000; launch {other} 1 1 1 64 1 1 100000000; sync {other}; devicesync; sync 0;
    launch {stream} 1 1 1 1 1 1 0; sync {stream}
"""
PLACES = [(0, 1, 11, 21), (0, 2, 12, 22), (1, 3, 13, 23), (3, 4, 14, 24)]


def threads(**more: str) -> list[str]:
    of_api = {"prefix": "", "api_only": "", **more}
    return [
        of_api["prefix"]
        + THREAD.format(device=device, stream=stream, other=other, slot=slot, api_only=of_api["api_only"])
        for device, stream, other, slot in PLACES
    ]


@pytest.fixture(scope="module")
def proc(tmp_path_factory: pytest.TempPathFactory) -> NarrowProc:
    return NarrowProc(tmp_path_factory.mktemp("proc"))


# one for all tests: to attach and detach takes the kernel a quarter of a second
@pytest.fixture(scope="module")
def probe(proc: NarrowProc) -> Iterator[Probe]:
    with probing(proc.folder) as probe:
        yield probe


# issue 13, "Must show" 1
@pytest.mark.parametrize("flavour", ["off", "on"])
def test_everything_is_counted_of_threads_streams_and_devices_at_once(
    probe: Probe, proc: NarrowProc, flavour: str
) -> None:
    scripts = threads(prefix=f"perthread {flavour};", api_only="device 9;")
    with Program(*scripts) as program:
        proc.show(program.pid)
        probe.scan()
        truth = program.done()
        assert set(truth.counts) == {0, 1, 3}
        assert truth.counts[0].peak_bytes == 2 * (1000 + 2000 + 4096)
        assert truth.counts[0].errors == {2: 2, 9: 2, 98: 2, 101: 2}
        is_true(probe.read(), truth)


# issue 13, "Must show" 5
@pytest.mark.parametrize("flavour", ["off", "on"])
def test_what_the_runtime_asks_of_the_driver_counts_once(probe: Probe, proc: NarrowProc, flavour: str) -> None:
    by_itself = "api driver; repeat 5; launch 0 3 1 1 3 1 1 1000; end; malloc 77 100; copy 1 55; sync 0"
    scripts = threads(prefix=f"perthread {flavour};")
    with Program(*scripts, f"barrier; barrier; {by_itself}", libraries=built().over_driver) as program:
        proc.show(program.pid)
        probe.scan()
        truth = program.done()
        turn = probe.read()
    assert truth.counts[0].launches == 2 * 45 + 5
    is_true(turn, truth)


@pytest.mark.parametrize("variant", ["linked", "static", "driver"])
def test_a_program_is_counted_however_it_came_to_cuda(probe: Probe, proc: NarrowProc, variant: Variant) -> None:
    begins = "api driver;" if variant == "driver" else ""
    script = f"{begins} repeat 9; launch 0 2 1 1 3 1 1 100; end; malloc 1 500; free 1; copy 2 9; devicesync"
    with Program(script, variant=variant, libraries=built().over_driver) as program:
        proc.show(program.pid)
        probe.scan()
        truth = program.done()
        assert truth.counts[0].launches == 9
        is_true(probe.read(), truth)


def test_a_library_that_is_opened_later_is_found_by_a_later_scan(probe: Probe, proc: NarrowProc) -> None:
    with Program("wait; launch 0 1 1 1 1 1 1 0", late=True) as program:
        proc.show(program.pid)
        until(probe, lambda turn: turn.programs == 0)
        program.go()
        until(probe, lambda turn: turn.programs == 2)  # the runtime, and the libc
        truth = program.done()
        is_true(probe.read(), truth)


def test_what_a_program_did_before_it_was_found_does_not_count(probe: Probe, proc: NarrowProc) -> None:
    begins = "launch 0 1 1 1 1 1 1 0; malloc 1 300"
    with Program(f"{begins}; wait; knock; free 1; launch 0 1 1 1 4 1 1 0") as program:
        until(probe, lambda turn: not turn.programs)  # those of other tests
        program.go()
        program.waits()
        proc.show(program.pid)
        program.go()
        until(probe, lambda turn: counted(turn, program.pid))
        program.done()
        of_program = counted(probe.read(), program.pid)[0]
    assert (of_program.launches, of_program.threads) == (1, 4)
    # freed, of an unknown size
    assert (of_program.memory_bytes, of_program.frees, of_program.freed_bytes) == (0, 1, 0)


def test_a_child_is_a_process_of_its_own(probe: Probe, proc: NarrowProc) -> None:
    launch = "launch 0 1 1 1 5 1 1 0; sync 0"
    with Program(f"{launch}; fork; device 2; {launch}; {launch}; malloc 3 100; exit") as program:
        proc.show(program.pid)
        probe.scan()
        child, parent = program.done(), program.truth()
        turn = probe.read()
    is_true(turn, parent)
    is_true(turn, child)
    assert process_of(turn, child.pid).ended_ns is not None
    assert process_of(turn, parent.pid).ended_ns is None


# killed and ended by itself, it had not freed what it had
@pytest.mark.parametrize("how", ["end", "kill"])
def test_a_program_that_has_ended_is_told_of_once(probe: Probe, proc: NarrowProc, how: str) -> None:
    with Program("malloc 1 1234; malloc 2 1; free 2; launch 0 1 1 1 1 1 1 0", "malloc 3 40000") as program:
        proc.show(program.pid)
        probe.scan()
        truth = program.done()
        assert process_of(probe.read(), program.pid).ended_ns is None
        getattr(program, how)()
        turn = probe.read()
    assert counted(turn, program.pid)[0].memory_bytes == 41234
    assert process_of(turn, program.pid).ended_ns is not None
    assert counted(turn, program.pid)[0].launches == truth.counts[0].launches
    after = until(probe, lambda turn: turn.programs == 0)
    assert not after.reading.processes
    assert not after.reading.counts
    # what programs set before they call CUDA is seen of all that use this libc
    assert {name for name, (entries, _) in after.map_entries.items() if entries} <= {"visible"}


def test_the_devices_that_a_program_chooses_itself_are_seen(probe: Probe, proc: NarrowProc) -> None:
    chosen = "MIG-1111,GPU-2,0"
    sets = f"setenv 3; setenv {chosen}; setdefault 5; setother 6; launch 0 1 1 1 1 1 1 0; setenv 7"
    with Program(sets) as program, Program("setother 6; setdefault 5; sync 0") as plain:
        proc.show(program.pid, plain.pid)
        probe.scan()
        program.done()
        plain.done()
        turn = probe.read()
    assert process_of(turn, program.pid).visible == chosen
    assert process_of(turn, plain.pid).visible is None


def test_memory_whose_address_is_given_out_again_has_been_freed(probe: Probe, proc: NarrowProc) -> None:
    with Program("malloc 1 1000; malloc 2 300; reset; malloc 3 1000; malloc 4 70") as program:
        proc.show(program.pid)
        probe.scan()
        program.done()
        of_program = counted(probe.read(), program.pid)[0]
    # what was given out again, and what nobody can know to be free
    assert (of_program.memory_bytes, of_program.peak_bytes) == (1000 + 300 + 70, 1000 + 300 + 70)
    assert (of_program.allocations, of_program.frees, of_program.freed_bytes) == (4, 0, 0)


def test_a_wait_does_not_end_work_that_was_launched_meanwhile(probe: Probe, proc: NarrowProc) -> None:
    first = "launch 1 1 1 1 1 1 1 200000000; barrier; sync 1"
    second = "barrier; sleep 100000; launch 1 1 1 1 1 1 1 200000000; sync 1"
    with Program(first, second) as program:
        proc.show(program.pid)
        probe.scan()
        truth = program.done()
        assert truth.counts[0].active_ns > 0.39e9
        is_true(probe.read(), truth)


def test_a_stream_may_be_waited_for_while_another_device_is_chosen(probe: Probe, proc: NarrowProc) -> None:
    with Program("device 1; launch 1 1 1 1 1 1 1 100000000; device 2; sync 1; sync 0; sleep 100000") as program:
        proc.show(program.pid)
        probe.scan()
        truth = program.done()
        assert 0.09e9 < truth.counts[1].active_ns < 5e9
        assert truth.counts[2].active_ns == 0
        is_true(probe.read(), truth)


@pytest.mark.parametrize("api", ["runtime", "driver"])
def test_what_was_captured_or_is_not_waited_for_is_not_active_for_ever(
    probe: Probe, proc: NarrowProc, api: str
) -> None:
    script = f"api {api}; launch 1 1 1 1 1 1 1 0; endcapture 1; launch 2 1 1 1 1 1 1 0; destroystream 2; sleep 100000"
    with Program(script, libraries=built().over_driver) as program:
        proc.show(program.pid)
        probe.scan()
        truth = program.done()
        is_true(probe.read(), truth)


def test_an_error_that_lasts_ends_all_work(probe: Probe, proc: NarrowProc) -> None:
    works = "launch 1 1 1 1 1 1 1 3600000000000; launch 2 1 1 1 1 1 1 3600000000000; sleep 50000"
    with Program(f"{works}; launch 3 1 1 1 1 1 1 -4815; sync 3; launch 2 1 1 1 1 1 1 0") as program:
        proc.show(program.pid)
        probe.scan()
        program.done()
        first, second = (counted(probe.read(), program.pid)[0] for _ in range(2))
    assert dict(first.errors) == {719: 2}
    assert first.launches == 4
    assert 0.05e9 < first.active_ns == second.active_ns


# by a thread that goes on as another one: its end is not seen
def test_a_process_that_has_executed_another_program_is_seen_to_end(probe: Probe, proc: NarrowProc) -> None:
    with Program("device 2; sync 0; replace") as program:
        proc.show(program.pid)
        probe.scan()
        program.go()
        program.is_ready()
        turn = probe.read()
        assert counted(turn, program.pid)[2].syncs == 1
        assert process_of(turn, program.pid).ended_ns is None
        program.kill()
        assert process_of(probe.read(), program.pid).ended_ns is not None
        assert not probe.read().reading.processes


def test_a_process_of_which_nothing_can_be_told_has_not_ended(
    probe: Probe, proc: NarrowProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with Program("sync 0", "sync 0; sync 0") as program:
        proc.show(program.pid)
        probe.scan()
        program.done()
        with monkeypatch.context() as patch:
            patch.setattr(module, "process_folder", no_descriptor_left)
            assert process_of(probe.read(), program.pid).ended_ns is None
        assert counted(probe.read(), program.pid)[0].syncs == 3


def test_the_last_calls_of_a_process_are_told(probe: Probe, proc: NarrowProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does, and that it ends, while a reading is under way."""
    ends = "sync 0; wait; device 5; malloc 1 100; launch 0 1 1 1 1 1 1 -98; exit"
    with Program("sync 0", ends) as program:
        proc.show(program.pid)
        probe.scan()
        program.go()
        program.waits()
        decode = map_records.decode

        def late(*arguments: Any) -> CudaReading:
            if not program.has_ended:
                program.go()
                program.truth()
                program.ended()
            return decode(*arguments)

        monkeypatch.setattr(map_records, "decode", late)
        turns = [probe.read() for _ in range(2)]
    assert process_of(turns[0], program.pid).ended_ns is None
    assert process_of(turns[1], program.pid).ended_ns is not None
    assert counted(turns[1], program.pid)[5].memory_bytes == 100
    probe.scan()
    left = probe.read().map_entries
    assert {name for name, (entries, _) in left.items() if entries} <= {"visible"}


def test_a_span_is_told_when_it_is_over(probe: Probe, proc: NarrowProc) -> None:
    with Program("repeat 3; launch 1 1 1 1 1 1 1 30000000; sync 1; sleep 30000; end") as program:
        proc.show(program.pid)
        probe.scan()
        truth = program.done()
        turn = probe.read()
    spans = [span for span in turn.reading.spans if span.device.process.pid == program.pid]
    assert len(spans) == 3
    assert all(0.029e9 < span.end_ns - span.begin_ns < 1e9 for span in spans)
    is_true(turn, truth)
    assert sum(span.active_ns for span in spans) == counted(turn, program.pid)[0].active_ns


def test_short_spans_are_told_together(probe: Probe, proc: NarrowProc) -> None:
    with Program("repeat 2000; launch 1 1 1 1 1 1 1 10000; sync 1; end") as program:
        proc.show(program.pid)
        probe.scan()
        truth = program.done()
        turn = probe.read()
    is_true(turn, truth)
    spans = [span for span in turn.reading.spans if span.device.process.pid == program.pid]
    assert 2 <= len(spans) <= truth.counts[0].active_ns / 5e6


def test_work_that_nobody_has_waited_for_yet_is_active(probe: Probe, proc: NarrowProc) -> None:
    with Program("launch 1 1 1 1 1 1 1 0; sleep 200000") as program:
        proc.show(program.pid)
        probe.scan()
        program.done()
        seen = [counted(probe.read(), program.pid)[0].active_ns for _ in range(2)]
    assert 0.2e9 <= seen[0] < seen[1] < 5e9
