"""The joins that scrapes share: one for each set of sources that a page came from.

Most scrapes have the pages of all sources. One that would not wait, and one while a source is down, has some. Each kind
goes on with a join of its own, so that nobody's haste costs the others what was worked out for theirs.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from exporter.exposition.join import Joiner
from exporter.model.pages import JoinedPage

# Longer than the usual pause between two scrapes. What is known of a page's lines is worth some memory, not for ever.
KEPT_SECONDS = 120.0

Names = tuple[str, ...]


@dataclass(slots=True)
class Join:
    """A joiner, and the page that it made last with the attribution and the pages that it was made from."""

    joiner: Joiner
    joined: JoinedPage | None = None
    made_from: tuple[object, ...] = ()
    used_at_seconds: float = field(default=0.0)


class Joins:
    """At most three: with the pages of all sources, with those of some, and with none."""

    def __init__(self, make: Callable[[], Joiner]) -> None:
        """`make` makes a joiner that knows no page yet."""
        self._make = make
        self._joins: dict[Names, Join] = {}
        self._all: Names = ()

    @property
    def series(self) -> int:
        """How many series are remembered."""
        return sum(join.joiner.series for join in self._joins.values())

    @property
    def devices(self) -> int:
        """How many devices are told apart in a page."""
        return max((join.joiner.devices for join in self._joins.values()), default=0)

    @property
    def kept(self) -> Collection[Names]:
        """The sets of sources that have one."""
        return self._joins.keys()

    def of(self, names: Names, every_name: Names, now_seconds: float) -> Join:
        """The one for pages of these sources, out of all that there are; seconds of a clock that never steps."""
        if names == every_name != self._all:
            # another set of sources, as a discovered pod is replaced by another: most lines will be known
            if names not in self._joins and self._all in self._joins:
                self._joins[names] = self._joins.pop(self._all)
            self._all = names
        found = self._joins.get(names)
        if found is None:
            found = self._joins[names] = Join(self._make())
        found.used_at_seconds = now_seconds
        for other, join in tuple(self._joins.items()):
            is_stale = now_seconds - join.used_at_seconds > KEPT_SECONDS
            are_parts = bool(names and other) and every_name not in (names, other)
            if other != names and (is_stale or are_parts):
                del self._joins[other]
        return found

    def let_go_of_pages(self) -> None:
        """Of the joined pages; what is known of their lines stays."""
        for join in self._joins.values():
            join.joined, join.made_from = None, ()
