"""The usual page, and the usual owners: every line goes out as it came, and every sample gains one row of labels.

Such a page is not taken apart. It is cut at its braces (cuts.py), and what goes out are the same pieces with
`,pod="…",namespace="…",container="…"}` where the braces were. Of a series no text is kept but its tail.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from exporter.exposition.layout import Attribute
from exporter.exposition.series import Series
from exporter.exposition.shape import Row, Shape
from exporter.exposition.text import render_labels
from exporter.model import AddedLabels, Cell, JoinedPage, Rows, Subject

_LABELS_END = b'"} '


@dataclass(frozen=True, slots=True, eq=False)
class _Owned:
    """The rows of one state of owners: for each sample, and as the text that closes its labels.

    `added_size` is by how many bytes all of them are longer than braces.
    """

    attribute: Attribute
    rows: Sequence[Rows]
    closings: Sequence[bytes]
    added_size: int
    apart: dict[int, Sequence[tuple[int, Series, AddedLabels]]]


class PlainPage:
    """Pages of one shape that needs no more than labels added, for owners of whom each sample has one row."""

    def __init__(self, shape: Shape) -> None:
        """`shape` is one that `is_plain` says yes to."""
        self.subjects: Mapping[Subject, int] = shape.subjects
        self._cuts = shape.cuts
        self._of_samples = tuple(entry.series for entry in shape.entries if isinstance(entry, Row))
        self._owned: _Owned | None = None

    @property
    def known(self) -> Mapping[bytes, Series]:
        """The series by the text before their value, as a reader of another page needs them."""
        befores = (self._cuts.first, *self._cuts.tails)
        heads = (before[before.rfind(b"\n") + 1 :] + b"} " for before in befores)
        return dict(zip(heads, self._of_samples, strict=False))  # behind the last one no sample begins

    @property
    def series_count(self) -> int:
        """How many series are remembered."""
        return len(self._of_samples)

    def join(self, body: bytes, attribute: Attribute) -> JoinedPage | None:
        """The page that goes out; None where it needs more than this."""
        owned = self._owned
        if owned is None or owned.attribute is not attribute:
            owned = self._owned = self._own(attribute)
        pieces = self._cuts.fill(body, owned.closings) if owned else None
        if owned is None or pieces is None:
            return None
        return JoinedPage(
            pieces=pieces,
            size=len(body) + owned.added_size,
            subjects=self.subjects,
            sample_count=len(self._of_samples),
            rejected={},
            cells=partial(self._take_apart, owned, body),
        )

    def _own(self, attribute: Attribute) -> _Owned | None:
        rows = attribute([(series.name, series.subject) for series in self._of_samples])
        rendered: dict[int, bytes] = {}
        for found in rows:
            if id(found) not in rendered:
                if found.values is not None or len(found.labels) != 1:
                    return None
                extra = render_labels(found.labels[0])
                rendered[id(found)] = b",%b}" % extra if extra else b"}"
        closings = [rendered[id(found)] for found in rows]
        return _Owned(attribute, rows, closings, sum(map(len, closings)) - len(closings), {})

    def _take_apart(self, owned: _Owned, body: bytes, families: Container[bytes]) -> Iterator[Cell]:
        """See `Layout.take_apart`."""
        entries = owned.apart.get(id(families))
        if entries is None:
            entries = owned.apart[id(families)] = [
                (slot, series, rows.labels[0])
                for slot, (series, rows) in enumerate(zip(self._of_samples, owned.rows, strict=True))
                if series.name in families
            ]
        values = self._cuts.values(body) or ()
        for slot, series, labels in entries:
            yield Cell(series.name, series.subject, labels, values[slot])


def is_plain(shape: Shape, body: bytes, values: Sequence[bytes]) -> bool:
    """Whether a page goes out as it came, labels added: nothing left out, mended or written anew."""
    cuts = shape.cuts
    rows = [entry for entry in shape.entries if isinstance(entry, Row)]
    if not rows or cuts.has_bare or cuts.holds_value is not None or len(rows) != len(cuts.tails):
        return False
    if not all(row.series.without_owner is None and row.head.endswith(_LABELS_END) for row in rows):
        return False
    end = 0
    for entry in shape.entries:
        if isinstance(entry, bytes):
            parts: tuple[bytes, ...] = (entry, b"\n")
        elif entry.slot is None:
            return False
        else:
            parts = (entry.head, values[entry.slot], b"\n")
        for part in parts:
            if not body.startswith(part, end):
                return False
            end += len(part)
    return end == len(body) and len({row.series.identity for row in rows}) == len(rows)
