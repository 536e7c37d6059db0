"""The reader of a page into blocks: it keeps blocks that are known from the last page, and reads only new lines.

A block is known by its first line: where the next page has that line, the reader tries the block. Lines between two
known blocks are read one by one, until the first line of a known block comes. A block with the same lines may have
another meaning in another page, since lines elsewhere (a TYPE, a HELP) decide about its families:
`Shape.families_before` has the families that the block depends on.

Blocks are small and come one after the other. So the present block stays in a core's cache, a page of any size needs
little memory beside itself, and other tasks may run between two blocks (every generator here and in join.py yields
there).

Tests: tests/exposition/test_pages.py, tests/exposition/test_blocks.py.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from exporter.exposition.block_shape import PageFamily
from exporter.exposition.cuts import MOST_VALUE_BYTES
from exporter.exposition.labelled_block import LaidOutBlock
from exporter.exposition.lines import split_lines
from exporter.exposition.plain_block import PlainBlock, is_plain
from exporter.exposition.series import MOST_DEVICES, Interned, Series, SeriesReader, unread
from exporter.exposition.shape_reader import ShapeReader, Wanted
from exporter.model.pages import Subject
from exporter.model.slices import Work

Block = PlainBlock | LaidOutBlock
Places = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class PageShape:
    """A page's blocks in order, and the facts that concern all blocks together.

    `subjects` counts the samples by subject; it is the same object as long as the page keeps its shape. `repeated` are
    the identities that several samples have; blocks with these samples are laid out. If owners need it, a laid-out
    block takes the place of a plain block. `page_starts` are the numbers of the first samples in the page of the second
    upstream, of the third, and so on. `twin_names` are the families that only scrapers see.
    """

    blocks: list[Block]
    subjects: Mapping[Subject, int]
    repeated: frozenset[bytes]
    series_count: int
    page_starts: Sequence[int] = ()
    twin_names: frozenset[bytes] = frozenset()

    def places(self, body: bytes) -> Iterator[tuple[int, int]]:
        """Where each block begins and ends (byte offsets) in a page of this shape; stops early in any other page."""
        start = 0
        for block, following in zip_longest(self.blocks, self.blocks[1:]):
            end = end_of(block, following.start if following else None, body, start)
            if end is None:
                return
            yield start, end
            start = end


def end_of(block: Block, next_start: bytes | None, body: bytes, start: int) -> int | None:
    """The end of a block that begins at `start`, which is where the next block begins; None if no such line comes.

    `next_start` is the first line of the next block; None after the last block.
    """
    if next_start is None:
        return len(body)
    following = b"\n" + next_start
    least = start + block.cuts.size - 1
    newline = body.find(following, least, least + 2 * MOST_VALUE_BYTES + len(following))
    return None if newline < 0 else newline + 1


# With blocks of this size a sample of 100,000 costs 190 ns; it costs 530 ns if the whole page is cut at once. A smaller
# page, such as the page of a node with 8 GPUs, is one block.
BLOCK_BYTES = 64 * 1024
BLOCK_LINES = 512
# The first reading of so many lines takes 4 ms.
_LINES_A_SLICE = 64


class PageReader:
    """Reads pages into blocks. If a page is like the last page, it reads only the new lines."""

    def __init__(self, reader: SeriesReader, wanted: Wanted) -> None:
        self._reader = reader
        self._wanted = wanted
        self.twin_names: frozenset[bytes] = reader.renaming.twin_names

    def read(self, body: bytes, last: PageShape | None, starts: Sequence[int] = ()) -> Work[tuple[PageShape, Places]]:
        """A page's shape, and the places of its blocks. Blocks that it shares with the last page are reused.

        The blocks are taken out of `last`, which is empty afterwards: two whole pages would take too much memory. If a
        page has more devices than the reader distinguishes, no block is reused, since there may be room for other ones
        now. `starts` are the byte offsets at which the pages of further upstreams begin in the body.
        """
        if last is not None and unread(last.subjects):
            last.blocks.clear()
            last = None
        reading = _Reading(self, body, last, starts)
        shape = yield from reading.whole()
        if last is not None and unread(shape.subjects):
            # the last page's devices may have taken the room
            shape.blocks.clear()
            reading = _Reading(self, body, None, starts)
            shape = yield from reading.whole()
        return shape, reading.places

    def lay_out(self, block: PlainBlock) -> LaidOutBlock:
        """A laid-out block in place of a plain block, for owners or neighbours that a plain block cannot serve."""
        body = block.with_any_values
        interned = Interned({subject: subject for subject, _ in block.subjects})
        reader = self.of_lines(block.series_by_head, block.families_before, interned)
        for line in split_lines(body):
            reader.take(line)
        return LaidOutBlock(reader.shape())

    def of_lines(
        self, series_before: Mapping[bytes, Series], families: Mapping[bytes, PageFamily | None], interned: Interned
    ) -> ShapeReader:
        """A reader for the lines of one block; see `ShapeReader`."""
        return ShapeReader(
            self._reader, self._wanted, series_before=series_before, families=families, interned=interned
        )


class _Reading:
    """A page while it is read.

    Each step (`go_on`) adds a block: a known block whose lines come next, or a new block.
    """

    def __init__(self, reader: PageReader, body: bytes, last: PageShape | None, starts: Sequence[int]) -> None:
        self._reader = reader
        self._body = body
        self._starts = deque(starts)
        self._page_starts: list[int] = []
        self._series_count = 0
        blocks = last.blocks if last else []
        self._last = dict(enumerate(blocks))
        self._start_of = [block.start for block in blocks]
        self._number_of = {start: number for number, start in reversed(list(enumerate(self._start_of)))}
        blocks.clear()
        self._expected = 0  # the number of the last page's block that should come next
        self._series_before: dict[bytes, Series] = {}
        self._families: dict[bytes, PageFamily] = {}
        subjects_before = last.subjects if last else {}
        self._room = MOST_DEVICES - len(subjects_before)
        self._interned = Interned({subject: subject for subject in subjects_before}, self._room)
        self._position = 0
        self._is_found = False
        self._blocks: list[tuple[Block, int, int]] = []
        self._note_page_starts(0)

    @property
    def places(self) -> Places:
        """Where each block begins and ends, as byte offsets of the page."""
        return [(start, end) for _, start, end in self._blocks]

    def go_on(self) -> Work[None]:
        """Add the known block at this position, or else a new block that ends where a known block begins."""
        for number in self._numbers_here():
            if self._keep(number):
                yield
                return
        expected = self._last.get(self._expected)
        if expected is not None:
            self._series_before.update(expected.series_by_head)
        reader = self._reader.of_lines(self._series_before, self._families, self._interned)
        start = self._position
        self._is_found = False
        for number, line in enumerate(self._lines_until_known()):
            reader.take(line)
            if not number % _LINES_A_SLICE:
                yield
            if self._starts and self._position >= self._starts[0]:
                if reader.has_twins:
                    break  # twins follow the block's lines, and must be of the same page
                self._note_page_starts(reader.row_count)
        if not self._is_found:
            # the expected block may be gone for good, so wait for the block after it
            self._pass(self._expected + 1)
        text = self._body[start : self._position]
        shape = reader.shape()
        self._add(PlainBlock(shape) if is_plain(shape, text, reader.values) else LaidOutBlock(shape), start)
        yield

    def whole(self) -> Work[PageShape]:
        while self._position < len(self._body) or not self._blocks:  # an empty page has one empty block
            yield from self.go_on()
        return (yield from self.shape())

    def shape(self) -> Work[PageShape]:
        identities: set[bytes] = set()
        for block, _, _ in self._blocks:
            identities.update(series.identity for series in block.series)
            yield
        repeated = (yield from self._repeated()) if len(identities) < self._series_count else frozenset[bytes]()
        subjects = yield from self._subjects()
        yield
        return PageShape(
            blocks=[block for block, _, _ in self._blocks],
            subjects=subjects,
            repeated=repeated,
            series_count=self._series_count,
            page_starts=tuple(self._page_starts),
            twin_names=self._reader.twin_names,
        )

    def _numbers_here(self) -> Iterator[int]:
        """The numbers of the last page's blocks that may begin here: the expected block, and a block with this line."""
        if self._expected in self._last:
            yield self._expected
            number = self._number_at(_line_at(self._body, self._position))
            if number > self._expected:
                yield number

    def _keep(self, number: int) -> bool:
        """Add a block of the last page if its lines are here with the same meaning. Returns whether they are."""
        block = self._last[number]
        start = self._position
        following = self._start_of[number + 1] if number + 1 < len(self._start_of) else None
        end = end_of(block, following, self._body, start)
        if end is None or (self._starts and start < self._starts[0] < end):
            return False
        if block.cuts.values(self._body[start:end]) is None:
            return False
        if any(self._families.get(name) != family for name, family in block.families_before.items()):
            return False
        self._position = end
        self._add(block, start)
        self._pass(number + 1)
        return True

    def _add(self, block: Block, start: int) -> None:
        self._families.update(block.left)
        self._blocks.append((block, start, self._position))
        self._series_count += len(block.series)
        self._note_page_starts(0)

    def _note_page_starts(self, rows: int) -> None:
        """Note the upstreams' pages that begin up to this position, which is `rows` rows past the last added block."""
        while self._starts and self._position >= self._starts[0]:
            self._starts.popleft()
            self._interned.room = self._room
            self._page_starts.append(self._series_count + rows)

    def _lines_until_known(self) -> Iterator[bytes]:
        """The lines of a new block, up to a known block or the block's greatest size.

        The position moves past every line.
        """
        # While a known block is expected, the new block may grow to twice the size: if it ended early, all blocks after
        # it would begin at other lines.
        times = 2 if self._expected in self._last else 1
        body = self._body
        start = self._position
        is_rest = len(body) - start <= BLOCK_BYTES
        for number, line in enumerate(split_lines(body[start : _window_end(body, start, times * BLOCK_BYTES)])):
            size = self._position - start
            if size:
                self._is_found = self._is_known_start(line, size)
                if self._is_found or number >= times * BLOCK_LINES:
                    return
                # a block of whole families is known again wherever these families move
                if not is_rest and size >= times * BLOCK_BYTES // 2 and line.startswith(b"# HELP "):
                    return
            self._position = min(self._position + len(line) + 1, len(body))
            yield line

    def _is_known_start(self, line: bytes, size: int) -> bool:
        """Whether a known block begins with this line, and the new block of `size` bytes before it may end here."""
        number = self._number_at(line)
        if number < self._expected:
            return False
        block = self._last[number]
        if max(size, block.cuts.size) >= BLOCK_BYTES // 8:
            return True
        # two small blocks become one
        self._series_before.update(block.series_by_head)
        return False

    def _number_at(self, line: bytes) -> int:
        """The number of the last page's block that begins with this line; -1 for none."""
        number_of = self._number_of
        return number_of.get(line, number_of.get(_head_of(line), -1)) if number_of else -1

    def _pass(self, number: int) -> None:
        """Expect the last page's block `number` next, and forget the blocks before it."""
        for passed in range(self._expected, number):
            self._last.pop(passed, None)
        self._expected = number
        self._series_before = {}

    def _subjects(self) -> Work[Mapping[Subject, int]]:
        # by id(subject), since hashing subjects costs more
        counts: dict[int, int] = {}
        subjects: dict[int, Subject] = {}
        for block, _, _ in self._blocks:
            for subject, count in block.subjects:
                counts[id(subject)] = counts.get(id(subject), 0) + count
                subjects[id(subject)] = subject
        yield
        return {subjects[key]: count for key, count in counts.items()}

    def _repeated(self) -> Work[frozenset[bytes]]:
        """The identities that several samples have. Plain blocks that hold such samples become laid-out ones."""
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
    """The head of a sample's line: all up to the last blank."""
    return line[: line.rstrip(b"\r").rfind(b" ") + 1]
