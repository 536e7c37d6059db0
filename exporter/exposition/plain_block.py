"""The plain block, which is the usual one: every line goes out as it came, and every sample gains one set of labels.

Nobody takes such a block apart. Its values are cut off (cuts.py) and go out behind the same names and labels, with
`,pod="…",namespace="…",container="…"} ` in between.

Tests: tests/exposition/test_cuts.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter

from exporter.exposition.block_shape import PageFamily, Shape, ShapeRow
from exporter.exposition.cuts import Cuts, holds_value
from exporter.exposition.families import render_labels
from exporter.exposition.selections import Selections
from exporter.exposition.series import Series
from exporter.model.pages import Cell, Reading, Row, Rows, Subject

_BRACE = b"} "
_COMMA = b","
_NO_SAMPLE = 0  # no object's id
_LABELS_END = b'"} '
_LABEL_END = b'",'


@dataclass(frozen=True, slots=True, eq=False)
class Owned:
    """A plain block for one state of owners: the rows of each sample, and the text that closes its labels.

    `rows` makes the list of rows when somebody asks for it, since a page of text needs only the texts. `opened` has
    each line up to the closing text, and `closings` has the closing text, which is empty for a line that is no sample.
    `added_size` is the number of bytes by which the lines become longer.
    """

    cuts: Cuts
    series: Sequence[Series]
    rows: Callable[[], Iterable[Rows]]
    opened: Sequence[bytes]
    closings: Sequence[bytes]
    added_size: int
    selections: Selections[tuple[int, Series, Row]]

    def cells(self, body: bytes, families: frozenset[bytes]) -> Iterator[Cell]:
        """A cell for each row of the given families, with its value in this body."""
        selected = self.selections.of(families, self._select)
        values = (self.cuts.values(body) or ()) if selected else ()
        for slot, series, row in selected:
            yield Cell(series.name, series.subject, row, values[slot])

    def readings(self, body: bytes, families: frozenset[bytes]) -> Sequence[Reading]:
        """A reading for each sample of the given families, with its value in this body."""
        selected = self.selections.of(families, self._select)
        values = (self.cuts.values(body) or ()) if selected else ()
        return [(series, values[slot]) for slot, series, _ in selected]

    def _select(self, families: frozenset[bytes]) -> Iterator[tuple[int, Series, Row]]:
        for slot, (series, rows) in enumerate(zip(self.series, self.rows(), strict=True)):
            if series.name in families and not series.subject.is_unread:
                yield slot, series, rows.each[0]


class Closings:
    """The texts that close samples' labels, by the rows that samples gain.

    They are kept for the rows of the last page.
    """

    def __init__(self, nobodys: Rows | None = None) -> None:
        """With `nobodys`, all closing texts are made of its row, whoever owns the device."""
        self.nobodys = nobodys
        self._before: dict[int, tuple[Rows, bytes | None]] = {}
        self._of: dict[int, tuple[Rows, bytes | None]] = {}  # by id(rows), which are kept alive here

    def turn(self) -> None:
        """Begin another state of owners."""
        self._before = self._of
        self._of = {}

    def of(self, rows: Iterable[Rows]) -> list[bytes] | None:
        """The closing text of each `Rows`; None if one of them has several rows, or values of its own."""
        of_rows = self._of
        closings = []
        for row in rows:
            closing = of_rows.get(id(row)) or self._close(row)
            if closing[1] is None:
                return None
            closings.append(closing[1])
        return closings

    def by_subject(self, rows_of: Mapping[int, Rows]) -> Mapping[int, bytes] | None:
        """The closing texts by id(subject), if a sample's rows depend only on its subject; None as in `of`."""
        closings = self.of(rows_of.values())
        return None if closings is None else {_NO_SAMPLE: b"", **dict(zip(rows_of, closings, strict=True))}

    def _close(self, rows: Rows) -> tuple[Rows, bytes | None]:
        closed = self._before.get(id(rows))
        if closed is None:
            closing: bytes | None = None
            if rows.values is None and len(rows.each) == 1:
                extra = render_labels((self.nobodys or rows).each[0].labels)
                closing = b",%b} " % extra if extra else _BRACE
            closed = (rows, closing)
        self._of[id(rows)] = closed
        return closed


class PlainBlock:
    """A block whose lines go out as they came. `owned` has its last rows, by the attribution `owned_for`."""

    def __init__(self, shape: Shape) -> None:
        """`shape` is one that `is_plain` says yes to."""
        self.start: bytes = shape.start
        self.cuts: Cuts = shape.cuts
        self.series: Sequence[Series] = tuple(entry.series for entry in shape.entries if isinstance(entry, ShapeRow))
        self.subjects: Sequence[tuple[Subject, int]] = shape.subjects
        self.families_before: Mapping[bytes, PageFamily | None] = shape.families_before
        self.left: Mapping[bytes, PageFamily] = shape.left
        self.owned: Owned | None = None
        self.owned_for: object = None
        heads = self.cuts.heads
        ids = map(id, map(attrgetter("subject"), self.series))
        if shape.is_renamed:
            self._opened = [
                entry + b"\n" if isinstance(entry, bytes) else entry.open[: -len(_COMMA)] for entry in shape.entries
            ]
        else:
            self._opened = [head.removesuffix(_BRACE) for head in heads]
        # the number of bytes by which the lines' own texts are longer than the texts that came
        self._longer = sum(map(len, self._opened)) + len(self.series) * len(_BRACE) - self.cuts.size
        lines = chain(heads, *(heads[start:end] for start, end, _ in self.cuts.twins))
        self._subject_ids = tuple(next(ids) if holds_value(head) else _NO_SAMPLE for head in lines)

    @property
    def series_by_head(self) -> Mapping[bytes, Series]:
        """The series by the text before their value, as a reader of another block needs them."""
        return dict(zip(filter(holds_value, self.cuts.heads), self.series, strict=not self.cuts.twins))

    @property
    def with_any_values(self) -> bytes:
        """The text of a block that has these cuts, with 0 for every value."""
        return b"".join(head + b"0\n" if holds_value(head) else head for head in self.cuts.heads)

    def own(self, rows: Sequence[Rows], closings: Sequence[bytes]) -> Owned:
        """The block with these rows, one `Rows` for each sample, and their closing texts."""
        following = iter(closings)
        of_lines = [next(following) if subject_id else b"" for subject_id in self._subject_ids]
        added_size = self._longer + sum(map(len, closings)) - len(closings) * len(_BRACE)
        return Owned(self.cuts, self.series, lambda: rows, self._opened, of_lines, added_size, Selections())

    def own_by_subject(self, rows_of: Mapping[int, Rows], closing_of: Mapping[int, bytes]) -> Owned:
        """The same as `own`, if rows and texts depend only on the samples' subjects: both are by id(subject)."""
        ids = self._subject_ids
        rows = partial(map, rows_of.__getitem__, tuple(filter(None, ids)))
        closings = tuple(map(closing_of.__getitem__, ids))
        added_size = self._longer + sum(map(len, closings)) - len(self.series) * len(_BRACE)
        return Owned(self.cuts, self.series, rows, self._opened, closings, added_size, Selections())


def is_plain(shape: Shape, body: bytes, values: Sequence[bytes]) -> bool:
    """Whether a block goes out as it came, with labels added: no line is left out, mended or written anew."""
    rows = [entry for entry in shape.entries if isinstance(entry, ShapeRow)]
    if not rows or any(row.slot is None for row in rows):
        return False
    if not all(row.head.endswith(_LABELS_END) for row in rows):
        return False
    if shape.is_renamed:
        # every line goes out, whatever its text is
        lines = len(shape.cuts.heads) + sum(end - start for start, end, _ in shape.cuts.twins)
        return len(shape.entries) == lines and all(row.open.endswith(_LABEL_END) for row in rows)
    if len(rows) != len(values) or any(row.series.without_owner is not None for row in rows):
        return False
    return _is_as_it_came(shape.entries, body, values)


def _is_as_it_came(entries: Sequence[ShapeRow | bytes], body: bytes, values: Sequence[bytes]) -> bool:
    """Whether these lines, with these values, are the body."""
    end = 0
    following = iter(values)
    for entry in entries:
        parts = (entry, b"\n") if isinstance(entry, bytes) else (entry.head, next(following, b""), b"\n")
        for part in parts:
            if not body.startswith(part, end):
                return False
            end += len(part)
    return end == len(body)
