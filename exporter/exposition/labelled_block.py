"""The layout of a block that goes out: a shape with the present owners, ready for values.

It is made again when the shape or the owners change, and otherwise only filled (`Layout.fill`). The rule of this file:
no two series that go out are the same. The first in upstream order wins.

Tests: tests/exposition/test_cuts.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.exposition.block_shape import PageFamily, Shape, ShapeRow
from exporter.exposition.cuts import Cuts
from exporter.exposition.families import Labels, render_labels
from exporter.exposition.selections import Selections
from exporter.exposition.series import Series, identity_of
from exporter.model.pages import Cell, Reading, Rows, ShareValues, Subject

# The series of a page that have been laid out, by their own identity and the identity of the labels that they gained.
LaidOut = set[tuple[bytes, bytes]]
# The value that replaces a sample's value before it is divided, by the series' identity.
Parts = Mapping[bytes, bytes]
# The rows that do not go out, as pairs: the number of the sample and the number of its row.
LeftOut = frozenset[tuple[int, int]]
_OF_SHAPE = -1


class LaidOutBlock:
    """A block whose lines may be left out, mended or written once for each owner.

    `owned` is its layout for `owned_for`.
    """

    def __init__(self, shape: Shape) -> None:
        self.owned: Layout | None = None
        self.owned_for: object = None
        self.shape: Shape = shape

    @property
    def start(self) -> bytes:
        """The block's first line; see `Shape`."""
        return self.shape.start

    @property
    def cuts(self) -> Cuts:
        """The cuts that find the block's values."""
        return self.shape.cuts

    @property
    def series(self) -> Sequence[Series]:
        """The series of the samples that may go out, in order."""
        return [row.series for row in rows_of(self.shape)]

    @property
    def subjects(self) -> Sequence[tuple[Subject, int]]:
        """The subjects of the samples, and the number of samples of each."""
        return self.shape.subjects

    @property
    def series_by_head(self) -> Mapping[bytes, Series]:
        """The series by the text before their value, as a reader of another block needs them."""
        return self.shape.series_by_head

    @property
    def families_before(self) -> Mapping[bytes, PageFamily | None]:
        """The families that were looked up, in their state before the block."""
        return self.shape.families_before

    @property
    def left(self) -> Mapping[bytes, PageFamily]:
        """The families that the block changed, in their state after it."""
        return self.shape.left


def rows_of(shape: Shape) -> Iterator[ShapeRow]:
    """The samples that may go out."""
    return (entry for entry in shape.entries if isinstance(entry, ShapeRow))


@dataclass(frozen=True, slots=True, eq=False)
class _Divided:
    """A sample whose rows' values are worked out, with the place of each row's value in the layout.

    `slot` is the index of the sample's value among the block's values; None if `value` belongs to the shape.
    """

    slot: int | None
    value: bytes
    series: bytes
    values: ShareValues
    places: Sequence[tuple[int, int]]  # number of the row, place


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The block that goes out: pieces[0], a value, pieces[1], a value, and so on.

    `order` has, for each place, the number of the shape's value that comes there; None: all values in order. `divided`
    are the samples whose rows have other values than the sample. If such a sample's value belongs to the shape, `order`
    has _OF_SHAPE. `left_out` are the rows whose series went out before, as pairs: the number of the sample and the
    number of its row. With `nobodys` the text has that row for each sample, and `added` are the rows for readers of
    cells.
    """

    pieces: Sequence[bytes]
    order: Sequence[int] | None
    divided: Sequence[_Divided]
    shape: Shape  # not the block, which refers to this layout: a cycle would stay until the garbage collector runs
    added: Sequence[Rows]
    selections: Selections[tuple[ShapeRow, Rows]]
    sample_count: int
    left_out: LeftOut
    nobodys: Rows | None = None
    is_lean: bool = False

    @property
    def duplicates(self) -> int:
        """The number of rows left out. Rows that differed only in the owners they came with do not count."""
        if self.nobodys is None:
            return len(self.left_out)
        subjects = [row.series.subject for row in rows_of(self.shape)]
        return sum(not subjects[sample].came_with for sample, _ in self.left_out)

    def lean(self) -> "Layout":
        """The same layout without its texts, which are then written anew each time.

        On large pages they would take too much.
        """
        return replace(self, pieces=(), order=(), divided=(), is_lean=True)

    def fill(self, values: Sequence[bytes], parts: Parts) -> bytes:
        """The text of the block with its values.

        For a divided value its part of `parts`, if there is one, counts instead.
        """
        if self.is_lean:
            again = lay_out_for(self.nobodys, self.shape, self.added, frozenset(), set(), self.left_out)
            return again.fill(values, parts)
        filled: list[bytes] = [b""] * (2 * len(self.pieces) - 1)
        filled[0::2] = self.pieces
        if self.order is None:
            filled[1::2] = values
        else:
            any_value = values or (b"",)  # _OF_SHAPE stands for any value: `divided` has the right one
            filled[1::2] = [any_value[slot] for slot in self.order]
        for sample in self.divided:
            value = sample.value if sample.slot is None else values[sample.slot]
            texts = sample.values(sample.series, parts.get(sample.series, value))
            for row, place in sample.places:
                filled[2 * place + 1] = texts[row]
        return b"".join(filled)

    def cells(self, body: bytes, families: frozenset[bytes], parts: Parts) -> Iterator[Cell]:
        """A cell for each row of the given families, with its value in this body, or as `fill` had it from `parts`.

        If two samples are of the same series, the rows of both come.
        """
        selected = self.selections.of(families, self._select)
        values = (self.shape.cuts.values(body) or ()) if selected else ()
        for entry, rows in selected:
            series = entry.series
            value = entry.value if entry.slot is None else values[entry.slot]
            if rows.values is None:
                for row in rows.each:
                    yield Cell(series.name, series.subject, row, value)
            else:
                share = rows.peek or rows.values
                its_value = parts.get(series.identity, value)
                for row, text in zip(rows.each, share(series.identity, its_value), strict=True):
                    yield Cell(series.name, series.subject, row, text)

    def readings(self, body: bytes, families: frozenset[bytes]) -> Sequence[Reading]:
        """A reading for each sample of the given families, with its value in this body."""
        selected = self.selections.of(families, self._select)
        values = (self.shape.cuts.values(body) or ()) if selected else ()
        return [(entry.series, entry.value if entry.slot is None else values[entry.slot]) for entry, _ in selected]

    def _select(self, families: frozenset[bytes]) -> Iterator[tuple[ShapeRow, Rows]]:
        pairs = zip(rows_of(self.shape), self.added, strict=True)
        return (pair for pair in pairs if pair[0].series.name in families and not pair[0].series.subject.is_unread)


def lay_out(
    shape: Shape, added: Sequence[Rows], repeated: frozenset[bytes], laid_out: LaidOut, leave_out: LeftOut = frozenset()
) -> Layout:
    """Write the lines of a block of this shape with the labels that attribution adds, one of `added` for each sample.

    `repeated` are the identities that several samples of the page have. `laid_out` has the series with these identities
    that earlier blocks have laid out; this block's are added to it. `leave_out` are rows that must not go out.
    """
    lines = _Lines(leave_out)
    lines.write(shape, added, repeated, laid_out)
    has_all_values = lines.order == list(range(shape.cuts.value_count))
    return Layout(
        pieces=lines.pieces,
        order=None if has_all_values else lines.order,
        divided=lines.divided,
        shape=shape,
        added=added,
        selections=Selections(),
        sample_count=lines.samples,
        left_out=frozenset(lines.left_out),
    )


class _Lines:
    """The lines of a block as they are written; the fields are those of `Layout`."""

    def __init__(self, leave_out: LeftOut) -> None:
        self.leave_out = leave_out
        self.pieces: list[bytes] = []
        self.order: list[int] = []
        self.divided: list[_Divided] = []
        self.left_out = {*leave_out}
        self.samples = 0

    # The first scrape after a change of owners waits for this, so the inner loop has no calls, which made it a third
    # slower.
    def write(self, shape: Shape, added: Sequence[Rows], repeated: frozenset[bytes], laid_out: LaidOut) -> None:
        """Write the lines; see `lay_out`."""
        pieces = self.pieces
        order = self.order
        samples = 0
        leave_out = self.leave_out
        left_out = self.left_out
        texts_of = _texts_of_rows(added)
        additions = enumerate(added)
        text: list[bytes] = []
        for entry in shape.entries:
            if not isinstance(entry, ShapeRow):
                text += (entry, b"\n")
                continue
            series = entry.series
            opened = entry.open
            sample, rows = next(additions)
            places: list[tuple[int, int]] | None = None if rows.values is None else []
            laid_out_before: LaidOut = laid_out if series.identity in repeated else set()
            for number, row in enumerate(rows.each):
                labels, identity_of_labels = texts_of[id(row)]
                identity = (series.identity, identity_of_labels)
                if identity in laid_out_before or (sample, number) in leave_out:
                    left_out.add((sample, number))
                    continue
                laid_out_before.add(identity)
                samples += 1
                text += (opened, labels, b"}", entry.gap) if labels else (entry.bare, entry.gap)
                if places is not None:
                    places.append((number, len(order)))
                elif entry.slot is None:
                    text += (entry.value, entry.timestamp, b"\n")
                    continue
                pieces.append(b"".join(text))
                order.append(_OF_SHAPE if entry.slot is None else entry.slot)
                text = [entry.timestamp, b"\n"]
            if places and rows.values is not None:
                self.divided.append(_Divided(entry.slot, entry.value, series.identity, rows.values, places))
        pieces.append(b"".join(text))
        self.samples = samples


def _texts_of_rows(added: Sequence[Rows]) -> dict[int, tuple[bytes, bytes]]:
    """The labels of each row as text, and their identity, by the row's own id: many samples have the same rows."""
    texts: dict[int, tuple[bytes, bytes]] = {}
    for rows in {id(rows): rows for rows in added}.values():
        for row in rows.each:
            if id(row) not in texts:
                texts[id(row)] = (render_labels(row.labels), _identity_of_added(row.labels))
    return texts


def lay_out_for(
    nobodys: Rows | None,
    shape: Shape,
    added: Sequence[Rows],
    repeated: frozenset[bytes],
    laid_out: LaidOut,
    leave_out: LeftOut = frozenset(),
) -> Layout:
    """The same as `lay_out`; with `nobodys`, its row is written for each sample, and readers of cells see `added`."""
    if nobodys is None:
        return lay_out(shape, added, repeated, laid_out, leave_out)
    layout = lay_out(shape, [nobodys] * len(added), repeated, laid_out, leave_out)
    return replace(layout, added=added, nobodys=nobodys)


def _identity_of_added(labels: Labels) -> bytes:
    return identity_of(b"", [(name.encode(), value.encode("utf-8", "replace")) for name, value in labels])
