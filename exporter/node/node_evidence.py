"""The part of a look that finds out what the node itself shows of containers whose device ids are tokens.

    the kubelet's checkpoint: what plugins answered ────────┐
    first processes' environments (--allocators.environ) ───┼─► Evidence ─► owners
    NVML: the GPUs on which processes were seen ────────────┘

The first two name all devices of a container, and NVML only those that it uses. A container's sources stand in this
order, and none depends on what an allocator wrote or on who holds which device. What several of them say of one
container is not compared here.

A node without such ids pays nothing: no file is read and no process looked up for it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.model.devices import Assignment
from exporter.model.grants import NO_EVIDENCE, Evidence, Given
from exporter.model.memo import Memo
from exporter.model.nothing import NOTHING
from exporter.model.pods import Owner, PodsByName, PodsOfNames
from exporter.node.part import Asking
from exporter.node.shared_sources import Sources
from exporter.ownership.current import CurrentOwners
from exporter.ownership.device_ids import Rule
from exporter.ownership.evidence import (
    NO_TOKENS,
    AllTokens,
    Arrivals,
    Key,
    ReadIds,
    Turnover,
    by_checkpoint,
    of_every_resource,
    together,
    tokens_among,
)
from exporter.sources.kubelet.device_checkpoint import DeviceCheckpoint
from exporter.sources.source import MOST_PROCESSES, Bound, Source

if TYPE_CHECKING:
    from exporter.node.environments import EnvironmentsOfContainers
    from exporter.node.measuring import LookedUp
    from exporter.usage.seen_devices import SeenDevices

_NOTHING_GIVEN: Mapping[Key, Given] = NOTHING
_Ids = Mapping[Owner, frozenset[str]]  # all tokens of each container
_NO_IDS: _Ids = NOTHING


@dataclass(eq=False)
class KeptEvidence:
    """What is remembered of the containers with tokens. It outlives a reload."""

    arrivals: Arrivals = field(default_factory=Arrivals)
    turnover: Turnover = field(default_factory=Turnover)
    seen: "SeenDevices | None" = None  # None before the first containers with tokens


@dataclass(kw_only=True, eq=False)
class NodeEvidence:
    """Asks the sources of evidence while containers have tokens. `rules` tell which ids are tokens.

    `owners` know the containers that hold devices of which the kubelet lists nothing.
    """

    sources: Sources
    owners: CurrentOwners
    rules: Sequence[Rule]
    kept: KeptEvidence
    checkpoint: DeviceCheckpoint
    environments: "EnvironmentsOfContainers | None" = None  # None: --allocators.environ is off
    _everyone: Memo[frozenset[Assignment]] = field(default_factory=lambda: Memo(frozenset()))
    _read_ids: ReadIds = field(default_factory=dict)
    _tokens: Memo[AllTokens] = field(default_factory=lambda: Memo(NO_TOKENS))
    _by_checkpoint: Memo[Mapping[Key, Given]] = field(default_factory=lambda: Memo(_NOTHING_GIVEN))
    _ids: Memo[_Ids] = field(default_factory=lambda: Memo(_NO_IDS))
    _by_environment: Memo[Mapping[Key, Given]] = field(default_factory=lambda: Memo(_NOTHING_GIVEN))
    _seen: Memo[Mapping[Key, Given]] = field(default_factory=lambda: Memo(_NOTHING_GIVEN))
    _evidence: Memo[Evidence] = field(default_factory=lambda: Memo(NO_EVIDENCE))

    @property
    def shown(self) -> Sequence[Source]:
        """The sources that it asks."""
        if self.environments is None or self._tokens.value is NO_TOKENS:
            return (self.checkpoint,)
        return self.checkpoint, self.environments.environs, self.environments.logs

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Those of its sources, and of what it remembers."""
        of_environments = self.environments.environs.bounds if self.environments else {}
        of_sources = {**self.checkpoint.bounds, **of_environments}
        return {**of_sources, "seen_containers": Bound(MOST_PROCESSES, lambda: len(self.kept.seen or ()))}

    async def follow_up(self, asking: Asking) -> None:
        """Read what has changed on the node since the last look, once the kubelet has answered."""
        kubelet = self.sources.kubelet
        tokens = self._tokens_of(kubelet.assignments)
        self.kept.arrivals.note(tokens, kubelet.asked_at_seconds or time.monotonic())
        if tokens is NO_TOKENS:
            return
        attempt = self.checkpoint.begin()
        if attempt is not None:
            await asking.hear_one(self.checkpoint, attempt)
        if self.environments is not None:
            ids = self._ids.of(_ids_of, tokens)
            await self.environments.follow_up(asking, ids, self.sources.pods.now.pods)

    def of(self, assignments: frozenset[Assignment], pods: PodsByName, pods_of_names: PodsOfNames) -> Evidence:
        """The evidence for these assignments; the same object as long as nothing changes."""
        tokens = self._tokens_of(assignments)
        if tokens is NO_TOKENS:
            return NO_EVIDENCE
        now = time.monotonic()
        changed_at = now - (time.time() - self.checkpoint.changed_at)
        late = self.kept.arrivals.late(tokens, changed_at, now)
        return self._evidence.of(
            lambda *sources: together(sources, self._evidence.value),
            self._by_checkpoint.of(by_checkpoint, self.checkpoint.entries, tokens, pods_of_names, late),
            self._of_environments(tokens, pods),
            self._seen_of(tokens, pods),
        )

    def _of_environments(self, tokens: AllTokens, pods: PodsByName) -> Mapping[Key, Given]:
        """The devices that the environments of these containers' first processes name."""
        if self.environments is None:
            return _NOTHING_GIVEN
        given, before = self.environments.of(pods), self._by_environment.value
        return self._by_environment.of(lambda *of: of_every_resource(of[0], of[1], before), given, tokens)

    def _seen_of(self, tokens: AllTokens, pods: PodsByName) -> Mapping[Key, Given]:
        """The devices on which NVML lists processes of these containers."""
        measuring = self.sources.measuring
        if measuring is None:
            return _NOTHING_GIVEN
        return self._seen.of(self._see, tokens, measuring.looked_up, pods)

    def _see(self, tokens: AllTokens, looked_up: "LookedUp | None", pods: PodsByName) -> Mapping[Key, Given]:
        from exporter.usage.seen_devices import SeenDevices  # noqa: PLC0415 - only a node with tokens pays for it

        seen = self.kept.seen = self.kept.seen or SeenDevices()
        ids = self._ids.of(_ids_of, tokens)
        given = seen.look(ids)
        if self.sources.measuring is not None and looked_up is not None:
            reading, processes, logged = looked_up
            given = seen.look(ids, reading, processes, self.sources.measuring.tables(logged, pods))
        return of_every_resource(given, tokens, self._seen.value)

    def _tokens_of(self, assignments: frozenset[Assignment]) -> AllTokens:
        unlisted = self.owners.by_allocators.unlisted
        if unlisted:
            assignments = self._everyone.of(lambda *parts: frozenset().union(*parts), assignments, unlisted)
        return self._tokens.of(tokens_among, assignments, self.rules, self._read_ids)


def _ids_of(tokens: AllTokens) -> _Ids:
    ids: dict[Owner, frozenset[str]] = {}
    for (owner, _), of_key in tokens.items():
        ids[owner] = ids.get(owner, frozenset()) | of_key.ids
    return ids
