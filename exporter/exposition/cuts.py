"""The values of a block of lines, found by cutting it where it was cut last time. The hot path of the hot path.

A sample's labels end with a brace, and its value follows. So a block that is cut at every brace falls into

    first } value tail } value tail } value tail

where a tail is the end of one line and the beginning of the next sample's. From scrape to scrape the tails stay and
the values move: one pass takes the tails off, and what is left is valid values or the page is another one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from math import isfinite
from operator import not_

from exporter.exposition.lines import is_value

_BRACE = b"}"
# Together, with the blank before each. What is more belongs to the shape, so that no line grows past what one may have.
MOST_VALUE_BYTES = 32 * 1024
_PLAIN_DECIMALS = b"0123456789.+-eE }"
# A sample without labels has no brace to be cut at: it gets one. A page that has such samples costs twice as much.
# With the newline, since a pattern that begins with a letter to look for takes a third of one that begins with ^.
_BARE_NAME = re.compile(rb"\n([a-zA-Z_:][a-zA-Z0-9_:]*) ")


class _AnotherPage(Exception):
    """The block has other series than the cuts were made for, or a value that is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """Everything of a block but its values.

    `first` is what comes before the first brace, `tails` what follows the value behind each. `holds_value` says for
    each brace whether a value does follow: others stand in label values and comments, and what follows them is all
    tail; None where a value follows each. `has_bare` says that samples without labels are among them. `size` is the
    block's, in bytes, less its values and the blanks before them.
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
        """The values of a block that is this one but for its values; None where it is another."""
        try:
            return b"".join(self._take(body)[1]).split()
        except _AnotherPage:
            return None

    def fill(self, body: bytes, closings: Sequence[bytes]) -> list[bytes] | None:
        """Such a block with each brace replaced by the next of `closings`, in pieces; None where it is another.

        Not for blocks that have samples without labels: they would keep the braces that they are given here.
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
        """What follows each brace, and the values, each with the blank before it.

        Raises:
            _AnotherPage: the block is another.
        """
        if self.has_bare:
            body = _brace(body)
        pieces = body.split(_BRACE)
        if pieces.pop(0) != self.first or len(pieces) != len(self.tails):
            raise _AnotherPage
        # Where a tail is another, nothing is taken off. What is left is no value then, or the sizes do not add up.
        values = list(map(bytes.removesuffix, pieces, self.tails))
        if self.holds_value is not None:
            if any(compress(values, map(not_, self.holds_value))):
                raise _AnotherPage
            values = list(compress(values, self.holds_value))
        if self.size + _size_of(values) != len(body):
            raise _AnotherPage
        return pieces, values


def cut(body: bytes, holds_value: Sequence[bool], values: Sequence[bytes], *, has_bare: bool) -> Cuts:
    """The cuts of a block that was read. `holds_value` is about each of its braces, `values` are what follows those."""
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
    """How many braces a page's line has, once samples without labels have been given theirs."""
    return line.count(_BRACE) + bool(has_bare and _BARE_NAME.match(b"\n" + line))


def _brace(body: bytes) -> bytes:
    return _BARE_NAME.sub(rb"\n\1{} ", b"\n" + body)[1:]


def _size_of(values: Sequence[bytes]) -> int:
    """How many bytes these are, if each is one blank and a valid value.

    Raises:
        _AnotherPage: they are not.
    """
    if not values:
        return 0
    # Four passes in C over one short text and one over the values, instead of a regular expression for each: float()
    # takes what Go's ParseFloat takes, and more ("1_0", other digits), but not of these characters alone.
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
