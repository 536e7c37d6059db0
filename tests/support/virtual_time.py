"""An event loop in which time passes only while nobody has anything to do: a lease of 15 s is over at once."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skipping(selectors.DefaultSelector):
    """Waits for nothing: what would have been waited is added to the time."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for somebody else"
        self.seconds += max(timeout, 0.0)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.seconds


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """What comes of it, without waiting. Of sockets, threads and processes it must not wait."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(coroutine)
