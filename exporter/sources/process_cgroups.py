"""The source of the host's processes and their containers, by /proc.

For each process it reads `stat` (the start time tells the process from a later one with the same pid) and `cgroup`,
both in the same open folder: if the process ends in between, the second file cannot be opened. Without `hostPID`, the
host's pids may mean other processes here, so /proc counts only if its process 1 is the host's.
"""

import asyncio
import os
import time
from collections.abc import Collection
from contextlib import suppress
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from exporter.errors import Trouble, Unavailable
from exporter.model.measured import HostProcesses, Process
from exporter.sources.polled import Polled
from exporter.sources.source import MOST_PROCESSES, Bound, Bounds, Clock, OnHealth
from exporter.usage.process_owners import Root, kubelet_root, read_cgroups

NAME = "processes"
FOLDER = "/proc"
# A line of cgroup v1 has at most 4,096 characters, and there are 14 hierarchies.
MOST_BYTES = 64 * 1024
MOST_COMMAND_BYTES = 1024
# the machine's first PID namespace (proc_ns.h of Linux)
_FIRST_NAMESPACE = "pid:[4026531836]"
# fields of stat count from 1; the list begins with the third, after the name
_FLAGS = 9 - 3
_STARTTIME = 22 - 3
_IS_KERNEL_THREAD = 0x0020_0000  # PF_KTHREAD of Linux' sched.h
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class _ProcessRead(NamedTuple):
    """A process, with the bytes of its start time and of its cgroups."""

    start: bytes
    cgroup: bytes
    process: Process


class ProcFolder:
    """Reads /proc, or a tree like it. Only one thread at a time may use it."""

    def __init__(self, folder: Path, *, with_commands: bool = False, most: int | None = None) -> None:
        """`with_commands`: read command lines and users, too. `most` is in the place of MOST_PROCESSES."""
        self._folder = folder
        self._most = most
        self._with_commands = with_commands
        self._processes: dict[int, _ProcessRead] = {}
        self._root: Root | None = None
        self._sees_host: bool | None = None

    def __len__(self) -> int:
        return len(self._processes)

    def read(self, pids: Collection[int], now: float) -> HostProcesses:
        """The processes of these pids, at `now` of the monotonic clock. If there are too many, the lowest pids count.

        A process that was read before and has ended stays while its pid is in `pids`, since the driver lists it a
        little longer. Raises Unavailable: the host's processes cannot be seen here.
        """
        if self._sees_host is None:
            self._sees_host = self._looks_at_host()
            self._root = kubelet_root(_text(_read(self._folder / "self/cgroup")))
        if not self._sees_host:
            raise Unavailable(
                "missing",
                f"{self._folder} does not show the processes of the host: whose processes use a GPU is not known",
                remedy="set hostPID: true in the exporter's pod; outside of pods, let it see all processes (hidepid,"
                " ProtectProc)",
            )
        processes = {}
        asked_for = sorted(pids)[: self._most or MOST_PROCESSES]
        for pid in asked_for:
            process = self._process(pid) or self._processes.get(pid)
            if process:
                processes[pid] = process
        self._processes = processes
        by_pid = MappingProxyType({pid: of_pid.process for pid, of_pid in processes.items()})
        return HostProcesses(by_pid=by_pid, asked_for=frozenset(asked_for), read_at=now)

    def _looks_at_host(self) -> bool:
        """Whether process 1 is the host's. In a pod's own PID namespace process 1 is in the exporter's pod."""
        first = _read(self._folder / "1/cgroup")
        if first is None:
            return False
        with suppress(OSError):  # then the cgroups below tell it
            if str((self._folder / "self/ns/pid").readlink()) == _FIRST_NAMESPACE:
                return True
        place = read_cgroups(_text(first))
        return first != _read(self._folder / "self/cgroup") and (place is None or not place.is_of_pod)

    def _process(self, pid: int) -> _ProcessRead | None:
        """The process of a pid as /proc has it now. None if it has ended, or cannot be one that uses a GPU."""
        try:
            folder = os.open(self._folder / str(pid), os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            stat = _read("stat", folder)
            cgroup = _read("cgroup", folder)
            if stat is None or cgroup is None:
                return None
            until_name, _, rest = stat.rpartition(b")")  # a name may hold blanks and brackets
            name = _text(until_name.partition(b"(")[2])
            fields = rest.split()
            if len(fields) <= _STARTTIME or not fields[_STARTTIME].isdigit() or not fields[_FLAGS].isdigit():
                return None
            # init and kernel threads use no GPU: the pid belongs to a process of another PID namespace
            if pid == 1 or int(fields[_FLAGS]) & _IS_KERNEL_THREAD:
                return None
            start = fields[_STARTTIME]
            before = self._processes.get(pid)
            # exec gives a process another command but keeps its pid and start, so commands are read each time
            is_same = before is not None and (before.start, before.cgroup, before.process.name) == (start, cgroup, name)
            if is_same and not self._with_commands:
                return before
            process = Process(
                pid=pid,
                started_at=_moment(int(start)),
                place=read_cgroups(_text(cgroup), self._root),
                name=name,
                command=_command(folder, name) if self._with_commands else "",
                user=_user(folder) if self._with_commands else "",
            )
            return _ProcessRead(start, cgroup, process)
        finally:
            os.close(folder)


class Processes(Polled):
    """The processes that `want` names, read on a thread."""

    def __init__(
        self,
        *,
        folder: str = FOLDER,
        with_commands: bool = False,
        on_health: OnHealth,
        clock: Clock = time.monotonic,
    ) -> None:
        """`with_commands`: read each process' command line and user, too."""
        super().__init__(NAME, on_health, again_seconds=inf, clock=clock)
        self.processes: HostProcesses | None = None  # None: not known
        self._folder = ProcFolder(Path(folder), with_commands=with_commands)
        self.bounds: Bounds = {"processes": Bound(MOST_PROCESSES, lambda: len(self._folder))}
        self._wanted: frozenset[int] = frozenset()

    def want(self, pids: frozenset[int], since: float) -> None:
        """Read these processes from now on. The driver listed them at `since`, so an earlier read does not count."""
        self._wanted = pids
        self.look_after(since)

    async def _look(self) -> Trouble | None:
        wanted = self._wanted
        try:
            self.processes = await asyncio.to_thread(self._folder.read, wanted, self._clock())
        except Unavailable:
            self.processes = None
            raise
        return _TOO_MANY if len(wanted) > MOST_PROCESSES else None


_TOO_MANY = Trouble(
    "oversize",
    f"more than {MOST_PROCESSES} processes use the GPUs: whose those with the highest pids are is not known",
    "which program starts so many?",
)


def _read(path: Path | str, folder: int | None = None) -> bytes | None:
    """The bytes of a file of /proc, which needs only one read; None if it is not there, or is too long."""
    text = _begin(path, folder, MOST_BYTES)
    return text if text is not None and len(text) < MOST_BYTES else None


def _begin(path: Path | str, folder: int | None, most_bytes: int) -> bytes | None:
    """The first bytes of a file of /proc; None if it is not there."""
    try:
        file = os.open(path, os.O_RDONLY, dir_fd=folder)
        try:
            return os.read(file, most_bytes)
        finally:
            os.close(file)
    except OSError:
        return None  # there is no such file, or the process has ended


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _moment(ticks: int) -> float:
    """Ticks since the machine booted, as seconds of the monotonic clock, which stops while the machine sleeps."""
    slept = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return ticks / _TICKS_PER_SECOND - slept


def _command(folder: int, name: str) -> str:
    """The first part of the command line; the name in brackets if there is none, as `ps` shows it."""
    line = (_begin("cmdline", folder, MOST_COMMAND_BYTES) or b"").replace(b"\0", b" ").strip()
    return _text(line) or f"[{name}]"


def _user(folder: int) -> str:
    """The number of the user as whom the process runs."""
    for line in (_read("status", folder) or b"").split(b"\n"):
        if line.startswith(b"Uid:"):
            return _text(line.split()[1])
    return ""
