"""The present joined page. It is made again only if its inputs have changed.

Most scrapes have the pages of all sources. A scrape that does not wait, or that comes while a source is down, has only
some. Each of these cases has a join of its own, so that an impatient scrape does not empty the caches of the others.

Tests: tests/node/test_impatience.py.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from exporter.exposition.join import Joiner
from exporter.exposition.legacy import with_gpu_health
from exporter.model.memo import Memo, same
from exporter.model.pages import JoinedPage, Page, Subject
from exporter.ownership.current import CurrentOwners
from exporter.ownership.sample_rows import Attribution
from exporter.sources.long_work import in_slices

# longer than the usual pause between two scrapes; then a join is dropped, as it remembers a page's lines
KEPT_SECONDS = 120.0

Names = tuple[str, ...]


@dataclass(slots=True)
class Join:
    """A joiner, and its last page with the attribution and the pages from which it was made."""

    joiner: Joiner
    joined: Memo[JoinedPage | None] = field(default_factory=lambda: Memo(None))
    used_at_seconds: float = 0.0


class Joins:
    """The joins, at most three: with the pages of all sources, of some, and of none."""

    def __init__(self, make: Callable[[], Joiner]) -> None:
        self._make = make
        self._joins: dict[Names, Join] = {}
        self._all: Names = ()

    @property
    def series(self) -> int:
        """The number of series that the joiners remember."""
        return sum(join.joiner.series for join in self._joins.values())

    @property
    def devices(self) -> int:
        """The number of devices that the joiners distinguish."""
        return max((join.joiner.devices for join in self._joins.values()), default=0)

    @property
    def kept(self) -> Collection[Names]:
        """The sets of sources with a join."""
        return self._joins.keys()

    def of(self, names: Names, every_name: Names, now_seconds: float) -> Join:
        """The join for pages of the sources `names`, out of all; `now_seconds` is of a clock that never steps."""
        if names == every_name != self._all:
            # reuse a join for another set of sources, such as a new pod of dcgm-exporter: most lines will be the same
            if names not in self._joins and self._all in self._joins:
                self._joins[names] = self._joins.pop(self._all)
            self._all = names
        kept = self._joins.get(names)
        if kept is None:
            kept = self._joins[names] = Join(self._make())
        kept.used_at_seconds = now_seconds
        for other, join in tuple(self._joins.items()):
            is_stale = now_seconds - join.used_at_seconds > KEPT_SECONDS
            are_parts = bool(names and other) and every_name not in (names, other)
            if other != names and (is_stale or are_parts):
                del self._joins[other]
        return kept

    def let_go_of_pages(self) -> None:
        """Drop the joined pages; their lines stay known."""
        for join in self._joins.values():
            join.joined.value = None
            join.joined.inputs = ()


AttributionFor = Callable[[Mapping[Subject, int]], Attribution]
_NO_SUBJECTS: Mapping[Subject, int] = {}


@dataclass(kw_only=True, eq=False)
class JoinedPages:
    """The things that scrapes share: the joined page, and the memory of its lines.

    `is_kept`: the pages that are read next may be the same. `turn` is held while a page is joined: a large one is
    joined in slices, and a joiner does one page at a time.
    """

    make_joiner: Callable[[], Joiner]
    owners: CurrentOwners
    count_rejected: Callable[[Mapping[str, int]], None]
    adds_gpu_health: bool
    is_kept: bool
    turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        self.joins = Joins(self.make_joiner)

    async def join(
        self, pages: tuple[Page, ...], names: tuple[str, ...], every_name: tuple[str, ...], attribute: AttributionFor
    ) -> JoinedPage | None:
        """The joined page.

        Scrapes that shared a read share the join: rejected lines count once, divided counters advance once. `names` are
        the sources of `pages`, and `every_name` all of them. `attribute` brings the owners up to date for the subjects
        of the pages. Only the holder of `turn` may call this.
        """
        join = self.joins.of(names, every_name, time.monotonic())
        self.owners.keep(self.joins.kept)
        if not pages:
            attribute(_NO_SUBJECTS)
            return None
        joined = join.joined.value
        has_same_pages = same(join.joined.inputs[1:], pages)
        if joined and has_same_pages and attribute(joined.subjects) is join.joined.inputs[0]:
            return joined
        bodies = [await in_slices(with_gpu_health(page.body)) if self.adds_gpu_health else page.body for page in pages]
        joined = await in_slices(join.joiner.work_for(bodies, attribute))
        join.joined.keep(joined, self.owners.attribution, *pages)
        if not has_same_pages:
            self.count_rejected(joined.rejected)
        return joined

    def nobody_looks(self) -> None:
        """Drop the page that scrapes share (4 MB on a large node), unless the next scrape may use it."""
        if not self.is_kept:
            self.joins.let_go_of_pages()
