"""How a source is kept up to date: read again after a while, or by a connection that sends what changes."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from exporter import log
from exporter.errors import Malformed, SourceError, Trouble
from exporter.model.snapshot import Health
from exporter.pulse import end_tasks
from exporter.sources.pause import Pause
from exporter.sources.source import NO_BOUNDS, AskedSource, Attempt, Bound, OnHealth

# What a look at the source returns: what is odd about it, if anything, or that the source is absent.
Outcome = Trouble | Health | None


class Polled(AskedSource, ABC):
    """A source that looks again when its last look is too old, one at a time.

    A look that fails changes nothing but its health: whatever the source read last stays.
    """

    bounds: Mapping[str, Bound] = NO_BOUNDS

    def __init__(
        self,
        name: str,
        on_health: OnHealth,
        *,
        again_seconds: float,
        is_awaited: bool = False,
        looks_by_itself: bool = False,
        placeholder: Health | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A caller waits for the first look only, or with `is_awaited` for each; `placeholder`: the health before.

        After the first look one follows when a caller begins it, or with `looks_by_itself` as soon as it is due.
        """
        super().__init__(name, on_health)
        self.task: asyncio.Task[None] | None = None  # the last look, over or not
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
        """Look at the source. SourceError: it fails. A Health is returned where the source is absent."""

    def look_after(self, since: float) -> None:
        """A look that began before this moment of the clock does not count."""
        self._since = since

    def begin(self) -> Attempt | None:
        """Look, if a look is due and none runs. Returns the look if a caller is to wait for it."""
        is_due = self._began_at < self._since or self._clock() - self._ended_at >= self._again_seconds
        is_first = self._ended_at == -float("inf")
        is_running = self.task is not None and not self.task.done()
        if (is_due or is_first) and not is_running:
            self.task = asyncio.create_task(self._run())
            is_running = True
        return self.task if is_running and (is_first or self._is_awaited) else None

    def look_again(self) -> Attempt:
        """Look at once, or as soon as the look that runs has ended. Ends with a look that began from now on."""
        self.look_after(self._clock())
        self._again = asyncio.create_task(self._look_anew())
        return self._again

    async def close(self) -> None:
        """End the look that runs; a thread that reads goes on to the end of its read, and nobody waits for it."""
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
        started, error, outcome = self._clock(), None, None
        try:
            outcome = await self._look()
        except SourceError as why:
            error = why
        self._began_at, self._ended_at = started, self._clock()
        self._absent, odd = (outcome, None) if isinstance(outcome, Health) else (None, outcome)
        if not self._absent:
            self._attempts.note(error, took_seconds=self._ended_at - started, now_seconds=time.time(), odd=odd)
        if self._looks_by_itself:
            self._next = asyncio.get_running_loop().call_later(self._again_seconds, self.begin)


_OUR_FAULT = "please report it, with the trace that is in the exporter's log"


class Watch(AskedSource, ABC):
    """A source that sends what changes, unasked. Its connection is opened again and again, after growing pauses."""

    def __init__(self, name: str, on_health: OnHealth, *, longest_pause_seconds: float) -> None:
        super().__init__(name, on_health)
        # by chance: nodes are not to come back all at once
        self._pause = Pause(0.1, longest_pause_seconds, least=0.75, most=1.25)
        self._failures = 0
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._first: Attempt | None = None
        self._began = 0.0

    @abstractmethod
    async def _attend(self) -> None:
        """One connection until it ends. Calls `in_sync` once it knows everything. SourceError: it fails."""

    def begin(self) -> Attempt | None:
        """Keep it open from now on. The task ends with the first success or failure; None after that."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._first = asyncio.create_task(self._settled.wait())
        return None if self._settled.is_set() else self._first

    async def close(self) -> None:
        """End it, and what it uses."""
        await self.end()

    async def end(self) -> None:
        """End the connection alone."""
        await end_tasks(self._task, self._first)

    def in_sync(self) -> None:
        """The connection has sent everything there is."""
        self._failures = 0
        self._note(None)

    def heard(self) -> None:
        """A sign of life."""
        self._attempts.heard(time.time())

    async def _run(self) -> None:
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
