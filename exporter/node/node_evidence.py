"""The part of a look that finds out what the node itself shows of containers whose device ids are tokens.

A node without such ids pays nothing: no file is read and no process looked up for it.
"""

import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from exporter.model.devices import Assignment
from exporter.model.grants import NO_EVIDENCE, CheckpointEntry, Evidence
from exporter.model.memo import Memo
from exporter.model.pods import PodsOfNames
from exporter.node.part import Asking
from exporter.node.shared_sources import Sources
from exporter.ownership.device_ids import Rule
from exporter.ownership.evidence import NO_TOKENS, AllTokens, Arrivals, Key, by_checkpoint, together, tokens_among
from exporter.sources.kubelet.device_checkpoint import DeviceCheckpoint
from exporter.sources.source import Bound, Source


@dataclass(kw_only=True, eq=False)
class NodeEvidence:
    """Asks the sources of evidence while containers have tokens. `rules` tell which ids are tokens."""

    sources: Sources
    rules: Sequence[Rule]
    arrivals: Arrivals
    checkpoint: DeviceCheckpoint
    _tokens: Memo[AllTokens] = field(default_factory=lambda: Memo(NO_TOKENS))
    _evidence: Memo[Evidence] = field(default_factory=lambda: Memo(NO_EVIDENCE))

    @property
    def shown(self) -> Sequence[Source]:
        """The sources that it asks."""
        return (self.checkpoint,)

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """Those of its sources."""
        return self.checkpoint.bounds

    async def follow_up(self, asking: Asking) -> None:
        """Read what has changed on the node since the last look, once the kubelet has answered."""
        kubelet = self.sources.kubelet
        tokens = self._tokens_of(kubelet.assignments)
        self.arrivals.note(tokens, kubelet.asked_at_seconds or time.monotonic())
        if tokens is NO_TOKENS:
            return
        attempt = self.checkpoint.begin()
        if attempt is not None:
            await asking.hear_one(self.checkpoint, attempt)

    def of(self, assignments: frozenset[Assignment], pods: PodsOfNames) -> Evidence:
        """The evidence for these assignments; the same object as long as nothing changes."""
        tokens = self._tokens_of(assignments)
        if tokens is NO_TOKENS:
            return NO_EVIDENCE
        now = time.monotonic()
        changed_at = now - (time.time() - self.checkpoint.changed_at)
        late = self.arrivals.late(tokens, changed_at, now)
        return self._evidence.of(self._work_out, tokens, self.checkpoint.entries, pods, late)

    def _work_out(
        self, tokens: AllTokens, entries: tuple[CheckpointEntry, ...], pods: PodsOfNames, late: AbstractSet[Key]
    ) -> Evidence:
        return together([by_checkpoint(entries, tokens, pods, late)], self._evidence.value)

    def _tokens_of(self, assignments: frozenset[Assignment]) -> AllTokens:
        return self._tokens.of(tokens_among, assignments, self.rules)
