"""The probe at work, on the thread that calls libbpf: it looks for programs, and reads what the kernel counted.

Whatever fails detaches everything: a program is probed only as long as somebody reads what is counted.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Self

from exporter.errors import SourceError, Unavailable
from exporter.model.cuda import CudaReading, ProcessId, SeenProcess
from exporter.model.measured import Place
from exporter.sources.cuda_probe import functions, gate, records, self_test
from exporter.sources.cuda_probe.bpf_maps import BpfError
from exporter.sources.cuda_probe.environment import Hidden, gpu_files, visible_devices
from exporter.sources.cuda_probe.functions import Role
from exporter.sources.cuda_probe.inside import process_folder, stat_fields
from exporter.sources.cuda_probe.libbpf import Link, Object
from exporter.sources.cuda_probe.programs import AttachFailed, FailReason, Programs, Scanned
from exporter.sources.processes import ProcFolder

_READ = ("processes", "devices", "errors", "visible")
_FILLED = (*_READ, "threads", "allocations", "events")
# of /proc/<pid>/stat
_TICK_NS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What the probe has to say at a time; see `CudaUses` for the numbers."""

    reading: CudaReading
    seen: Mapping[ProcessId, SeenProcess] = field(default_factory=lambda: MappingProxyType({}))
    programs: int = 0
    failures: Mapping[FailReason, int] = field(default_factory=lambda: MappingProxyType({}))
    unreadable: int = 0
    map_entries: Mapping[str, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))


class Uprobes:
    """Attaches the program to files."""

    def __init__(self, loaded: Object) -> None:
        self._object = loaded

    def __call__(self, path: str, offsets: Mapping[str, tuple[int, ...]], role: Role) -> "Attached":
        """See `Attach`.

        Raises:
            AttachFailed: the kernel refuses it. Then none is probed.
        """
        try:
            return self._attach(path, offsets, role)
        except BpfError as error:
            raise AttachFailed(str(error)) from error

    def _attach(self, path: str, offsets: Mapping[str, tuple[int, ...]], role: Role) -> "Attached":
        # one place may have several names
        places = list({offset: functions.COOKIES[role][name] for name, at in offsets.items() for offset in at}.items())
        if role == "libc":
            return Attached(self._object.attach_uprobes(functions.SET_ENVIRONMENT, path, places))
        # A call whose beginning was seen must be seen to return, or the thread seems to be in it for ever.
        returns = Attached(self._object.attach_uprobes(functions.RETURNED, path, places, at_return=True))
        try:
            entries = self._object.attach_uprobes(functions.ENTERED, path, places)
        except BpfError:
            returns.detach()
            raise
        return Attached([*entries, *returns.links])


class Attached:
    """The places of one file. `links` are in the order in which they are to go."""

    def __init__(self, links: list[Link]) -> None:
        self.links = links

    def detach(self) -> None:
        """Probe the file no more."""
        for link in self.links:
            link.close()


class Probe:
    """Loaded and attached. Not for several threads at once."""

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
            Attached(self._ends).detach()
            raise
        self._programs = Programs(
            proc=proc, wanted=functions.WANTED, attach=Uprobes(loaded), most_programs=most_programs
        )
        self._scanned: Scanned | None = None
        self._seen: dict[ProcessId, SeenProcess] = {}
        self._entries: dict[str, tuple[int, int]] = {}

    @classmethod
    def open(
        cls, *, proc: Path, most_programs: int, any_kernel: bool, most: Mapping[str, int] = MappingProxyType({})
    ) -> Self:
        """Load the program into the kernel. `most` gives other limits of its maps than it has, by name.

        Raises:
            SourceError: it cannot run here.
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
            raise gate.without_library(error) from error
        except BpfError as error:
            raise gate.refused(error) from error
        try:
            if not any_kernel:
                self_test.check(loaded, machine)
            return cls(loaded, proc, most_programs)
        except BpfError as error:
            loaded.close()
            raise gate.refused(error) from error
        except SourceError:
            loaded.close()
            raise

    def scan(self) -> None:
        """Look for processes that use CUDA, and probe their files; leave those that nobody uses any more.

        Raises:
            SourceError: the processes of the host cannot be seen.
        """
        self._processes.read((), time.monotonic())
        try:
            self._scanned = self._programs.scan()
        except OSError as error:
            raise Unavailable(
                "permission",
                f"{self._proc} cannot be listed: {error.strerror}",
                remedy="mount the host's, with hostPID: true",
            ) from error
        # too many entries to be counted with each reading
        self._entries = {name: (of.size(), of.most) for name, of in self._maps.items()}

    def read(self) -> Turn:
        """What was counted until now. Processes that have ended are told once more, and then forgotten.

        Raises:
            SourceError: the kernel does not give it.
        """
        try:
            # who has ended is asked first: what one does meanwhile is told the next time
            threads_ended = records.with_ended_threads(*self._entries_of("processes"))
            ended = frozenset(process for process in threads_ended if self._has_ended(process))
            read_at_ns = time.monotonic_ns()
            raw = records.Raw(
                **{name: self._entries_of(name) for name in _READ},
                lost=[self._count(place) for place in range(len(records.LOST))],
                spans=self._spans.drain(),
            )
        except BpfError as error:
            raise gate.refused(error) from error
        reading = records.decode(raw, read_at_ns, ended)
        self._look_at_new(reading)
        turn = Turn(
            reading=reading,
            seen=MappingProxyType(dict(self._seen)),
            programs=self._scanned.programs if self._scanned else 0,
            failures=self._scanned.failures if self._scanned else MappingProxyType({}),
            unreadable=self._scanned.unreadable if self._scanned else 0,
            map_entries=MappingProxyType(dict(self._entries)),
        )
        self._forget(reading)
        return turn

    def close(self) -> None:
        """Detach everything, and take the program out of the kernel."""
        self._programs.close()
        Attached(self._ends).detach()
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
            return False  # no file descriptor is left, say: the next turn will tell

    def _look_at_new(self, reading: CudaReading) -> None:
        """Where processes are that call CUDA for the first time, and what they may see."""
        new = [
            process for process, known in reading.processes.items() if process not in self._seen and not known.ended_ns
        ]
        if not new:
            return
        host = self._processes.read([process.pid for process in new], time.monotonic())
        for process in new:
            of_host = host.by_pid.get(process.pid)
            if of_host is not None and not self._has_ended(process):
                self._seen[process] = self._seen_in(process, of_host.place)

    def _seen_in(self, process: ProcessId, place: Place | None) -> SeenProcess:
        files = gpu_files(self._proc, process.pid)
        try:
            visible = visible_devices(self._proc, process.pid)
        except Hidden:
            return SeenProcess(id=process, place=place, gpu_files=files, is_hidden=True)
        return SeenProcess(id=process, place=place, gpu_files=files, visible=visible)

    def _forget(self, reading: CudaReading) -> None:
        # what they had allocated is not to be found under their pids by later ones
        ended = {process for process, known in reading.processes.items() if known.ended_ns is not None}
        if not ended:
            return
        for device, counts in reading.counts.items():
            if device.process not in ended:
                continue
            self._maps["devices"].delete(records.key_of_device(device))
            for code in counts.errors:
                self._maps["errors"].delete(records.key_of_error(device, code))
        # asked of the number of allocations: the bytes of a program that lies may add up to 0
        if any(counts.allocations for device, counts in reading.counts.items() if device.process in ended):
            self._forget_addresses(ended)
        for process in ended:
            self._maps["processes"].delete(records.key_of(process))
            self._maps["visible"].delete(records.key_of(process))
            self._seen.pop(process, None)

    def _forget_addresses(self, ended: set[ProcessId]) -> None:
        addresses = self._maps["allocations"]
        left = [key for _, keys, _ in addresses.batches() for key in records.addresses_of(keys, ended)]
        for key in left:
            addresses.delete(key)

    def _entries_of(self, name: str) -> records.Entries:
        found = list(self._maps[name].batches())
        return b"".join(keys for _, keys, _ in found), b"".join(values for _, _, values in found)
