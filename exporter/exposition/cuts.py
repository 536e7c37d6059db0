"""The values of a block of lines, found by cutting off the text before each value. The program's hottest path.

From scrape to scrape only the values change. So a block is a list of heads. The head of a sample's line is the text
before its value; the head of any other line is the whole line. One pass cuts the known heads off the lines. If valid
values are left, the block has the known series; if not, it is another block.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from math import isfinite
from typing import TypeVar

from exporter.exposition.lines import is_value
from exporter.exposition.renaming import Texts

# The most bytes of all moving values of a block together, with their line ends. Further values belong to the shape, so
# that no line can grow beyond the limit of a line.
MOST_VALUE_BYTES = 32 * 1024
_IN_PLAIN_DECIMALS = b"0123456789.+-eE\n"


T = TypeVar("T", bound=Texts | None)
# The first line, the line after the last, and the texts that replace their values; None if the values stay.
Run = tuple[int, int, T]


class Converted:
    """Lines whose values go out as other texts.

    The last texts are cached: most values do not change between scrapes.
    """

    __slots__ = ("_last_texts", "end", "last", "longer", "start", "texts")

    def __init__(self, start: int, end: int, texts: Texts) -> None:
        self.start = start
        self.end = end
        self.texts = texts
        self.last: list[bytes] = []
        self._last_texts: list[bytes] = []
        self.longer = 0

    def texts_of(self, values: list[bytes]) -> list[bytes]:
        """The texts that go out for `values`. Sets `longer`, the number of bytes by which they are longer."""
        if values != self.last:
            self.last = values
            self._last_texts = list(map(self.texts.__getitem__, values))
            self.longer = len(b"".join(self._last_texts)) - len(b"".join(values))
        return self._last_texts


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """A block without values: the head of each line, which is the whole line if it has no value.

    `size` is the size of all heads. `changes` are the lines whose values go out as other texts. The values of the lines
    in `twins` go out a second time, after all others.
    """

    heads: Sequence[bytes]
    size: int
    changes: Sequence[Converted] = ()
    twins: Sequence[Run[Texts | None]] = ()

    def values(self, body: bytes) -> list[bytes] | None:
        """The values in a block that has these cuts, in order; None for any other block."""
        rests = self._rests(body)
        if rests is None:
            return None
        if self.changes or self.twins:
            self._change(rests)
        return b"".join(rests).split()

    def fill(self, body: bytes, opened: Sequence[bytes], closings: Sequence[bytes]) -> tuple[list[bytes], int] | None:
        """The block in pieces: for each line two texts in place of its head, then the rest. None for any other block.

        The second result is the number of bytes by which its values became longer.
        """
        rests = self._rests(body)
        if rests is None:
            return None
        longer = self._change(rests) if self.changes or self.twins else 0
        filled = [b""] * (3 * len(rests))
        filled[0::3] = opened
        filled[1::3] = closings
        filled[2::3] = rests
        return filled, longer

    @property
    def value_count(self) -> int:
        """The number of values, with those of twins."""
        lines = chain(self.heads, *(self.heads[start:end] for start, end, _ in self.twins))
        return sum(map(holds_value, lines))

    def _rests(self, body: bytes) -> list[bytes] | None:
        """The rest of each line after its head: a value and the line's end, or nothing.

        None if the block has other cuts.
        """
        lines = BytesIO(body).readlines()
        if len(lines) != len(self.heads):
            return None
        rests = list(map(bytes.removeprefix, lines, self.heads))
        joined = b"".join(rests)
        # no head is empty, and a head that does not match is not cut off, so that the sizes do not add up
        if self.size + len(joined) != len(body) or len(joined) > MOST_VALUE_BYTES:
            return None
        new = self._new(rests) if self.changes else rests
        return rests if _are_decimals(joined, new) or all(is_value(rest[:-1]) for rest in new if rest) else None

    def _new(self, rests: list[bytes]) -> list[bytes]:
        """The rests to check. It leaves out runs whose values change form and are the same as last time."""
        new: list[bytes] = []
        before = 0
        for run in self.changes:
            if run.last == rests[run.start : run.end]:
                new += rests[before : run.start]
                before = run.end
        return new + rests[before:]

    def _change(self, rests: list[bytes]) -> int:
        """Put other texts in the place of values, and twins behind them. Returns the number of added bytes."""
        more = 0
        again: list[bytes] = []
        for start, end, texts in self.twins:
            again += rests[start:end] if texts is None else map(texts.__getitem__, rests[start:end])
        for run in self.changes:
            rests[run.start : run.end] = run.texts_of(rests[run.start : run.end])
            more += run.longer
        if again:
            rests += again
            more += len(b"".join(again))
        return more


def holds_value(head: bytes) -> bool:
    """Whether a value follows the head, which is then not the whole line."""
    return not head.endswith(b"\n")


def runs_of(lines: Iterable[tuple[int, T]]) -> list[Run[T]]:
    """The runs of these lines, whose numbers grow. Neighbours whose values have the same texts are one run."""
    runs: list[Run[T]] = []
    for line, texts in lines:
        if runs and line == runs[-1][1] and texts is runs[-1][2]:
            runs[-1] = (runs[-1][0], line + 1, texts)
        else:
            runs.append((line, line + 1, texts))
    return runs


def _are_decimals(joined: bytes, rests: Iterable[bytes]) -> bool:
    # Two passes in C replace a regular expression for each value. float() accepts more than Go's ParseFloat ("1_0",
    # digits of other scripts), but nothing more if a text has only these characters.
    if joined.translate(None, _IN_PLAIN_DECIMALS):
        return False
    try:
        return isfinite(sum(map(float, filter(None, rests))))
    except ValueError:
        return False
