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

from exporter.exposition.cuts import Cuts, braces_of, cut
from exporter.exposition.lines import MetadataLine, PassedLine, Reason, SampleLine, is_value, read_line
from exporter.exposition.series import Series, SeriesReader, opened_as_it_came
from exporter.model import Subject

RESERVED_PREFIX = b"pod_gpu_exporter_"

Wanted = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Row:
    """A sample that may go out. `slot` is which of the page's values is its own.

    `head` is what stands before the value, with the `gap` of blanks at its end. A sample with a timestamp, or written
    in an unusual way, belongs to the shape with its value: it has no slot, and `value` and `timestamp` hold what
    follows its head.
    """

    series: Series
    slot: int | None
    head: bytes
    gap: bytes = b" "
    value: bytes = b""
    timestamp: bytes = b""

    @property
    def open(self) -> bytes:
        """Name and labels without the owner's, ready for others to follow."""
        others = self.series.without_owner
        return opened_as_it_came(self.head.removesuffix(self.gap)) if others is None else others

    @property
    def bare(self) -> bytes:
        """Name and labels without the owner's, when none are added."""
        others = self.series.without_owner
        if others is None:
            return self.head.removesuffix(self.gap)
        return others[:-1] + b"}" if others.endswith(b",") else self.series.name


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What a page is, less its values.

    `cuts` finds the values in the next page. `entries` are the lines that may go out, in order: whole lines, or rows.
    `known` are the series by the text before their value, also of samples that do not go out. `subjects` counts the
    samples by what they are about.
    """

    cuts: Cuts
    entries: Sequence[Row | bytes]
    known: Mapping[bytes, Series]
    subjects: Mapping[Subject, int]
    rejected: Mapping[Reason, int]


@dataclass(slots=True)
class _Family:
    wanted: bool
    metadata: dict[bytes, bytes] = field(default_factory=dict)  # HELP and TYPE, by keyword
    has_samples: bool = False


class ShapeReader:
    """Reads whole pages, line by line."""

    def __init__(self, reader: SeriesReader, wanted: Wanted) -> None:
        """`wanted` says by its name whether a family goes out at all (--families.allow, --families.deny)."""
        self._reader = reader
        self._wanted = wanted

    def read(self, body: bytes, known: Mapping[bytes, Series]) -> tuple[Shape, list[bytes]]:
        """The shape of a page, and its values. `known` are the series of the last one: these are not read again."""
        reading = _Reading(self._reader, self._wanted, known)
        lines = split_lines(body)
        for line in lines:
            reading.take(line)
        return reading.shape(body, lines), reading.values


class _Reading:
    """One page being read."""

    def __init__(self, reader: SeriesReader, wanted: Wanted, known: Mapping[bytes, Series]) -> None:
        self.entries: list[Row | bytes] = []
        self.values: list[bytes] = []
        self._is_moving: list[bool] = []
        self._has_bare = False
        self._series: dict[bytes, Series] = {}
        self._rejected: Counter[Reason] = Counter()
        self._subjects: Counter[Subject] = Counter()
        self._reader = reader
        self._wanted = wanted
        self._known = known
        self._families: dict[bytes, _Family] = {}
        self._interned: dict[Subject, Subject] = {series.subject: series.subject for series in known.values()}

    def shape(self, body: bytes, lines: Sequence[bytes]) -> Shape:
        """What the lines taken come to; they are the body's."""
        holds_value: list[bool] = []
        for line, is_moving in zip(lines, self._is_moving, strict=True):
            holds_value += [False] * braces_of(line, has_bare=self._has_bare)
            if is_moving:
                holds_value[-1] = True  # its value follows the last one
        return Shape(
            cuts=cut(body, holds_value, self.values, has_bare=self._has_bare),
            entries=self.entries,
            known=self._series,
            subjects=dict(self._subjects),
            rejected=dict(self._rejected),
        )

    def take(self, line: bytes) -> None:
        """Read one line and note what becomes of it."""
        # at the last blank: a head holds blanks of its own ("NVIDIA H100 80GB HBM3")
        split = line.rfind(b" ") + 1
        head, word = line[:split], line[split:]
        known = self._known.get(head)
        if known is not None and is_value(word):
            self._take_moving(head, word, known)
            return
        match read_line(line):
            case SampleLine() as sample:
                if sample.had_exemplar:
                    self._rejected[Reason.EXEMPLAR] += 1
                series = self._reader.read(sample, self._interned)
                if head == sample.series + b" " and word == sample.value:
                    self._take_moving(head, word, series)
                    return
                head = sample.series + sample.gap
                self._take_sample(Row(series, None, head, sample.gap, sample.value, sample.timestamp))
            case MetadataLine() as metadata:
                self._take_metadata(metadata)
            case PassedLine() as passed:
                self.entries.append(passed.line)
            case Reason() as reason:
                self._rejected[reason] += 1
        self._is_moving.append(False)

    def _take_moving(self, head: bytes, word: bytes, series: Series) -> None:
        """A sample whose value is the last word of its line: it may change without changing the shape."""
        self._is_moving.append(True)
        self._has_bare |= not head.endswith(b"} ")
        self._series[head] = series
        self._take_sample(Row(series, len(self.values), head))
        self.values.append(word)

    def _take_sample(self, row: Row) -> None:
        series = row.series
        if series.name.startswith(RESERVED_PREFIX):
            self._rejected[Reason.RESERVED_NAME] += 1
            return
        family = self._family(series.name)
        kind = family.metadata.get(b"TYPE")
        if (kind == b"histogram" and not series.le_is_number) or (kind == b"summary" and not series.quantile_is_number):
            self._rejected[Reason.SYNTAX] += 1
            return
        family.has_samples = True
        self._subjects[series.subject] += 1
        if family.wanted:
            self.entries.append(row)

    def _take_metadata(self, line: MetadataLine) -> None:
        if line.name.startswith(RESERVED_PREFIX):
            self._rejected[Reason.RESERVED_NAME] += 1
            return
        family = self._family(line.name)
        text = family.metadata.get(line.keyword)
        if text is not None or family.has_samples:
            # Said again word for word (by the next upstream), nothing is lost.
            if text != line.text:
                self._rejected[Reason.LATE_METADATA] += 1
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


def split_lines(body: bytes) -> list[bytes]:
    """The lines of a page without their ends; a missing last newline and carriage returns make no difference."""
    lines = body.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if b"\r" in body:
        lines = [line.rstrip(b"\r") for line in lines]
    return lines


_SUFFIXES = (
    (b"_sum", (b"summary", b"histogram")),
    (b"_count", (b"summary", b"histogram")),
    (b"_bucket", (b"histogram",)),
)
