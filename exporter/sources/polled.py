"""The base classes of sources: `Polled` looks again after a while, `Watch` keeps a connection that sends changes."""

import asyncio
import time
from abc import ABC, abstractmethod

from exporter import log
from exporter.errors import Malformed, SourceError, Trouble
from exporter.model.snapshot import Health
from exporter.pulse import end_tasks
from exporter.sources.pause import Pause
from exporter.sources.source import NO_BOUNDS, AskedSource, Attempt, Bounds, Clock, OnHealth

# The result of a look at the source: its oddity, if any, or the health of a source that is absent.
Outcome = Trouble | Health | None


class Polled(AskedSource, ABC):
    """A source that looks again when its last look is too old, one look at a time.

    A look that fails changes only the health: the last reading stays.
    """

    bounds: Bounds = NO_BOUNDS

    def __init__(
        self,
        name: str,
        on_health: OnHealth,
        *,
        again_seconds: float,
        is_awaited: bool = False,
        looks_by_itself: bool = False,
        placeholder: Health | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """The first look begins with `begin`.

        Args:
            name: see `Source`.
            on_health: see `Attempts`.
            again_seconds: the next look is due this long after the last look ended.
            is_awaited: callers wait for every look, and not only for the first.
            looks_by_itself: the next look begins as soon as it is due, and not only when a caller calls `begin`.
            placeholder: the health before the first look.
            clock: a monotonic clock, in seconds.
        """
        super().__init__(name, on_health)
        self.task: asyncio.Task[None] | None = None  # the last look, which may have ended
        self._again_seconds = again_seconds
        self._is_awaited = is_awaited
        self._looks_by_itself = looks_by_itself
        self._next: asyncio.TimerHandle | None = None
        self._absent = placeholder
        self._clock = clock
        self._began_at = self._ended_at = -float("inf")
        self._since = -float("inf")
        self._again: asyncio.Task[object] | None = None

    @abstractmethod
    async def _look(self) -> Outcome:
        """Look at the source. Returns a Health if the source is absent. Raises SourceError: the look fails."""

    def look_after(self, since: float) -> None:
        """Make a look due, unless one began after this moment of the clock."""
        self._since = since

    def begin(self) -> Attempt | None:
        """Begin a look if one is due and none runs. Returns the look if callers wait for it."""
        is_due = self._began_at < self._since or self._clock() - self._ended_at >= self._again_seconds
        is_first = self._ended_at == -float("inf")
        is_running = self.task is not None and not self.task.done()
        if (is_due or is_first) and not is_running:
            self.task = asyncio.create_task(self._run())
            is_running = True
        return self.task if is_running and (is_first or self._is_awaited) else None

    def look_again(self) -> Attempt:
        """Look now, or as soon as the running look has ended. The attempt ends with a look that began from now on."""
        self.look_after(self._clock())
        self._again = asyncio.create_task(self._look_anew())
        return self._again

    async def close(self) -> None:
        """End the running look. A thread that reads for it goes on to the end of its read; nobody waits for it."""
        if self._next is not None:
            self._next.cancel()
        await end_tasks(self._again, self.task)

    async def _look_anew(self) -> None:
        running = self.task if self.task is not None and not self.task.done() else None
        if running is not None:
            await asyncio.wait((running,))
        self.begin()
        if self.task is not None and self.task is not running:
            await asyncio.wait((self.task,))

    async def _run(self) -> None:
        """Look once, and note the outcome. Only a SourceError counts as a failure, and an absent source as neither."""
        started = self._clock()
        error = None
        outcome = None
        try:
            outcome = await self._look()
        except SourceError as why:
            error = why
        self._began_at = started
        self._ended_at = self._clock()
        self._absent, odd = (outcome, None) if isinstance(outcome, Health) else (None, outcome)
        if not self._absent:
            self._attempts.note(error, took_seconds=self._ended_at - started, now_seconds=time.time(), odd=odd)
        if self._looks_by_itself:
            self._next = asyncio.get_running_loop().call_later(self._again_seconds, self.begin)


_OUR_FAULT = "please report it, with the trace that is in the exporter's log"


class Watch(AskedSource, ABC):
    """A source whose connection sends changes. After a failure the connection is opened again, after growing pauses."""

    def __init__(self, name: str, on_health: OnHealth, *, longest_pause_seconds: float) -> None:
        super().__init__(name, on_health)
        # random, so that nodes do not come back all at once
        self._pause = Pause(0.1, longest_pause_seconds, least=0.75, most=1.25)
        self._failures = 0
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._first: Attempt | None = None
        self._began = 0.0

    @abstractmethod
    async def _attend(self) -> None:
        """Keep a connection until it ends. Call `in_sync` once it has sent everything. Raises SourceError: it fails."""

    def begin(self) -> Attempt | None:
        """Keep a connection open from now on. The attempt ends with the first success or failure; None after that."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._first = asyncio.create_task(self._settled.wait())
        return None if self._settled.is_set() else self._first

    async def close(self) -> None:
        """End the connection, and close all that the source uses."""
        await self.end()

    async def end(self) -> None:
        """End the connection only."""
        await end_tasks(self._task, self._first)

    def in_sync(self) -> None:
        """Note that the connection has sent everything."""
        self._failures = 0
        self._note(None)

    def heard(self) -> None:
        """Note a sign of life from the peer."""
        self._attempts.heard(time.time())

    async def _run(self) -> None:
        """Connect again and again. The pause grows with each failure, unless the peer says how long it is to be."""
        while True:
            self._began = time.monotonic()
            wait: float | None = None
            try:
                await self._attend()
            except SourceError as error:
                self._note(error)
                wait = error.retry_after_seconds
            except Exception as error:  # noqa: BLE001 - a fault of this program here must not cost the page
                log.error("a watch failed by a fault of the exporter", error, source=self.name)
                self._note(Malformed("garbage", f"a fault of the exporter itself: {error!r}", remedy=_OUR_FAULT))
            if wait is None:
                self._failures += 1
                wait = self._pause.after(self._failures)
            await asyncio.sleep(wait)

    def _note(self, error: SourceError | None) -> None:
        self._attempts.note(error, took_seconds=time.monotonic() - self._began, now_seconds=time.time())
        self._settled.set()
