"""The layout of the page that goes out: a shape with the owners of the moment, ready for values.

Made anew when the shape or the owners change, and otherwise only filled (`Layout.fill`, the hot path). The rule kept
here: no two series that go out are the same. The first in upstream order wins.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from exporter.exposition.lines import Reason
from exporter.exposition.series import identity_of
from exporter.exposition.shape import Row, Shape
from exporter.exposition.text import Labels, render_labels
from exporter.model import JoinedPage, Subject


class Attribute(Protocol):
    """Says for every sample, by family name and subject, which rows go out: one tuple of added labels a row."""

    def __call__(self, samples: Sequence[tuple[bytes, Subject]], /) -> Sequence[tuple[Labels, ...]]:
        """One answer a sample, in the order given; never an empty one. Equal answers are best the same object."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The page that goes out: pieces[0], a value, pieces[1], a value, and so on.

    `order` says which of the shape's values comes where; None means one after the other.
    """

    pieces: Sequence[bytes]
    order: Sequence[int] | None
    subjects: tuple[Subject, ...]
    sample_count: int
    rejected: dict[str, int]

    def fill(self, values: Sequence[bytes]) -> JoinedPage:
        """The page with its values."""
        filled: list[bytes] = [b""] * (2 * len(self.pieces) - 1)
        filled[0::2] = self.pieces
        filled[1::2] = values if self.order is None else [values[slot] for slot in self.order]
        return JoinedPage(
            body=b"".join(filled), subjects=self.subjects, sample_count=self.sample_count, rejected=self.rejected
        )


def lay_out(shape: Shape, attribute: Attribute) -> Layout:
    """Write a shape's lines with the labels that attribution adds."""
    added = attribute([(entry.series.name, entry.series.subject) for entry in shape.entries if isinstance(entry, Row)])
    additions = iter(added)
    rendered: dict[int, tuple[bytes, bytes]] = {}  # by the labels' own id: `added` keeps them alive meanwhile
    seen: set[tuple[bytes, bytes]] = set()
    duplicates = sample_count = 0
    pieces: list[bytes] = []
    order: list[int] = []
    text: list[bytes] = []
    for entry in shape.entries:
        if not isinstance(entry, Row):
            text += (entry, b"\n")
            continue
        series = entry.series
        for labels in next(additions):
            extra = rendered.get(id(labels))
            if extra is None:
                extra = rendered[id(labels)] = (render_labels(labels), _identity_of_added(labels))
            identity = (series.identity, extra[1])
            if identity in seen:
                duplicates += 1
                continue
            seen.add(identity)
            sample_count += 1
            if extra[0]:
                text += (series.open, extra[0], b"}", entry.gap)
            else:
                text += (series.bare, entry.gap)
            if entry.slot is None:
                text += (entry.value, entry.timestamp, b"\n")
            else:
                pieces.append(b"".join(text))
                order.append(entry.slot)
                text = [b"\n"]
    pieces.append(b"".join(text))
    rejected = Counter(shape.rejected)
    if duplicates:
        rejected[Reason.DUPLICATE] = duplicates
    return Layout(
        pieces=pieces,
        order=None if order == list(range(len(shape.prefixes))) else order,
        subjects=shape.subjects,
        sample_count=sample_count,
        rejected={str(reason): count for reason, count in rejected.items()},
    )


def _identity_of_added(labels: Labels) -> bytes:
    return identity_of(b"", [(name.encode(), value.encode("utf-8", "replace")) for name, value in labels])
