"""Work that is done in slices: a generator that yields where others may go on, and returns what came of it."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Work = Generator[None, None, T]


def at_once(work: Work[T]) -> T:
    """What comes of it, for callers that have nothing else to do meanwhile."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found
