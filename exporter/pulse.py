"""A pulse: regular beats, for as long as the process runs.

Beats fall on multiples of the interval, counted from the first beat, so they do not drift. A beat that is due while the
last one still runs follows at once; if several are due, only one does.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from exporter import log


async def end_tasks(*tasks: "asyncio.Future[Any] | None") -> None:
    """Cancel these tasks (None is no task), and wait until they have ended, however they end."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def next_beat(last: float, seconds: float, now: float) -> float:
    """The time of the beat after the beat at `last`: an interval later, or the newest of the beats that were missed."""
    return last + seconds * max(1, math.floor((now - last) / seconds))


class Pulse:
    """Beats from the first call of `every` until `every(None)`. A beat that fails does not end it."""

    def __init__(self, beat: Callable[[], Awaitable[None]]) -> None:
        self._beat = beat
        self._seconds: float | None = None
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failed: type[BaseException] | None = None

    def every(self, seconds: float | None) -> None:
        """Beat with this interval from now on, first at once; None: no more. A running beat goes on to its end."""
        if seconds == self._seconds:
            return
        self._seconds = seconds
        self._woken.set()
        if seconds is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End the pulse, and the running beat."""
        await end_tasks(self._task)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        last: float | None = None
        while self._seconds is not None:
            self._woken.clear()
            due = loop.time() if last is None else next_beat(last, self._seconds, loop.time())
            if due > loop.time() and await self._is_told_before(due):
                continue
            await self._once()
            last = due

    async def _is_told_before(self, due: float) -> bool:
        """Wait until `due`, or until `every` is called. Returns whether it was called."""
        try:
            async with asyncio.timeout_at(due):
                return await self._woken.wait()
        except TimeoutError:
            return False

    async def _once(self) -> None:
        try:
            await self._beat()
        except (Exception, asyncio.CancelledError) as error:
            # the pulse goes on, since the next beat may succeed
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task and task.cancelling():
                raise  # close() cancelled this task
            if type(error) is not self._failed:
                self._failed = type(error)
                log.error("a look of its own failed by a fault of the exporter", error)
        else:
            self._failed = None
