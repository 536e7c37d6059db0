"""The join: GPU pages in, the same pages with their owners out. The hot path of the program.

    page ──► block by block (blocks.py): the block of last time?
               │ yes                                                  │ no
               ▼                                                      ▼
             labels added to each sample, and that is all?          read every line (shape.py), then as here
               │ yes                       │ no
               ▼                           ▼
             the same pieces,            take the values out, put them where they belong
             other braces                (layout.py)
             (plain.py, cuts.py)

Pure but for what it remembers, one page's shape and what goes with it: nothing here waits, logs or asks for the time.
"""

from collections.abc import Callable, Mapping, Sequence

from exporter.exposition.blocks import PageReader
from exporter.exposition.owned import Attribute, OwnedPage, own
from exporter.exposition.series import IsOwnerLabel, ReadSubject, SeriesReader
from exporter.exposition.shape import Wanted
from exporter.exposition.slices import Work, at_once
from exporter.model.pages import JoinedPage, Subject

AttributeFor = Callable[[Mapping[Subject, int]], Attribute]


class Joiner:
    """Joins page after page. One object a set of upstreams: it is fast because their pages keep their shape."""

    def __init__(self, *, read_subject: ReadSubject, is_owner_label: IsOwnerLabel, wanted: Wanted) -> None:
        """See `SeriesReader` for the first two, `PageReader` for the last."""
        self._reader = PageReader(SeriesReader(read_subject, is_owner_label), wanted)
        self._page: OwnedPage | None = None

    @property
    def series(self) -> int:
        """How many series are remembered: those of one page."""
        return 0 if self._page is None else self._page.shape.series_count

    def join(self, bodies: Sequence[bytes], attribute: Attribute) -> JoinedPage:
        """All pages as one, in upstream order, with these owners, however long it takes."""
        return self.join_for(bodies, lambda _: attribute)

    def join_for(self, bodies: Sequence[bytes], attribute_for: AttributeFor) -> JoinedPage:
        """All pages as one, in upstream order, with the owners of what they are about, however long it takes."""
        return at_once(self.work_for(bodies, attribute_for))

    def work_for(self, bodies: Sequence[bytes], attribute_for: AttributeFor) -> Work[JoinedPage]:
        """The same in slices.

        `attribute_for` is told what the samples are about, and how many of each: the same object as long as the pages
        keep their shape. What was worked out for its answer is reused as long as that is the same object, too.
        Between two slices (a few ms at most) others may go on, but no other join of this object.
        """
        body = _one_page(bodies)
        page = self._page
        if page is not None:
            attribute = attribute_for(page.shape.subjects)
            if attribute is not page.attribute:
                page = self._page = yield from own(page.shape, attribute, self._reader)
            joined = yield from page.fill(body)
            if joined is not None:
                return joined
        # The reader takes the old page's blocks, and lets go of each that is not in the new one.
        last = page.shape if page is not None else None
        page = self._page = None
        shape, places = yield from self._reader.read(body, last)
        page = self._page = yield from own(shape, attribute_for(shape.subjects), self._reader)
        joined = yield from page.fill(body, places)
        if joined is None:
            raise AssertionError("a page is not of the shape that was read of it")
        return joined


def _one_page(bodies: Sequence[bytes]) -> bytes:
    if len(bodies) == 1:
        return bodies[0]
    return b"".join(body if body.endswith(b"\n") or not body else body + b"\n" for body in bodies)
