"""A page with the owners of the moment: its blocks with the labels that each sample gains, ready to be filled."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, pairwise
from types import MappingProxyType
from typing import Protocol

from exporter.exposition.blocks import Block, PageShape, Places
from exporter.exposition.layout import Layout, Parts, Seen, lay_out
from exporter.exposition.lines import Reason
from exporter.exposition.page_reader import PageReader
from exporter.exposition.plain import Closings, Owned, PlainBlock
from exporter.exposition.series import unread
from exporter.model.pages import Cell, JoinedPage, Reading, Rows, Subject
from exporter.model.slices import Work

_SUBJECTS_A_SLICE = 1000
_SAMPLES_A_SLICE = 10_000
# Above it, what is laid out is written anew for each page, which takes 2 us a sample more. 16 GPUs, each in 7
# instances, with 100 families are below.
MOST_KEPT_SERIES = 15_000
_NO_PARTS: Parts = MappingProxyType({})


class Attribute(Protocol):
    """Says for every sample of an upstream's page, by family name and subject, which rows go out."""

    @property
    def looks_at_families(self) -> bool:
        """Whether a family's name makes a difference even where no sample came with an owner."""

    def __call__(self, samples: Sequence[tuple[bytes, Subject]], /) -> Sequence[Rows]:
        """One answer a sample, in the order given, never without a row. Equal answers are best the same object."""

    def read_first(self, subjects: Iterable[Subject], /) -> frozenset[bytes]:
        """The families of a page with these subjects that `share` needs to see before values are divided."""

    def share(self, readings: Iterable[Reading], /) -> Work[Parts]:
        """What stands for a sample's value before it is divided, by series; for most it is the value that came."""


class OwnedPage:
    """The pages of one shape, for one state of owners."""

    def __init__(self, shape: PageShape, attribute: Attribute, blocks: Sequence[Owned | Layout]) -> None:
        """`blocks` are the shape's, in order."""
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
        duplicates = sum(len(layout.left_out) for layout in layouts)
        if duplicates:
            rejected[Reason.DUPLICATE] = duplicates
        self._unread = unread(shape.subjects)
        self._rejected: Mapping[str, int] = {str(reason): count for reason, count in rejected.items()}

    def fill(self, body: bytes, known_places: Places | None = None) -> Work[JoinedPage | None]:
        """The page that goes out; None where the body is of another shape.

        `known_places` are where its blocks begin and end, where that need not be looked for.
        """
        owned = self.blocks[0]
        if len(self.blocks) == 1 and isinstance(owned, Owned):
            pieces = owned.cuts.fill(body, owned.opened, owned.closings)
            if pieces is None:
                return None
            parts = yield from self._share(body, ())
            return self._joined(body, pieces, len(body) + owned.added_size, (), parts)
        filled: list[bytes] = []
        # written last, since divided counters advance with it: only if all of the page is as it should be
        waiting: list[tuple[int, Layout, list[bytes]]] = []
        places: list[tuple[int, int]] = []
        for start, end in known_places or self.shape.places(body):
            block, text = self.blocks[len(places)], body[start:end]
            if isinstance(block, Owned):
                pieces = block.cuts.fill(text, block.opened, block.closings)
                if pieces is None:
                    return None
                filled.append(b"".join(pieces))
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
        """What rows of this page need to know of each other."""
        if not self._read_first:
            return _NO_PARTS
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
            readings=partial(self._readings, body, places),
        )

    def _cells(self, body: bytes, places: Places, parts: Parts, families: frozenset[bytes]) -> Iterator[Cell]:
        for block, (start, end) in zip(self.blocks, places or ((0, len(body)),), strict=True):
            text = body[start:end]
            yield from block.cells(text, families) if isinstance(block, Owned) else block.cells(text, families, parts)

    def _readings(self, body: bytes, places: Places, families: frozenset[bytes]) -> Iterable[Reading]:
        parts = zip(self.blocks, places or ((0, len(body)),), strict=True)
        return chain.from_iterable(block.readings(body[start:end], families) for block, (start, end) in parts)


def own(shape: PageShape, attribute: Attribute, reader: PageReader) -> Work[OwnedPage]:
    """A page's blocks with what each sample gains. What a block has from another page is kept where it still holds."""
    additions = _Additions()
    yield from additions.work_out(shape, attribute)
    # of two samples of one series the first goes out, and they may be in two blocks
    for_this_page = (attribute, additions.follow_from_subjects and not shape.repeated)
    blocks: list[Owned | Layout] = []
    seen: Seen = set()
    for number, block in enumerate(shape.blocks):
        owned = block.owned if block.owned_for == for_this_page and for_this_page[1] else None
        if owned is None and isinstance(block, PlainBlock):
            owned = additions.to_plain(block)
        if owned is None:
            rows = additions.to(block)
            if isinstance(block, PlainBlock):
                block = shape.blocks[number] = reader.lay_out(block)  # noqa: PLW2901 - it takes its place
            owned = lay_out(block.shape, rows, shape.repeated, seen)
            if shape.series_count > MOST_KEPT_SERIES:
                owned = owned.lean()
        block.owned, block.owned_for = owned, for_this_page
        blocks.append(owned)
        yield
    return OwnedPage(shape, attribute, blocks)


class _Additions:
    """The rows of a page's samples, block by block.

    A sample's rows mostly depend on its subject alone, and a page has few subjects. Otherwise all samples of the page
    are attributed together.
    """

    def __init__(self) -> None:
        self._closings = Closings()
        self._rows_of_block: dict[Block, Sequence[Rows]] = {}
        self._by_subject: dict[int, Rows] | None = None  # by the subjects' own ids
        self._closing_by_subject: Mapping[int, bytes] | None = None

    def work_out(self, shape: PageShape, attribute: Attribute) -> Work[None]:
        """Ask `attribute` for the rows of all samples, in slices where they depend on subjects alone."""
        came_with_owners = any(subject.came_with for subject in shape.subjects)
        if attribute.looks_at_families or came_with_owners:
            samples = [(series.name, series.subject) for block in shape.blocks for series in block.series]
            # upstream by upstream: rows of different owners belong together only within a page
            rows: list[Rows] = []
            borders = {0, *shape.page_starts, len(samples)}
            if not came_with_owners:
                borders |= {*range(0, len(samples), _SAMPLES_A_SLICE)}
            for start, end in pairwise(sorted(borders)):
                yield
                rows += attribute(samples[start:end])
            yield
            each = iter(rows)
            self._rows_of_block = {block: tuple(islice(each, len(block.series))) for block in shape.blocks}
            return
        found: dict[int, Rows] = {}
        subjects = iter(shape.subjects)
        while some := tuple(islice(subjects, _SUBJECTS_A_SLICE)):
            found.update(zip(map(id, some), attribute([(b"", subject) for subject in some]), strict=True))
            yield
        self._by_subject = found
        self._closing_by_subject = self._closings.by_subject(found)

    @property
    def follow_from_subjects(self) -> bool:
        """Whether rows depend on subjects alone: then a block has the same rows in whatever page it is."""
        return self._by_subject is not None

    def to(self, block: Block) -> Sequence[Rows]:
        """One for each sample of a block that may go out."""
        if self._by_subject is None:
            return self._rows_of_block[block]
        return [self._by_subject[id(series.subject)] for series in block.series]

    def to_plain(self, block: PlainBlock) -> Owned | None:
        """A plain block with what its samples gain; None where that is more than a row of labels for each."""
        if self._by_subject is not None and self._closing_by_subject is not None:
            return block.own_by_subject(self._by_subject, self._closing_by_subject)
        rows = self.to(block)
        closings = self._closings.of(rows)
        return None if closings is None else block.own(rows, closings)
