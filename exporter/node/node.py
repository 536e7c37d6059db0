"""A look at a node: it asks every part at once, joins pages with owners, and adds what the parts know.

    parts ──► ask ──► follow_up ──► join ──► see ──► add ──► Snapshot ──► outputs, by way of web

part.py says what a part may do; joining.py is the join. build.py puts a node together.

Tests: tests/node/test_sources.py.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import chain

from exporter.model.snapshot import LookFacts, Snapshot
from exporter.node.handover import NodeHandover
from exporter.node.joining import Joining
from exporter.node.part import (
    Adds,
    Asking,
    Asks,
    AsksFurther,
    Beats,
    Begins,
    Bounded,
    Follows,
    FollowsUp,
    Saves,
    Sees,
    Shows,
)
from exporter.outputs.node_outputs import OUTPUTS
from exporter.outputs.output import LOOK_AT_NODE, Look, Need, Output
from exporter.sources.source import Source, SourceCache

READY_PROBE_PATIENCE_SECONDS = 0.9  # the kubelet gives a probe 1 s by default
# the needs for which parts add to a look
_ADDED = frozenset(Need) - {Need.NODE, Need.READINESS}


class Node:
    """Asks its parts when it is asked, and keeps nothing itself."""

    outputs: Sequence[Output[Look]] = OUTPUTS
    looked = staticmethod(Look.of)

    def __init__(self, joining: Joining, parts: Sequence[object], cache: SourceCache, handover: NodeHandover) -> None:
        """`joining` comes first, then `parts` in their order. `cache` has the sources; `handover` goes to the next."""
        self.handover = handover
        self.telemetry, self.instance = handover.telemetry, handover.instance
        self.parts = (joining, *parts)
        self._cache = cache
        self._joining = joining
        self._asks = [part for part in self.parts if isinstance(part, Asks)]
        self._begun = [*chain.from_iterable(part.begun for part in self.parts if isinstance(part, Begins))]
        self._follow_up = [part for part in self.parts if isinstance(part, FollowsUp)]
        self._see = [part for part in self.parts if isinstance(part, Sees)]
        self._ask_further = [part for part in self.parts if isinstance(part, AsksFurther)]
        self._add = [part for part in self.parts if isinstance(part, Adds)]
        self._beats = [part for part in self.parts if isinstance(part, Beats)]
        self._show = [part for part in self.parts if isinstance(part, Shows)]
        self._looking = 0
        self._is_beating = False
        self._nobody_looks = asyncio.Event()
        for bounded in (*self.sources, *self.parts):
            if isinstance(bounded, Bounded):
                for of, (most, used) in bounded.bounds.items():
                    handover.telemetry.bound(of, most, used)
        for part in self.parts:
            if isinstance(part, Follows):
                part.follow(self.look)

    @property
    def sources(self) -> Sequence[Source]:
        """Every source that a reload keeps or closes."""
        return [*self._cache.sources.values()]

    async def close(self) -> None:
        """End what is in flight, and keep the accounts."""
        await asyncio.gather(*(source.close() for source in self.sources))
        for part in self.parts:
            if isinstance(part, Saves):
                await part.save()

    async def hear_watches(self, seconds: float) -> None:
        """Wait until every part has had its first word from whom it asks, for `seconds` at most."""
        asking = Asking(seconds)
        self._begin(asking, [part for part in self._asks if part is not self._joining])  # pages are read by the look
        if asking.awaited:
            await asyncio.wait([attempt for _, attempt in asking.awaited], timeout=seconds)

    async def give_way(self, successor: "Node") -> None:
        """Let the scrapes in flight end, then close the sources that the successor does not reuse."""
        while self._looking or self._is_beating:
            self._nobody_looks.clear()
            await self._nobody_looks.wait()
        await asyncio.gather(*(source.close() for source in self._cache.not_in(successor._cache)))  # noqa: SLF001 - a node, too

    async def look(self, wait_seconds: float | None, needs: AbstractSet[Need] = LOOK_AT_NODE) -> Snapshot:
        """Ask every part at once, wait `wait_seconds` at most (None: their own timeouts), join. `needs` adds more."""
        self._looking += 1
        try:
            asking = Asking(wait_seconds, needs=needs)
            await self._ask(asking)
            look = await self._join(asking)
            if _ADDED.isdisjoint(needs):
                return look
            for asks in self._ask_further:
                asks.ask_further(asking, look)
            if asking.awaited:
                await asking.hear()
                # news of streams that came meanwhile is in every other answer, too
                look = await self._join(asking)
            for adds in self._add:
                if not needs.isdisjoint(adds.adds_for):
                    look = replace(look, **await adds.add(asking, look))
            return look
        finally:
            self._looking -= 1
            if not self._looking:
                self._joining.joined.nobody_looks()
            self._nobody_looks.set()

    @property
    def pulse_seconds(self) -> float | None:
        """The pause between its own looks, as its last part with a beat has it; None without one."""
        return self._beats[-1].interval_seconds if self._beats else None

    async def pulse(self) -> None:
        """Have the parts do what must not depend on scrapes."""
        self._is_beating = True
        try:
            for part in self._beats:
                await part.beat(self.look)
        finally:
            self._is_beating = False
            self._nobody_looks.set()

    async def why_not_ready(self) -> str:
        """The reason why it is not ready; "" since the first page with the kubelet's answer."""
        if self.handover.not_ready:
            await self.look(READY_PROBE_PATIENCE_SECONDS)
        return self.handover.not_ready

    def _begin(self, asking: Asking, parts: Iterable[Asks]) -> None:
        for part in parts:
            part.ask(asking)
        for source in self._begun:
            asking.begin(source)

    async def _ask(self, asking: Asking) -> None:
        """Ask every part at once, and wait for their answers."""
        self._begin(asking, self._asks)
        for follows_up in self._follow_up:
            await follows_up.follow_up(asking)
        asking.waited = time.monotonic() - asking.began

    async def _join(self, asking: Asking) -> Snapshot:
        """Join all that is known now, with the facts of each part."""
        look = await self._joining.join(asking)
        health = dict(look.health)
        for shows in self._show:
            for source in shows.shown:
                state = source.health
                is_absent = state.up is None and state.trouble is not None
                # NVML's page may be in it already
                if not is_absent:
                    health.setdefault(source.name, state)
        facts = LookFacts()
        for sees in self._see:
            facts.update(sees.see(look))
        look = replace(look, health=health, **facts)
        if self.handover.not_ready:
            self.handover.note_readiness(look)
        return look
