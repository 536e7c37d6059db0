"""The probe at work, on the thread that calls libbpf: it looks for programs, and reads the kernel's counts.

Any failure detaches everything, so that programs are probed only while the exporter reads the counts.

Tests: tests/probe/test_counting.py.
"""

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

from exporter.errors import SourceError, Unavailable
from exporter.model.cuda import CudaReading, ProcessId, SeenProcess
from exporter.model.measured import ProcessPlace
from exporter.model.nothing import NOTHING, nothing
from exporter.probe import functions, gate, map_records
from exporter.probe.functions import Role
from exporter.probe.libbpf import BpfError, Link, Object, close_all
from exporter.probe.process_files import Hidden, gpu_files, process_folder, stat_fields, visible_devices
from exporter.probe.programs import AttachFailed, AttachSlow, Detach, FailReason, Programs, Scanned
from exporter.probe.scan import FaultLog
from exporter.sources.process_cgroups import ProcFolder
from exporter.sources.source import Clock

_READ = ("processes", "devices", "errors", "visible")
_FILLED = (*_READ, "threads", "allocations", "events")
# The most CPU time that the kernel may take to attach to a place of a file: enough for some 4,000 mappings of the file.
MOST_PLACE_SECONDS = 0.005
# The same for all places of all files. Detaching takes as long, and a reload that turns the probe off waits for it.
MOST_ALL_SECONDS = 1.0
# The time for which a turn looks at new processes; the others wait for the next turn.
LOOK_SECONDS = 1.0
_TICK_NS = 10_000_000  # of /proc/<pid>/stat


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """The answer of a turn; see `CudaUses` for the numbers."""

    reading: CudaReading
    seen: Mapping[ProcessId, SeenProcess] = field(default_factory=nothing)
    programs: int = 0
    failures: Mapping[FailReason, int] = field(default_factory=nothing)
    unreadable: int = 0
    map_entries: Mapping[str, tuple[int, int]] = field(default_factory=nothing)


class Uprobes:
    """Attaches the program to files, until `detach`."""

    def __init__(self, loaded: Object, clock: Clock = time.thread_time) -> None:
        """`clock` is the CPU time of a thread, since a file is not to blame for a busy machine."""
        self._object = loaded
        self._clock = clock
        self._lock = threading.Lock()
        self._attached: set[Attached] | None = set()

    def __call__(self, path: str, offsets: Mapping[str, tuple[int, ...]], role: Role) -> Detach:
        """See `Attach`. Raises AttachFailed: the kernel refuses it, or takes too long. Then no place is probed."""
        # a place may have several names
        places = list({offset: functions.COOKIES[role][name] for name, at in offsets.items() for offset in at}.items())
        attached = Attached()
        try:
            self._keep(attached)
            self._attach(attached, path, places, role)
            self._keep(attached)
        except BaseException as error:
            self._detach(attached)
            if isinstance(error, BpfError):
                raise AttachFailed(str(error)) from error
            raise
        return lambda: self._detach(attached)

    def detach(self) -> None:
        """Detach from all files, and attach to none any more. Another thread may be attaching meanwhile."""
        with self._lock:
            attached = self._attached or ()
            self._attached = None
        close_all(link for file in attached for link in file.links)

    def _attach(self, to: "Attached", path: str, places: list[tuple[int, int]], role: Role) -> None:
        """Attach to `places` (offset, cookie) of a file. Raises BpfError; AttachSlow: so far it took too long."""
        # returns are attached first, and detached last: a thread whose call is counted without its return would seem to
        # stay in the call for ever
        steps = [(functions.RETURNED, places[:1]), (functions.RETURNED, places[1:]), (functions.ENTERED, places)]
        began = self._clock()
        done = 0
        for program, part in steps if role != "libc" else [(functions.SET_ENVIRONMENT, places)]:
            if part:
                at_return = program == functions.RETURNED
                to.links[:0] = self._object.attach_uprobes(program, path, part, at_return=at_return)
                done += len(part)
                # already at the first place: the kernel goes through all mappings of the file, and no process can fork
                to.seconds = self._clock() - began
                if to.seconds > done * MOST_PLACE_SECONDS:
                    raise AttachSlow("the kernel takes too long: the file is mapped too often")

    def _keep(self, attached: "Attached") -> None:
        with self._lock:
            if self._attached is None:
                raise AttachFailed("the probe is being detached")
            self._attached.add(attached)
            if sum(file.seconds for file in self._attached) > MOST_ALL_SECONDS:
                raise AttachSlow("the kernel takes too long: all files together are mapped too often")

    def _detach(self, attached: "Attached") -> None:
        with self._lock:
            if self._attached is not None:
                self._attached.discard(attached)
        for link in attached.links:
            link.close()


@dataclass(slots=True, eq=False)
class Attached:
    """The attached places of a file. `links` are in the order in which to close them; they took `seconds` of CPU."""

    links: list[Link] = field(default_factory=list)
    seconds: float = 0.0


class Probe:
    """The probe, loaded and attached. Only one thread at a time may use it."""

    def __init__(self, loaded: Object, proc: Path, most_programs: int) -> None:
        self._object = loaded
        self._proc = proc
        self._processes = ProcFolder(proc)
        self._maps = {name: loaded.map(name) for name in _FILLED}
        self._lost = loaded.map("lost")
        self._ends: list[Link] = []
        try:
            for name in (functions.THREAD_ENDED, functions.PROGRAM_REPLACED):
                self._ends.append(loaded.attach(name))
            self._spans = loaded.ring("spans")
        except BpfError:
            close_all(self._ends)
            raise
        self._uprobes = Uprobes(loaded)
        self._programs = Programs(proc=proc, wanted=functions.WANTED, attach=self._uprobes, most_programs=most_programs)
        self._faults = FaultLog()
        self._scanned = Scanned(processes={}, programs=0, failures=NOTHING, unreadable=0)
        self._seen: dict[ProcessId, SeenProcess] = {}
        self._entries: dict[str, tuple[int, int]] = {}

    @classmethod
    def open(cls, *, proc: Path, most_programs: int, any_kernel: bool, most: Mapping[str, int] = NOTHING) -> Self:
        """Load the program for the kernel.

        Args:
            proc: the folder /proc.
            most_programs: the most files that are probed.
            any_kernel: see `gate.check`.
            most: other limits of the program's maps, by name.

        Raises:
            SourceError: the probe cannot run here.
        """
        machine = gate.this_machine()
        gate.check(machine, any_kernel=any_kernel)
        try:
            loaded = Object(
                gate.program_file(machine),
                most,
                (functions.ENTERED, functions.RETURNED, functions.SET_ENVIRONMENT),
                at_once=gate.kernel_version(machine.release) >= gate.AT_ONCE_KERNEL,
            )
        except OSError as error:
            message = f"the CUDA probe needs libbpf.so.1: {error}"
            raise Unavailable("missing", message, remedy="install it (Debian: libbpf1); the image has it") from error
        except BpfError as error:
            raise gate.refused(error) from error
        try:
            if not any_kernel:
                gate.check_survival(loaded, machine)
            return cls(loaded, proc, most_programs)
        except BpfError as error:
            loaded.close()
            raise gate.refused(error) from error
        except SourceError:
            loaded.close()
            raise

    def scan(self) -> None:
        """Probe the CUDA files that processes use, and detach others. Raises SourceError: processes cannot be seen."""
        self._processes.read((), time.monotonic())
        try:
            self._scanned = self._programs.scan()
        except OSError as error:
            raise Unavailable(
                "permission",
                f"{self._proc} cannot be listed: {error.strerror}",
                remedy="mount the host's, with hostPID: true",
            ) from error
        # the maps have too many entries to count them with each reading
        self._entries = {
            name: (sum(count for count, _, _ in of_name.batches()), of_name.most)
            for name, of_name in self._maps.items()
        }

    def read(self) -> ProbeAnswer:
        """The counts up to now, also of processes that have ended since. Raises SourceError: they cannot be read."""
        try:
            # ended processes are looked up first; a process that ends meanwhile is in the next reading
            threads_ended = map_records.with_ended_threads(*self._entries_of("processes"))
            ended = frozenset(process for process in threads_ended if self._has_ended(process))
            read_at_ns = time.monotonic_ns()
            raw = map_records.RawMaps(
                **{name: self._entries_of(name) for name in _READ},
                lost=[self._count(place) for place in range(len(map_records.LOST))],
                spans=self._spans.drain(),
            )
        except BpfError as error:
            raise gate.refused(error) from error
        reading = map_records.decode(raw, read_at_ns, ended)
        self._look_at_new(reading)
        turn = ProbeAnswer(
            reading=reading,
            seen=MappingProxyType(dict(self._seen)),
            programs=self._scanned.programs,
            failures=self._scanned.failures,
            unreadable=self._scanned.unreadable,
            map_entries=MappingProxyType(dict(self._entries)),
        )
        self._forget(reading)
        return turn

    def detach(self) -> None:
        """Detach everything. Another thread may use the probe meanwhile; its work is then without effect."""
        self._uprobes.detach()
        close_all(self._ends)

    def close(self) -> None:
        """Detach everything, and remove the program from the kernel."""
        self.detach()
        self._spans.close()
        self._object.close()

    def _count(self, place: int) -> int:
        return int.from_bytes(self._lost.get(place.to_bytes(4, sys.byteorder)) or b"", sys.byteorder)

    def _has_ended(self, process: ProcessId) -> bool:
        try:
            with process_folder(self._proc, process.pid) as folder:
                return stat_fields(folder)[0] != process.started_ns // _TICK_NS
        except (FileNotFoundError, ProcessLookupError):
            return True
        except OSError:
            return False  # perhaps no file descriptor is left, so the next turn looks again

    def _look_at_new(self, reading: CudaReading) -> None:
        """Look up the containers and visible devices of processes that call CUDA for the first time."""
        new = [
            process
            for process, process_read in reading.processes.items()
            if process not in self._seen and not process_read.ended_ns
        ]
        if not new:
            return
        host = self._processes.read([process.pid for process in new], time.monotonic())
        until = time.monotonic() + LOOK_SECONDS
        for process in new:
            of_host = host.by_pid.get(process.pid)
            if of_host is not None and not self._has_ended(process):
                self._seen[process] = self._seen_in(process, of_host.place)
            if time.monotonic() > until:
                break

    def _seen_in(self, process: ProcessId, place: ProcessPlace | None) -> SeenProcess:
        seen = SeenProcess(id=process, place=place, gpu_files=gpu_files(self._proc, process.pid))
        try:
            return replace(seen, visible=visible_devices(self._proc, process.pid))
        except Hidden:
            pass
        except Exception as error:  # noqa: BLE001 - a process can cost only itself
            self._faults.note(error, pid=process.pid)
        return replace(seen, is_hidden=True)

    def _forget(self, reading: CudaReading) -> None:
        """Delete ended processes from the kernel's maps: a later one with the same pid begins at 0."""
        ended = {process for process, process_read in reading.processes.items() if process_read.ended_ns is not None}
        if not ended:
            return
        for device, counts in reading.counts.items():
            if device.process not in ended:
                continue
            self._maps["devices"].delete(map_records.key_of(device.process, device.ordinal))
            for code in counts.errors:
                self._maps["errors"].delete(map_records.key_of_error(device, code))
        # the number of allocations decides, since a program that lies can make its bytes add up to 0
        if any(counts.allocations for device, counts in reading.counts.items() if device.process in ended):
            addresses = self._maps["allocations"]
            for key in [key for _, keys, _ in addresses.batches() for key in map_records.addresses_of(keys, ended)]:
                addresses.delete(key)
        for process in ended:
            self._maps["processes"].delete(map_records.key_of(process))
            self._maps["visible"].delete(map_records.key_of(process))
            self._seen.pop(process, None)

    def _entries_of(self, name: str) -> map_records.Entries:
        entries = list(self._maps[name].batches())
        return b"".join(keys for _, keys, _ in entries), b"".join(values for _, _, values in entries)
