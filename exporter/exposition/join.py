"""The join: pages of GPU samples in, the same pages with owners' labels out. The hot path of the program.

    page ──► block by block (blocks.py): the block of last time?
               │ yes                                                  │ no
               ▼                                                      ▼
             labels added to each sample, and that is all?          read every line (shape_reader.py), then as here
               │ yes                       │ no
               ▼                           ▼
             the same lines,             take the values out, put them where they belong
             other heads                 (layout.py)
             (plain.py, cuts.py)

Pure, except that it remembers the shape of one page: nothing here waits, logs or reads a clock.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from exporter.exposition.owned import Attribute, OwnedPage, own
from exporter.exposition.page_reader import PageReader
from exporter.exposition.series import IsOwnerLabel, ReadSubject, SeriesReader
from exporter.exposition.shape_reader import Wanted
from exporter.model.pages import JoinedPage, Subject
from exporter.model.slices import Work, at_once

_RETURNS = re.compile(rb"\r+\n")

AttributeFor = Callable[[Mapping[Subject, int]], Attribute]


class Joiner:
    """Joins page after page of one set of upstreams. It is fast because their pages keep their shape."""

    def __init__(self, *, read_subject: ReadSubject, is_owner_label: IsOwnerLabel, wanted: Wanted) -> None:
        """See `SeriesReader` for the first two, `PageReader` for the last."""
        self._reader = PageReader(SeriesReader(read_subject, is_owner_label), wanted)
        self._page: OwnedPage | None = None

    @property
    def series(self) -> int:
        """How many series are remembered: those of the last page."""
        return 0 if self._page is None else self._page.shape.series_count

    @property
    def devices(self) -> int:
        """How many devices of the last page are told apart."""
        subjects = self._page.shape.subjects if self._page is not None else ()
        return sum(1 for subject in subjects if subject.gpu)

    def join(self, bodies: Sequence[bytes], attribute: Attribute) -> JoinedPage:
        """All pages as one, in upstream order, with the rows that `attribute` gives. Does not pause."""
        return self.join_for(bodies, lambda _: attribute)

    def join_for(self, bodies: Sequence[bytes], attribute_for: AttributeFor) -> JoinedPage:
        """All pages as one, where `attribute_for` makes the attribution from their subjects. Does not pause."""
        return at_once(self.work_for(bodies, attribute_for))

    def work_for(self, bodies: Sequence[bytes], attribute_for: AttributeFor) -> Work[JoinedPage]:
        """The same in slices of a few ms. Other tasks may run between two slices, but no other join of this object.

        `attribute_for` is given the number of samples of each subject, which is the same object as long as the pages
        keep their shape. The rows of its answer are reused as long as it gives the same object.
        """
        bodies = [_mended(body) for body in bodies]
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        page = self._page
        if page is not None:
            attribute = attribute_for(page.shape.subjects)
            if attribute is not page.attribute:
                page = self._page = yield from own(page.shape, attribute, self._reader)
            joined = yield from page.fill(body)
            if joined is not None:
                return joined
        # The reader takes the old page's blocks, and drops each one that is not in the new page.
        last = page.shape if page is not None else None
        page = self._page = None
        shape, places = yield from self._reader.read(body, last, _page_starts(bodies))
        attribute = attribute_for(shape.subjects)
        yield
        page = self._page = yield from own(shape, attribute, self._reader)
        joined = yield from page.fill(body, places)
        if joined is None:
            raise AssertionError("a page is not of the shape that was read of it")
        return joined


def _mended(body: bytes) -> bytes:
    """A page whose lines all end with a newline, and none with a carriage return."""
    if body and not body.endswith(b"\n"):
        body += b"\n"
    return _RETURNS.sub(b"\n", body) if b"\r" in body else body


def _page_starts(bodies: Sequence[bytes]) -> Sequence[int]:
    """Where the second of the bodies, the third and so on begin in all of them as one."""
    return tuple(accumulate(map(len, bodies[:-1])))
