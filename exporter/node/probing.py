"""What the CUDA probe counts, made the containers' own: beside the looks, with each turn of the probe.

turn of the probe ──► pids, /proc's word, /var/log ──► totals of containers, which looks take as they are

Imported only where the probe is on. No look waits for any of it: who holds what is told by looks, and what came before
anybody could tell waits in the totals.
"""

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from exporter.accounting.cuda import MOST_ROWS, MOST_WAITING
from exporter.attribution.containers import Containers, containers_of_pods
from exporter.attribution.cuda import MOST_CGROUPS, Facts
from exporter.attribution.cuda_totals import CudaTotals
from exporter.model.cuda import CudaReading, CudaUses, ProcessId, SeenProcess
from exporter.model.devices import Inventory, Owners
from exporter.model.pods import Owner, PodInfo
from exporter.model.snapshot import Health
from exporter.sources.container_logs import ContainerLogs
from exporter.sources.limits import MOST_LINKS
from exporter.sources.source import Attempt, Bound, OnHealth, Source, absent

Pods = Mapping[tuple[str, str], PodInfo]


class Turn(Protocol):
    """What the probe has to say at a time; see `CudaUses` for the numbers."""

    @property
    def reading(self) -> CudaReading:
        """What was counted. A process that has ended is told of once more."""

    @property
    def seen(self) -> Mapping[ProcessId, SeenProcess]:
        """What /proc says of these processes."""

    @property
    def programs(self) -> int:
        """The files that are probed."""

    @property
    def failures(self) -> Mapping[Any, int]:
        """The files that could not be, by reason."""

    @property
    def unreadable(self) -> int:
        """The processes that may not be looked at."""

    @property
    def map_entries(self) -> Mapping[str, tuple[int, int]]:
        """How full maps are."""


class ProbeSource(Source, Protocol):
    """The probe. It turns by itself once it has begun."""

    @property
    def turn(self) -> Turn | None:
        """The last one; None before the first, and while it fails."""

    @property
    def opened(self) -> int:
        """How many times it was loaded into the kernel: each time counts from 0."""

    def __hash__(self) -> int:
        """That of the object."""

    def follow(self, hears: Callable[[Turn], None]) -> None:
        """From now on this, too, hears of each turn, in the event loop."""

    def unfollow(self, hears: Callable[[Turn], None]) -> None:
        """From now on this hears nothing more."""


class Probing:
    """Follows the turns of the probe. `cuda_for` is what a look takes.

    A source like others in that a reload lets it go on and that it is closed. What it has to say of itself say `parts`.
    """

    name = "probing"
    health: Health = absent("the CUDA probe says it", "see --probe.mode")
    patience_seconds = 0.0

    def __init__(
        self,
        *,
        probe: ProbeSource,
        totals: CudaTotals,
        root: str,
        keep_seconds: float,
        on_health: OnHealth,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The machine's folders are below `root`. Rows of containers that are gone are kept for `keep_seconds`.

        `totals` are those of the node until now, if there was one. They are this one's from its first turn on.
        """
        self.probe = probe
        self._totals = totals
        self._keep_ns = round(keep_seconds * 1e9)
        self._on_health = on_health
        self._clock = clock
        self._logs = ContainerLogs(root=root, on_health=self._tell)
        self._pods: Pods = {}
        self._of_pods = Containers()
        self._owners, self._inventory = Owners(), Inventory()
        self._there: frozenset[Owner] = frozenset()
        self._looks = 0
        self._follows = self._has_begun = False
        self.bounds: Mapping[str, Bound] = {
            "cuda_rows": Bound(MOST_ROWS, lambda: totals.ledger.rows),
            "cuda_processes_waiting": Bound(MOST_WAITING, lambda: totals.ledger.waiting),
            "cuda_cgroups": Bound(MOST_CGROUPS, lambda: totals.owners.cgroups),
            "cuda_container_logs": Bound(MOST_LINKS, self._logs.bounds["container_logs"].used),
        }

    @property
    def parts(self) -> tuple[Source, ...]:
        """The sources that it reads, as far as somebody is to be told of them."""
        return (self.probe, self._logs) if self._is_told(self._logs.health) else (self.probe,)

    def cuda_for(self, owners: Owners, pods: Pods, inventory: Inventory) -> CudaUses | None:
        """What containers asked of CUDA until the last turn, as this look knows who holds what; None without one."""
        self._looks += 1
        if pods is not self._pods:
            self._pods, self._of_pods = pods, containers_of_pods(pods.values())
        if owners is not self._owners:
            self._owners = owners
            held = {holder.owner for holders in owners.holders.values() for holder in holders}
            self._there = frozenset(held.union(assignment.owner for assignment in owners.units))
        self._inventory = inventory
        turn = self.probe.turn
        if turn is None:
            return None
        if self._is_mine():
            self._totals.settle(self._facts())
        lost = self._totals.ledger.lost
        return CudaUses(
            uses=self._totals.uses,
            programs=turn.programs,
            failures=turn.failures,
            unreadable=turn.unreadable,
            lost=MappingProxyType({**turn.reading.lost, "waiting": lost["waiting"], "rows": lost["rows"]}),
            map_entries=turn.map_entries,
        )

    def follow(self) -> None:
        """Be told of each turn from now on. Called once the node is whole and takes the place of its predecessor."""
        if not self._follows:
            self._follows = True
            self.probe.follow(self._follow)

    def begin(self) -> Attempt | None:
        """Let the probe begin."""
        return self.probe.begin()

    async def close(self) -> None:
        """Wait for nobody."""
        if self._follows:
            self._follows = False
            self.probe.unfollow(self._follow)
        await self._logs.close()

    def _follow(self, turn: Turn) -> None:
        """Count a turn, and look for containers that nobody knows yet."""
        if not self._has_begun or self._is_mine():
            self._has_begun = True
            self._totals.begin(self, (self.probe, self.probe.opened))
            is_known = self._totals.add(
                turn.reading, turn.seen.values(), self._facts(), there=self._there, keep_ns=self._keep_ns
            )
            if not is_known:
                self._logs.want(self._clock())
                self._logs.begin()

    def _is_mine(self) -> bool:
        """Whether no other one has begun since: after a reload the probe until now may turn once more."""
        return self._totals.filled_by is self

    def _facts(self) -> Facts:
        return Facts((self._logs.containers, self._of_pods), self._owners, self._inventory, self._looks)

    def _is_told(self, health: Health) -> bool:
        # Nobody waits for logs that were never looked for: then all processes are known. Pods name containers, too.
        return health.up is not None and (health.reason != "missing" or not self._pods)

    def _tell(self, name: str, health: Health) -> None:
        if self._is_told(health):
            self._on_health(name, health)
