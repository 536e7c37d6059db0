"""The joined page of the moment: made anew when a page or the owners changed, else the one of last time."""

import asyncio
import time
from collections.abc import Callable, Mapping

from exporter.attribution.current import CurrentOwners, same
from exporter.attribution.rows import Attribution
from exporter.exposition.join import Joiner
from exporter.exposition.legacy import with_gpu_health
from exporter.model.pages import JoinedPage, Page, Subject
from exporter.node.joins import Joins
from exporter.sources.slices import in_slices

AttributionFor = Callable[[Mapping[Subject, int]], Attribution]
_NO_SUBJECTS: Mapping[Subject, int] = {}


class JoinedPages:
    """What scrapes share: a page that was joined, and what is known of the lines of the pages that come."""

    def __init__(
        self,
        *,
        make_joiner: Callable[[], Joiner],
        owners: CurrentOwners,
        count_rejected: Callable[[Mapping[str, int]], None],
        adds_gpu_health: bool,
        is_kept: bool,
    ) -> None:
        """`make_joiner` makes one that knows no page yet. `is_kept` says that the pages read next may be the same."""
        # held while a page is joined: a large one is joined in slices, and a joiner does one page at a time
        self.turn = asyncio.Lock()
        self._joins = Joins(make_joiner)
        self._owners = owners
        self._count_rejected = count_rejected
        self._adds_gpu_health = adds_gpu_health
        self._is_kept = is_kept

    @property
    def devices(self) -> int:
        """How many devices of the pages are told apart."""
        return self._joins.devices

    @property
    def series(self) -> int:
        """How many series are remembered."""
        return self._joins.series

    async def join(
        self, pages: tuple[Page, ...], names: tuple[str, ...], every_name: tuple[str, ...], attribute: AttributionFor
    ) -> JoinedPage | None:
        """Scrapes that shared a read share the join: its rejected lines count once, divided counters advance once.

        `names` are the sources of `pages`, and `every_name` all that there are. `attribute` brings the owners up to
        date for the subjects of the pages. It is for whoever holds `turn`.
        """
        join = self._joins.of(names, every_name, time.monotonic())
        self._owners.keep(self._joins.kept)
        if not pages:
            attribute(_NO_SUBJECTS)
            return None
        same_pages = same(join.made_from[1:], pages)
        if join.joined and same_pages and attribute(join.joined.subjects) is join.made_from[0]:
            return join.joined
        bodies = [await in_slices(with_gpu_health(page.body)) if self._adds_gpu_health else page.body for page in pages]
        join.joined = await in_slices(join.joiner.work_for(bodies, attribute))
        join.made_from = (self._owners.attribution, *pages)
        if not same_pages:
            self._count_rejected(join.joined.rejected)
        return join.joined

    def nobody_looks(self) -> None:
        """Let go of what scrapes at one time share, unless it may be of use to the next: of a large node it is 4 MB."""
        if not self._is_kept:
            self._joins.let_go_of_pages()
