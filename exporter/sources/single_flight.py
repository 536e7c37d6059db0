"""One read at a time, shared by everyone who asks while it runs.

Fifty concurrent scrapes cost the kubelet one call. A caller may stop waiting before the read ends; the read goes on in
the background, and its result serves whoever asks next.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs `read` for all callers that come while it runs. Its failures are its own to note."""

    def __init__(self, read: Callable[[], Coroutine[Any, Any, T]], timeout_seconds: float | None = None) -> None:
        """A read that takes longer than `timeout_seconds` is cancelled, and `timed_out` says so."""
        self.timed_out = False
        self._read = read
        self._timeout_seconds = timeout_seconds
        self._task: asyncio.Task[T] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> asyncio.Task[T]:
        """The read that runs, or a new one. Wait for it with `wait`, so that giving up does not end it."""
        task = self._task
        if task is None or task.done():
            self.timed_out = False
            task = self._task = _started(self._run())
            task.add_done_callback(self._ended)
            if self._timeout_seconds is not None:
                self._limit(self._timeout_seconds)
        return task

    async def wait(self, seconds: float | None) -> None:
        """Until the read that runs has ended, if one runs, and no longer than `seconds`.

        It wakes its callers itself: that is a round of the event loop less than asyncio.wait, 5 us of a steady scrape.
        """
        if self._task is None or self._task.done():
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters.append(waiter)
        timer = None if seconds is None else loop.call_later(seconds, _end, waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        """End the read that runs."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task

    async def _run(self) -> T:
        try:
            return await self._read()
        finally:
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            _end(waiter)

    def _ended(self, task: asyncio.Task[T]) -> None:
        # Nobody may be left waiting when it fails: the failure has then been noted by the read itself.
        if not task.cancelled():
            task.exception()
        if self._task is task:
            self._task = None  # its result may be a large page
            self._wake()  # a task that was cancelled before its first step has woken nobody

    def _limit(self, seconds: float) -> None:
        # One timer that outlives the reads, and looks again where another one runs by then: asyncio.timeout for each
        # read cost a steady scrape 6 us.
        loop = asyncio.get_running_loop()
        self._ends_at = loop.time() + seconds
        if self._timer is None:
            self._timer = loop.call_at(self._ends_at, self._look)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        if self._task is None:
            return
        if loop.time() < self._ends_at:
            self._timer = loop.call_at(self._ends_at, self._look)
        else:
            self.timed_out = True
            self._task.cancel()


def _started(read: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    if sys.version_info >= (3, 12):
        # begun at once: a round of the event loop less
        return asyncio.Task(read, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.create_task(read)


def _end(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
