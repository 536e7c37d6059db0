"""What does not fit into a map or into the ring is counted, and all else is counted as ever."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exporter.probe.probe import Probe
from tests.cuda.probing import NarrowProc, counted, probing, until
from tests.cuda.programs import Program

LAUNCHES = "repeat 3; launch 0 1 1 1 1 1 1 0; end; sync 0"
# the least that a ring can have: 85 spans
PAGE = 4096


@contextmanager
def started(folder: Path, *scripts: str, **most: int) -> Iterator[tuple[Probe, Program, NarrowProc]]:
    """A program that is probed with these limits of maps, and has not begun."""
    proc = NarrowProc(folder)
    with probing(proc.folder, most=most) as probe, Program(*scripts) as program:
        proc.show(program.pid)
        probe.scan()
        yield probe, program, proc


# issue 13, "Must show" 7: all tests of this file
def test_threads_that_do_not_fit_are_lost_and_their_place_is_used_again(tmp_path: Path) -> None:
    scripts = [f"launch 0 1 1 1 1 1 1 0; barrier; {LAUNCHES}; barrier"] * 6
    with started(tmp_path, *scripts, threads=2) as (probe, program, proc):
        program.done()
        turn = probe.read()
        assert counted(turn, program.pid)[0].launches == 2 * 4
        assert turn.reading.lost["threads"] == 4 * (4 + 1)
        program.end()
        with Program(LAUNCHES, LAUNCHES) as later:
            proc.show(later.pid)
            probe.scan()
            truth = later.done()
            assert counted(probe.read(), later.pid)[0].launches == truth.counts[0].launches


def test_a_process_none_of_whose_threads_fits_takes_no_place(tmp_path: Path) -> None:
    """Nothing would tell its end."""
    script = f"{LAUNCHES}; wait; sync 0"
    with started(tmp_path, script, threads=1) as (probe, program, proc), Program(LAUNCHES) as other:
        proc.show(other.pid)
        probe.scan()
        program.go()
        program.waits()
        other.done()
        turn = probe.read()
    assert [process.pid for process in turn.reading.processes] == [program.pid]
    assert turn.reading.lost["threads"] == 4


def test_a_process_that_does_not_fit_is_counted_when_another_one_has_ended(tmp_path: Path) -> None:
    again = f"{LAUNCHES}; wait; {LAUNCHES}"
    with started(tmp_path, LAUNCHES, processes=1) as (probe, program, proc), Program(again) as second:
        proc.show(second.pid)
        truth = program.done()
        second.go()
        turn = until(probe, lambda turn: turn.reading.lost["processes"] == 4)
        assert [process.pid for process in turn.reading.processes] == [program.pid]
        assert counted(turn, program.pid)[0].launches == truth.counts[0].launches
        program.end()
        probe.read()  # from here on nothing is known of it any more
        second.done()
        assert counted(probe.read(), second.pid)[0].launches == 3


def test_devices_that_do_not_fit_are_lost(tmp_path: Path) -> None:
    script = "device 2; sync 0; device 3; sync 0; sync 0; device 2; sync 0"
    with started(tmp_path, script, devices=1) as (probe, program, _):
        program.done()
        turn = probe.read()
        assert {ordinal: counts.syncs for ordinal, counts in counted(turn, program.pid).items()} == {2: 2}
        assert turn.reading.lost["devices"] == 2


def test_memory_that_does_not_fit_does_not_count_as_in_use(tmp_path: Path) -> None:
    script = "".join(f"malloc {slot} 100;" for slot in range(4)) + "".join(f"free {slot};" for slot in range(1, 4))
    with started(tmp_path, script, allocations=2) as (probe, program, _):
        program.done()
        turn = probe.read()
        counts = counted(turn, program.pid)[0]
        assert (counts.allocations, counts.frees, counts.peak_bytes) == (4, 3, 200)
        assert (counts.memory_bytes, counts.freed_bytes) == (100, 100)
        assert turn.reading.lost["allocations"] == 2


def test_errors_that_do_not_fit_are_lost(tmp_path: Path) -> None:
    script = "repeat 3; launch 0 1 1 1 1 1 1 -700; launch 0 1 1 1 1 1 1 -701; end"
    with started(tmp_path, script, errors=1) as (probe, program, _):
        program.done()
        turn = probe.read()
        counts = counted(turn, program.pid)[0]
        assert (dict(counts.errors), counts.launches) == ({700: 3}, 6)
        assert turn.reading.lost["errors"] == 3


def test_spans_that_do_not_fit_are_lost_and_active_time_is_not(tmp_path: Path) -> None:
    scripts = [f"device {number}; repeat 14; launch 0 1 1 1 1 1 1 11000000; sync 0; end" for number in range(8)]
    with started(tmp_path, *scripts, spans=PAGE) as (probe, program, _):
        truth = program.done()
        turn = probe.read()
        assert len(turn.reading.spans) + turn.reading.lost["spans"] == 8 * 14
        assert 80 < len(turn.reading.spans) < 90
        for ordinal, counts in counted(turn, program.pid).items():
            assert 0.8 * truth.counts[ordinal].active_ns < counts.active_ns < 1.2 * truth.counts[ordinal].active_ns


def test_streams_that_do_not_fit_are_lost_and_launches_are_not(tmp_path: Path) -> None:
    script = "".join(f"launch {stream} 1 1 1 1 1 1 50000000;" for stream in range(1, 61))
    with started(tmp_path, f"{script} devicesync") as (probe, program, _):
        truth = program.done().counts[0]
        turn = probe.read()
        counts = counted(turn, program.pid)[0]
        assert counts.launches == 60
        assert turn.reading.lost["streams"] >= 60 - 32
        assert 0.8 * truth.active_ns < counts.active_ns < 1.2 * truth.active_ns
