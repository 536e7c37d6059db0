"""What is probed, and when no longer, in trees like /proc."""

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from exporter.probe import process_files, programs, scan
from exporter.probe.functions import WANTED, Role
from exporter.probe.process_files import MOST_FILES
from exporter.probe.programs import AttachFailed, AttachSlow, Detach, Programs, Scanned
from tests.probe.elves import MAIN, SOURCE, compiled
from tests.probe.fake_proc import FakeProc
from tests.support.clock import Clock

LIBRARY = "/usr/lib/libcudart.so.13"
LIBC = "/lib/libc.so.6"


@dataclass
class Probed:
    """A file that is probed by nobody but this test."""

    inode: int
    role: Role
    names: frozenset[str]


@dataclass
class Kernel:
    """Stands in for the kernel: keeps what is attached."""

    now: list[Probed] = field(default_factory=list)
    before: list[Probed] = field(default_factory=list)
    refuses: bool = False
    is_slow: bool = False
    refused: int = 0

    def attach(self, path: str, offsets: Mapping[str, tuple[int, ...]], role: Role) -> Detach:
        if self.refuses:
            self.refused += 1
            raise AttachSlow("no") if self.is_slow else AttachFailed("no")
        probed = Probed(Path(path).stat().st_ino, role, frozenset(offsets))
        self.now.append(probed)
        return lambda: self._end(probed)

    def _end(self, probed: Probed) -> None:
        self.now.remove(probed)
        self.before.append(probed)

    @property
    def inodes(self) -> list[int]:
        return sorted(probed.inode for probed in self.now)


@dataclass
class World:
    proc: FakeProc
    kernel: Kernel
    programs: Programs
    clock: Clock
    one: Path
    two: Path

    def scan(self, times: int = 1) -> Scanned:
        for _ in range(times):
            scanned = self.programs.scan()
        return scanned


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries and programs made once: what a test changes it copies."""
    folder = tmp_path_factory.mktemp("libraries")
    compiled(folder / "cudart", SOURCE, "-shared", "-fPIC")
    compiled(folder / "libc", "int setenv(void) { return 0; }", "-shared", "-fPIC")
    compiled(folder / "program", SOURCE + MAIN)
    compiled(folder / "bare", "int main(void) { return 0; }")
    return folder


@pytest.fixture
def world(tmp_path: Path, libraries: Path) -> World:
    proc, kernel, clock = FakeProc(tmp_path), Kernel(), Clock()
    roots = [proc.root(name) for name in ("one", "two")]
    for root in roots:
        put(libraries / "cudart", root, LIBRARY)
        put(libraries / "libc", root, LIBC)
    made = Programs(proc=proc.folder, wanted=WANTED, attach=kernel.attach, most_programs=4, clock=clock)
    return World(proc, kernel, made, clock, *roots)


def put(file: Path, root: Path, path: str) -> Path:
    at = root / path.lstrip("/")
    at.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, at)
    return at


def inode(root: Path, path: str = LIBRARY) -> int:
    return (root / path.lstrip("/")).stat().st_ino


def replace_in(module: ModuleType, monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    """Other functions of process_files for one module that uses it."""
    monkeypatch.setattr(module, "process_files", SimpleNamespace(**(vars(process_files) | functions)))


@pytest.mark.real
def test_a_file_is_probed_while_a_process_uses_it(world: World) -> None:
    assert world.scan() == Scanned(processes={}, programs=0, failures={}, unreadable=0)
    world.proc.put(8, root=world.one, maps=(LIBRARY, LIBC), start=17)
    world.proc.put(9, root=world.one, maps=(LIBRARY, LIBC))
    scanned = world.scan()
    assert (scanned.programs, scanned.failures) == (2, {})
    assert [(process.pid, process.started_ticks) for process in scanned.processes.values()] == [(8, 17), (9, 4711)]
    assert {file.key.inode for file in scanned.processes[8].files} == {inode(world.one), inode(world.one, LIBC)}
    assert {(probed.role, probed.inode, probed.names) for probed in world.kernel.now} == {
        ("cudart", inode(world.one), frozenset({"cudaLaunchKernel", "cudaMalloc", "cudaMemcpy"})),
        ("libc", inode(world.one, LIBC), frozenset({"setenv"})),
    }
    world.proc.end(8)
    assert world.scan().programs == 2
    world.proc.end(9)
    assert world.scan().programs == 0
    assert world.kernel.now == []
    assert len(world.kernel.before) == 2
    assert [bound.used() for name, bound in world.programs.bounds.items() if name != "executables"] == [0, 0, 0]


@pytest.mark.real
def test_copies_at_one_path_are_told_apart(world: World) -> None:
    world.proc.put(8, root=world.one, maps=(LIBRARY,), namespace="1")
    world.proc.put(9, root=world.two, maps=(LIBRARY,), namespace="2")
    world.scan()
    assert world.kernel.inodes == sorted([inode(world.one), inode(world.two)])
    world.proc.end(8)
    world.scan()
    assert world.kernel.inodes == [inode(world.two)]


@pytest.mark.real
def test_copies_that_maps_shows_alike_are_told_apart(world: World) -> None:
    """On btrfs the kernel shows one device and inode for a file in each of two snapshots."""
    for pid, root in ((8, world.one), (9, world.two)):
        world.proc.put(pid, root=root, maps=(LIBRARY,), namespace=str(pid))
        maps = world.proc.folder / str(pid) / "maps"
        maps.write_text(maps.read_text().replace(str(inode(root)), "7"))
    world.scan()
    assert world.kernel.inodes == sorted([inode(world.one), inode(world.two)])


@pytest.mark.real
def test_one_file_of_two_containers_is_one(world: World) -> None:
    (world.two / LIBRARY.lstrip("/")).unlink()
    (world.two / LIBRARY.lstrip("/")).hardlink_to(world.one / LIBRARY.lstrip("/"))
    world.proc.put(8, root=world.one, maps=(LIBRARY,), namespace="1")
    world.proc.put(9, root=world.two, maps=(LIBRARY,), namespace="2")
    assert world.scan().programs == 1
    world.proc.end(8)
    assert world.scan().programs == 1


@pytest.mark.real
def test_a_process_that_loads_cuda_later(world: World) -> None:
    world.proc.put(8, root=world.one)
    assert world.scan(2).programs == 0
    world.proc.put(8, root=world.one, maps=(LIBRARY,), memory=1001)
    assert world.scan().programs == 1


@pytest.mark.real
def test_a_process_with_balanced_mappings_is_looked_at_within_a_minute(world: World) -> None:
    world.proc.put(8, root=world.one)
    world.scan(scan.SCANS_BETWEEN)
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    assert world.scan(scan.SCANS_BETWEEN).programs == 1


@pytest.mark.real
def test_maps_are_read_when_something_has_changed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    below = process_files.read_below
    replace_in(scan, monkeypatch, read_below=lambda *asked: reads.append(asked[1]) or below(*asked))  # type: ignore[func-returns-value]
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    world.proc.put(9, root=world.one)
    world.scan(1 + scan.SCANS_BETWEEN)
    assert reads == ["maps"] * 4


@pytest.mark.real
def test_another_process_with_the_pid_is_another_one(world: World) -> None:
    world.proc.put(8, root=world.one, maps=(LIBRARY,), start=1)
    world.scan()
    world.proc.put(8, root=world.two, maps=(LIBRARY,), start=2, namespace="2")
    assert world.scan().processes[8].started_ticks == 2
    assert world.kernel.inodes == [inode(world.two)]
    world.proc.put(8, root=world.two, start=3, namespace="2")
    assert world.scan().processes == {}


@pytest.mark.real
def test_a_process_that_becomes_another_program(world: World, libraries: Path) -> None:
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    world.scan()
    world.proc.put(8, root=world.one, program=libraries / "bare")
    assert world.scan().programs == 0


@pytest.mark.real
def test_a_process_whose_first_thread_has_ended(world: World) -> None:
    world.proc.put(8, root=world.one, maps=(LIBRARY,), threads=2)
    world.scan()
    (world.proc.folder / "8/exe").unlink()
    (world.proc.folder / "8/maps").write_text("")
    assert world.scan().programs == 1
    world.proc.change(8, threads=1)
    assert world.scan().programs == 0


@pytest.mark.real
def test_a_program_with_the_runtime_linked_in(world: World, libraries: Path) -> None:
    world.proc.put(8, root=world.one, maps=(LIBC,), program=libraries / "program")
    world.proc.put(9, root=world.one, maps=(LIBC,), program=libraries / "bare")
    scanned = world.scan()
    assert list(scanned.processes) == [8]
    assert [(file.role, file.path) for file in scanned.processes[8].files] == [("program", None), ("libc", LIBC)]
    assert {probed.role for probed in world.kernel.now} == {"cudart", "libc"}
    world.proc.end(8)
    assert world.scan().programs == 0


@pytest.mark.real
def test_a_file_that_was_deleted_since_stays_probed(world: World) -> None:
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    world.scan()
    (world.proc.folder / "8/maps").write_text(
        (world.proc.folder / "8/maps").read_text().replace(LIBRARY, f"{LIBRARY} (deleted)")
    )
    (world.one / LIBRARY.lstrip("/")).unlink()
    assert world.scan(2 * scan.SCANS_BETWEEN).failures == {}
    assert world.programs.scan().programs == 1


def directory(at: Path) -> None:
    at.unlink()
    at.mkdir()


def fifo(at: Path) -> None:
    at.unlink()
    os.mkfifo(at)


def text(at: Path) -> None:
    at.write_text("no library")


def out_of_the_root(at: Path) -> None:
    at.unlink()
    at.symlink_to("/etc/passwd")


def link_in_proc(at: Path) -> None:
    at.unlink()
    at.symlink_to("/proc/self/exe")


@pytest.mark.real
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (Path.unlink, "missing"),
        (directory, "not_regular"),
        (fifo, "not_regular"),
        (text, "not_elf"),
        (out_of_the_root, "missing"),
        (link_in_proc, "missing"),
    ],
)
def test_why_a_file_is_not_probed(world: World, spoil: Callable[[Path], None], reason: str) -> None:
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    spoil(world.one / LIBRARY.lstrip("/"))
    scanned = world.scan(30)
    assert (scanned.programs, scanned.failures) == (0, {reason: 1})
    assert list(scanned.processes) == [8]
    world.proc.end(8)
    world.scan()
    assert world.programs.bounds["failed_programs"].used() == 0


@pytest.mark.real
def test_a_file_deleted_before_it_was_seen(world: World) -> None:
    world.proc.put(8, root=world.one, maps=(f"{LIBRARY} (deleted)",))
    assert world.scan(30).failures == {"deleted": 1}


@pytest.mark.real
def test_a_file_that_one_process_cannot_show_is_found_by_another(world: World) -> None:
    library = world.one / LIBRARY.lstrip("/")
    for pid, root in ((8, world.two), (9, world.one)):
        world.proc.put(pid, root=root, maps=("/usr/libcuda.so.1",))
        maps = world.proc.folder / str(pid) / "maps"
        maps.write_text(maps.read_text().replace(" 7 ", f" {library.stat().st_ino} "))
    library.rename(world.one / "usr/libcuda.so.1")
    (world.one / "usr/libcuda.so.1").write_bytes((world.two / LIBRARY.lstrip("/")).read_bytes())
    scanned = world.scan()
    assert [process.files[0].reason for process in scanned.processes.values()] == ["missing", None]
    assert scanned.failures == {"missing": 1, "no_functions": 1}  # it is a runtime by its functions


@pytest.mark.real
def test_libraries_with_names_like_those_of_cuda_do_not_count(world: World) -> None:
    world.proc.put(8, root=world.one, maps=("/usr/lib/libcudadebugger.so.1", LIBC))
    assert world.scan().processes == {}


@pytest.mark.real
def test_a_link_within_the_root_is_followed_there(world: World) -> None:
    at = world.one / LIBRARY.lstrip("/")
    at.rename(world.one / "real")
    at.symlink_to("/../../real")
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    assert world.scan().programs == 1


@pytest.mark.real
def test_a_process_in_a_chroot(world: World) -> None:
    """The kernel shows its paths from the root of the mount namespace, which is above its own."""
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    maps = world.proc.folder / "8/maps"
    maps.write_text(maps.read_text().replace(LIBRARY, f"{world.one}{LIBRARY}"))
    assert world.scan().programs == 1


@pytest.mark.real
def test_a_file_that_failed_is_tried_again_when_it_has_changed(world: World, libraries: Path) -> None:
    at = world.one / LIBRARY.lstrip("/")
    at.write_text("no library")
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    assert world.scan(2 * programs.SCANS_BETWEEN_TRIES).failures == {"not_elf": 1}
    at.write_text("no library either")
    assert world.scan(programs.SCANS_BETWEEN_TRIES).failures == {"not_elf": 2}
    at.write_bytes((libraries / "cudart").read_bytes())
    assert world.scan(programs.SCANS_BETWEEN_TRIES).programs == 1
    assert world.programs.bounds["failed_programs"].used() == 0


@pytest.mark.real
def test_what_the_kernel_refuses_is_tried_again_later(world: World) -> None:
    """It may have been short of memory, or of file descriptors. To try costs something, so not at each scan."""
    world.kernel.refuses = True
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    assert world.scan(3 * programs.SCANS_BETWEEN_TRIES).failures == {"attach": 1}
    assert world.kernel.refused == 4
    world.kernel.refuses = False
    assert world.scan(programs.SCANS_BETWEEN_TRIES).programs == 1
    assert world.programs.bounds["failed_programs"].used() == 0


# issue 15, line 12
@pytest.mark.real
def test_a_file_that_is_mapped_too_often_is_not_probed(world: World) -> None:
    """No process of the node can fork while the kernel goes through the mappings, once for each place."""
    world.proc.put(8, root=world.one, maps=(LIBRARY,) * (programs.MOST_MAPPINGS - 1))
    world.proc.put(9, root=world.two, maps=(LIBRARY,), namespace="2")
    assert world.scan().programs == 2
    world.proc.put(10, root=world.one, maps=(LIBRARY,) * 2)
    scanned = world.scan(2)
    assert (scanned.programs, scanned.failures) == (1, {"too_many_mappings": 1})
    assert world.kernel.inodes == [inode(world.two)]
    world.proc.end(10)
    assert world.scan(programs.SCANS_BETWEEN_TRIES).programs == 2


# issue 15, line 12
@pytest.mark.real
def test_all_files_together_are_mapped_so_often_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(programs, "MOST_ALL_MAPPINGS", 30)
    world.proc.put(8, root=world.one, maps=(LIBRARY,) * 20)
    world.proc.put(9, root=world.two, maps=(LIBRARY,) * 11, namespace="2")
    assert world.scan(2).failures == {"too_many_mappings": 1}
    assert world.kernel.inodes == [inode(world.one)]
    (record,) = caplog.records
    assert (record.levelname, record.fields["pid"], record.fields["file"]) == ("WARNING", 9, LIBRARY)  # type: ignore[attr-defined]
    # what grows gives way
    world.proc.put(9, root=world.two, maps=(LIBRARY,) * 5, namespace="2", memory=7)
    world.scan(programs.SCANS_BETWEEN_TRIES)
    assert world.kernel.inodes == sorted([inode(world.one), inode(world.two)])
    world.proc.put(8, root=world.one, maps=(LIBRARY,) * 26, memory=7)
    world.scan()
    assert world.kernel.inodes == [inode(world.two)]


# issue 15, line 12
@pytest.mark.real
def test_an_executable_that_is_mapped_too_often_is_not_probed(world: World, libraries: Path) -> None:
    program = put(libraries / "program", world.one, "/bin/work")
    world.proc.put(8, root=world.one, program=program, maps=(LIBRARY,))
    maps = world.proc.folder / "8/maps"
    line = f"7f0000000000-7f0000001000 r-xp 00000000 fe:01 77 {program}\n"
    maps.write_text(maps.read_text() + line * (programs.MOST_MAPPINGS + 1))
    assert world.scan().failures == {"too_many_mappings": 1}
    assert world.kernel.inodes == [inode(world.one)]


# issue 15, line 12
@pytest.mark.real
def test_few_files_are_tried_in_a_scan_with_which_the_kernel_is_slow(world: World, libraries: Path) -> None:
    world.kernel.refuses = world.kernel.is_slow = True
    for number in range(programs.MOST_SLOW + 2):
        put(libraries / "cudart", world.one, f"/m/libcudart.so.{number}")
        world.proc.put(8 + number, root=world.one, maps=(f"/m/libcudart.so.{number}",))
    assert [world.scan().failures["too_slow"] for _ in range(3)] == [4, 6, 6]


# issue 15, line 12
@pytest.mark.real
@pytest.mark.parametrize("where", ["scan", "programs"])
def test_what_is_raised_for_a_process_or_its_file_costs_that_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    def faulty(process: int) -> tuple[int, int]:
        if Path(f"/proc/self/fd/{process}").readlink().name == "8":
            raise OverflowError("signed integer is greater than maximum")
        return process_files.stat_fields(process)

    replace_in(scan if where == "scan" else programs, monkeypatch, stat_fields=faulty)
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    world.proc.put(9, root=world.two, maps=(LIBRARY,), namespace="2")
    scanned = world.scan(40)
    assert world.kernel.inodes == [inode(world.two)]
    assert scanned.failures == ({} if where == "scan" else {"fault": 1})
    assert 1 <= len(caplog.records) <= 6  # the 1st, 2nd, 4th ... 32nd: programs do not choose how much is logged


@pytest.mark.real
def test_a_program_on_a_file_system_that_is_gone_may_still_use_cuda(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(_: int) -> Any:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    replace_in(scan, monkeypatch, readable=stale)
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    assert world.scan().programs == 1


@pytest.mark.real
def test_no_more_files_are_probed_than_may_be(world: World, libraries: Path) -> None:
    paths = tuple(f"/l/libcuda.so.{number}" for number in range(MOST_FILES))
    for path in paths:
        put(libraries / "cudart", world.one, path)
    others = ("/m/libcudart.so.1", "/m/libcudart.so.2", LIBC)
    for path in others[:2]:
        put(libraries / "cudart", world.one, path)
    world.proc.put(8, root=world.one, maps=(*others, LIBRARY))
    world.proc.put(9, root=world.two, maps=(LIBRARY, LIBC), namespace="2")
    scanned = world.scan(30)
    assert (scanned.programs, scanned.failures) == (4, {"too_many": 2})
    assert {probed.role for probed in world.kernel.now} == {"cudart"}  # a libc alone is of no use
    world.proc.end(8)
    assert world.scan().programs == 2


@pytest.mark.real
def test_a_c_library_gives_way_to_a_file_of_cudas(world: World, libraries: Path) -> None:
    """Each image has one of its own: half of the room would go to what only sees setenv."""
    world.proc.put(8, root=world.one, maps=(LIBRARY, LIBC))
    world.proc.put(9, root=world.two, maps=(LIBRARY, LIBC), namespace="2")
    assert world.scan().programs == 4
    for number in range(1, 4):
        put(libraries / "cudart", world.one, f"/m/libcudart.so.{number}")
        world.proc.put(9 + number, root=world.one, maps=(f"/m/libcudart.so.{number}", LIBC))
        scanned = world.scan(2)
        roles = [probed.role for probed in world.kernel.now]
        assert (roles.count("cudart"), roles.count("libc")) == (min(2 + number, 4), max(2 - number, 0))
    assert scanned.failures == {"too_many": 3}
    world.proc.end(8)
    assert [world.scan().programs for _ in range(2)] == [4, 4]
    assert {probed.role for probed in world.kernel.now} == {"cudart"}


@pytest.mark.real
def test_a_scan_that_takes_long_leaves_the_rest_to_the_next_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    attach = world.kernel.attach

    def slow(*given: Any) -> Detach:
        world.clock.ahead += programs.ATTACH_SECONDS
        return attach(*given)

    monkeypatch.setattr(world.programs, "_attach", slow)
    world.proc.put(8, root=world.one, maps=(LIBRARY, LIBC))
    assert [world.scan().programs for _ in range(3)] == [1, 2, 2]


@pytest.mark.real
def test_a_scan_that_takes_long_goes_on_where_it_stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process takes a scan's time: all are seen after as many scans, and those seen before stay seen."""
    below = process_files.read_below

    def slow(*given: Any) -> bytes:
        world.clock.ahead += scan.SCAN_SECONDS if given[1] == "maps" else 0
        return below(*given)

    replace_in(scan, monkeypatch, read_below=slow)
    for pid in range(30, 35):
        world.proc.put(pid, root=world.one, maps=(LIBRARY,))
    seen = []
    for number in range(5):
        for pid in range(30, 35):
            world.proc.change(pid, memory=number)  # so that their maps are to be read in each scan
        seen.append(sorted(world.scan().processes))
    assert seen == [[30], [30, 31], [30, 31, 32], [30, 31, 32, 33], [30, 31, 32, 33, 34]]


@pytest.mark.real
def test_executables_are_remembered_within_a_limit(
    world: World, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MOST_EXECUTABLES", 1)
    world.proc.put(7, root=world.one, program=libraries / "bare")
    world.proc.put(8, root=world.one, program=libraries / "program")
    assert [len(world.scan().processes) for _ in range(3)] == [1, 1, 1]
    assert world.programs.bounds["executables"].used() == 1


@pytest.mark.real
@pytest.mark.parametrize("gone", ["exe", "statm", "maps", "stat", "root", "ns"])
def test_a_process_of_which_a_file_is_gone(world: World, gone: str) -> None:
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    folder = world.proc.folder / "8"
    shutil.rmtree(folder / gone) if gone == "ns" else (folder / gone).unlink()
    if gone == "root":
        (folder / "stat").unlink()
    assert world.scan() == Scanned(processes={}, programs=0, failures={}, unreadable=0)


@pytest.mark.real
def test_a_process_that_ends_before_its_file_is_probed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    world.proc.put(9, root=world.one, maps=(LIBRARY,))
    seen = world.programs._scan.scan

    def scan_and_end() -> Any:
        processes = seen()
        world.proc.end(8)
        world.proc.change(9, start=5)  # another process by now
        return processes

    monkeypatch.setattr(world.programs._scan, "scan", scan_and_end)
    assert (world.scan().failures, world.kernel.now) == ({}, [])


@pytest.mark.real
def test_a_file_that_is_another_one_by_the_time_it_is_probed(
    world: World, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = world.programs._scan.scan

    def scan_and_replace() -> Any:
        processes = seen()
        (world.one / LIBRARY.lstrip("/")).rename(world.one / "before")
        put(libraries / "cudart", world.one, LIBRARY)
        return processes

    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    monkeypatch.setattr(world.programs._scan, "scan", scan_and_replace)
    assert (world.scan().failures, world.kernel.now) == ({"missing": 1}, [])


@pytest.mark.real
def test_a_process_that_ends_while_its_file_is_opened(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*given: Any) -> Any:
        world.proc.end(8)
        raise FileNotFoundError

    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    replace_in(programs, monkeypatch, looked_at=end)
    assert world.scan().failures == {}


@pytest.mark.real
def test_no_more_files_that_failed_are_remembered_than_may_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MOST_FAILED", 3)
    paths = tuple(f"/l/libcuda.so.{number}" for number in range(8))
    for path in paths:
        put(Path("/etc/hostname"), world.one, path)
    world.proc.put(8, root=world.one, maps=paths)
    assert world.scan(30).failures == {"not_elf": 3}
    assert world.programs.bounds["failed_programs"].used() == 3


@pytest.mark.real
@pytest.mark.parametrize("stat", ["", "8 (a", "8 (a) S 1 2", "8 (a) " + "x " * 60])
def test_a_start_of_another_form(world: World, stat: str) -> None:
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    (world.proc.folder / "8/stat").write_text(stat)
    assert world.scan().processes == {}


@pytest.mark.real
def test_what_may_not_be_looked_at_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> bytes:
        raise PermissionError

    replace_in(scan, monkeypatch, read_below=refuse)
    world.proc.put(8, root=world.one, maps=(LIBRARY,))
    world.proc.put(9, root=world.one, maps=(LIBRARY,))
    assert [world.scan().unreadable for _ in range(2)] == [2, 2]
    world.proc.change(8, memory=0)  # as one of the kernel's own
    (world.proc.folder / "9/statm").unlink()  # it has ended meanwhile
    monkeypatch.setattr(os, "stat", refuse)
    assert world.scan().unreadable == 0


@pytest.mark.real
def test_an_executable_that_may_not_be_read(world: World, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has the right to trace a process needs another one to read others' files."""

    def refuse(*given: Any) -> Mapping[str, tuple[int, ...]]:
        raise PermissionError

    monkeypatch.setattr(scan, "function_offsets", refuse)
    world.proc.put(8, root=world.one, program=libraries / "program")
    world.proc.put(9, root=world.one, maps=(LIBRARY,), program=libraries / "bare")
    replace_in(programs, monkeypatch, readable=refuse)
    scanned = world.scan(30)
    assert (list(scanned.processes), scanned.failures, scanned.unreadable) == ([9], {"permission": 1}, 0)


@pytest.mark.real
@pytest.mark.parametrize("name", ["self", "1x", "-1", "²", "sys", ""])
def test_what_is_no_process_is_passed_over(world: World, name: str) -> None:
    (world.proc.folder / name).mkdir(exist_ok=True)
    assert world.scan().processes == {}


def test_no_proc_at_all(tmp_path: Path) -> None:
    made = Programs(proc=tmp_path / "none", wanted=WANTED, attach=Kernel().attach, most_programs=1)
    with pytest.raises(OSError, match="none"):
        made.scan()
