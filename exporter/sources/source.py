"""The interface of a source of facts, the notes on its attempts, and the cache of sources that a reload keeps.

A source that is not there is an object like the others: it knows nothing, and its health says why.

Tests: tests/sources/test_polled.py, tests/sources/test_claim_access.py.
"""

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from exporter.errors import SourceError, Trouble
from exporter.model.nothing import NOTHING, nothing
from exporter.model.snapshot import Health

Attempt = asyncio.Task[object]
OnHealth = Callable[[str, Health], None]
Clock = Callable[[], float]  # seconds

# The time for which a look waits for facts that it can do without: a newer answer of a source that has answered before,
# or a stream's first answer.
PATIENCE_SECONDS = 0.5

# Limits of sources that only some nodes import; every node shows the limits.
# Many times the processes on the GPUs of a node. 2,000 take some 20 ms (make bench), on a thread.
MOST_PROCESSES = 2_000
# A kubelet takes 110 pods by default, and keeps the logs of containers that have ended for a while.
MOST_LINKS = 10_000


class Bound(NamedTuple):
    """A limit on what a source remembers: the most that it holds, and how much it holds now."""

    most: int
    used: Callable[[], int]


Bounds = Mapping[str, Bound]  # by what they limit, as /metrics names it
NO_BOUNDS: Bounds = NOTHING


@runtime_checkable
class Source(Protocol):
    """A source of facts. A source has the facts in attributes of its own."""

    @property
    def name(self) -> str:
        """The source's name in labels and logs."""

    @property
    def health(self) -> Health:
        """The outcome of the last attempt."""

    @property
    def patience_seconds(self) -> float | None:
        """The longest time for which a look waits for an attempt; None: as long as the look itself may take."""

    @property
    def bounds(self) -> Bounds:
        """The limits on what the source remembers, by their names on /metrics."""

    def begin(self) -> Attempt | None:
        """The running attempt, or a new one; None if there is nothing to wait for."""

    async def close(self) -> None:
        """End the attempt in flight, and close the connections."""


S = TypeVar("S", bound=Source)


@dataclass(slots=True, eq=False)
class Awaiting:
    """The waiting of one look for sources, for `wait_seconds` at most (None: for as long as each may take).

    `awaited` are the attempts that the look waits for, each with its source.
    """

    wait_seconds: float | None = None
    began: float = field(default_factory=time.monotonic)
    awaited: list[tuple[Source, Attempt]] = field(default_factory=list)

    def begin(self, source: Source) -> None:
        """Begin an attempt of a source, or keep its stream open. The look waits if the source says for what."""
        attempt = source.begin()
        if attempt is not None:
            self.awaited.append((source, attempt))

    def wait_for(self, source: Source, attempt: Attempt | None) -> None:
        """Have the look wait for an attempt, for as long as the source's patience."""
        if attempt is not None:
            self.awaited.append((source, attempt))

    async def hear(self) -> None:
        """Wait for the awaited attempts; nothing is awaited then."""
        for source, attempt in self.awaited:
            await self.hear_one(source, attempt)
        self.awaited.clear()

    async def hear_one(self, source: Source, attempt: Attempt) -> None:
        """Wait until an attempt has ended, for as long as its source's patience."""
        await asyncio.wait((attempt,), timeout=self.left(source.patience_seconds))

    async def hear_of(self, heard: Source, patience_seconds: float) -> None:
        """Wait until the awaited attempt of one source has ended, for this patience."""
        for source, attempt in self.awaited:
            if source is heard:
                await asyncio.wait((attempt,), timeout=self.left(patience_seconds))

    def left(self, patience_seconds: float | None) -> float | None:
        """The rest of `patience_seconds` since the look began, but no more than the rest of `wait_seconds`."""
        least = self.wait_seconds if patience_seconds is None else patience_seconds
        if least is None:
            return None
        if self.wait_seconds is not None:
            least = min(least, self.wait_seconds)
        return max(0.0, least - (time.monotonic() - self.began))


class Attempts:
    """The notes on a source's attempts. `on_health` is called with the health after each attempt."""

    def __init__(self, name: str, on_health: OnHealth) -> None:
        self.health = Health()
        self._name = name
        self._on_health = on_health

    def note(
        self, error: SourceError | None, *, took_seconds: float, now_seconds: float, odd: Trouble | None = None
    ) -> None:
        """Note an attempt that has ended.

        Args:
            error: the reason why it failed; None if it did not.
            took_seconds: the time that it took.
            now_seconds: the time of its end, since 1970.
            odd: an oddity of its answer, if any.
        """
        self.health = Health(
            up=error is None,
            trouble=error.trouble if error else odd,
            duration_seconds=took_seconds,
            last_success_at_seconds=self.health.last_success_at_seconds if error else now_seconds,
        )
        self._on_health(self._name, self.health)

    @contextmanager
    def noted(self, wall_clock: Clock = time.time) -> Iterator[list[Trouble]]:
        """Note the attempt inside the block, and let its SourceError pass. The first oddity in the list counts."""
        started = time.monotonic()
        odd: list[Trouble] = []
        try:
            yield odd
        except SourceError as error:
            self.note(error, took_seconds=time.monotonic() - started, now_seconds=wall_clock())
            raise
        first = odd[0] if odd else None
        self.note(None, took_seconds=time.monotonic() - started, now_seconds=wall_clock(), odd=first)

    def heard(self, now_seconds: float) -> None:
        """Note that the peer sent something, in an attempt that goes on."""
        self.health = replace(self.health, last_success_at_seconds=now_seconds)


class AskedSource:
    """The base class of sources whose health is the outcome of their last attempt."""

    def __init__(self, name: str, on_health: OnHealth) -> None:
        self.name = name
        self._absent: Health | None = None
        self._attempts = Attempts(name, on_health)

    @property
    def health(self) -> Health:
        """The outcome of the last attempt, or the health of an absent source."""
        return self._absent or self._attempts.health

    @property
    def patience_seconds(self) -> float | None:
        """The time for which a look waits for a newer answer."""
        return PATIENCE_SECONDS


def missing(message: str, remedy: str) -> Health:
    """The health of a required source that is not there."""
    return Health(up=False, trouble=Trouble("missing", message, remedy))


def absent(message: str, remedy: str) -> Health:
    """The health of an optional source that is not there; `remedy` is for users who want it."""
    return Health(trouble=Trouble("missing", message, remedy))


def is_absent(health: Health) -> bool:
    """True if the source is optional and not present. `/metrics` leaves such sources out."""
    return health.up is None and health.trouble is not None


@dataclass(eq=False)
class NoSource:
    """A placeholder for a source that is not there. It knows nothing, and its health says why."""

    patience_seconds = 0.0

    name: str
    health: Health
    bounds: Bounds = field(default_factory=nothing)

    def begin(self) -> Attempt | None:
        """Begin nothing."""
        return None

    async def close(self) -> None:
        """Do nothing: no attempt is ever in flight."""


class OptionalSource(Generic[S]):
    """A source whose socket or token may appear later. `now` is a placeholder until `begin` can create the source."""

    def __init__(self, create: Callable[[], S | None], placeholder: S) -> None:
        """`create` returns None while the source cannot be created. The health of `placeholder` says why."""
        self.now = placeholder
        self._create = create
        self._placeholder = placeholder

    @property
    def name(self) -> str:
        """The name of the source or of its placeholder."""
        return self.now.name

    @property
    def health(self) -> Health:
        """The health of the source or of its placeholder."""
        return self.now.health

    @property
    def patience_seconds(self) -> float | None:
        """The patience of the source or of its placeholder."""
        return self.now.patience_seconds

    @property
    def bounds(self) -> Bounds:
        """The limits, which are the same before and after the source exists."""
        return {of: Bound(most, lambda of=of: self.now.bounds[of].used()) for of, (most, _) in self.now.bounds.items()}  # type: ignore[misc]

    @property
    def is_there(self) -> bool:
        """Whether the source exists."""
        return self.now is not self._placeholder

    def look(self) -> None:
        """Try to create the source, unless it exists."""
        if not self.is_there:
            self.now = self._create() or self._placeholder

    def begin(self) -> Attempt | None:
        """Try to create the source, and begin an attempt of the source or of its placeholder."""
        self.look()
        return self.now.begin()

    async def close(self) -> None:
        """End the attempt in flight, and close the connections."""
        await self.now.close()


class SourceCache:
    """Creates sources. A reload keeps sources whose settings are unchanged, with their connections and facts."""

    def __init__(self, on_health: OnHealth, before: "SourceCache | None" = None) -> None:
        self.on_health = on_health
        self.sources: dict[Hashable, Source] = {}
        self._before: Mapping[Hashable, Source] = before.sources if before else {}

    def get(self, create: Callable[..., S], **settings: Hashable) -> S:
        """The source that `create` returned for these settings before, or a new one."""
        key = (create, *sorted(settings.items()))
        kept = self.sources.get(key, self._before.get(key))
        # compared with None, since a source that knows nothing yet may be falsy
        source: S = create(**settings, on_health=self.on_health) if kept is None else kept  # type: ignore[assignment] # a key names its type
        self.sources[key] = source
        return source

    def settle(self) -> None:
        """Drop the sources of the previous configuration."""
        self._before = {}

    def not_in(self, other: "SourceCache") -> Iterable[Source]:
        """The sources that `other` lacks."""
        return [source for key, source in self.sources.items() if key not in other.sources]
