"""One read at a time, shared by everyone who asks while it runs.

Fifty concurrent scrapes cost the kubelet one call. A caller may stop waiting before the read ends; the read goes on in
the background, and its result serves whoever asks next.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from exporter.errors import TimedOut

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs `read` for all callers that come while it runs."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._task: asyncio.Task[T] | None = None

    async def join(self, wait_seconds: float | None) -> T:
        """The result of the read that runs, or of a new one.

        Raises:
            TimedOut: it took longer than `wait_seconds`; the read itself is not ended.
            SourceError: whatever the read raised.
        """
        task = self._task
        if task is None or task.done():
            task = self._task = asyncio.create_task(self._run())
            # Nobody may be left waiting when it fails: the failure has then been noted by the read itself.
            task.add_done_callback(_look_at_result)
        await asyncio.wait((task,), timeout=wait_seconds)
        if not task.done():
            raise TimedOut("deadline", f"no answer within {wait_seconds:g} s; the read goes on in the background")
        return task.result()

    async def close(self) -> None:
        """End the read that runs."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task

    async def _run(self) -> T:
        return await self._read()


def _look_at_result(task: asyncio.Task[T]) -> None:
    if not task.cancelled():
        task.exception()
