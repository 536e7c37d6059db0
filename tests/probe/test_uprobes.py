"""Attaching to a file: in steps, as long as the kernel is quick, and only until everything is to be detached."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from exporter.probe import functions, probe
from exporter.probe.libbpf import Link, Object, close_all
from exporter.probe.probe import Uprobes
from exporter.probe.programs import AttachFailed, AttachSlow
from tests.cuda import hostile
from tests.cuda.probing import NarrowProc, probing
from tests.support.clock import Clock
from tests.support.waiting import wait_until

OFFSETS = {"cudaMalloc": (16, 32), "cudaFree": (48,)}


class Kernel:
    """Stands in for `Object`: each place takes the time of so many mappings."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.place_seconds = 0.0
        self.attached: set[tuple[str, int]] = set()
        self.tried = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_waiting = threading.Event()

    def attach_uprobes(
        self, program: str, _: str, places: Sequence[tuple[int, int]], *, at_return: bool = False
    ) -> list[Link]:
        assert at_return == (program == functions.RETURNED)
        self.is_waiting.set()
        self.may_go_on.wait()
        self.clock.ahead += self.place_seconds * len(places)
        self.tried += len(places)
        entries = {(program, offset) for offset, _ in places}
        self.attached |= entries
        return [Link(lambda: self.attached.difference_update(entries))]


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def uprobes(kernel: Kernel) -> Uprobes:
    of_kernel: Any = kernel
    loaded: Object = of_kernel
    return Uprobes(loaded, kernel.clock)


# issue 15, line 12
def test_a_file_with_which_the_kernel_is_slow_is_left_after_one_place(kernel: Kernel, uprobes: Uprobes) -> None:
    kernel.place_seconds = 1.1 * probe.MOST_PLACE_SECONDS
    with pytest.raises(AttachSlow):
        uprobes("/x", OFFSETS, "cudart")
    assert (kernel.tried, kernel.attached) == (1, set())
    kernel.place_seconds = 0.9 * probe.MOST_PLACE_SECONDS
    detach = uprobes("/x", OFFSETS, "cudart")
    assert kernel.attached == {
        (program, offset) for program in (functions.ENTERED, functions.RETURNED) for offset in (16, 32, 48)
    }
    detach()
    assert kernel.attached == set()


# issue 15, line 12
def test_all_files_take_the_kernel_so_long_at_most(kernel: Kernel, uprobes: Uprobes) -> None:
    one, other = ({"cudaMalloc": tuple(range(first, first + 99))} for first in (100, 200))
    kernel.place_seconds = 0.9 * probe.MOST_PLACE_SECONDS
    detach_first = uprobes("/x", one, "cudart")
    with pytest.raises(AttachSlow):
        uprobes("/y", other, "cudart")
    assert len(kernel.attached) == 2 * 99
    detach_first()
    uprobes("/y", other, "cudart")


# issue 15, line 12
def test_detaching_does_not_wait_for_an_attach_that_hangs(kernel: Kernel, uprobes: Uprobes) -> None:
    uprobes("/x", OFFSETS, "cudart")
    kernel.may_go_on.clear()
    kernel.is_waiting.clear()
    raised: list[BaseException] = []

    def attach() -> None:
        try:
            uprobes("/y", {"setenv": (64,)}, "libc")
        except AttachFailed as error:
            raised.append(error)

    attaching = threading.Thread(target=attach)
    attaching.start()
    wait_until(kernel.is_waiting.is_set)
    uprobes.detach()
    assert kernel.attached == set()
    kernel.may_go_on.set()
    attaching.join()
    assert (len(raised), kernel.attached) == (1, set())
    with pytest.raises(AttachFailed):
        uprobes("/x", OFFSETS, "cudart")


# issue 15, line 12
def test_each_link_is_closed_once_by_whichever_thread() -> None:
    closed: list[int] = []
    links = [Link(lambda number=number: closed.append(number)) for number in range(100)]  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    threads = [threading.Thread(target=close_all, args=(links,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(closed) == list(range(100))


# issue 15, line 12
def test_a_file_that_is_mapped_too_often_under_another_name_is_left(tmp_path: Path) -> None:
    proc = NarrowProc(tmp_path)
    with (
        probing(proc.folder) as loaded,
        hostile.files() as files,
        hostile.running(files.hidden, 60_000),
        hostile.running(files.shown, 1) as pid,
    ):
        proc.show(pid)
        loaded.scan()
        assert loaded.read().failures == {"too_slow": 1}
