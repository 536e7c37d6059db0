"""The scan for processes that use CUDA, and for their CUDA files.

A process may load CUDA at any time, so each scan looks at every process of the host. The reading of a process' maps
takes 10 to 300 us, in which the process cannot map memory. So a scan reads them only if the process is new, if its
executable or the size of its memory has changed (as when it loads a library), and once a minute.

Only one thread at a time may scan. If a file system (NFS, FUSE) does not answer, the thread that opens one of its files
hangs, so a scan needs a thread that nobody waits for. If a process or a file makes the exporter itself fail, it is left
out, and the fault is logged.

Tests: tests/probe/test_programs.py.
"""

import os
import time
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from exporter import log
from exporter.probe import process_files
from exporter.probe.elf import BadElf, function_offsets
from exporter.sources.source import Bound, Bounds, Clock


class FaultLog:
    """Logs the 1st, 2nd, 4th, 8th fault and so on, so that nobody can fill the log by causing faults."""

    def __init__(self) -> None:
        self._count = 0

    def note(self, error: Exception, **about: object) -> None:
        """Count a fault, and log it if it is the 1st, 2nd, 4th and so on."""
        self._count += 1
        if self._count.bit_count() == 1:
            log.error("the CUDA probe leaves out what made it fail: report it", error, **about)


LookReason = Literal["deleted", "missing", "not_regular", "permission"]

# If there are more, the lowest pids count.
MOST_PROCESSES = 32_768
MOST_EXECUTABLES = 4_096
# The scans between two readings of the maps of a process that has not changed.
SCANS_BETWEEN = 12
# After this time a scan reads no more maps. The next scan begins with the processes that are left.
SCAN_SECONDS = 2.0

_Executable = tuple[int, int, int, int]  # device, inode, size, time of change (ns)
# Mount namespace, and device, inode and path by maps: on btrfs, files of several subvolumes may have the same device
# and inode.
_MappedId = tuple[int, str, int, str]


class UsedFile(NamedTuple):
    """A CUDA file that a process uses, or its libc.

    Attributes:
        key: the file's identity; by maps if the file cannot be opened.
        role: its kind.
        path: its path in the process' mount namespace; None for the executable.
        reason: why it cannot be opened; None if it can.
        times: the number of its executable mappings.
    """

    key: process_files.FileKey
    role: process_files.MappedRole
    path: str | None
    reason: LookReason | None = None
    times: int = 1


@dataclass(frozen=True, slots=True)
class UsingProcess:
    """A process that maps the CUDA runtime or driver, or has the runtime linked in.

    `started_ticks` is its start in /proc/<pid>/stat (field 22). `files` are its CUDA files and its libc.
    """

    pid: int
    started_ticks: int
    files: tuple[UsedFile, ...]


class _ReadProcess(NamedTuple):
    """A process when its maps were read. `mapped` are its files by maps; `user` is None unless it uses CUDA."""

    executable: _Executable
    memory: bytes
    user: UsingProcess | None
    mapped: Mapping[_MappedId, UsedFile]


class Scan:
    """Looks at the processes, and remembers each until it has ended."""

    def __init__(self, proc: Path, runtime: frozenset[str], clock: Clock = time.monotonic) -> None:
        """`proc` is the folder /proc. An executable with a function of `runtime` has the CUDA runtime linked in."""
        self.unreadable = 0  # the processes of the last scan that the exporter has no right to look at
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
        self.bounds: Bounds = {
            "processes": Bound(MOST_PROCESSES, lambda: len(self._seen)),
            "executables": Bound(MOST_EXECUTABLES, lambda: len(self._has_runtime)),
        }

    def scan(self) -> Mapping[int, UsingProcess]:
        """The processes that use CUDA, by pid. Raises OSError: /proc cannot be listed."""
        self._number += 1
        self._until = self._clock() + SCAN_SECONDS
        self.unreadable = 0
        names = os.listdir(self._proc)  # noqa: PTH208 - pathlib would make a Path for each of thousands
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
        """The facts about a process now; None if there is nothing to remember."""
        try:
            return self._look_at(pid, before)
        except PermissionError:
            with suppress(OSError):  # the process has ended; a kernel thread has no memory
                self.unreadable += _memory_of(f"{self._proc}/{pid}/statm") != b"0"
        except OSError:
            # a kernel thread, or a process whose first thread has ended: it counts while it has others
            if before and before.user and self._threads_of(before.user) > 1:
                return before
        return None

    def _look_at(self, pid: int, before: _ReadProcess | None) -> _ReadProcess | None:
        """What is remembered of a process: as `before` while nothing has changed. Raises OSError: it has ended."""
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
        """The number of threads of this process; 0 if it has ended, even if another process has its pid."""
        try:
            with process_files.process_folder(self._proc, user.pid) as process:
                started_ticks, threads = process_files.stat_fields(process)
        except OSError:
            return 0
        return threads if started_ticks == user.started_ticks else 0

    def _read(self, process: int, pid: int, executable: _Executable, memory: bytes) -> _ReadProcess:
        """Read the files by which a process uses CUDA; `user` is None if it does not. Raises OSError: it has ended."""
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
            # a file that was found stays known, even if it was deleted since
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
            # no right, or a file system that is gone: the process' CUDA files may be on another file system
            process_files.stat_fields(process)  # raises OSError if the process has ended
        return ()

    def _remember(self, executable: _Executable, has_runtime: bool) -> None:
        if len(self._has_runtime) >= MOST_EXECUTABLES:
            del self._has_runtime[next(iter(self._has_runtime))]
        self._has_runtime[executable] = has_runtime


def _memory_of(statm: str) -> bytes:
    """The number of a process' pages of memory, with mapped files, in the kernel's text."""
    with process_files.closing(os.open(statm, os.O_RDONLY | os.O_CLOEXEC)) as file:
        return os.read(file, 256).partition(b" ")[0]


def _opened(process: int, file: process_files.MappedFile) -> UsedFile:
    """The file that a process has mapped, with the reason if it cannot be opened."""
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
