"""The values of a page, found by cutting it where it was cut last time. The hot path of the hot path.

A sample's labels end with a brace, and its value follows. So a page that is cut at every brace falls into

    first } value tail } value tail } value tail

where a tail is the end of one line and the beginning of the next sample's. From scrape to scrape the tails stay and
the values move: one pass takes the tails off, and what is left is valid values or the page is another one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, islice, pairwise
from math import isfinite
from operator import not_

from exporter.exposition.lines import is_value

_BRACE = b"}"
# What is worked on at a time stays in a core's cache. Each of 100,000 samples costs 199 ns then, and 529 where the
# whole page is cut at once; each of 200 costs 170.
_BLOCK_BYTES = 64 * 1024
_PLAIN_DECIMALS = b"0123456789.+-eE }"
# A sample without labels has no brace to be cut at: it gets one. A page that has such samples costs twice as much.
# With the newline, since a pattern that begins with a letter to look for takes a third of one that begins with ^.
_BARE_NAME = re.compile(rb"\n([a-zA-Z_:][a-zA-Z0-9_:]*) ")


class _AnotherPage(Exception):
    """The page has other series than the cuts were made for, or a value that is none."""


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """Everything of a page but its values.

    `first` is what comes before the first brace, `tails` what follows the value behind each. `holds_value` says for
    each brace whether a value does follow: others stand in label values and comments, and what follows them is all
    tail; None where a value follows each. `has_bare` says that samples without labels are among them. `size` is the
    page's, in bytes, less its values and the blanks before them.
    """

    first: bytes
    tails: Sequence[bytes]
    holds_value: Sequence[bool] | None
    has_bare: bool
    size: int

    @property
    def value_count(self) -> int:
        """How many values such a page has."""
        return len(self.tails) if self.holds_value is None else sum(self.holds_value)

    def values(self, body: bytes) -> list[bytes] | None:
        """The values of a page that is this one but for its values; None where it is another."""
        try:
            return [word for _, values in self._blocks(body) for word in b"".join(values).split()]
        except _AnotherPage:
            return None

    def fill(self, body: bytes, closings: Sequence[bytes]) -> list[bytes] | None:
        """Such a page with each brace replaced by the next of `closings`, in pieces; None where it is another.

        Not for pages that have samples without labels: they would keep the braces that they are given here.
        """
        following = iter(closings)
        filled = [self.first]
        try:
            for pieces, _ in self._blocks(body):
                block = [b""] * (2 * len(pieces))
                block[0::2] = islice(following, len(pieces))
                block[1::2] = pieces
                # of a page of several blocks, the next block takes the place of these pieces in the cache
                filled += block if len(body) <= _BLOCK_BYTES else (b"".join(block),)
        except _AnotherPage:
            return None
        return filled

    def _blocks(self, body: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Block by block what follows each brace, and the values, each with the blank before it.

        Raises:
            _AnotherPage: possibly at the very end.
        """
        if self.has_bare:
            body = _brace(body)
        tails, holds_value, size = iter(self.tails), iter(self.holds_value or ()), self.size
        for pieces in self._pieces(body):
            # Where a tail is another, nothing is taken off. What is left is no value then, or the sizes do not add up,
            # since as many tails are looked for as there are.
            values = list(map(bytes.removesuffix, pieces, tails))
            if len(values) < len(pieces):
                raise _AnotherPage
            if self.holds_value is not None:
                here = list(islice(holds_value, len(pieces)))
                if any(compress(values, map(not_, here))):
                    raise _AnotherPage
                values = list(compress(values, here))
            size += _size_of(values)
            yield pieces, values
        if size != len(body):
            raise _AnotherPage

    def _pieces(self, body: bytes) -> Iterator[list[bytes]]:
        if len(body) <= _BLOCK_BYTES:
            pieces = body.split(_BRACE)
            if pieces.pop(0) != self.first:
                raise _AnotherPage
            yield pieces
            return
        if not body.startswith(self.first):
            raise _AnotherPage
        start = len(self.first)
        while start < len(body):
            if not body.startswith(_BRACE, start):
                raise _AnotherPage
            end = body.find(_BRACE, start + _BLOCK_BYTES)
            end = len(body) if end < 0 else end
            yield body[start + 1 : end].split(_BRACE)
            start = end


def cut(body: bytes, holds_value: Sequence[bool], values: Sequence[bytes], *, has_bare: bool) -> Cuts:
    """The cuts of a page that was read. `holds_value` is about each of its braces, `values` are what follows those."""
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
