"""The shape of a page: everything but the values of its samples.

It stays the same from scrape to scrape, so it is read once, carefully, line by line, and then only compared. What it
means does not depend on who owns which device: that is the layout's part (layout.py).

Rules kept here, since they need more than one line:

- a family's HELP and TYPE go out once, before its first sample; what comes late or contradicts is dropped;
- inside a histogram `le`, inside a summary `quantile`, is a number (promtool);
- the exporter's own names are not for upstreams.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from math import isfinite

from exporter.exposition.lines import MetadataLine, PassedLine, Reason, SampleLine, is_value, read_line
from exporter.exposition.series import Series, SeriesReader
from exporter.model import Subject

RESERVED_PREFIX = b"pod_gpu_exporter_"
_PLAIN_DECIMALS = b"0123456789.+-eE\n"

Wanted = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Row:
    """A sample that may go out. `slot` is which of the page's values is its own.

    A sample with a timestamp, or written in an unusual way, belongs to the shape with its value: it has no slot, and
    `value` and `timestamp` hold what follows the series and the `gap` of blanks.
    """

    series: Series
    slot: int | None
    gap: bytes = b" "
    value: bytes = b""
    timestamp: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What a page is, less its values.

    `is_moving` marks the lines that are a prefix (series and a blank) and a value, also of samples that do not go out;
    `prefixes` are theirs. The other lines, `constants`, belong to the shape (metadata, rejected lines). `entries` are
    the lines that may go out, in order: whole lines, or rows. `subjects` counts the samples by what they are about.
    """

    is_moving: Sequence[bool]
    prefixes: Sequence[bytes]
    is_constant: Sequence[bool]
    constants: Sequence[bytes]
    entries: Sequence[Row | bytes]
    subjects: Mapping[Subject, int]
    rejected: Mapping[Reason, int]

    def values(self, lines: Sequence[bytes]) -> list[bytes] | None:
        """The values of a page of this very shape; None where the shape is another or a value is not valid."""
        # Every step is one pass in C over all lines: this is most of what a scrape costs.
        if len(lines) != len(self.is_moving) or list(compress(lines, self.is_constant)) != self.constants:
            return None
        moving = list(compress(lines, self.is_moving))
        if not all(map(bytes.startswith, moving, self.prefixes)):
            return None
        values = list(map(bytes.removeprefix, moving, self.prefixes))
        return values if _are_values(values) else None


def _are_values(values: Sequence[bytes]) -> bool:
    # Two passes in C instead of a regular expression for each value (2 and 8 µs against 40 for 200 values): float()
    # takes what Go's ParseFloat takes, and more ("1_0", blanks, other digits), but not of these characters alone.
    if not b"\n".join(values).translate(None, _PLAIN_DECIMALS):
        try:
            if isfinite(sum(map(float, values))):
                return True
        except ValueError:
            return False
    return all(map(is_value, values))


@dataclass(slots=True)
class _Family:
    wanted: bool
    metadata: dict[bytes, bytes] = field(default_factory=dict)  # HELP and TYPE, by keyword
    has_samples: bool = False


class ShapeReader:
    """Reads whole pages and keeps what it learnt about their series for the next time."""

    def __init__(self, reader: SeriesReader, wanted: Wanted) -> None:
        """`wanted` says by its name whether a family goes out at all (--families.allow, --families.deny)."""
        self._reader = reader
        self._wanted = wanted
        self._series: dict[bytes, Series] = {}

    @property
    def series(self) -> int:
        """How many series are remembered: those of one page."""
        return len(self._series)

    def read(self, lines: Sequence[bytes]) -> tuple[Shape, list[bytes]]:
        """The shape of a page, and its values. `lines` are those of all pages in upstream order, without newlines."""
        reading = _Reading(self._reader, self._wanted, self._series)
        for line in lines:
            reading.take(line)
        # The cache holds this page's series and no others: it cannot outgrow a page.
        self._series = reading.series
        is_constant = [not moving for moving in reading.is_moving]
        shape = Shape(
            is_moving=reading.is_moving,
            prefixes=reading.prefixes,
            is_constant=is_constant,
            constants=list(compress(lines, is_constant)),
            entries=reading.entries,
            subjects=dict(reading.subjects),
            rejected=dict(reading.rejected),
        )
        return shape, reading.values


class _Reading:
    """One page being read."""

    def __init__(self, reader: SeriesReader, wanted: Wanted, known: Mapping[bytes, Series]) -> None:
        self.entries: list[Row | bytes] = []
        self.series: dict[bytes, Series] = {}
        self.is_moving: list[bool] = []
        self.prefixes: list[bytes] = []
        self.values: list[bytes] = []
        self.rejected: Counter[Reason] = Counter()
        self.subjects: Counter[Subject] = Counter()
        self._reader = reader
        self._wanted = wanted
        self._known = known
        self._families: dict[bytes, _Family] = {}
        self._interned: dict[Subject, Subject] = {series.subject: series.subject for series in known.values()}

    def take(self, line: bytes) -> None:
        """Read one line and note what becomes of it."""
        # at the last blank: a head holds blanks of its own ("NVIDIA H100 80GB HBM3"). With the blank it is the prefix
        # that the next page is compared with: one text for both, 1.8 MB less on a node of 112 instances.
        cut = line.rfind(b" ") + 1
        head, word = line[:cut], line[cut:]
        known = self._known.get(head)
        if known is not None and is_value(word):
            self._take_moving(head, word, known)
            return
        match read_line(line):
            case SampleLine() as sample:
                if sample.had_exemplar:
                    self.rejected[Reason.EXEMPLAR] += 1
                series = self._reader.read(sample, self._interned)
                if head == sample.series + b" " and word == sample.value:
                    self._take_moving(head, word, series)
                    return
                self._take_sample(Row(series, None, sample.gap, sample.value, sample.timestamp))
            case MetadataLine() as metadata:
                self._take_metadata(metadata)
            case PassedLine() as passed:
                self.entries.append(passed.line)
            case Reason() as reason:
                self.rejected[reason] += 1
        self.is_moving.append(False)

    def _take_moving(self, head: bytes, word: bytes, series: Series) -> None:
        """A sample whose value is the last word of its line: it may change without changing the shape."""
        self.is_moving.append(True)
        self.series[head] = series
        self._take_sample(Row(series, len(self.values)))
        self.prefixes.append(head)
        self.values.append(word)

    def _take_sample(self, row: Row) -> None:
        series = row.series
        if series.name.startswith(RESERVED_PREFIX):
            self.rejected[Reason.RESERVED_NAME] += 1
            return
        family = self._family(series.name)
        kind = family.metadata.get(b"TYPE")
        if (kind == b"histogram" and not series.le_is_number) or (kind == b"summary" and not series.quantile_is_number):
            self.rejected[Reason.SYNTAX] += 1
            return
        family.has_samples = True
        self.subjects[series.subject] += 1
        if family.wanted:
            self.entries.append(row)

    def _take_metadata(self, line: MetadataLine) -> None:
        if line.name.startswith(RESERVED_PREFIX):
            self.rejected[Reason.RESERVED_NAME] += 1
            return
        family = self._family(line.name)
        text = family.metadata.get(line.keyword)
        if text is not None or family.has_samples:
            # Said again word for word (by the next upstream), nothing is lost.
            if text != line.text:
                self.rejected[Reason.LATE_METADATA] += 1
            return
        family.metadata[line.keyword] = line.text
        if family.wanted:
            self.entries.append(line.line)

    def _family(self, name: bytes) -> _Family:
        """The family a name belongs to, as promtool sees it: foo_sum is part of foo once foo is typed summary."""
        family = self._families.get(name)
        if family is not None:
            return family
        for suffix, kinds in _SUFFIXES:
            family = self._families.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if family is not None and family.metadata.get(b"TYPE") in kinds:
                return family
        family = self._families[name] = _Family(self._wanted(name.decode()))
        return family


_SUFFIXES = (
    (b"_sum", (b"summary", b"histogram")),
    (b"_count", (b"summary", b"histogram")),
    (b"_bucket", (b"histogram",)),
)
