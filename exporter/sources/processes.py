"""Processes of the host: which container each is in, by /proc.

Of each process that somebody asks for it reads `stat` (the start time, which tells a process from a later one with the
same pid) and `cgroup`. Both are opened below one open folder of the process: if it ends in between, and its pid goes to
another one, the second file cannot be opened.

Without `hostPID` the pids of the host are not in /proc. Some of them may be there all the same, and then they are other
processes. So /proc counts only where its process 1 is the host's.
"""

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from exporter.attribution.cgroups import Root, kubelet_root, read_cgroups
from exporter.errors import SourceError, Trouble, Unavailable
from exporter.model.measured import HostProcesses, Process
from exporter.model.snapshot import Health
from exporter.sources.limits import MOST_PROCESSES
from exporter.sources.source import PATIENCE_SECONDS, Attempt, Attempts, Bound, OnHealth

NAME = "processes"
FOLDER = "/proc"
# A line of cgroup v1 has at most 4,096 characters, and there are 14 hierarchies.
MOST_BYTES = 64 * 1024
MOST_COMMAND_BYTES = 1024
# proc_ns.h of Linux: the PID namespace that the machine has booted with
_FIRST_NAMESPACE = "pid:[4026531836]"
_STARTTIME = 22 - 3  # fields of stat count from 1; after the command, which is the second, comes the third
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class _Known(NamedTuple):
    """A process, with the bytes that say when it was started and where it is."""

    start: bytes
    cgroup: bytes
    process: Process


class ProcFolder:
    """Reads /proc, or a tree like it. Not for several threads at once."""

    def __init__(self, folder: Path, *, with_commands: bool = False) -> None:
        self._folder = folder
        self._with_commands = with_commands
        self._known: dict[int, _Known] = {}
        self._root: Root | None = None
        self._sees_host: bool | None = None

    def __len__(self) -> int:
        return len(self._known)

    def read(self, pids: Collection[int], now: float) -> HostProcesses:
        """The processes of these pids, of too many those with the lowest, at `now` of the monotonic clock.

        A process that was read before and has ended is still told of while it is asked for: the driver lists it a
        little longer.

        Raises:
            Unavailable: the processes of the host cannot be seen here.
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
        known, asked_for = {}, sorted(pids)[:MOST_PROCESSES]
        for pid in asked_for:
            process = self._process(pid) or self._known.get(pid)
            if process:
                known[pid] = process
        self._known = known
        by_pid = MappingProxyType({pid: of_pid.process for pid, of_pid in known.items()})
        return HostProcesses(by_pid=by_pid, asked_for=frozenset(asked_for), read_at=now)

    def _looks_at_host(self) -> bool:
        """Whether process 1 is the host's. In a pod's own PID namespace it is in the exporter's pod."""
        first = _read(self._folder / "1/cgroup")
        if first is None:
            return False
        try:
            if str((self._folder / "self/ns/pid").readlink()) == _FIRST_NAMESPACE:
                return True
        except OSError:
            pass  # the cgroups tell it, too
        place = read_cgroups(_text(first))
        return first != _read(self._folder / "self/cgroup") and (place is None or not place.is_of_pod)

    def _process(self, pid: int) -> _Known | None:
        try:
            folder = os.open(self._folder / str(pid), os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            stat, cgroup = _read("stat", folder), _read("cgroup", folder)
            if stat is None or cgroup is None:
                return None
            name, _, rest = stat.rpartition(b")")  # a command may hold blanks and brackets
            fields = rest.split()
            if len(fields) <= _STARTTIME or not fields[_STARTTIME].isdigit():
                return None
            start = fields[_STARTTIME]
            known = self._known.get(pid)
            # a process may become another program, which keeps its pid and start: commands are read each time
            if known and known.start == start and known.cgroup == cgroup and not self._with_commands:
                return known
            process = Process(
                pid=pid,
                started_at=_moment(int(start)),
                place=read_cgroups(_text(cgroup), self._root),
                command=_command(folder, name) if self._with_commands else "",
                user=_user(folder) if self._with_commands else "",
            )
            return _Known(start, cgroup, process)
        finally:
            os.close(folder)


class Processes:
    """The processes that somebody wants to know of, read on a thread."""

    name = NAME
    patience_seconds = PATIENCE_SECONDS

    def __init__(
        self,
        *,
        folder: str = FOLDER,
        with_commands: bool = False,
        on_health: OnHealth,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`with_commands`: read each process' command line and user, too."""
        self.processes: HostProcesses | None = None  # None: not known
        self._folder = ProcFolder(Path(folder), with_commands=with_commands)
        self.bounds: Mapping[str, Bound] = {"processes": Bound(MOST_PROCESSES, lambda: len(self._folder))}
        self._clock = clock
        self._attempts = Attempts(NAME, on_health)
        self._wanted: frozenset[int] = frozenset()
        self._since = -float("inf")
        self._read_at: float | None = None
        self.reading: asyncio.Task[None] | None = None  # the last read, over or not

    @property
    def health(self) -> Health:
        """How the last read went."""
        return self._attempts.health

    def want(self, pids: frozenset[int], since: float) -> None:
        """From now on these. The driver was asked for them at `since`, so what was read before does not count."""
        self._wanted, self._since = pids, since

    def begin(self) -> Attempt | None:
        """Read what is wanted, once; only the first read is worth waiting for."""
        is_due = self._read_at is None or self._read_at < self._since
        if is_due and (self.reading is None or self.reading.done()):
            self.reading = asyncio.create_task(self._read())
        return self.reading if self._read_at is None else None

    async def close(self) -> None:
        """Wait for nobody: a thread that reads ends with its read."""
        if self.reading is not None:
            self.reading.cancel()

    async def _read(self) -> None:
        started, wanted = self._clock(), self._wanted
        error: SourceError | None = None
        try:
            self.processes = await asyncio.to_thread(self._folder.read, wanted, started)
        except Unavailable as why:
            self.processes, error = None, why
        self._read_at = started
        odd = _TOO_MANY if len(wanted) > MOST_PROCESSES else None
        self._attempts.note(error, took_seconds=self._clock() - started, now_seconds=time.time(), odd=odd)


_TOO_MANY = Trouble(
    "oversize",
    f"more than {MOST_PROCESSES} processes use the GPUs: whose those with the highest pids are is not known",
    "which program starts so many?",
)


def _read(path: Path | str, folder: int | None = None) -> bytes | None:
    """The bytes of a file of /proc, which gives them in one read; None where it is not there, or is too long."""
    text = _begin(path, folder, MOST_BYTES)
    return text if text is not None and len(text) < MOST_BYTES else None


def _begin(path: Path | str, folder: int | None, most_bytes: int) -> bytes | None:
    """The first bytes of a file of /proc; None where it is not there."""
    try:
        file = os.open(path, os.O_RDONLY, dir_fd=folder)
    except OSError:
        return None
    try:
        return os.read(file, most_bytes)
    except OSError:
        return None  # the process has ended
    finally:
        os.close(file)


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _moment(ticks: int) -> float:
    """Ticks since the machine has booted as seconds of the monotonic clock, which stands still while it sleeps."""
    slept = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return ticks / _TICKS_PER_SECOND - slept


def _command(folder: int, stat_until_name: bytes) -> str:
    """The first part of the command line, or the name in brackets where there is none, as with `ps`."""
    line = (_begin("cmdline", folder, MOST_COMMAND_BYTES) or b"").replace(b"\0", b" ").strip()
    return _text(line) or f"[{_text(stat_until_name.partition(b'(')[2])}]"


def _user(folder: int) -> str:
    """The number of the user that the process runs as."""
    for line in (_read("status", folder) or b"").split(b"\n"):
        if line.startswith(b"Uid:"):
            return _text(line.split()[1])
    return ""
