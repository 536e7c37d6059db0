"""The shape of a block of lines: everything but the values of its samples.

A shape stays the same from scrape to scrape. So it is read once (shape_reader.py), and after that only compared. It
does not depend on owners, who come in with the layout (labelled_block.py).

Tests: tests/exposition/test_join.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.exposition.cuts import Cuts
from exporter.exposition.lines import Reason
from exporter.exposition.series import Series, opened_as_it_came
from exporter.model.pages import Subject


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """A sample that may go out. `slot` is the index of its value among the block's values.

    `head` is the text before the value, with the `gap` of blanks at its end. If a sample has a timestamp or an unusual
    form, its value belongs to the shape, too: `slot` is None, and `value` and `timestamp` follow the head.
    """

    series: Series
    slot: int | None
    head: bytes
    gap: bytes = b" "
    value: bytes = b""
    timestamp: bytes = b""

    @property
    def open(self) -> bytes:
        """Name and labels without owner labels, ready for others to follow."""
        others = self.series.without_owner
        return opened_as_it_came(self.head.removesuffix(self.gap)) if others is None else others

    @property
    def bare(self) -> bytes:
        """Name and labels without owner labels, closed, for a row that gains no labels."""
        others = self.series.without_owner
        if others is None:
            return self.head.removesuffix(self.gap)
        return others[:-1] + b"}" if others.endswith(b",") else self.series.name


class PageFamily(NamedTuple):
    """The state of a family at a point of a page: whether it goes out, its HELP and TYPE, and whether it has samples.

    `help` is the text, or the digest of a long text; None if no HELP has come yet. `type` is None if no TYPE has come.
    """

    name: bytes
    wanted: bool
    help: bytes | None = None
    type: bytes | None = None
    has_samples: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A block without its values.

    `start` is its first line, without the value if that may change. `cuts` finds the values in the next page. `entries`
    are the lines that may go out, in order: whole lines, or rows. `series_by_head` has the series by the text before
    their value, also for samples that do not go out. `subjects` counts the samples by subject, each subject once.
    `families_before` has the families that were looked up, in their state before this block (None: not seen before).
    `left` has the families that this block changed, in their state after it. `is_renamed`: lines may go out under
    another name.
    """

    start: bytes
    cuts: Cuts
    entries: Sequence[ShapeRow | bytes]
    series_by_head: Mapping[bytes, Series]
    subjects: Sequence[tuple[Subject, int]]
    rejected: Mapping[Reason, int]
    families_before: Mapping[bytes, PageFamily | None]
    left: Mapping[bytes, PageFamily]
    is_renamed: bool
