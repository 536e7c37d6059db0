"""Threads for what may hang: disks, /proc, DNS. None of them keeps the process from ending.

asyncio's own executor is waited for when the event loop closes, and again when the interpreter ends, however long that
takes. A DaemonSet's pod would then end by SIGKILL, after its whole grace period.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

MOST_THREADS = 16

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(ThreadPoolExecutor):
    """Daemon threads, MOST_THREADS at most; a call that finds none waits. It is never shut down."""

    def __init__(self) -> None:
        super().__init__(max_workers=MOST_THREADS)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._free = threading.Semaphore(0)
        self._started = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `Executor`. For one thread, the event loop's."""
        future: Future[T] = Future()
        self._calls.put(lambda: _settle(future, partial(fn, *args, **kwargs)))
        if not self._free.acquire(blocking=False) and self._started < MOST_THREADS:
            self._started += 1
            threading.Thread(target=self._work, name=f"call-{self._started}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for nothing."""

    def _work(self) -> None:
        while True:
            self._calls.get()()
            self._free.release()


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of a call that may hang. Raises TimeoutError where it has not come back in this time."""
    future: Future[T] = Future()
    threading.Thread(target=_settle, args=(future, call), daemon=True).start()
    return future.result(seconds)


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - whoever asked for the call judges it
            future.set_exception(error)


def use_daemon_threads() -> None:
    """Have `asyncio.to_thread`, and all else of the running event loop that takes a thread, use them."""
    asyncio.get_running_loop().set_default_executor(DaemonThreads())
