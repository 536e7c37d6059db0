"""A connection that is kept open in the background, and opened again with growing pauses when it ends.

For sources that tell what changes instead of being asked on every scrape.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from exporter.errors import Malformed, SourceError
from exporter.log import log
from exporter.model.snapshot import Health
from exporter.sources.source import Attempts, OnHealth

FIRST_PAUSE_SECONDS = 0.1
_OUR_FAULT = "please report it, with the trace that is in the exporter's log"


class Watch:
    """Runs `attend`, one connection from its opening to its end, again and again, and keeps its health."""

    def __init__(
        self,
        name: str,
        attend: Callable[[], Awaitable[None]],
        on_health: OnHealth,
        *,
        longest_pause_seconds: float,
    ) -> None:
        """`attend` calls `in_sync` once it knows everything, and raises a SourceError where it fails."""
        self.name = name
        self._attend = attend
        self._attempts = Attempts(name, on_health)
        self._longest_pause_seconds = longest_pause_seconds
        self._settled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Task[None] | None = None
        self._pause = FIRST_PAUSE_SECONDS
        self._began = 0.0

    @property
    def health(self) -> Health:
        """How it is with the connection."""
        return self._attempts.health

    def begin(self) -> "asyncio.Task[None] | None":
        """Keep it open from here on. The task ends with the first success or failure; None once that has been."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._first = asyncio.create_task(self._wait())
        return None if self._settled.is_set() else self._first

    async def close(self) -> None:
        """End it."""
        for task in (self._task, self._first):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    def in_sync(self) -> None:
        """Everything is known, as of now."""
        self._pause = FIRST_PAUSE_SECONDS
        self._note(None)

    def heard(self) -> None:
        """A sign of life."""
        self._attempts.heard(time.time())

    async def _wait(self) -> None:
        await self._settled.wait()

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
                log(logging.ERROR, "a watch failed by a fault of the exporter", error, source=self.name)
                self._note(Malformed("garbage", f"a fault of the exporter itself: {error!r}", remedy=_OUR_FAULT))
            if wait is None:
                wait = self._pause * random.uniform(0.75, 1.25)  # noqa: S311 - nodes shall not come back all at once
                self._pause = min(self._pause * 2, self._longest_pause_seconds)
            await asyncio.sleep(wait)

    def _note(self, error: SourceError | None) -> None:
        self._attempts.note(error, took_seconds=time.monotonic() - self._began, now_seconds=time.time())
        self._settled.set()
