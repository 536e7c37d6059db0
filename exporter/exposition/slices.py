"""Work in slices: a generator that yields where other tasks may run, and returns its result."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Work = Generator[None, None, T]


def at_once(work: Work[T]) -> T:
    """The result, without a pause between the slices."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
