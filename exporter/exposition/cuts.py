"""The values of a block of lines, found by cutting off each line what was before its value. The program's hottest path.

From scrape to scrape only the values change. So a block is a list of heads: of a sample's line the text before its
value, of any other line all of it. One pass cuts the known heads off the lines. If valid values are left, the block has
the known series; if not, it is another block.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from math import isfinite

from exporter.exposition.lines import is_value

# All moving values of a block together, each with its line's end. Further values belong to the shape, so that no line
# can grow longer than a line may be.
MOST_VALUE_BYTES = 32 * 1024
_IN_PLAIN_DECIMALS = b"0123456789.+-eE\n"


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """A block of lines without its values: each line's head. A line that holds no value is all head, its end included.

    `size` is the number of bytes of all heads.
    """

    heads: Sequence[bytes]
    size: int

    def values(self, body: bytes) -> list[bytes] | None:
        """The values in a block that has these cuts, in order; None for any other block."""
        rests = self._rests(body)
        return None if rests is None else b"".join(rests).split()

    def fill(self, body: bytes, opened: Sequence[bytes], closings: Sequence[bytes]) -> list[bytes] | None:
        """The block in pieces: for each line two texts, which stand for its head, and the rest. None for any other."""
        rests = self._rests(body)
        if rests is None:
            return None
        filled = [b""] * (3 * len(rests))
        filled[0::3] = opened
        filled[1::3] = closings
        filled[2::3] = rests
        return filled

    def _rests(self, body: bytes) -> list[bytes] | None:
        """What follows each line's head: a value and the line's end, or nothing. None if the block has other cuts."""
        lines = BytesIO(body).readlines()
        if len(lines) != len(self.heads):
            return None
        rests = list(map(bytes.removeprefix, lines, self.heads))
        joined = b"".join(rests)
        # no head is empty, and one that does not match is not cut off: then the sizes do not add up
        if self.size + len(joined) != len(body) or len(joined) > MOST_VALUE_BYTES:
            return None
        return rests if _are_decimals(joined, rests) or all(is_value(rest[:-1]) for rest in rests if rest) else None


def holds_value(head: bytes) -> bool:
    """Whether a value follows the head: it is not the whole line."""
    return not head.endswith(b"\n")


def cuts_of(heads: Sequence[bytes]) -> Cuts:
    """The cuts of a block with these heads."""
    return Cuts(heads=heads, size=sum(map(len, heads)))


def _are_decimals(joined: bytes, rests: Iterable[bytes]) -> bool:
    # Two passes in C replace a regular expression for each value. float() accepts more than Go's ParseFloat ("1_0",
    # digits of other scripts), but nothing more in these characters alone.
    if joined.translate(None, _IN_PLAIN_DECIMALS):
        return False
    try:
        return isfinite(sum(map(float, filter(None, rests))))
    except ValueError:
        return False
