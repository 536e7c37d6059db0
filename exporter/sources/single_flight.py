"""One at a time: reads that callers share, and calls into a library that may hang, on a thread of their own.

Fifty concurrent scrapes cost the kubelet one call. If a caller stops waiting, the read goes on for the next caller.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from exporter.pulse import end_tasks
from exporter.sources.source import Clock

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs `read`, one at a time: callers that come while it runs share it. `read` itself notes its failures."""

    def __init__(self, read: Callable[[], Coroutine[Any, Any, T]], timeout_seconds: float | None = None) -> None:
        """A read that takes longer than `timeout_seconds` is cancelled, and `timed_out` is true then."""
        self.timed_out = False
        self._read = read
        self._timeout_seconds = timeout_seconds
        self._task: asyncio.Task[T] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._ends_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> asyncio.Task[T]:
        """The running read, or a new one. Callers wait for it with `wait`, since cancelling `wait` does not end it."""
        task = self._task
        if task is None or task.done():
            self.timed_out = False
            task = self._task = _started(self._run())
            task.add_done_callback(self._ended)
            if self._timeout_seconds is not None:
                self._limit(self._timeout_seconds)
        return task

    async def wait(self, seconds: float | None) -> None:
        """Wait until the running read has ended, at most `seconds`. It takes 5 us less than asyncio.wait."""
        if self._task is None or self._task.done():
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters.append(waiter)
        timer = None if seconds is None else loop.call_later(seconds, wake, waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        """End the running read."""
        if self._timer is not None:
            self._timer.cancel()
        await end_tasks(self._task)

    async def _run(self) -> T:
        try:
            return await self._read()
        finally:
            self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            wake(waiter)

    def _ended(self, task: asyncio.Task[T]) -> None:
        # asyncio would log a failure that no caller asks for; the read itself has noted it
        if not task.cancelled():
            task.exception()
        if self._task is task:
            self._task = None  # its result may be a large page
            self._wake()  # for a task that was cancelled before its first step

    def _limit(self, seconds: float) -> None:
        # one timer that outlives the reads, and is set anew if another read runs by then: asyncio.timeout for each read
        # cost a steady scrape 6 us
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
        # an eager start saves a round of the event loop
        return asyncio.Task(read, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.create_task(read)


def wake(waiter: "asyncio.Future[None]") -> None:
    """Let the task that waits for this future go on, unless it is done already."""
    if not waiter.done():
        waiter.set_result(None)


class Worker(Generic[T]):
    """A thread for one call at a time; it starts with the first call. Only the event loop's thread may use the methods.

    The event loop never waits for the library. The thread is a daemon, so a call that never returns does not keep the
    process alive. While a call hangs, further work is refused, so that no work piles up behind it.
    """

    def __init__(self, name: str, clock: Clock = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._began: float | None = None

    @property
    def busy_seconds(self) -> float | None:
        """The seconds for which the present work has run; None without work."""
        return None if self._began is None else self._clock() - self._began

    def begin(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> bool:
        """Run `work` on the thread. `done` is called in the event loop with its result, or with the exception.

        Returns False if other work still runs; then this work is refused.
        """
        if self._began is not None:
            return False
        self._began = self._clock()
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(self._jobs,), name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()

        def end(result: T | Exception) -> None:
            self._began = None
            done(result)

        def job() -> None:
            result: T | Exception
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the caller judges it
                result = error
            with suppress(RuntimeError):  # the event loop has ended meanwhile
                loop.call_soon_threadsafe(end, result)

        self._jobs.put(job)
        return True

    def close(self, last: Callable[[], None]) -> None:
        """Let the thread finish its work, run `last`, and end. Nobody waits for it. Without a thread nothing happens.

        `last` may run after the event loop has ended; if a call hangs, it never runs.
        """
        if self._thread is not None:
            self._jobs.put(last)
            self._jobs.put(None)
            self._thread = None
            self._jobs = SimpleQueue()


def _run(jobs: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (job := jobs.get()) is not None:
        job()
