"""One read at a time, shared by everyone who asks while it runs.

Fifty concurrent scrapes cost the kubelet one call. A caller may stop waiting before the read ends; the read goes on in
the background, and its result serves whoever asks next.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs `read` for all callers that come while it runs. Its failures are its own to note."""

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> asyncio.Task[T]:
        """The read that runs, or a new one. Wait for it with asyncio.wait, so that giving up does not end it."""
        task = self._task
        if task is None or task.done():
            task = self._task = asyncio.create_task(self._run())
            # Nobody may be left waiting when it fails: the failure has then been noted by the read itself.
            task.add_done_callback(_look_at_result)
        return task

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
