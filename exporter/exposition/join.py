"""The join: pages of GPU samples in, the same pages with owners' labels out. The hot path of the program.

    page ──► block by block (page_reader.py): the block of last time?
               │ yes                                                  │ no
               ▼                                                      ▼
             labels added to each sample, and that is all?          read every line (shape_reader.py), then as here
               │ yes                       │ no
               ▼                           ▼
             the same lines,             take the values out, put them where they belong
             other heads                 (labelled_block.py)
             (plain_block.py, cuts.py)

Pure, except that it remembers the shape of one page: nothing here waits, logs or reads a clock.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, islice, pairwise
from typing import Protocol

from exporter.exposition.labelled_block import LaidOut, Layout, Parts, lay_out_for
from exporter.exposition.lines import Reason
from exporter.exposition.page_reader import Block, PageReader, PageShape, Places
from exporter.exposition.plain_block import Closings, Owned, PlainBlock
from exporter.exposition.renaming import AS_IT_CAME, Renaming
from exporter.exposition.series import IsOwnerLabel, ReadSubject, SeriesReader, unread
from exporter.exposition.shape_reader import Wanted
from exporter.model.nothing import NOTHING
from exporter.model.pages import Cell, JoinedPage, Reading, Rows, Subject, SubjectsOfFamilies
from exporter.model.slices import Work, at_once

_SUBJECTS_A_SLICE = 1000
_SAMPLES_A_SLICE = 2_000
# Above this number of samples, laid-out texts are not kept but written anew for each page, which takes 2 us more for
# each sample. 16 GPUs with 7 instances each and 100 families have fewer samples.
MOST_KEPT_SERIES = 15_000


class Attribute(Protocol):
    """A function that gives the rows of every sample of an upstream's page, by family name and subject."""

    @property
    def looks_at_families(self) -> bool:
        """Whether rows depend on the family's name even if no sample came with an owner."""

    def __call__(self, samples: SubjectsOfFamilies, /) -> Sequence[Rows]:
        """One `Rows` for each sample, in the order given, with at least one row.

        Equal answers should be the same object.
        """

    def read_first(self, subjects: Iterable[Subject], /) -> frozenset[bytes]:
        """The families of a page with these subjects that `share` needs to see before values are divided."""

    def share(self, readings: Iterable[Reading], /) -> Work[Parts]:
        """By series, the value that replaces a sample's value before it is divided.

        Most series keep the value that came.
        """


class OwnedPage:
    """The pages of one shape, for one state of owners."""

    def __init__(self, shape: PageShape, attribute: Attribute, blocks: Sequence[Owned | Layout]) -> None:
        self.shape: PageShape = shape
        self.attribute: Attribute = attribute
        self.blocks: Sequence[Owned | Layout] = blocks
        self._read_first = attribute.read_first(shape.subjects)
        layouts = [block for block in blocks if isinstance(block, Layout)]
        samples = (block.sample_count if isinstance(block, Layout) else len(block.series) for block in blocks)
        self._sample_count = sum(samples)
        rejected: Counter[Reason] = Counter()
        for layout in layouts:
            rejected.update(layout.shape.rejected)
        duplicates = sum(layout.duplicates for layout in layouts)
        if duplicates:
            rejected[Reason.DUPLICATE] = duplicates
        self._unread = unread(shape.subjects)
        self._rejected: Mapping[str, int] = {str(reason): count for reason, count in rejected.items()}

    def fill(self, body: bytes, known_places: Places | None = None) -> Work[JoinedPage | None]:
        """The page that goes out; None if the body has another shape.

        `known_places` are the places where its blocks begin and end, if the caller knows them.
        """
        owned = self.blocks[0]
        if len(self.blocks) == 1 and isinstance(owned, Owned):
            pieces_and_growth = owned.cuts.fill(body, owned.opened, owned.closings)
            if pieces_and_growth is None:
                return None
            pieces, longer = pieces_and_growth
            parts = yield from self._share(body, ())
            return self._joined(body, pieces, len(body) + owned.added_size + longer, (), parts)
        filled: list[bytes] = []
        # written last, since divided counters advance with it, and may only do so if all of the page has this shape
        waiting: list[tuple[int, Layout, list[bytes]]] = []
        places: list[tuple[int, int]] = []
        for start, end in known_places or self.shape.places(body):
            block = self.blocks[len(places)]
            text = body[start:end]
            if isinstance(block, Owned):
                pieces_and_growth = block.cuts.fill(text, block.opened, block.closings)
                if pieces_and_growth is None:
                    return None
                filled.append(b"".join(pieces_and_growth[0]))
            else:
                values = block.shape.cuts.values(text)
                if values is None:
                    return None
                waiting.append((len(places), block, values))
                filled.append(b"")
            places.append((start, end))
            yield
        if len(places) < len(self.blocks):
            return None
        parts = yield from self._share(body, places)
        for number, layout, values in waiting:
            filled[number] = layout.fill(values, parts)
            yield
        return self._joined(body, filled, sum(map(len, filled)), places, parts)

    def _share(self, body: bytes, places: Places) -> Work[Parts]:
        """The values that replace others before they are divided, for which rows of the page must know each other."""
        if not self._read_first:
            return NOTHING
        return (yield from self.attribute.share(self._readings(body, places, self._read_first)))

    def _joined(self, body: bytes, pieces: Sequence[bytes], size: int, places: Places, parts: Parts) -> JoinedPage:
        return JoinedPage(
            pieces=pieces,
            size=size,
            subjects=self.shape.subjects,
            sample_count=self._sample_count,
            rejected=self._rejected,
            unread=self._unread,
            cells=partial(self._cells, body, places, parts),
            readings=partial(self._readings_once, body, places),
        )

    def _cells(self, body: bytes, places: Places, parts: Parts, families: frozenset[bytes]) -> Iterator[Cell]:
        families = self._once(families)
        for block, (start, end) in zip(self.blocks, places or ((0, len(body)),), strict=True):
            text = body[start:end]
            yield from block.cells(text, families) if isinstance(block, Owned) else block.cells(text, families, parts)

    def _once(self, families: frozenset[bytes]) -> frozenset[bytes]:
        return families - self.shape.twin_names if self.shape.twin_names else families

    def _readings_once(self, body: bytes, places: Places, families: frozenset[bytes]) -> Iterable[Reading]:
        return self._readings(body, places, self._once(families))

    def _readings(self, body: bytes, places: Places, families: frozenset[bytes]) -> Iterable[Reading]:
        parts = zip(self.blocks, places or ((0, len(body)),), strict=True)
        return chain.from_iterable(block.readings(body[start:end], families) for block, (start, end) in parts)


def own(shape: PageShape, attribute: Attribute, reader: PageReader, closings: Closings) -> Work[OwnedPage]:
    """A page's blocks with the rows of each sample. Blocks keep rows from an earlier page that are still valid."""
    closings.turn()
    additions = _Additions(closings)
    yield from additions.work_out(shape, attribute)
    # of two samples of the same series only the first goes out, and the second may be in another block
    for_this_page = (attribute, additions.follow_from_subjects and not shape.repeated)
    blocks: list[Owned | Layout] = []
    laid_out: LaidOut = set()
    for number, block in enumerate(shape.blocks):
        owned = block.owned if block.owned_for == for_this_page and for_this_page[1] else None
        if owned is None and isinstance(block, PlainBlock):
            owned = additions.to_plain(block)
        if owned is None:
            rows = additions.to(block)
            if isinstance(block, PlainBlock):
                block = shape.blocks[number] = reader.lay_out(block)  # noqa: PLW2901 - it takes its place
            owned = lay_out_for(closings.nobodys, block.shape, rows, shape.repeated, laid_out)
            if shape.series_count > MOST_KEPT_SERIES:
                owned = owned.lean()
        block.owned = owned
        block.owned_for = for_this_page
        blocks.append(owned)
        yield
    return OwnedPage(shape, attribute, blocks)


class _Additions:
    """The rows of a page's samples, block by block.

    A sample's rows mostly depend only on its subject, and a page has few subjects. Otherwise all samples of the page
    are attributed together.
    """

    def __init__(self, closings: Closings) -> None:
        self._closings = closings
        self._rows_of_block: dict[Block, Sequence[Rows]] = {}
        self._by_subject: dict[int, Rows] | None = None  # by the subjects' own ids
        self._closing_by_subject: Mapping[int, bytes] | None = None

    def work_out(self, shape: PageShape, attribute: Attribute) -> Work[None]:
        """Ask `attribute` for the rows of all samples, in slices if they depend only on subjects."""
        came_with_owners = any(subject.came_with for subject in shape.subjects)
        if attribute.looks_at_families or came_with_owners:
            samples = [(series.name, series.subject) for block in shape.blocks for series in block.series]
            # upstream by upstream, since rows of different owners belong together only within the page of one upstream
            rows: list[Rows] = []
            borders = {0, *shape.page_starts, len(samples)}
            if not came_with_owners:
                borders |= {*range(0, len(samples), _SAMPLES_A_SLICE)}
            for start, end in pairwise(sorted(borders)):
                yield
                rows += attribute(samples[start:end])
            yield
            following = iter(rows)
            self._rows_of_block = {block: tuple(islice(following, len(block.series))) for block in shape.blocks}
            return
        rows_of: dict[int, Rows] = {}
        subjects = iter(shape.subjects)
        while some := tuple(islice(subjects, _SUBJECTS_A_SLICE)):
            rows_of.update(zip(map(id, some), attribute([(b"", subject) for subject in some]), strict=True))
            yield
        self._by_subject = rows_of
        self._closing_by_subject = self._closings.by_subject(rows_of)

    @property
    def follow_from_subjects(self) -> bool:
        """Whether rows depend only on subjects. Then a block has the same rows in any page."""
        return self._by_subject is not None

    def to(self, block: Block) -> Sequence[Rows]:
        """The `Rows` of each sample of a block that may go out."""
        if self._by_subject is None:
            return self._rows_of_block[block]
        return [self._by_subject[id(series.subject)] for series in block.series]

    def to_plain(self, block: PlainBlock) -> Owned | None:
        """A plain block with its samples' rows; None if a sample gains more than one row of labels."""
        if self._by_subject is not None and self._closing_by_subject is not None:
            return block.own_by_subject(self._by_subject, self._closing_by_subject)
        rows = self.to(block)
        closings = self._closings.of(rows)
        return None if closings is None else block.own(rows, closings)


_RETURNS = re.compile(rb"\r+\n")

AttributeFor = Callable[[Mapping[Subject, int]], Attribute]


class Joiner:
    """Joins the pages of the same upstreams, one after the other. It is fast because these pages keep their shape."""

    def __init__(
        self,
        *,
        read_subject: ReadSubject,
        is_owner_label: IsOwnerLabel,
        wanted: Wanted,
        nobodys: Rows | None = None,
        renaming: Renaming = AS_IT_CAME,
    ) -> None:
        """The arguments are those of `SeriesReader` and, for `wanted`, `PageReader`.

        All readers of the joined page see the new names. With `nobodys`, its row goes out for every sample, whoever
        owns the device.
        """
        self._own = partial(own, closings=Closings(nobodys))
        self._reader = PageReader(SeriesReader(read_subject, is_owner_label, renaming), wanted)
        self._page: OwnedPage | None = None

    @property
    def series(self) -> int:
        """The number of remembered series, which are the last page's."""
        return 0 if self._page is None else self._page.shape.series_count

    @property
    def devices(self) -> int:
        """The number of devices of the last page that the reader distinguishes."""
        subjects = self._page.shape.subjects if self._page is not None else ()
        return sum(1 for subject in subjects if subject.gpu)

    def join(self, bodies: Sequence[bytes], attribute: Attribute) -> JoinedPage:
        """All pages as one, in upstream order, with the rows that `attribute` gives. Does not pause."""
        return self.join_for(bodies, lambda _: attribute)

    def join_for(self, bodies: Sequence[bytes], attribute_for: AttributeFor) -> JoinedPage:
        """All pages as one; `attribute_for` makes the attribution from their subjects. Does not pause."""
        return at_once(self.work_for(bodies, attribute_for))

    def work_for(self, bodies: Sequence[bytes], attribute_for: AttributeFor) -> Work[JoinedPage]:
        """The same as `join_for`, in slices of a few ms.

        Other tasks may run between slices, but no other join of this object. `attribute_for` is given the number of
        samples of each subject, which is the same object as long as the pages keep their shape. The rows of its answer
        are reused as long as it gives the same object.
        """
        bodies = [_mended(body) for body in bodies]
        body = bodies[0] if len(bodies) == 1 else b"".join(bodies)
        page = self._page
        if page is not None:
            attribute = attribute_for(page.shape.subjects)
            if attribute is not page.attribute:
                page = self._page = yield from self._own(page.shape, attribute, self._reader)
            joined = yield from page.fill(body)
            if joined is not None:
                return joined
        # The reader takes the old page's blocks, and drops every block that is not in the new page.
        last = page.shape if page is not None else None
        page = self._page = None
        shape, places = yield from self._reader.read(body, last, _page_starts(bodies))
        attribute = attribute_for(shape.subjects)
        yield
        page = self._page = yield from self._own(shape, attribute, self._reader)
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
    """The offsets at which the second body, the third and so on begin when all are put together."""
    return tuple(accumulate(map(len, bodies[:-1])))
