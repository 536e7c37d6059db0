"""One read at a time, shared by everyone who asks while it runs.

Fifty concurrent scrapes cost the kubelet one call. A caller may stop waiting before the read ends; the read goes on in
the background, and its result serves whoever asks next.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs `read` for all callers that come while it runs. Its failures are its own to note."""

    def __init__(self, read: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._read = read
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> asyncio.Task[T]:
        """The read that runs, or a new one. Wait for it with asyncio.wait, so that giving up does not end it."""
        task = self._task
        if task is None or task.done():
            task = self._task = asyncio.create_task(self._read())
            task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """End the read that runs."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task

    def _ended(self, task: asyncio.Task[T]) -> None:
        # Nobody may be left waiting when it fails: the failure has then been noted by the read itself.
        if not task.cancelled():
            task.exception()
        if self._task is task:
            self._task = None  # its result may be a large page
