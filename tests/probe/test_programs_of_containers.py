"""Programs in containers that have a CUDA library each, at the same path: found, told apart, and left again."""

from contextlib import ExitStack
from pathlib import Path

from exporter.model.measured import ProcessPlace
from exporter.probe.probe import ProbeAnswer
from exporter.probe.probe_source import TURN_SECONDS, CudaProbe
from tests.cuda.containers import LIBRARIES, Container, cgroup_of, container, container_id, uid
from tests.cuda.probing import NarrowProc, counted, is_true, probing, until
from tests.cuda.programs import Program, built
from tests.support.waiting import until as awaited

FOUND_WITHIN = 6.0


def contained(stack: ExitStack, folder: Path, number: int, libraries: Path | None = None) -> Container:
    root = folder / f"root-{number}"
    root.mkdir()
    return stack.enter_context(container(root, cgroup_of(uid(number), container_id(number)), libraries))


def launches(times: int) -> str:
    return f"repeat {times}; launch 0 1 1 1 2 1 1 0; end; sync 0"


# issue 13, "Must show" 3
def test_each_copy_of_the_library_is_probed_and_left_with_its_last_user(tmp_path: Path) -> None:
    proc = NarrowProc(tmp_path)
    with ExitStack() as stack, probing(proc.folder) as probe:
        both = [contained(stack, tmp_path, number) for number in (1, 2)]
        with (
            Program(launches(3), before=both[0].before, libraries=LIBRARIES) as first,
            Program(launches(5), before=both[1].before, libraries=LIBRARIES, variant="linked") as second,
        ):
            pids = [pid for each in both for pid in each.pids]
            proc.show(*pids)
            probe.scan()
            with_both = probe.read().programs
            truths = first.done(), second.done()
            turn = probe.read()
            for pid, truth in zip(pids, truths, strict=True):
                is_true(turn, truth, pid)
            assert [turn.seen[process].place for process in sorted(turn.seen)] == [
                ProcessPlace(container_id=container_id(number), pod_uid=uid(number)) for number in (1, 2)
            ]
            first.end()
            with_one = until(probe, lambda turn: turn.programs < with_both).programs
            second.end()
            until(probe, lambda turn: not turn.programs)
    # a runtime each, and the libc that both have of the machine
    assert (with_both, with_one) == (3, 2)
    assert [counted(turn, pid)[0].launches for pid in pids] == [3, 5]


def test_two_containers_with_one_library_have_it_probed_once(tmp_path: Path) -> None:
    proc = NarrowProc(tmp_path)
    with probing(proc.folder) as probe, Program(launches(3)) as first, Program(launches(4)) as second:
        proc.show(first.pid, second.pid)
        probe.scan()
        turn = probe.read()
        assert turn.programs == 2
        first.done()
        second.done()
        first.end()
        probe.scan()
        assert probe.read().programs == 2, "the second one still uses them"
        counts = counted(probe.read(), second.pid)[0]
    assert counts.launches == 4


# issue 13, "Must show" 3
async def test_a_program_that_is_started_later_is_found_within_6_seconds(tmp_path: Path) -> None:
    proc = NarrowProc(tmp_path)
    with probing(proc.folder):
        pass  # here it can
    source = CudaProbe(
        proc=str(proc.folder), interval_seconds=5.0, max_programs=64, any_kernel=False, on_health=lambda *_: None
    )
    turns: list[ProbeAnswer] = []
    source.followers.append(turns.append)
    source.begin()
    await awaited(lambda: source.turn)
    assert source.turn
    assert source.turn.programs == 0
    with ExitStack() as stack:
        made = contained(stack, tmp_path, 3, built().over_driver)
        with Program(launches(6), before=made.before, libraries=LIBRARIES) as program:
            (pid,) = made.pids
            proc.show(pid)
            before = len(turns)
            await awaited(lambda: source.turn and source.turn.programs == 3, seconds=30)
            # one turn a second; on a busy machine they come later
            assert (len(turns) - before) * TURN_SECONDS <= FOUND_WITHIN
            program.done()
            await awaited(lambda: source.turn and counted(source.turn, pid), seconds=30)
            assert counted(source.turn, pid)[0].launches == 6
    await source.close()
