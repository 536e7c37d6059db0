"""One call at a time into a library that may hang, on a thread of its own.

The event loop never waits for the library. The thread is a daemon: a call that never comes back keeps no process from
ending. Work that is asked for while a call hangs is refused, so nothing piles up behind it.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Worker(Generic[T]):
    """The thread, which is there from the first piece of work on. All methods are for the event loop's thread."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`name` is the thread's, for whoever looks at the process."""
        self._name = name
        self._clock = clock
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._began: float | None = None

    @property
    def busy_seconds(self) -> float | None:
        """How long the present piece of work has run; None where there is none."""
        return None if self._began is None else self._clock() - self._began

    def begin(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> bool:
        """Run `work` on the thread; `done` is called in the event loop with its result, or with what it raised.

        Returns False where a piece of work still runs: then this one is not done at all.
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
            except Exception as error:  # noqa: BLE001 - whoever asked for the work judges it
                result = error
            with suppress(RuntimeError):  # the event loop has ended meanwhile: nobody asks any more
                loop.call_soon_threadsafe(end, result)

        self._jobs.put(job)
        return True

    def close(self, last: Callable[[], None]) -> None:
        """End the thread once its work is done, with `last` on it; wait for neither. Without a thread nothing is done.

        `last` may run after the event loop has ended, or never, where a call hangs.
        """
        if self._thread is not None:
            self._jobs.put(last)
            self._jobs.put(None)
            self._thread = None
            self._jobs = SimpleQueue()


def _run(jobs: "SimpleQueue[Callable[[], None] | None]") -> None:
    while (job := jobs.get()) is not None:
        job()
