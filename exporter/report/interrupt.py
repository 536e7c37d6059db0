"""Ctrl-C for a command that only reads: nothing that it began has to be ended, so the process ends then and there.

Python's own way is an exception in the middle of whatever runs. Where that is a callback whose errors nobody sees, such
as the import system's, the exception is lost and the command goes on. In an event loop a second one, from an impatient
finger or from `timeout -s INT`, may take the place of a task's waking: the loop then waits for that task for good.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def ends_at_once(before: Callable[[], None]) -> Iterator[None]:
    """Within it, Ctrl-C calls `before` and ends the process with 130, as shells call it. `before` may be interrupted.

    A signal that is ignored, as a shell does for what it starts in the background, stays ignored.
    """

    def end(number: int, _: FrameType | None) -> None:
        # it may have come in the middle of a write of the same stream
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
