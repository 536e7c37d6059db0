"""The layout of the page that goes out: a shape with the owners of the moment, ready for values.

Made anew when the shape or the owners change, and otherwise only filled (`Layout.fill`). The rule kept here: no two
series that go out are the same. The first in upstream order wins.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from exporter.exposition.lines import Reason
from exporter.exposition.series import Series, identity_of
from exporter.exposition.shape import Row, Shape
from exporter.exposition.text import Labels, render_labels
from exporter.model import Cell, JoinedPage, Rows, ShareValues, Subject


class Attribute(Protocol):
    """Says for every sample, by family name and subject, which rows go out."""

    def __call__(self, samples: Sequence[tuple[bytes, Subject]], /) -> Sequence[Rows]:
        """One answer a sample, in the order given, never without a row. Equal answers are best the same object."""


class LaidOutPage:
    """Pages of one shape, whatever is to be left out, mended or written several times."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        # once, not with every change of owners
        self._opens = [entry.open for entry in shape.entries if isinstance(entry, Row)]
        self._layout: Layout | None = None

    @property
    def subjects(self) -> Mapping[Subject, int]:
        """What the samples are about, and how many of each. The same object as long as this one is in use."""
        return self._shape.subjects

    @property
    def known(self) -> Mapping[bytes, Series]:
        """The series by the text before their value, as a reader of another page needs them."""
        return self._shape.known

    @property
    def series_count(self) -> int:
        """How many series are remembered."""
        return len(self._shape.known)

    def join(self, body: bytes, attribute: Attribute) -> JoinedPage | None:
        """The page that goes out; None where the body is of another shape."""
        values = self._shape.cuts.values(body)
        return None if values is None else self.write(values, attribute)

    def write(self, values: Sequence[bytes], attribute: Attribute) -> JoinedPage:
        """The page of this shape with these values. A layout is reused as long as `attribute` is the same object."""
        if self._layout is None or self._layout.attribute is not attribute:
            self._layout = lay_out(self._shape, self._opens, attribute)
        return self._layout.fill(values)


@dataclass(frozen=True, slots=True, eq=False)
class _Divided:
    """A sample whose rows' values are worked out: which of them is at which place of the layout."""

    slot: int
    series: bytes
    values: ShareValues
    places: Sequence[tuple[int, int]]  # number of the row, place


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The page that goes out: pieces[0], a value, pieces[1], a value, and so on.

    `order` says which of the shape's values comes where; None means one after the other. `divided` are the samples
    whose rows do not carry the value that came.
    """

    pieces: Sequence[bytes]
    order: Sequence[int] | None
    divided: Sequence[_Divided]
    shape: Shape
    attribute: Attribute
    apart: dict[int, Sequence[tuple[Row, Rows]]]
    subjects: Mapping[Subject, int]
    sample_count: int
    rejected: dict[str, int]

    def fill(self, values: Sequence[bytes]) -> JoinedPage:
        """The page with its values."""
        filled: list[bytes] = [b""] * (2 * len(self.pieces) - 1)
        filled[0::2] = self.pieces
        filled[1::2] = values if self.order is None else [values[slot] for slot in self.order]
        for sample in self.divided:
            texts = sample.values(sample.series, values[sample.slot])
            for row, place in sample.places:
                filled[2 * place + 1] = texts[row]
        body = b"".join(filled)
        return JoinedPage(
            pieces=(body,),
            size=len(body),
            subjects=self.subjects,
            sample_count=self.sample_count,
            rejected=self.rejected,
            cells=partial(self.take_apart, values),
        )

    def take_apart(self, values: Sequence[bytes], families: Container[bytes]) -> Iterator[Cell]:
        """The rows of some families, one after the other, with what each says. Of two of one series both come.

        Callers pass the same object for the same families: what it comes to is kept for the next page.
        """
        entries = self.apart.get(id(families))
        if entries is None:
            entries = self.apart[id(families)] = self._rows_of(families)
        for entry, rows in entries:
            series = entry.series
            value = entry.value if entry.slot is None else values[entry.slot]
            if rows.values is None:
                for labels in rows.labels:
                    yield Cell(series.name, series.subject, labels, value)
            else:
                share = rows.peek or rows.values
                for labels, text in zip(rows.labels, share(series.identity, value), strict=True):
                    yield Cell(series.name, series.subject, labels, text)

    def _rows_of(self, families: Container[bytes]) -> list[tuple[Row, Rows]]:
        entries = [entry for entry in self.shape.entries if isinstance(entry, Row) and entry.series.name in families]
        added = self.attribute([(entry.series.name, entry.series.subject) for entry in entries])
        return list(zip(entries, added, strict=True))


def lay_out(shape: Shape, opens: Sequence[bytes], attribute: Attribute) -> Layout:  # noqa: C901 - one loop without calls, for speed
    """Write a shape's lines with the labels that attribution adds. `opens` are the rows' own texts to add them to.

    The first scrape after a change of owners waits for this: calls in the inner loop made it a third slower.
    """
    added = attribute([(entry.series.name, entry.series.subject) for entry in shape.entries if isinstance(entry, Row)])
    additions = zip(added, opens, strict=True)
    rendered: dict[int, tuple[bytes, bytes]] = {}  # by the labels' own id: `added` keeps them alive meanwhile
    seen: set[tuple[bytes, bytes]] = set()
    duplicates = 0
    pieces: list[bytes] = []
    order: list[int] = []
    text: list[bytes] = []
    divided: list[_Divided] = []
    for entry in shape.entries:
        if not isinstance(entry, Row):
            text += (entry, b"\n")
            continue
        series, (rows, opened) = entry.series, next(additions)
        places: list[tuple[int, int]] | None = None if rows.values is None else []
        for labels in rows.labels:
            extra = rendered.get(id(labels))
            if extra is None:
                extra = rendered[id(labels)] = (render_labels(labels), _identity_of_added(labels))
            identity = (series.identity, extra[1])
            if identity in seen:
                duplicates += 1
                continue
            seen.add(identity)
            if extra[0]:
                text += (opened, extra[0], b"}", entry.gap)
            else:
                text += (entry.bare, entry.gap)
            if entry.slot is None:
                text += (_value_of_shape(entry, rows, labels), entry.timestamp, b"\n")
                continue
            if places is not None:
                places.append((rows.labels.index(labels), len(order)))
            pieces.append(b"".join(text))
            order.append(entry.slot)
            text = [b"\n"]
        if places and rows.values is not None and entry.slot is not None:
            divided.append(_Divided(entry.slot, series.identity, rows.values, places))
    pieces.append(b"".join(text))
    rejected = Counter(shape.rejected)
    if duplicates:
        rejected[Reason.DUPLICATE] = duplicates
    return Layout(
        pieces=pieces,
        order=None if order == list(range(shape.cuts.value_count)) else order,
        divided=divided,
        shape=shape,
        attribute=attribute,
        apart={},
        subjects=shape.subjects,
        sample_count=len(seen),
        rejected={str(reason): count for reason, count in rejected.items()},
    )


def _value_of_shape(entry: Row, rows: Rows, labels: Labels) -> bytes:
    """A row's value where the sample's is part of the shape: worked out once, not with every page."""
    if rows.values is None:
        return entry.value
    return rows.values(entry.series.identity, entry.value)[rows.labels.index(labels)]


def _identity_of_added(labels: Labels) -> bytes:
    return identity_of(b"", [(name.encode(), value.encode("utf-8", "replace")) for name, value in labels])
