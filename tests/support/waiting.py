"""Waiting for what another task, thread or program brings about: the one way in which tests do that.

A test asks until it is so, and gives up late: that costs nothing on a quick machine, and one that is busy with the rest
of the tests may take seconds for what usually takes milliseconds. A pause before a single look is for what must *not*
happen, or for time that has to pass.

A condition in a loop binds the loop's names as defaults (`lambda name=name: …`). For such a lambda mypy infers no
types: that is the reason of each `type: ignore[misc]` beside one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from inspect import isawaitable
from typing import TypeVar, overload

T = TypeVar("T")
PATIENCE_SECONDS = 60.0  # a third of what a test may take (pyproject.toml)
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.005, 0.1
_LONGEST_AFTER_A_SLOW_LOOK_SECONDS = 1.0
_TRIES = 5


def _nothing_to_say() -> object:
    return "it did not come about"


@overload
async def until(condition: Callable[[], Awaitable[T]], seconds: float = ..., why: Callable[[], object] = ...) -> T: ...
@overload
async def until(condition: Callable[[], T], seconds: float = ..., why: Callable[[], object] = ...) -> T: ...
async def until(
    condition: Callable[[], object], seconds: float = PATIENCE_SECONDS, why: Callable[[], object] = _nothing_to_say
) -> object:
    """What `condition` gives, or gives to await, once that is true; `why` says what is wrong where it never is.

    Raises:
        AssertionError: it is not so within `seconds`.
    """
    for pause in _pauses(seconds, why):
        began = time.monotonic()
        found = condition()
        if isawaitable(found):
            found = await found
        if found:
            break
        await asyncio.sleep(_after_a_look(pause, time.monotonic() - began))
    return found


def wait_until(
    condition: Callable[[], T], seconds: float = PATIENCE_SECONDS, why: Callable[[], object] = _nothing_to_say
) -> T:
    """The same without an event loop, for what programs and threads bring about."""
    for pause in _pauses(seconds, why):
        began = time.monotonic()
        if found := condition():
            break
        time.sleep(_after_a_look(pause, time.monotonic() - began))
    return found


def _pauses(seconds: float, why: Callable[[], object]) -> Iterator[float]:
    """Seconds between two looks, which grow: who is late is not made later by being asked all the time."""
    ends, pause = time.monotonic() + seconds, _SHORTEST_SECONDS
    while True:
        yield pause
        if time.monotonic() > ends:
            raise AssertionError(f"not within {seconds:g} s: {why()}")
        pause = min(pause * 1.2, _LONGEST_SECONDS)


def _after_a_look(pause: float, took: float) -> float:
    """The pause after a look that took so many seconds: a look that costs much is not taken all the time."""
    return max(pause, min(2 * took, _LONGEST_AFTER_A_SLOW_LOOK_SECONDS))


async def is_quick(ask: Callable[[], Awaitable[object]], seconds: float) -> bool:
    """Whether a call takes less than so many seconds: one of a few. What waits for something is late each time."""
    for _ in range(_TRIES):
        began = time.monotonic()
        await ask()
        if time.monotonic() - began < seconds:
            return True
    return False
