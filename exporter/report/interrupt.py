"""Ctrl-C for a command that only reads. It has nothing to finish, so the process ends at once.

Python's own way is an exception in the middle of the running code. If that is a callback whose errors nobody sees, such
as one of the import system, the exception is lost and the command goes on. In an event loop, a second Ctrl-C (from an
impatient finger, or from `timeout -s INT`) may replace the waking of a task, for which the loop then waits for ever.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def ends_at_once(before: Callable[[], None]) -> Iterator[None]:
    """In this context, Ctrl-C calls `before` and ends the process with 130, as usual. `before` may be interrupted.

    If the signal is ignored, as in a process that a shell starts in the background, it stays ignored.
    """

    def end(number: int, _: FrameType | None) -> None:
        # the signal may come in the middle of a write to the same stream
        with suppress(RuntimeError, ValueError, OSError):
            before()
        os._exit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
