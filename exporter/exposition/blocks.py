"""A page as blocks of lines, and where each of them stands in a page of the same shape.

Blocks are worked on one after the other, and each is small. So the block at work stays in a core's cache, a page of any
size needs little memory beside itself, and other tasks may run between two blocks (every generator of page_reader.py
and owned.py yields there).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from exporter.exposition.cuts import MOST_VALUE_BYTES
from exporter.exposition.layout import LaidOutBlock
from exporter.exposition.plain import PlainBlock
from exporter.model.pages import Subject

Block = PlainBlock | LaidOutBlock
Places = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class PageShape:
    """A page's blocks in order, and what can be said only of all blocks together.

    `subjects` counts the samples by subject; it is the same object as long as the page keeps its shape. `repeated` are
    the identities that several samples have; the blocks that hold these samples are laid out. Where owners need it, a
    laid-out block takes the place of a plain one. `page_starts` are the numbers of the samples that come first in the
    second upstream's page, in the third's, and so on.
    """

    blocks: list[Block]
    subjects: Mapping[Subject, int]
    repeated: frozenset[bytes]
    series_count: int
    page_starts: Sequence[int] = ()

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
    """Where a block that begins at `start` ends, which is where the next one begins; None where there is no such line.

    `next_start` is how the next block begins, None after the last block.
    """
    if next_start is None:
        return len(body)
    following = b"\n" + next_start
    least = start + block.cuts.size - 1
    newline = body.find(following, least, least + 2 * MOST_VALUE_BYTES + len(following))
    return None if newline < 0 else newline + 1
