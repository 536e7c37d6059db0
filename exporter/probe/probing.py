"""The adding of the CUDA probe's counts to containers' totals, with each turn of the probe, beside the looks.

turn of the probe ──► pids, /proc, /var/log ──► totals of containers, which looks take as they are

It is imported only if the probe is on. No look waits for it. Looks say who holds which device; the counts of a process
wait in the totals until its container is known.
"""

import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from exporter.model.cuda import CudaUses
from exporter.model.devices import Inventory, Owners
from exporter.model.memo import Memo
from exporter.model.pods import Owner, PodsByName
from exporter.model.snapshot import Health
from exporter.probe.cuda_ledger import MOST_ROWS, MOST_WAITING, CudaTotals
from exporter.probe.cuda_owners import MOST_CGROUPS, OwnerFacts
from exporter.sources.container_logs import ContainerLogs
from exporter.sources.source import MOST_LINKS, Attempt, Bound, Bounds, Clock, OnHealth, Source, absent
from exporter.usage.process_owners import Containers, containers_of_pods

if TYPE_CHECKING:
    from exporter.probe.probe import ProbeAnswer
    from exporter.probe.probe_source import CudaProbe


class Probing:
    """Follows the turns of the probe, for looks (`cuda_for`). A reload keeps or closes it as it does a source."""

    name = "probing"
    health: Health = absent("the CUDA probe says it", "see --probe.mode")
    patience_seconds = 0.0

    def __init__(
        self,
        *,
        probe: "CudaProbe",
        totals: CudaTotals,
        root: str,
        keep_seconds: float,
        on_health: OnHealth,
        clock: Clock = time.monotonic,
    ) -> None:
        """It follows the probe from `follow` on.

        Args:
            probe: the probe.
            totals: the totals, which outlive a reload.
            root: the folder that has the machine's folders.
            keep_seconds: rows of containers that are gone stay for this time.
            on_health: see `Attempts`.
            clock: a monotonic clock, in seconds.
        """
        self.probe = probe
        self._totals = totals
        self._keep_ns = round(keep_seconds * 1e9)
        self._on_health = on_health
        self._clock = clock
        self._logs = ContainerLogs(root=root, on_health=self._tell)
        self._pods: PodsByName = {}
        self._of_pods = Memo(Containers())
        self._owners = Owners()
        self._inventory = Inventory()
        self._there: Memo[frozenset[Owner]] = Memo(frozenset())
        self._looks = 0
        self._follows = self._has_begun = False
        self.bounds: Bounds = {
            "cuda_rows": Bound(MOST_ROWS, lambda: totals.ledger.rows),
            "cuda_processes_waiting": Bound(MOST_WAITING, lambda: totals.ledger.waiting),
            "cuda_cgroups": Bound(MOST_CGROUPS, lambda: totals.owners.cgroups),
            "cuda_container_logs": Bound(MOST_LINKS, self._logs.bounds["container_logs"].used),
        }

    @property
    def shown(self) -> tuple[Source, ...]:
        """The sources that it reads, as far as outputs show their health."""
        return (self.probe, self._logs) if self._is_told(self._logs.health) else (self.probe,)

    def cuda_for(self, owners: Owners, pods: PodsByName, inventory: Inventory) -> CudaUses | None:
        """The containers' requests to CUDA up to the last turn, by these owners; None without a turn."""
        self._looks += 1
        self._pods = pods
        self._owners = owners
        self._inventory = inventory
        self._of_pods.of(lambda pods: containers_of_pods(pods.values()), pods)
        self._there.of(_all_holders, owners)
        turn = self.probe.turn
        if turn is None:
            return None
        if self._is_mine():
            self._totals.settle(self._facts())
        lost = self._totals.ledger.lost
        return CudaUses(
            uses=self._totals.ledger.uses,
            programs=turn.programs,
            failures=dict[str, int](turn.failures.items()),
            unreadable=turn.unreadable,
            lost=MappingProxyType({**turn.reading.lost, "waiting": lost["waiting"], "rows": lost["rows"]}),
            map_entries=turn.map_entries,
        )

    def follow(self) -> None:
        """Follow the turns from now on. It is called when the new node is complete and replaces its predecessor."""
        if not self._follows:
            self._follows = True
            self.probe.followers.append(self._follow)

    def begin(self) -> Attempt | None:
        """Begin the probe."""
        return self.probe.begin()

    async def close(self) -> None:
        """Stop following the turns."""
        if self._follows:
            self._follows = False
            self.probe.followers.remove(self._follow)
        await self._logs.close()

    def _follow(self, turn: "ProbeAnswer") -> None:
        """Count a turn, and look for containers that are not known yet."""
        if not self._has_begun or self._is_mine():
            self._has_begun = True
            self._totals.begin(self, (self.probe, self.probe.opened))
            every_owner_is_known = self._totals.add(
                turn.reading, turn.seen.values(), self._facts(), there=self._there.value, keep_ns=self._keep_ns
            )
            if not every_owner_is_known:
                self._logs.look_after(self._clock())
                self._logs.begin()

    def _is_mine(self) -> bool:
        """Whether this object fills the totals: after a reload the previous probe may take one more turn."""
        return self._totals.filled_by is self

    def _facts(self) -> OwnerFacts:
        return OwnerFacts((self._logs.containers, self._of_pods.value), self._owners, self._inventory, self._looks)

    def _is_told(self, health: Health) -> bool:
        # logs that were never looked for do not matter: all processes are known then. Pods name containers, too
        return health.up is not None and (health.reason != "missing" or not self._pods)

    def _tell(self, name: str, health: Health) -> None:
        if self._is_told(health):
            self._on_health(name, health)


def _all_holders(owners: Owners) -> frozenset[Owner]:
    held = {holder.owner for holders in owners.holders.values() for holder in holders}
    return frozenset(held | owners.unplaced)
