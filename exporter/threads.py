"""Threads for calls that may hang: disks, /proc, DNS.

They do not keep the process from ending. With asyncio's own executor, the event loop waits for the threads when it
closes, and the interpreter once more when it ends, without a limit. A DaemonSet's pod would then be killed after its
whole grace period.
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
    """An executor of at most MOST_THREADS daemon threads; further calls wait. It is never shut down."""

    def __init__(self) -> None:
        super().__init__(max_workers=MOST_THREADS)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._free = threading.Semaphore(0)
        self._started = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `Executor`. Only the event loop's thread may call it."""
        future: Future[T] = Future()
        self._calls.put(lambda: _settle(future, partial(fn, *args, **kwargs)))
        if not self._free.acquire(blocking=False) and self._started < MOST_THREADS:
            self._started += 1
            threading.Thread(target=self._work, name=f"call-{self._started}", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing, and wait for no thread."""

    def _work(self) -> None:
        while True:
            self._calls.get()()
            self._free.release()


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of a call that may hang. Raises TimeoutError: it has not returned within this time."""
    future: Future[T] = Future()
    threading.Thread(target=_settle, args=(future, call), daemon=True).start()
    return future.result(seconds)


def _settle(future: Future[T], call: Callable[[], T]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller judges it
            future.set_exception(error)


def use_daemon_threads() -> None:
    """Let `asyncio.to_thread`, and all other calls of the running event loop that need a thread, use these threads."""
    asyncio.get_running_loop().set_default_executor(DaemonThreads())
