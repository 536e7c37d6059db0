"""Which processes use CUDA, and the files by which they do.

A process may load CUDA at any time, so each scan looks at every process of the host. Reading the maps of one takes 10
to 300 us, in which it cannot map memory. So a scan reads them only when the process is new, when its executable or the
size of its memory has changed (as when it loads a library), and once a minute.

Not for several threads at once. A file system that does not answer any more (NFS, FUSE) stops whoever opens a file of
it: a scan belongs on a thread that nobody else waits for. If a process or a file makes the exporter itself fail, that
one is left out, and the fault is logged.
"""

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from exporter import log
from exporter.probe import process_files
from exporter.probe.elf import BadElf, function_offsets
from exporter.sources.source import Bound


class FaultLog:
    """Logs the 1st, 2nd, 4th, 8th fault and so on: whoever causes them does not choose how much is logged."""

    def __init__(self) -> None:
        self._count = 0

    def note(self, error: Exception, **about: object) -> None:
        """Count a fault, and log it if it is its turn."""
        self._count += 1
        if self._count.bit_count() == 1:
            log.error("the CUDA probe leaves out what made it fail: report it", error, **about)


LookReason = Literal["deleted", "missing", "not_regular", "permission"]

# Of more, those with the lowest pids.
MOST_PROCESSES = 32_768
MOST_EXECUTABLES = 4_096
# Scans between two readings of a process' maps that nothing else asks for.
SCANS_BETWEEN = 12
# Processes whose maps are to be read wait for the next scan once a scan has taken this long; it begins with them.
SCAN_SECONDS = 2.0

_Executable = tuple[int, int, int, int]  # device, inode, size, time of change (ns)
# Mount namespace, and device, inode and path as maps shows them: on btrfs files of several subvolumes may have the same
# device and inode.
_MappedId = tuple[int, str, int, str]


class UsedFile(NamedTuple):
    """A file that a process uses, which `path` names in its mount namespace; None where it is the executable.

    `reason` says why it cannot be opened; its key is then as in maps. `times`: how often it is mapped executable.
    """

    key: process_files.FileKey
    role: process_files.MappedRole
    path: str | None
    reason: LookReason | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class UsingProcess:
    """A process that maps the CUDA runtime or driver, or has the runtime linked in.

    `started_ticks` is the start as /proc/<pid>/stat has it (field 22). `files` are what it uses of CUDA, and its libc.
    """

    pid: int
    started_ticks: int
    files: tuple[UsedFile, ...]


class _ReadProcess(NamedTuple):
    """A process when its maps were read. `mapped` are the files among them, `user` what it is if it uses CUDA."""

    executable: _Executable
    memory: bytes
    user: UsingProcess | None
    mapped: Mapping[_MappedId, UsedFile]


class Scan:
    """Looks at the processes. What it knows of one is forgotten when it has ended."""

    def __init__(self, proc: Path, runtime: frozenset[str], clock: Callable[[], float] = time.monotonic) -> None:
        """`runtime` are the functions by which an executable is known to have the CUDA runtime linked in."""
        self.unreadable = 0  # processes of the last scan that this program has no right to look at
        self._proc = proc
        self._runtime = runtime
        self._clock = clock
        self._seen: dict[int, _ReadProcess] = {}
        self._mapped: dict[_MappedId, UsedFile] = {}
        self._has_runtime: dict[_Executable, bool] = {}
        self._number = 0
        self._until = 0.0
        self._late: int | None = None  # the first pid that the last scan had no time for
        self._faults = FaultLog()
        self.bounds: Mapping[str, Bound] = {
            "processes": Bound(MOST_PROCESSES, lambda: len(self._seen)),
            "executables": Bound(MOST_EXECUTABLES, lambda: len(self._has_runtime)),
        }

    def scan(self) -> Mapping[int, UsingProcess]:
        """The processes that use CUDA, by pid. Raises OSError: /proc cannot be listed."""
        self._number += 1
        self._until = self._clock() + SCAN_SECONDS
        self.unreadable = 0
        names = os.listdir(self._proc)  # noqa: PTH208 - thousands, each of which a Path would be made for
        pids = sorted(int(name) for name in names if name.isdecimal())[:MOST_PROCESSES]
        first = bisect_left(pids, self._late or 0)
        self._late = None
        seen = {}
        for pid in (*pids[first:], *pids[:first]):
            try:
                of_pid = self._look(pid, self._seen.get(pid))
            except Exception as error:  # noqa: BLE001 - a process can cost only itself
                self._faults.note(error, pid=pid)
                continue
            if of_pid is not None:
                seen[pid] = of_pid
        self._seen = seen
        self._mapped = {name: file for of_pid in seen.values() for name, file in of_pid.mapped.items()}
        return {pid: of_pid.user for pid, of_pid in seen.items() if of_pid.user}

    def _look(self, pid: int, before: _ReadProcess | None) -> _ReadProcess | None:
        """What is seen of a process now; None where there is nothing to remember."""
        try:
            return self._look_at(pid, before)
        except PermissionError:
            with suppress(OSError):  # it has ended; a thread of the kernel has no memory
                self.unreadable += _memory_of(f"{self._proc}/{pid}/statm") != b"0"
        except OSError:
            # a thread of the kernel, or a process that has ended, which counts while it has threads but the first
            if before and before.user and self._threads_of(before.user) > 1:
                return before
        return None

    def _look_at(self, pid: int, before: _ReadProcess | None) -> _ReadProcess | None:
        status = os.stat(f"{self._proc}/{pid}/exe")  # noqa: PTH116 - one system call, for each process
        executable = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        memory = _memory_of(f"{self._proc}/{pid}/statm")
        if before and before.executable == executable and before.memory == memory:
            is_due = (self._number + pid) % SCANS_BETWEEN == 0
            if not is_due and (before.user is None or self._runs(before.user)):
                return before
        if self._clock() < self._until:
            with process_files.process_folder(self._proc, pid) as process:
                return self._read(process, pid, executable, memory)
        self._late = self._late or pid
        if before and before.user and self._runs(before.user):
            return before
        return None

    def _runs(self, user: UsingProcess) -> bool:
        return self._threads_of(user) > 0

    def _threads_of(self, user: UsingProcess) -> int:
        """How many threads this process still has; 0 where it has ended, even if another one has its pid."""
        try:
            with process_files.process_folder(self._proc, user.pid) as process:
                started_ticks, threads = process_files.stat_fields(process)
        except OSError:
            return 0
        return threads if started_ticks == user.started_ticks else 0

    def _read(self, process: int, pid: int, executable: _Executable, memory: bytes) -> _ReadProcess:
        maps = process_files.read_below(process, "maps", process_files.MOST_MAPS_BYTES)
        program = self._program(process, executable)
        if not program and process_files.MARK not in maps:
            return _ReadProcess(executable, memory, None, {})
        namespace = os.stat("ns/mnt", dir_fd=process).st_ino
        program_path = os.readlink("exe", dir_fd=process) if program else ""
        mapped = {}
        for file in process_files.read_maps(os.fsdecode(maps), program_path):
            if file.role == "program":
                program = (program[0]._replace(times=file.times),)
                continue
            name = (namespace, file.device, file.inode, file.path)
            used = self._mapped.get(name)
            # once found, a file is known even if it has been deleted since
            if used is None or used.reason:
                used = _opened(process, file)
            mapped[name] = self._mapped[name] = used._replace(times=file.times)
        files = (*program, *mapped.values())
        if all(file.role == "libc" for file in files):
            return _ReadProcess(executable, memory, None, {})
        started_ticks, _ = process_files.stat_fields(process)
        return _ReadProcess(executable, memory, UsingProcess(pid, started_ticks, files), mapped)

    def _program(self, process: int, executable: _Executable) -> tuple[UsedFile, ...]:
        """The executable, if it can be read and has the CUDA runtime linked in."""
        if self._has_runtime.get(executable) is False:
            return ()
        try:
            with process_files.looked_at(process, None) as (descriptor, status):
                if executable not in self._has_runtime:
                    with process_files.readable(descriptor) as file:
                        function_offsets(file, self._runtime)
                    self._remember(executable, True)
                return (UsedFile(process_files.key_of(descriptor, status), "program", None),)
        except (BadElf, process_files.NotRegular):
            self._remember(executable, False)
        except OSError:
            # not permitted, or a file system that is gone: what the process has mapped of CUDA may be on another one
            process_files.stat_fields(process)  # raises OSError if the process has ended
        return ()

    def _remember(self, executable: _Executable, has_runtime: bool) -> None:
        if len(self._has_runtime) >= MOST_EXECUTABLES:
            del self._has_runtime[next(iter(self._has_runtime))]
        self._has_runtime[executable] = has_runtime


def _memory_of(statm: str) -> bytes:
    """How many pages of memory a process has, mapped files included, as the kernel writes it."""
    with process_files.closing(os.open(statm, os.O_RDONLY | os.O_CLOEXEC)) as file:
        return os.read(file, 256).partition(b" ")[0]


def _opened(process: int, file: process_files.MappedFile) -> UsedFile:
    """The file that a process has mapped, or why it cannot be opened."""
    reason: LookReason = "deleted"
    if not file.is_deleted:
        try:
            with process_files.looked_at(process, file.path) as (descriptor, status):
                return UsedFile(process_files.key_of(descriptor, status), file.role, file.path)
        except process_files.NotRegular:
            reason = "not_regular"
        except PermissionError:
            reason = "permission"
        except OSError:
            process_files.stat_fields(process)  # raises OSError if the process has ended
            reason = "missing"
    major, _, minor = file.device.partition(":")
    device = os.makedev(int(major, 16), int(minor, 16))
    return UsedFile(process_files.FileKey(device, file.inode), file.role, file.path, reason)
