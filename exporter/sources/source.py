"""What every source of facts is, and how attempts at one are noted.

A source that is not there is an object like the others: it has nothing to say, and its health says why.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from exporter.errors import SourceError, Trouble
from exporter.model.snapshot import Health

Attempt = asyncio.Task[object]
OnHealth = Callable[[str, Health], None]

# How long a look waits for what is only better to have: a source whose last word is known, a stream's first word.
PATIENCE_SECONDS = 0.5


class Bound(NamedTuple):
    """Something that is remembered: the most that it can hold, and what says how much it holds now."""

    most: int
    used: Callable[[], int]


class Source(Protocol):
    """Where facts come from. What it knows stands in attributes of its own; nothing here says what that is."""

    @property
    def name(self) -> str:
        """How it is called in labels and logs."""

    @property
    def health(self) -> Health:
        """How the last attempt went."""

    @property
    def patience_seconds(self) -> float | None:
        """How long a look waits for an attempt, within its own time; None: for as long as the attempt takes."""

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """What it remembers, by the name that /metrics gives it."""

    def begin(self) -> Attempt | None:
        """The attempt that runs, or a new one; None where there is nothing to wait for."""

    async def close(self) -> None:
        """End what is in flight, and the connections."""


class Attempts:
    """How the attempts at one source went: the health after the last, which `on_health` hears of each time."""

    def __init__(self, name: str, on_health: OnHealth) -> None:
        self.health = Health()
        self._name = name
        self._on_health = on_health

    def note(
        self,
        error: SourceError | None,
        *,
        took_seconds: float,
        now_seconds: float,
        odd: Trouble | None = None,
    ) -> None:
        """An attempt is over; `error` is None where it succeeded. `now_seconds` counts from 1970.

        `odd` says what is odd about an answer that came.
        """
        self.health = Health(
            up=error is None,
            trouble=error.trouble if error else odd,
            duration_seconds=took_seconds,
            last_success_at_seconds=self.health.last_success_at_seconds if error else now_seconds,
        )
        self._on_health(self._name, self.health)

    def heard(self, now_seconds: float) -> None:
        """A sign of life, in an attempt that goes on."""
        self.health = replace(self.health, last_success_at_seconds=now_seconds)


def missing(message: str, remedy: str) -> Health:
    """The health of a source that is not there, and that somebody misses."""
    return Health(up=False, trouble=Trouble("missing", message, remedy))


def absent(message: str, remedy: str) -> Health:
    """The health of a source that is not there, and that nobody misses; `remedy` is for whoever wants it."""
    return Health(trouble=Trouble("missing", message, remedy))


def is_absent(health: Health) -> bool:
    """Whether a source is not there, and nobody misses it: then it is not among the sources that a look shows."""
    return health.up is None and health.trouble is not None
