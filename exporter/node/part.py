"""What the parts of a node are. A part has those of these methods that it needs, and a node knows no more of it.

    begun         its sources, each of which a look begins
    ask           asks what else can be asked at once
    follow_up     asks what other answers show to be missing, and waits
    see           says its fields of the look, once pages and owners are joined
    ask_further   asks what the look shows to be missing
    add           says a field that only some outputs need

A node calls them in this order, and each of them in the order of its parts. Part of a node is also what shows its
health, beats, or goes on after a reload.

Tests: tests/node/test_sources.py.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from exporter.model.pages import Page
from exporter.model.pods import PodInfo
from exporter.model.snapshot import Health, LookFacts, Snapshot
from exporter.outputs.output import LOOK_AT_NODE, Need
from exporter.sources.pages.url import PageSource
from exporter.sources.source import AskedSource, Awaiting, Bound, Source


@dataclass(slots=True, eq=False)
class Asking(Awaiting):
    """One look under way, and what its parts keep of it.

    Attributes:
        needs: what the answer needs of the look.
        call: the call of the kubelet; None if its last answer is fresh.
        pages: the sources of pages that are asked, and `reads` their reads.
        waited: the seconds for which the look waited for all of them.
        pods_to_show: the pods that rows may name, if the answer needs their workloads.
    """

    needs: AbstractSet[Need] = LOOK_AT_NODE
    call: asyncio.Task[Health] | None = None
    pages: tuple[PageSource, ...] = ()
    reads: Sequence[asyncio.Task[Page]] = ()
    waited: float = 0.0
    pods_to_show: Sequence[PodInfo] = ()


class LookFor(Protocol):
    """`Node.look`."""

    def __call__(
        self, wait_seconds: float | None, needs: AbstractSet[Need] = LOOK_AT_NODE
    ) -> Coroutine[None, None, Snapshot]:
        """Look at the node."""


@runtime_checkable
class Begins(Protocol):
    """A part with sources that every look begins, and whose first word it waits for."""

    @property
    def begun(self) -> Sequence[Source]:
        """These sources."""


@runtime_checkable
class Asks(Protocol):
    """A part that asks in its own way."""

    def ask(self, asking: Asking) -> None:
        """Ask, and say what the look waits for (`asking.begin`)."""


@runtime_checkable
class FollowsUp(Protocol):
    """A part that asks once others have answered."""

    async def follow_up(self, asking: Asking) -> None:
        """Ask, and wait for what the next part needs."""


@runtime_checkable
class Sees(Protocol):
    """A part that knows a field of every look."""

    def see(self, look: Snapshot) -> LookFacts:
        """The field. The look has pages and owners."""


@runtime_checkable
class AsksFurther(Protocol):
    """A part that asks for what a look shows to be missing."""

    def ask_further(self, asking: Asking, look: Snapshot) -> None:
        """Ask, and say what the look waits for. The look is made again if it waits."""


@runtime_checkable
class Adds(Protocol):
    """A part that knows a field of which only outputs with one of the needs `adds_for` are made."""

    adds_for: frozenset[Need]

    async def add(self, asking: Asking, look: Snapshot) -> LookFacts:
        """The field. The look has what every part sees, and what the parts before this one added."""


@runtime_checkable
class Shows(Protocol):
    """A part with sources whose health outputs show."""

    @property
    def shown(self) -> Sequence[Source | AskedSource]:
        """These sources; those that are absent are left out."""


@runtime_checkable
class Bounded(Protocol):
    """A part that remembers something, as every source does."""

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """What it remembers, by the name that /metrics gives it."""


@runtime_checkable
class Beats(Protocol):
    """A part with work that must not depend on scrapes."""

    interval_seconds: float

    async def beat(self, look: LookFor) -> None:
        """Do it."""


@runtime_checkable
class Follows(Protocol):
    """A part that outlives a reload, or that has the node looked at by itself."""

    def follow(self, look: LookFor) -> None:
        """Be part of a node from now on, whose `look` this is. The node is complete, and replaces its predecessor."""


@runtime_checkable
class Saves(Protocol):
    """A part that keeps something when the process ends."""

    async def save(self) -> None:
        """Keep it."""
