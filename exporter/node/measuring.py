"""What owners of shared GPUs are measured to use: beside the looks, with each reading of the driver.

NVML reading ──► pids ──► /proc, /var/log ──► Measured, which looks take as it is. No look waits for any of it.
Nothing is read, nor imported, before NVML has told of processes, and somebody holds a share of a GPU or units of some
GPU, or wants to see processes (--processes.expose).
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from exporter.errors import Trouble
from exporter.model.devices import Owners
from exporter.model.pods import PodInfo
from exporter.model.snapshot import Health
from exporter.sources.any_inventory import DriverSource
from exporter.sources.limits import MOST_LINKS, MOST_PROCESSES
from exporter.sources.source import Attempt, Bound, OnHealth, Source, absent

if TYPE_CHECKING:
    from exporter.accounting.sm_times import SmTimes
    from exporter.attribution.containers import Containers
    from exporter.model.driver import DriverReading
    from exporter.model.measured import HostProcesses, Measured
    from exporter.sources.container_logs import ContainerLogs
    from exporter.sources.processes import Processes

Pods = Mapping[tuple[str, str], PodInfo]
# NVML is read every second, if somebody looks: how old its last word may be where it fails now
KEPT_SECONDS = 5.0


class Measuring:
    """Follows the readings of NVML. `measured_for` is what a look takes.

    A source like others in that a reload lets it go on and that it is closed. What it has to say of itself say `parts`.
    """

    name = "measuring"
    health: Health = absent("nobody has a share of a GPU whose processes NVML tells", "see --nvml.mode")
    patience_seconds = 0.0

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
        """The machine's folders are below `root`. `is_missed`: folders that are not there are a failure.

        `is_exposed`: somebody wants to see the processes of every GPU, with their commands and users.
        """
        self._nvml = nvml
        self._root = root
        self._is_missed = is_missed or is_exposed
        self._is_exposed = is_exposed
        self._on_health = on_health
        self._clock = clock
        self._owners: Owners | None = None
        self._has_shares = self._is_wanted = False
        self._pods: Pods = {}
        self._of_pods: tuple[Pods, Containers] | None = None
        self._sources: tuple[Processes, ContainerLogs] | None = None
        self._followed: DriverReading | None = None  # the one whose processes are looked up, or were
        # the last one whose processes were looked up, and what was found: the sources may have looked for others since
        self._looked_up: tuple[DriverReading, HostProcesses | None, Containers] | None = None
        self._measured: tuple[Owners, Measured | None] | None = None
        self._times: SmTimes | None = None
        self._task: asyncio.Task[None] | None = None
        self.bounds: Mapping[str, Bound] = {
            "processes": Bound(MOST_PROCESSES, lambda: self._used("processes")),
            "container_logs": Bound(MOST_LINKS, lambda: self._used("container_logs")),
        }
        nvml.follow(self._follow)

    @property
    def parts(self) -> tuple[Source, ...]:
        """The sources that it reads, as far as somebody is to be told of them."""
        found = self._sources or ()
        return tuple(part for part in found if self._is_missed or part.health.reason != "missing")

    def measured_for(self, owners: Owners, pods: Pods) -> "Measured | None":
        """What these owners use by the last reading; None where that is not known, or of too long ago."""
        self._pods = pods
        if owners is not self._owners:
            self._owners = owners
            is_shared = any(holder.shared for held in owners.holders.values() for holder in held)
            self._has_shares = is_shared or bool(owners.units)
            self._is_wanted = self._has_shares or self._is_exposed
        if not self._is_wanted:
            self._forget()
            return None
        last = self._nvml.reading
        if self._looked_up is None:
            if last is not None:
                self._follow(last)
            return None
        is_failing = last is None or last.processes is None
        if is_failing and self._clock() - self._looked_up[0].read_at > KEPT_SECONDS:
            self._forget()
            return None
        if self._measured is None or self._measured[0] is not owners:
            self._measured = owners, self._measure(*self._looked_up, owners)
        return self._measured[1]

    @property
    def unmeasured(self) -> Trouble | None:
        """Why it is not known what owners of shared GPUs use; None where it is, or where nobody has a share."""
        if not self._has_shares:
            return None
        if not self._nvml.health.up or self._sources is None:
            return self._nvml.health.trouble
        processes, logs = self._sources
        # pods name their containers, too
        needed = (processes,) if self._pods else (processes, logs)
        return next((source.health.trouble for source in needed if source.health.up is False), None)

    def begin(self) -> Attempt | None:
        """Readings begin it. The first look at processes may be waited for, though no scrape does."""
        return self._task if self._looked_up is None and self._task is not None and not self._task.done() else None

    async def close(self) -> None:
        """Wait for nobody."""
        self._nvml.unfollow(self._follow)
        if self._task is not None:
            self._task.cancel()
        for part in self._sources or ():
            await part.close()

    def _used(self, of: str) -> int:
        return next((part.bounds[of].used() for part in self._sources or () if of in part.bounds), 0)

    def _forget(self) -> None:
        self._looked_up = self._measured = self._followed = None
        if self._times is not None:
            self._times.pause()

    def _follow(self, reading: "DriverReading") -> None:
        """Look up the processes of a reading, unless those of another one are being looked up."""
        is_idle = self._task is None or self._task.done()
        if self._is_wanted and reading.processes is not None and reading is not self._followed and is_idle:
            self._followed = reading
            self._task = asyncio.create_task(self._look_up(reading))

    async def _look_up(self, reading: "DriverReading") -> None:
        processes, logs = self._sources or self._find()
        processes.want(frozenset(process.pid for process in reading.processes or ()), reading.read_at)
        # a container that came meanwhile has processes, and would be nobody's
        logs.want(reading.read_at)
        for source in (processes, logs):
            source.begin()
            if source.reading is not None:
                await asyncio.wait((source.reading,))
        owners = self._owners
        if owners is None or not self._is_wanted:
            return
        if processes.processes is not None and processes.processes.read_at < reading.read_at:
            return  # the read that ran already had begun before
        self._looked_up = reading, processes.processes, logs.containers
        self._measured = owners, self._measure(*self._looked_up, owners)

    def _find(self) -> "tuple[Processes, ContainerLogs]":
        # only a node where somebody wants to know, and NVML is there, pays for these
        from exporter.accounting.sm_times import SmTimes  # noqa: PLC0415
        from exporter.sources.container_logs import ContainerLogs  # noqa: PLC0415
        from exporter.sources.processes import FOLDER, Processes  # noqa: PLC0415

        folder = f"{self._root.rstrip('/')}{FOLDER}"
        self._times = SmTimes()
        self._sources = (
            Processes(folder=folder, with_commands=self._is_exposed, on_health=self._tell),
            ContainerLogs(root=self._root, on_health=self._tell),
        )
        return self._sources

    def _tell(self, name: str, health: Health) -> None:
        if self._is_missed or health.reason != "missing":
            self._on_health(name, health)

    def _measure(
        self, reading: "DriverReading", processes: "HostProcesses | None", logged: "Containers", owners: Owners
    ) -> "Measured | None":
        from exporter.attribution.containers import containers_of_pods  # noqa: PLC0415 - see _find
        from exporter.attribution.measured import measure  # noqa: PLC0415
        from exporter.model.measured import Total  # noqa: PLC0415

        if self._times is None:
            return None
        if self._of_pods is None or self._of_pods[0] is not self._pods:
            self._of_pods = self._pods, containers_of_pods(self._pods.values())
        tables = (logged, self._of_pods[1])
        totals = {device: Total(memory_bytes=used) for device, used in reading.memory_used.items()}
        return self._times.add(reading, measure(reading, processes, tables, owners, totals))
