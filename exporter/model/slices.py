"""Work in slices: a generator that computes, yields wherever other tasks may run, and returns the result.

Tests: tests/exposition/test_join.py.
"""

from collections.abc import Generator, Iterable
from typing import TypeVar

T = TypeVar("T")

Work = Generator[None, None, T]

# The number of items in a slice if an item takes some 5 us, as a sample does that is read again.
ITEMS_A_SLICE = 1_000


def listed(items: Iterable[T]) -> Work[list[T]]:
    """All items as a list, with a pause after every ITEMS_A_SLICE of them."""
    items_so_far: list[T] = []
    for item in items:
        items_so_far.append(item)
        if not len(items_so_far) % ITEMS_A_SLICE:
            yield
    return items_so_far


def at_once(work: Work[T]) -> T:
    """The result of the work, done without a pause between the slices."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
