"""The probed files: each file of CUDA that a process uses is probed once, as long as some process uses it."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from exporter import log
from exporter.errors import ExporterError
from exporter.probe import process_files
from exporter.probe.elf import BadElf, ElfReason, function_offsets
from exporter.probe.functions import Role
from exporter.probe.scan import FaultLog, LookReason, Scan, UsedFile, UsingProcess
from exporter.sources.source import Bound, Bounds, Clock

# too_many: the limit on probed files is reached; attach: the kernel refuses the file; too_many_mappings, too_slow: the
# file would take too long, and slow every fork() on the node meanwhile; fault: the file made the exporter fail
FailReason = ElfReason | LookReason | Literal["too_many", "too_many_mappings", "attach", "fault"]

# The most files in use that could not be probed. Beyond these no new file is tried.
MOST_FAILED = 4_096
# Once attaching has taken this long, new files wait for the next scan.
ATTACH_SECONDS = 2.0
# The most mappings of a file, by all processes. For each place the kernel goes through all of them, 1 us each, and no
# process of the node can fork meanwhile. 8 GPUs, each shared by 50 programs of 4 processes, have 1,600.
MOST_MAPPINGS = 2_048
# The most mappings of all probed files. The kernel takes about a second to detach from this many.
MOST_ALL_MAPPINGS = 8_192
# The most files in a scan that turn out too slow for the kernel. Each stops forks for a tenth of a second.
MOST_SLOW = 4
# The most processes by which a scan tries a file, since a process may end meanwhile.
MOST_TRIES = 4
# After this many scans a failed file is tried again; if its content was the reason, only after the content has changed.
SCANS_BETWEEN_TRIES = 12

_FUNCTIONS_OF: Mapping[process_files.MappedRole, Role] = MappingProxyType(
    {"cudart": "cudart", "cuda": "cuda", "program": "cudart", "libc": "libc"}
)
_COSTLY: frozenset[FailReason] = frozenset({"too_many_mappings", "too_many_places", "too_slow"})
_LEFT_OUT = "the CUDA probe leaves a file out, since to probe it would slow every fork() on the node"
_Stamp = tuple[int, int]  # size, time of change of the content (ns)


class AttachFailed(ExporterError):
    """A file cannot be probed."""


class AttachSlow(AttachFailed):
    """The probing of a file would take too long."""


# Probes functions at these offsets of a file, for a library of this role. The file is at the path only during the call.
# Returns a function that detaches, and raises nothing. Raises AttachFailed if the file cannot be probed, AttachSlow if
# it takes too long: then no function of the file is probed.
Detach = Callable[[], None]
Attach = Callable[[str, Mapping[str, tuple[int, ...]], Role], Detach]


@dataclass(frozen=True, slots=True)
class Scanned:
    """The result of a scan.

    Attributes:
        processes: the processes that use CUDA, by pid.
        programs: the number of files that are probed now.
        failures: the number of files that could not be probed since the start, by reason.
        unreadable: the number of processes that the exporter has no right to look at.
    """

    processes: Mapping[int, UsingProcess]
    programs: int
    failures: Mapping[FailReason, int]
    unreadable: int


class _Failure(NamedTuple):
    reason: FailReason
    stamp: _Stamp | None


class Programs:
    """Keeps the files probed that processes use. Only one thread at a time may use it."""

    def __init__(
        self,
        *,
        proc: Path,
        wanted: Mapping[Role, frozenset[str]],
        attach: Attach,
        most_programs: int,
        clock: Clock = time.monotonic,
    ) -> None:
        """`proc` is the folder /proc, `wanted` the functions to probe by role, `most_programs` the most files."""
        self._proc = proc
        self._wanted = wanted
        self._attach = attach
        self._most = most_programs
        self._clock = clock
        self._scan = Scan(proc, wanted["cudart"], clock)
        self._attached: dict[process_files.FileKey, tuple[Role, Detach]] = {}
        self._failed: dict[process_files.FileKey, _Failure] = {}
        self._failures: Counter[FailReason] = Counter()
        self._users: Mapping[process_files.FileKey, list[tuple[UsingProcess, UsedFile]]] = {}
        self._number = self._slow = 0
        self._faults = FaultLog()
        self.bounds: Bounds = {
            **self._scan.bounds,
            "programs": Bound(most_programs, lambda: len(self._attached)),
            "failed_programs": Bound(MOST_FAILED, lambda: len(self._failed)),
        }

    def scan(self) -> Scanned:
        """Look for processes, probe new files, and detach from unused files. Raises OSError: /proc cannot be listed."""
        processes = self._scan.scan()
        self._number += 1
        users: dict[process_files.FileKey, list[tuple[UsingProcess, UsedFile]]] = {}
        uses = [(process, file) for process in processes.values() for file in process.files]
        # CUDA's files come first, since a libc alone is of no use
        for process, file in sorted(uses, key=lambda use: use[1].role == "libc"):
            users.setdefault(file.key, []).append((process, file))
        for key in self._attached.keys() - users.keys():
            _, detach = self._attached.pop(key)
            detach()
        for key in self._failed.keys() - users.keys():
            del self._failed[key]
        self._users = users
        for key in sorted(self._attached, key=self._mappings, reverse=True):
            role, detach = self._attached.pop(key)
            if self._is_crowded(key):
                detach()
                self._fail(key, "too_many_mappings")
            else:
                self._attached[key] = role, detach
        until = self._clock() + ATTACH_SECONDS
        self._slow = 0
        for key, of_key in users.items():
            if key not in self._attached and self._is_due(key) and self._clock() < until and self._slow < MOST_SLOW:
                try:
                    self._try(key, of_key)
                except Exception as error:  # noqa: BLE001 - a file can cost only itself
                    self._faults.note(error, pid=of_key[0][0].pid, file=of_key[0][1].path)
                    self._fail(key, "fault")
        return Scanned(
            processes=MappingProxyType(processes),
            programs=len(self._attached),
            failures=MappingProxyType(dict(self._failures)),
            unreadable=self._scan.unreadable,
        )

    def _is_due(self, key: process_files.FileKey) -> bool:
        failure = self._failed.get(key)
        if failure is None:
            return len(self._failed) < MOST_FAILED
        if failure.reason == "too_many":
            return len(self._attached) < self._most
        return self._number % SCANS_BETWEEN_TRIES == 0

    def _try(self, key: process_files.FileKey, users: list[tuple[UsingProcess, UsedFile]]) -> None:
        """Probe a file by the first of its processes that still runs, or note why the file is not probed."""
        openable = [use for use in users if use[1].reason is None]
        if not openable:
            self._fail(key, users[0][1].reason or "missing")
        elif self._is_crowded(key):
            self._fail(key, "too_many_mappings")
        elif not self._make_room(_FUNCTIONS_OF[openable[0][1].role]):
            self._fail(key, "too_many")
        else:
            for user, file in openable[:MOST_TRIES]:
                # if the process has ended, the next process is tried, or the next scan
                with suppress(OSError), process_files.process_folder(self._proc, user.pid) as process:
                    if process_files.stat_fields(process)[0] == user.started_ticks:
                        self._open(key, process, file)
                        return

    def _mappings(self, key: process_files.FileKey) -> int:
        return sum(file.times for _, file in self._users[key])

    def _is_crowded(self, key: process_files.FileKey) -> bool:
        """Whether a file has too many mappings, by itself or together with the probed files."""
        of_file = self._mappings(key)
        return of_file > MOST_MAPPINGS or of_file + sum(map(self._mappings, self._attached)) > MOST_ALL_MAPPINGS

    def _make_room(self, role: Role) -> bool:
        """Make room for a file. Returns whether there is room. A libc, which only tells of setenv, yields to CUDA."""
        if len(self._attached) < self._most:
            return True
        libc = next((key for key, (of, _) in self._attached.items() if of == "libc"), None)
        if libc is None or role == "libc":
            return False
        _, detach = self._attached.pop(libc)
        detach()
        return True

    def _open(self, key: process_files.FileKey, process: int, file: UsedFile) -> None:
        """Probe a file by way of a process that uses it. Raises OSError: the process has ended."""
        try:
            with process_files.looked_at(process, file.path) as (descriptor, status):
                before = self._failed.get(key)
                stamp = (status.st_size, status.st_mtime_ns)
                if process_files.key_of(descriptor, status) != key:
                    self._fail(key, "missing")
                elif before is None or before.stamp != stamp:
                    self._probe(key, descriptor, stamp, _FUNCTIONS_OF[file.role])
        except (OSError, process_files.NotRegular):
            process_files.stat_fields(process)
            self._fail(key, "missing")

    def _probe(self, key: process_files.FileKey, descriptor: int, stamp: _Stamp, role: Role) -> None:
        """Attach to an open file's functions, or note why not. With `stamp` that holds until the file changes."""
        try:
            with process_files.readable(descriptor) as file:
                offsets = function_offsets(file, self._wanted[role])
                self._attached[key] = role, self._attach(f"/proc/self/fd/{file}", offsets, role)
            self._failed.pop(key, None)
        except BadElf as error:
            self._fail(key, error.reason, stamp)
        except AttachSlow:
            self._slow += 1
            self._fail(key, "too_slow")
        # no stamp, since the reason may be a temporary lack of memory or descriptors, and not the content
        except AttachFailed:
            self._fail(key, "attach")
        except PermissionError:
            self._fail(key, "permission")

    def _fail(self, key: process_files.FileKey, reason: FailReason, stamp: _Stamp | None = None) -> None:
        """Remember a file's failure. Count it only if it differs from the file's last failure."""
        failure = _Failure(reason, stamp)
        if self._failed.get(key) != failure:
            self._failures[reason] += 1
            # the 1st, 2nd, 4th failure and so on are logged, so that programs cannot fill the log
            if reason in _COSTLY and self._failures[reason].bit_count() == 1:
                process, file = self._users[key][0]
                remedy = "see docs/cuda.md#limits; it is tried again once a minute"
                log.warning(_LEFT_OUT, reason=reason, pid=process.pid, file=file.path, remedy=remedy)
        self._failed[key] = failure
