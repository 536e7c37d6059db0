"""A page as blocks of lines, so that what is new in it is read and what is known is kept.

Blocks are worked on one after the other, and each is small: what is worked on stays in a core's cache, a page of any
size needs little memory beside itself, and between two blocks others may go on (every generator here yields there).

A block begins where a known line begins: in the next page it is looked for there. What stands between two blocks that
are known is read line by line, until the next known beginning. A block that is the same in a page that is not may still
mean something else there, by what other lines say of its families: `Shape.found` tells.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from exporter.exposition.cuts import MOST_VALUE_BYTES
from exporter.exposition.layout import LaidOutBlock
from exporter.exposition.lines import split_lines
from exporter.exposition.plain import PlainBlock, is_plain
from exporter.exposition.series import Interned, Series, SeriesReader
from exporter.exposition.shape import Family, ShapeReader, Wanted
from exporter.exposition.slices import Work
from exporter.model.pages import Subject

# Each of 100,000 samples costs 190 ns so, and 530 where the whole page is cut at once. A page of up to this size is one
# block, as a node of 8 GPUs has it.
BLOCK_BYTES = 64 * 1024
# Reading them for the first time takes 15 ms.
BLOCK_LINES = 512

Block = PlainBlock | LaidOutBlock
Places = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class PageShape:
    """A page's blocks, and what only all of them together can say.

    `subjects` counts the samples by what they are about; the same object as long as the page keeps its shape.
    `repeated` are the identities that several samples have: all of these are in blocks that are laid out. A plain
    block's place is taken by one that is laid out where owners need it.
    """

    blocks: list[Block]
    subjects: Mapping[Subject, int]
    repeated: frozenset[bytes]
    series_count: int

    def places(self, body: bytes) -> Iterator[tuple[int, int]]:
        """Where each block begins and ends in a page, if it is this one; stops short where it cannot be."""
        start = 0
        for block, following in zip_longest(self.blocks, self.blocks[1:]):
            end = end_of(block, following.start if following else None, body, start)
            if end is None:
                return
            yield start, end
            start = end


def end_of(block: Block, next_start: bytes | None, body: bytes, start: int) -> int | None:
    """Where a block that begins at `start` ends: where the next begins. None where that is not to be found."""
    if next_start is None:
        return len(body)
    following = b"\n" + next_start
    least = start + block.cuts.size - 1
    found = body.find(following, least, least + 2 * MOST_VALUE_BYTES + len(following))
    return None if found < 0 else found + 1


class PageReader:
    """Reads pages, or what is new in them."""

    def __init__(self, reader: SeriesReader, wanted: Wanted) -> None:
        """`wanted` says by its name whether a family goes out at all (--families.allow, --families.deny)."""
        self._reader = reader
        self._wanted = wanted

    def read(self, body: bytes, last: PageShape | None) -> Work[tuple[PageShape, Places]]:
        """A page's shape, and where its blocks are; blocks that it has in common with the last one are kept.

        They are taken out of the last one, and the others let go of one by one: two pages would be too much to keep.
        """
        reading = _Reading(self, body, last)
        while not reading.is_done:
            reading.go_on()
            yield
        shape = yield from reading.shape()
        return shape, reading.places

    def lay_out(self, block: PlainBlock) -> LaidOutBlock:
        """A plain block as one that is laid out: it was plain for other owners, or for other lines beside it."""
        body = block.with_any_values
        families = {name: family for name, family in block.found.items() if family is not None}
        interned = Interned({subject: subject for subject, _ in block.subjects})
        reader = self.of_lines(block.known, families, interned)
        for line in split_lines(body):
            reader.take(line)
        return LaidOutBlock(reader.shape(body))

    def of_lines(
        self, known: Mapping[bytes, Series], families: Mapping[bytes, Family], interned: Interned
    ) -> ShapeReader:
        """What reads the lines of one block; see there."""
        return ShapeReader(self._reader, self._wanted, known=known, families=families, interned=interned)


class _Reading:
    """One page being read."""

    def __init__(self, reader: PageReader, body: bytes, last: PageShape | None) -> None:
        self._reader = reader
        self._body = body
        blocks = last.blocks if last else []
        self._last = dict(enumerate(blocks))
        self._start_of = [block.start for block in blocks]
        self._number_of = {start: number for number, start in reversed(list(enumerate(self._start_of)))}
        blocks.clear()
        self._expected = 0  # which of the last page's blocks comes next
        self._known: dict[bytes, Series] = {}
        self._families: dict[bytes, Family] = {}
        self._interned = Interned({subject: subject for subject in last.subjects} if last else {})
        self._position = 0
        self._is_found = False
        self._blocks: list[tuple[Block, int, int]] = []

    @property
    def places(self) -> Places:
        """Where each block begins and ends."""
        return [(start, end) for _, start, end in self._blocks]

    @property
    def is_done(self) -> bool:
        """Whether all lines are read; an empty page has one empty block."""
        return self._position == len(self._body) and bool(self._blocks)

    def go_on(self) -> None:
        """Keep the known block that stands here, or read until the next that does."""
        for number in self._numbers_here():
            if self._keep(number):
                return
        expected = self._last.get(self._expected)
        if expected is not None:
            self._known.update(expected.known)
        reader = self._reader.of_lines(self._known, self._families, self._interned)
        start = self._position
        self._is_found = False
        for line in self._lines_until_known():
            reader.take(line)
        if not self._is_found:
            # what was here may be gone for good
            self._pass(self._expected + 1)
        text = self._body[start : self._position]
        shape = reader.shape(text)
        self._add(PlainBlock(shape) if is_plain(shape, text, reader.values) else LaidOutBlock(shape), start)

    def shape(self) -> Work[PageShape]:
        """What all lines come to."""
        identities: set[bytes] = set()
        for block, _, _ in self._blocks:
            identities.update(series.identity for series in block.series)
            yield
        total = sum(len(block.series) for block, _, _ in self._blocks)
        repeated = (yield from self._repeated()) if len(identities) < total else frozenset[bytes]()
        return PageShape(
            blocks=[block for block, _, _ in self._blocks],
            subjects=self._subjects(),
            repeated=repeated,
            series_count=total,
        )

    def _numbers_here(self) -> Iterator[int]:
        """Which of the last page's blocks may begin here: the next one, and the one that begins with this line."""
        if self._expected in self._last:
            yield self._expected
            number = self._number_at(_line_at(self._body, self._position))
            if number > self._expected:
                yield number

    def _keep(self, number: int) -> bool:
        block, start = self._last[number], self._position
        following = self._start_of[number + 1] if number + 1 < len(self._start_of) else None
        end = end_of(block, following, self._body, start)
        if end is None or block.cuts.values(self._body[start:end]) is None:
            return False
        if any(self._families.get(name) != family for name, family in block.found.items()):
            return False
        self._position = end
        self._add(block, start)
        self._pass(number + 1)
        return True

    def _add(self, block: Block, start: int) -> None:
        self._families.update(block.left)
        self._blocks.append((block, start, self._position))

    def _lines_until_known(self) -> Iterator[bytes]:
        """The lines of a new block. Moves on behind each."""
        # a known block begins soon: its neighbour may grow until then, or all that follow would begin elsewhere
        times = 2 if self._expected in self._last else 1
        body, start = self._body, self._position
        is_rest = len(body) - start <= BLOCK_BYTES
        for number, line in enumerate(split_lines(body[start : _window_end(body, start, times * BLOCK_BYTES)])):
            size = self._position - start
            if size:
                self._is_found = self._is_known_start(line, size)
                if self._is_found or number >= times * BLOCK_LINES:
                    return
                # families that are whole in a block are found again wherever they are
                if not is_rest and size >= times * BLOCK_BYTES // 2 and line.startswith(b"# HELP "):
                    return
            self._position = min(self._position + len(line) + 1, len(body))
            yield line

    def _is_known_start(self, line: bytes, size: int) -> bool:
        number = self._number_at(line)
        if number < self._expected:
            return False
        block = self._last[number]
        if max(size, block.cuts.size) >= BLOCK_BYTES // 8:
            return True
        # two that are small become one
        self._known.update(block.known)
        return False

    def _number_at(self, line: bytes) -> int:
        """Which of the last page's blocks begins with this line; -1 for none."""
        number_of = self._number_of
        return number_of.get(line, number_of.get(_head_of(line), -1)) if number_of else -1

    def _pass(self, number: int) -> None:
        """Expect this block next. Those before are not waited for any longer."""
        for passed in range(self._expected, number):
            self._last.pop(passed, None)
        self._expected = number
        self._known = {}

    def _subjects(self) -> Mapping[Subject, int]:
        # by the subjects' own ids: to compare them costs more
        counts: dict[int, int] = {}
        subjects: dict[int, Subject] = {}
        for block, _, _ in self._blocks:
            for subject, count in block.subjects:
                counts[id(subject)] = counts.get(id(subject), 0) + count
                subjects[id(subject)] = subject
        return {subjects[key]: count for key, count in counts.items()}

    def _repeated(self) -> Work[frozenset[bytes]]:
        """The identities that several samples have; the blocks that have them are laid out from here on."""
        seen: set[bytes] = set()
        repeated: set[bytes] = set()
        for block, _, _ in self._blocks:
            for series in block.series:
                (repeated if series.identity in seen else seen).add(series.identity)
            yield
        for number, (block, start, end) in enumerate(self._blocks):
            if isinstance(block, PlainBlock) and any(series.identity in repeated for series in block.series):
                self._blocks[number] = (self._reader.lay_out(block), start, end)
                yield
        return frozenset(repeated)


def _window_end(body: bytes, start: int, size: int) -> int:
    """The end of the last line that ends in a window of this size, or of the first line, if it is longer."""
    if start + size >= len(body):
        return len(body)
    end = body.rfind(b"\n", start, start + size) + 1
    return end or body.find(b"\n", start + size) + 1 or len(body)


def _line_at(body: bytes, start: int) -> bytes:
    end = body.find(b"\n", start)
    return body[start : len(body) if end < 0 else end]


def _head_of(line: bytes) -> bytes:
    """A sample's line less its value."""
    return line[: line.rstrip(b"\r").rfind(b" ") + 1]
