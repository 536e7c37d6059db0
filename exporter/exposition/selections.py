"""The rows of a block that are of some families: looked for once, and kept for the pages that follow."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

# Each reader of rows (the JSON, accounting) asks for one set of families, and always for the same.
MOST_SELECTIONS = 4


class Selections(Generic[T]):
    """What was selected of a block, by the set of families asked for, MOST_SELECTIONS at most. Equal sets are one."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[frozenset[bytes], Sequence[T]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def of(self, families: frozenset[bytes], select: Callable[[frozenset[bytes]], Iterable[T]]) -> Sequence[T]:
        """What is kept for these families; otherwise `select` is asked, and its answer is kept."""
        selected = self._of.get(families)
        if selected is None:
            selected = tuple(select(families))
            if len(self._of) >= MOST_SELECTIONS:
                del self._of[next(iter(self._of))]
            self._of[families] = selected
        return selected
