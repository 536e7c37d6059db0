"""The measuring of owners' use of shared GPUs, with each reading of the driver, beside the looks.

NVML reading ──► pids ──► /proc, /var/log ──► Measured, which looks take as it is. No look waits for it. Nothing is read
or imported before NVML lists a process, or a container holds a share of a GPU or gpu-manager's units.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from exporter.errors import Trouble
from exporter.model.devices import DeviceKey, Owners
from exporter.model.memo import Memo
from exporter.model.pods import PodsByName
from exporter.model.snapshot import Health, LookFacts, Snapshot
from exporter.outputs.output import Need
from exporter.ownership.explain import is_kubelet_silent
from exporter.ownership.owners import Unmatched
from exporter.ownership.unlisted import RESERVED
from exporter.sources.node_inventory import DriverSource
from exporter.sources.source import MOST_LINKS, MOST_PROCESSES, Attempt, Bound, OnHealth, Source, absent

if TYPE_CHECKING:
    from exporter.model.driver import DriverReading
    from exporter.model.measured import HostProcesses, Measured, Unexplained
    from exporter.sources.container_logs import ContainerLogs
    from exporter.sources.kubelet.assignments import KubeletSource
    from exporter.sources.process_cgroups import Processes
    from exporter.usage.process_owners import Containers
    from exporter.usage.sm_times import SmTimes

    # a reading whose processes have been looked up, with the answers: the processes, and the containers by their logs
    LookedUp = tuple[DriverReading, HostProcesses | None, Containers]

# the largest age of NVML's last reading that counts while NVML fails; it is read every second while somebody looks
KEPT_SECONDS = 5.0


def _is_of_processes(what: "Unexplained") -> bool:
    return what.endswith("_of_processes")


def _unexplained(device: DeviceKey, what: "Unexplained") -> Trouble:
    """The trouble of a device whose use NVML's processes do not explain."""
    name = f"{device.uuid} instance {device.instance}" if device.instance else device.uuid
    messages: Mapping[Unexplained, str] = {
        "memory": f"memory is in use on {name} that belongs to no process that NVML lists and /proc has",
        "kernels": f"kernels run on {name}, and NVML does not say which process runs them",
        "all": f"NVML lists no process on {name}, and says neither how much memory is in use nor how busy it is",
        "memory_of_processes": f"NVML does not say how much memory the processes on {name} use",
        "kernels_of_processes": f"NVML does not say for how long kernels of the processes on {name} run",
    }
    return Trouble(
        "partial",
        messages[what],
        "none: this GPU or its driver does not measure it"
        if _is_of_processes(what)
        else "let the exporter share the host's PID namespace (hostPID: true); in virtual machines, with confidential"
        " computing and under MPS before Volta, NVML lists not all processes, and nobody can measure what owners use",
    )


class Measuring:
    """Follows the readings of NVML for the looks (`measured_for`). A reload keeps and closes it like other sources."""

    name = "measuring"
    health: Health = absent("nobody has a share of a GPU whose processes NVML tells", "see --nvml.mode")
    patience_seconds = 0.0
    adds_for = frozenset({Need.PROCESSES})

    def __init__(
        self,
        *,
        nvml: DriverSource,
        root: str,
        is_missed: bool,
        is_exposed: bool = False,
        on_health: OnHealth,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`root` is the host's root folder, with /proc and the folders of logs.

        `is_missed`: a file that is missing there is a failure as soon as somebody has a share of a GPU. `is_exposed`:
        outputs show processes, so that a missing file is a failure in any case.
        """
        self._nvml = nvml
        self._root = root
        self._is_missed = is_missed
        self._is_exposed = is_exposed
        self._on_health = on_health
        self._clock = clock
        self._owners: Owners | None = None
        self._has_shares = self._is_wanted = False
        self._pods: PodsByName = {}
        self._kubelet: KubeletSource | None = None
        self._misses_pods = False
        self._of_pods: Memo[tuple[Containers, ...]] = Memo(())
        self._sources: tuple[Processes, ContainerLogs] | None = None
        self._followed: DriverReading | None = None  # the last reading with a look-up of its processes
        # the last reading whose processes have been looked up, with the answers; the sources may have looked for others
        # since
        self.looked_up: LookedUp | None = None
        self._measured: Memo[Measured | None] = Memo(None)
        self._times: SmTimes | None = None
        self._task: asyncio.Task[None] | None = None
        self.bounds: Mapping[str, Bound] = {
            "processes": Bound(MOST_PROCESSES, lambda: self._used("processes")),
            "container_logs": Bound(MOST_LINKS, lambda: self._used("container_logs")),
        }
        nvml.followers.append(self._follow)

    @property
    def shown(self) -> tuple[Source, ...]:
        """The sources that it reads, as far as outputs show their health."""
        return tuple(part for part in self._sources or () if self._misses(part.health))

    def measured_for(
        self, owners: Owners, pods: PodsByName, kubelet: "KubeletSource", *, misses_pods: bool = False
    ) -> "Measured | None":
        """The use of these owners by the last reading; None if it is not known, or too old.

        `misses_pods`: pods may hold devices by an allocator's word alone, and no pod is known.
        """
        self._pods = pods
        self._kubelet = kubelet
        self._misses_pods = misses_pods
        last = self._nvml.reading
        if owners is not self._owners:
            self._owners = owners
            is_shared = any(holder.shared for held in owners.holders.values() for holder in held)
            self._has_shares = is_shared or bool(owners.unplaced)
            self._is_wanted |= self._has_shares or self._is_exposed
        self._is_wanted |= bool(last and last.processes)
        if not self._is_wanted:
            return None
        if self.looked_up is None:
            if last is not None:
                self._follow(last)
            return None
        is_failing = last is None or last.processes is None
        if is_failing and self._clock() - self.looked_up[0].read_at > KEPT_SECONDS:
            self._forget()
            return None
        return self._measured.of(self._measure, owners)

    @property
    def unmeasured(self) -> Trouble | None:
        """Why owners' use is not known. None: it is known, or there are no shares, and NVML lists all processes."""
        if self._has_shares and (not self._nvml.health.up or self._sources is None):
            return self._nvml.health.trouble
        measured = self._measured.value
        if measured is not None and measured.unexplained and (self._has_shares or not measured.lists_all):
            return _unexplained(*min(measured.unexplained.items(), key=lambda item: (_is_of_processes(item[1]), item)))
        if not self._has_shares or self._sources is None:
            return None
        processes, logs = self._sources
        # pods name their containers, too
        needed = (processes,) if self._pods else (processes, logs)
        return next((source.health.trouble for source in needed if source.health.up is False), None)

    @property
    def is_finding_out(self) -> bool:
        """Whether the first look at processes is under way. No scrape waits for it."""
        return self.looked_up is None and self._task is not None and not self._task.done()

    def is_newer_than(self, moment: float) -> bool:
        """Whether the measurement is of a reading after this moment of the clock, or there is nothing to measure."""
        if not self._is_wanted or not self._nvml.health.up:
            return True
        return self.looked_up is not None and self.looked_up[0].read_at >= moment

    def tables(self, logged: "Containers", pods: PodsByName) -> "tuple[Containers, ...]":
        """The containers by their logs, and by the status of pods."""
        from exporter.usage.process_owners import containers_of_pods  # noqa: PLC0415 - see _find

        return logged, *self._of_pods.of(lambda pods: (containers_of_pods(pods.values()),), pods)

    def see(self, _: Snapshot) -> LookFacts:
        """The reason why the use of owners is not known; the use itself is the join's."""
        return {"unmeasured": self.unmeasured}

    async def add(self, _: object, look: Snapshot) -> LookFacts:
        """The measurement of the page's moment, as rows show it."""
        if self._kubelet is None:
            return {}
        measured = self.measured_for(look.owners, self._pods, self._kubelet, misses_pods=self._misses_pods)
        return {"measured": measured}

    def begin(self) -> Attempt | None:
        """Nothing to wait for."""
        return None

    async def close(self) -> None:
        """End the look-up in flight."""
        self._nvml.followers.remove(self._follow)
        if self._task is not None:
            self._task.cancel()
        for part in self._sources or ():
            await part.close()

    def _used(self, of: str) -> int:
        return next((part.bounds[of].used() for part in self._sources or () if of in part.bounds), 0)

    def _forget(self) -> None:
        self.looked_up = self._followed = None
        self._measured = Memo(None)
        if self._times is not None:
            self._times.pause()

    def _follow(self, reading: "DriverReading") -> None:
        """Look up the processes of a reading, unless another look-up is under way."""
        is_idle = self._task is None or self._task.done()
        if self._is_wanted and reading.processes is not None and reading is not self._followed and is_idle:
            self._followed = reading
            self._task = asyncio.create_task(self._look_up(reading))

    async def _look_up(self, reading: "DriverReading") -> None:
        """Look up the containers of a reading's processes, and measure. An earlier read of /proc does not count."""
        processes, logs = self._sources or self._find()
        processes.want(frozenset(process.pid for process in reading.processes or ()), reading.read_at)
        # otherwise processes of a new container would be nobody's
        logs.look_after(reading.read_at)
        for source in (processes, logs):
            source.begin()
            if source.task is not None:
                await asyncio.wait((source.task,))
        owners = self._owners
        if owners is None or not self._is_wanted:
            return
        if processes.processes is not None and processes.processes.read_at < reading.read_at:
            return  # that read had begun earlier
        self.looked_up = reading, processes.processes, logs.containers
        self._measured.keep(self._measure(owners), owners)

    def _find(self) -> "tuple[Processes, ContainerLogs]":
        # only a node with NVML and shares pays for these
        from exporter.sources.container_logs import ContainerLogs  # noqa: PLC0415
        from exporter.sources.process_cgroups import FOLDER, Processes  # noqa: PLC0415
        from exporter.usage.sm_times import SmTimes  # noqa: PLC0415

        folder = f"{self._root.rstrip('/')}{FOLDER}"
        self._times = SmTimes()
        self._sources = (
            Processes(folder=folder, with_commands=self._is_exposed, on_health=self._tell),
            ContainerLogs(root=self._root, on_health=self._tell),
        )
        return self._sources

    def _misses(self, health: Health) -> bool:
        return health.reason != "missing" or self._is_exposed or (self._is_missed and self._has_shares)

    def _tell(self, name: str, health: Health) -> None:
        if self._misses(health):
            self._on_health(name, health)

    def _measure(self, owners: Owners) -> "Measured | None":
        """The owners' use of devices by the last reading whose processes were looked up; None before that."""
        from exporter.model.measured import Total  # noqa: PLC0415
        from exporter.usage.owner_use import measure  # noqa: PLC0415 - see _find

        if self._times is None or self.looked_up is None:
            return None
        reading, processes, logged = self.looked_up
        tables = self.tables(logged, self._pods)
        unresolved = None
        if self._kubelet is not None and not self._misses_pods:
            unresolved = _unresolved(owners, self._kubelet)
        totals = {
            device: Total(memory_bytes=reading.memory_used.get(device), least_sm_ratio=reading.busy.get(device))
            for device in reading.memory_used.keys() | reading.busy.keys()
        }
        age_seconds = self._kubelet.age_seconds if self._kubelet else None
        known_at = self._clock() - (age_seconds or 0.0)
        return self._times.add(reading, measure(reading, processes, tables, owners, totals, unresolved, known_at))


def _unresolved(owners: Owners, kubelet: "KubeletSource") -> frozenset[tuple[str, str]] | None:
    """Pods with an assignment that resolves to no device.

    None if any pod may hold a device: the kubelet has not answered, or a pod reserves one for others that are unknown.
    """
    if is_kubelet_silent(kubelet.health, owners):
        return None
    if any(match.ref == RESERVED for match in owners.matches):
        return None
    unmatched = (match.assignment for match in owners.matches if match.reason not in ("", Unmatched.NO_GPU))
    return frozenset(assignment.owner.pod_key for assignment in (*unmatched, *kubelet.outside))
