"""The source of what the environment of containers' first processes says of devices (`--allocators.environ`).

A container's first process has the environment with which the container was made; later ones (kubectl exec, what a
shell starts) may have another. /proc/<pid>/environ shows the environment of a process' start. It takes the right to
trace the process (CAP_SYS_PTRACE). Only the variables of ownership/plugin_answers.py are kept, and only of containers
that were asked for; nothing else of an environment is kept, shown or logged.

Each look reads the cgroups of all processes, so a look is due only while something is missing.

The author of a pod can set these variables in the pod's spec, which then counts in the container and not what the
plugin set. So an environment may lie where the kubelet's checkpoint does not.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from exporter.errors import Trouble, Unavailable
from exporter.model.measured import Environments, HostProcesses, Process, ProcessPlace
from exporter.ownership.plugin_answers import matters
from exporter.sources.polled import Polled
from exporter.sources.process_cgroups import FOLDER, ProcFolder
from exporter.sources.source import Bound, Bounds, Clock, OnHealth

NAME = "environ"
AGAIN_SECONDS = 5.0
# Linux gives a process at most some 6 MiB of environment; runtimes give some KiB
MOST_BYTES = 256 * 1024
MOST_VALUE_CHARS = 16 * 1024
MOST_CONTAINERS = 2_000
MOST_HOST_PROCESSES = 32_768  # if there are more, the lowest pids count
# in this time a runtime puts the container's own program, with its environment, in the place of its helper
_STARTED_SECONDS = 10.0
_TICK_SECONDS = 0.01  # Linux counts starts in these
_REMEDY = (
    "give the exporter's container the capability SYS_PTRACE and let it run as uid 0, or set --allocators.environ off"
)


class _Read(NamedTuple):
    """A container's first process, and the variables that matter in its environment."""

    pid: int
    started_at: float
    read_at: float
    variables: Mapping[str, str]

    @property
    def is_final(self) -> bool:
        """Whether the container's own program ran when it was read."""
        return bool(self.variables) or self.read_at - self.started_at > _STARTED_SECONDS


def first_processes(processes: HostProcesses) -> Mapping[ProcessPlace, Process]:
    """The first process of each container of a pod: that with the earliest start, or else the lowest pid."""
    first: dict[ProcessPlace, Process] = {}
    for process in processes.by_pid.values():
        place = process.place
        if place is None or not place.is_of_pod or not place.container_id:
            continue
        before = first.get(place)
        if before is None or (process.started_at, process.pid) < (before.started_at, before.pid):
            first[place] = process
    return first


class EnvironFolder:
    """Reads environments from /proc, or a tree like it. Only one thread at a time may use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes = ProcFolder(folder, most=MOST_HOST_PROCESSES)
        self._again = ProcFolder(folder)
        self._read: dict[ProcessPlace, _Read] = {}

    def read(self, wanted: frozenset[str], now: float) -> tuple[Environments, int]:
        """The environments of the containers with these ids or these pods' uids, and how many may not be read.

        `now` is of the monotonic clock. Raises Unavailable: the host's processes cannot be seen here.
        """
        pids = [int(entry) for entry in os.listdir(self._folder) if entry.isdigit()]  # noqa: PTH208 - names suffice
        read: dict[ProcessPlace, _Read] = {}
        refused = 0
        for place, process in first_processes(self._processes.read(pids, now)).items():
            if wanted.isdisjoint((place.container_id, place.pod_uid)) or len(read) == MOST_CONTAINERS:
                continue
            try:
                of_place = self._of(place, process, now)
            except PermissionError:
                refused += 1
                continue
            except OSError:
                continue  # the process has ended meanwhile
            if of_place is not None:
                read[place] = of_place
        self._read = read
        by_place = {place: of_place.variables for place, of_place in read.items() if of_place.is_final}
        return Environments(by_place=MappingProxyType(by_place), read_at=now), refused

    def _of(self, place: ProcessPlace, process: Process, now: float) -> _Read | None:
        """The environment of a container's first process; None if it is not yet, or no longer, that container's.

        Raises OSError: it cannot be read.
        """
        before = self._read.get(place)
        is_same = before is not None and (before.pid, before.started_at) == (process.pid, process.started_at)
        if before is not None and is_same and before.is_final:
            return before
        folder = os.open(self._folder / str(process.pid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            environ = _read_below(folder, "environ")
        finally:
            os.close(folder)
        # an environment that is read in the same open folder is that of the process, unless the pid was given anew
        after = self._again.read([process.pid], now).by_pid.get(process.pid)
        if after is None or after.place != place or abs(after.started_at - process.started_at) > _TICK_SECONDS:
            return None
        return _Read(process.pid, process.started_at, now, MappingProxyType(dict(_variables(environ))))


class Environs(Polled):
    """The environments of the containers that `want` names, read on a thread."""

    def __init__(self, *, root: str, on_health: OnHealth, clock: Clock = time.monotonic) -> None:
        """`root` is the host's root folder, with /proc."""
        super().__init__(NAME, on_health, again_seconds=AGAIN_SECONDS, clock=clock)
        self.environments = Environments()
        self.bounds: Bounds = {"environments": Bound(MOST_CONTAINERS, lambda: len(self.environments.by_place))}
        self._folder = EnvironFolder(Path(f"{root.rstrip('/')}{FOLDER}"))
        self._wanted: frozenset[str] = frozenset()

    def want(self, containers: frozenset[str]) -> None:
        """Read the environments of the containers with these ids, or in pods with these uids, from now on."""
        self._wanted = containers

    async def _look(self) -> Trouble | None:
        wanted = self._wanted
        environments, refused = await asyncio.to_thread(self._folder.read, wanted, self._clock())
        self.environments = environments
        message = f"no right to read the environment of {refused} containers' first processes"
        if refused and not environments.by_place:
            raise Unavailable("permission", message, remedy=_REMEDY)
        return Trouble("permission", message, _REMEDY) if refused else None


def _read_below(folder: int, name: str) -> bytes:
    """The first bytes of a file of /proc/<pid>. Raises OSError: the process has ended, or there is no right."""
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        parts = []
        left = MOST_BYTES
        while left and (part := os.read(file, left)):
            parts.append(part)
            left -= len(part)
        # the last variable may have been cut
        return b"".join(parts) if left else b"".join(parts).rpartition(b"\0")[0]
    finally:
        os.close(file)


def _variables(environ: bytes) -> Iterable[tuple[str, str]]:
    """The variables that matter. A value that is too long, or no UTF-8, is left out; the last of a name counts."""
    for variable in environ.split(b"\0"):
        name, _, value = variable.partition(b"=")
        if not name.isascii() or not matters(name.decode()) or len(value) > MOST_VALUE_CHARS:
            continue
        try:
            yield name.decode(), value.decode()
        except UnicodeDecodeError:
            continue
