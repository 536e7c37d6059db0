"""Work in slices: a generator that yields where other tasks may run, and returns its result."""

from collections.abc import Generator, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

Work = Generator[None, None, T]

# Of what takes some 5 us each, such as a sample that is read again.
ITEMS_A_SLICE = 1_000


def listed(items: Iterable[T]) -> Work[list[T]]:
    """All of them, with a pause after every ITEMS_A_SLICE."""
    rest = iter(items)
    items_so_far: list[T] = []
    while len(items_so_far) % ITEMS_A_SLICE == 0 and (some := list(islice(rest, ITEMS_A_SLICE))):
        items_so_far += some
        yield
    return items_so_far


def at_once(work: Work[T]) -> T:
    """The result, without a pause between the slices."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
