"""The values of a block of lines, found by cutting the block at its braces. The hottest path of the program.

A sample's labels end with a closing brace, and the value follows. So a block that is cut at every brace falls into

    first } value tail } value tail } value tail

where a tail is the end of one line and the beginning of the next sample's line. From scrape to scrape the tails stay
and only the values change. One pass takes the tails off. If valid values are left, the block has the known series; if
not, it is another block.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from math import isfinite
from operator import not_

from exporter.exposition.lines import is_value

_BRACE = b"}"
# All moving values of a block together, each with the blank before it. Further values belong to the shape, so that no
# line can grow longer than a line may be.
MOST_VALUE_BYTES = 32 * 1024
_PLAIN_DECIMALS = b"0123456789.+-eE }"
# A sample without labels has no brace to cut at, so it is given braces. A page that has such samples costs twice as
# much. The pattern begins with a newline, since searching for a fixed byte takes a third of the time that ^ takes.
_BARE_NAME = re.compile(rb"\n([a-zA-Z_:][a-zA-Z0-9_:]*) ")


class _AnotherPage(Exception):
    """The block has other series than the cuts were made for, or an invalid value."""


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """A block of lines without its values.

    `first` is the text before the first brace. `tails` has for each brace the text after it, without the value.
    `holds_value` says for each brace whether a value follows it: none follows a brace in a label value or a comment,
    and there the whole text is tail. It is None where a value follows every brace. `has_bare` says that the block has
    samples without labels. `size` is the number of bytes of the block without its values and the blanks before them.
    """

    first: bytes
    tails: Sequence[bytes]
    holds_value: Sequence[bool] | None
    has_bare: bool
    size: int

    @property
    def value_count(self) -> int:
        """How many values such a block has."""
        return len(self.tails) if self.holds_value is None else sum(self.holds_value)

    def values(self, body: bytes) -> list[bytes] | None:
        """The values in a block that has these cuts, in order; None for any other block."""
        try:
            return b"".join(self._take(body)[1]).split()
        except _AnotherPage:
            return None

    def fill(self, body: bytes, closings: Sequence[bytes]) -> list[bytes] | None:
        """The block in pieces, with each brace replaced by the next of `closings`; None for any other block.

        Only for cuts without `has_bare`: samples without labels would go out with the braces that they are given here.
        """
        try:
            pieces, _ = self._take(body)
        except _AnotherPage:
            return None
        filled = [b""] * (2 * len(pieces) + 1)
        filled[0] = self.first
        filled[1::2] = closings
        filled[2::2] = pieces
        return filled

    def _take(self, body: bytes) -> tuple[list[bytes], list[bytes]]:
        """The text after each brace, and the values, each with the blank before it.

        Raises:
            _AnotherPage: the block does not have these cuts.
        """
        if self.has_bare:
            body = _brace(body)
        pieces = body.split(_BRACE)
        if pieces.pop(0) != self.first or len(pieces) != len(self.tails):
            raise _AnotherPage
        # A tail that does not match is not taken off. Then either the rest is no value, or the sizes do not add up.
        values = list(map(bytes.removesuffix, pieces, self.tails))
        if self.holds_value is not None:
            if any(compress(values, map(not_, self.holds_value))):
                raise _AnotherPage
            values = list(compress(values, self.holds_value))
        if self.size + _size_of(values) != len(body):
            raise _AnotherPage
        return pieces, values


def cut(body: bytes, holds_value: Sequence[bool], values: Sequence[bytes], *, has_bare: bool) -> Cuts:
    """The cuts of a block that was read line by line.

    `holds_value` says for each brace whether a value follows it; `values` are these values, in order.
    """
    if has_bare:
        body = _brace(body)
    ends = [brace.start() for brace in re.finditer(_BRACE, body)]
    ends.append(len(body))
    following = iter(values)
    tails = [
        body[start + 1 + (len(next(following)) + 1 if holds else 0) : end]
        for holds, (start, end) in zip(holds_value, pairwise(ends), strict=True)
    ]
    return Cuts(
        first=body[: ends[0]],
        tails=tails,
        holds_value=None if all(holds_value) else holds_value,
        has_bare=has_bare,
        size=ends[0] + sum(map(len, tails)) + len(tails),
    )


def braces_of(line: bytes, *, has_bare: bool) -> int:
    """How many closing braces a line has, those that a sample without labels is given included."""
    return line.count(_BRACE) + bool(has_bare and _BARE_NAME.match(b"\n" + line))


def _brace(body: bytes) -> bytes:
    return _BARE_NAME.sub(rb"\n\1{} ", b"\n" + body)[1:]


def _size_of(values: Sequence[bytes]) -> int:
    """How many bytes the values have in all, after checking that each is one blank and a valid value.

    Raises:
        _AnotherPage: one of them is not, or they are longer than MOST_VALUE_BYTES.
    """
    if not values:
        return 0
    # Four passes in C over one short text and one over the values replace a regular expression for each value. float()
    # accepts more than Go's ParseFloat ("1_0", digits of other scripts), but nothing more in these characters alone.
    joined = _BRACE.join(values)
    if len(joined) - len(values) >= MOST_VALUE_BYTES:
        raise _AnotherPage
    blanks = joined.count(b" ")
    if not (joined.startswith(b" ") and blanks == len(values) == joined.count(b"} ") + 1):
        raise _AnotherPage
    if not _are_decimals(joined, values) and not all(is_value(value[1:]) for value in values):
        raise _AnotherPage
    return len(joined) - len(values) + 1


def _are_decimals(joined: bytes, values: Sequence[bytes]) -> bool:
    if joined.translate(None, _PLAIN_DECIMALS):
        return False
    try:
        return isfinite(sum(map(float, values)))
    except ValueError:
        return False
