"""Selections: the rows of a block that belong to some families, found once and kept for the pages that follow."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

# Every reader of rows (the JSON, accounting) always asks for the same set of families.
MOST_SELECTIONS = 4


class Selections(Generic[T]):
    """The selected rows of a block, by the set of families asked for. At most MOST_SELECTIONS sets are kept."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[frozenset[bytes], Sequence[T]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def of(self, families: frozenset[bytes], select: Callable[[frozenset[bytes]], Iterable[T]]) -> Sequence[T]:
        """The rows kept for these families. If there are none, `select` finds them, and they are kept."""
        selected = self._of.get(families)
        if selected is None:
            selected = tuple(select(families))
            if len(self._of) >= MOST_SELECTIONS:
                del self._of[next(iter(self._of))]
            self._of[families] = selected
        return selected
