"""What the shape of a page means: which lines go out, as what, and where the values go.

The shape of a page is everything but the values of its samples. It stays the same from scrape to scrape, so a layout is
worked out once (here, carefully, line by line) and then only filled (`Layout.fill`, the hot path). A layout holds as
long as the shape and the owners do.

Rules kept here, since they need more than one line:

- a family's HELP and TYPE go out once, before its first sample; what comes late or contradicts is dropped;
- no two series that go out are the same;
- inside a histogram `le`, inside a summary `quantile`, is a number (promtool).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from math import isfinite
from typing import Protocol

from exporter.exposition.lines import MetadataLine, PassedLine, Reason, SampleLine, is_value, read_line
from exporter.exposition.series import Series, SeriesReader
from exporter.exposition.text import Labels, render_labels
from exporter.model import JoinedPage, Subject

RESERVED_PREFIX = b"pod_gpu_exporter_"
_PLAIN_DECIMALS = b"0123456789.+-eE\n"


class Attribute(Protocol):
    """Says for every sample, by family name and subject, which rows go out: one tuple of added labels a row."""

    def __call__(self, samples: Sequence[tuple[bytes, Subject]], /) -> Sequence[tuple[Labels, ...]]:
        """One answer a sample, in the order given; never an empty one."""


Wanted = Callable[[str], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How to make the outgoing page from the last words of the incoming lines.

    `heads` is every line's text before its last blank. Of the last words, `is_value` marks those that are values, also
    of samples that do not go out; the others are `constants` and belong to the shape (metadata, rejected lines). The
    page that goes out is pieces[0] + value + pieces[1] + value + … ; `order` says which value, None means one after
    the other.
    """

    heads: Sequence[bytes]
    is_constant: Sequence[bool]
    constants: Sequence[bytes]
    is_value: Sequence[bool]
    pieces: Sequence[bytes]
    order: Sequence[int] | None
    subjects: tuple[Subject, ...]
    sample_count: int
    rejected: Mapping[str, int]

    def values(self, heads: Sequence[bytes], words: Sequence[bytes]) -> list[bytes] | None:
        """The values of a page of this very shape; None where the shape is another or a value is not valid."""
        if heads != self.heads or list(compress(words, self.is_constant)) != self.constants:
            return None
        values = list(compress(words, self.is_value))
        return values if _are_values(values) else None

    def fill(self, values: Sequence[bytes]) -> JoinedPage:
        """The page that goes out."""
        filled: list[bytes] = [b""] * (2 * len(self.pieces) - 1)
        filled[0::2] = self.pieces
        filled[1::2] = values if self.order is None else [values[position] for position in self.order]
        return JoinedPage(
            body=b"".join(filled), subjects=self.subjects, sample_count=self.sample_count, rejected=self.rejected
        )


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


@dataclass(slots=True)
class _Row:
    slot: int  # which of the page's values is this one's
    series: Series
    gap: bytes
    value: bytes  # b"" where the last word of the line is the value and may change without changing the shape
    timestamp: bytes


class LayoutBuilder:
    """Reads whole pages and keeps what it learnt about their series for the next time."""

    def __init__(self, reader: SeriesReader, wanted: Wanted) -> None:
        """`wanted` says by its name whether a family goes out at all (--families.allow, --families.deny)."""
        self._reader = reader
        self._wanted = wanted
        self._series: dict[bytes, Series] = {}

    def build(
        self, lines: Sequence[bytes], heads: Sequence[bytes], words: Sequence[bytes], attribute: Attribute
    ) -> Layout:
        """`lines` are the lines of all pages in upstream order, without newlines; `heads` and `words` their halves."""
        shape = _Reading(self._reader, self._wanted, self._series)
        for position, (line, head, word) in enumerate(zip(lines, heads, words, strict=True)):
            shape.take(position, line, head, word)
        # The cache holds this page's series and no others: it cannot outgrow a page.
        self._series = shape.series
        added = attribute([(row.series.name, row.series.subject) for row in shape.rows])
        return _write(shape, added, heads, words)


class _Reading:
    """The first pass: what every line is."""

    def __init__(self, reader: SeriesReader, wanted: Wanted, known: Mapping[bytes, Series]) -> None:
        self.entries: list[_Row | bytes] = []
        self.series: dict[bytes, Series] = {}
        self.value_positions: list[int] = []
        self.rejected: Counter[str] = Counter()
        self.subjects: dict[Subject, None] = {}
        self._reader = reader
        self._wanted = wanted
        self._known = known
        self._families: dict[bytes, _Family] = {}
        self._interned: dict[Subject, Subject] = {series.subject: series.subject for series in known.values()}

    @property
    def rows(self) -> Iterable[_Row]:
        return (entry for entry in self.entries if isinstance(entry, _Row))

    def take(self, position: int, line: bytes, head: bytes, word: bytes) -> None:
        """Read one line and note what becomes of it."""
        known = self._known.get(head)
        if known is not None and is_value(word):
            self._take_moving(position, head, known)
            return
        match read_line(line):
            case SampleLine() as sample:
                if sample.had_exemplar:
                    self.rejected[Reason.EXEMPLAR] += 1
                series = self._reader.read(sample, self._interned)
                if head == sample.series and word == sample.value:
                    self._take_moving(position, head, series)
                else:
                    self._take_sample(_Row(-1, series, sample.gap, sample.value, sample.timestamp))
            case MetadataLine() as metadata:
                self._take_metadata(metadata)
            case PassedLine() as passed:
                self.entries.append(passed.line)
            case Reason() as reason:
                self.rejected[reason] += 1

    def _take_moving(self, position: int, head: bytes, series: Series) -> None:
        """A sample whose value is the last word of its line: it may change without changing the shape."""
        self.series[head] = series
        self._take_sample(_Row(len(self.value_positions), series, b" ", b"", b""))
        self.value_positions.append(position)

    def _take_sample(self, row: _Row) -> None:
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
        self.subjects[series.subject] = None
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


def _write(
    shape: _Reading, added: Sequence[tuple[Labels, ...]], heads: Sequence[bytes], words: Sequence[bytes]
) -> Layout:
    """The second pass: the rows of every sample, with the labels that attribution adds."""
    pieces: list[bytes] = []
    order: list[int] = []
    seen: set[tuple[object, frozenset[tuple[str, str]]]] = set()
    rendered: dict[Labels, tuple[bytes, frozenset[tuple[str, str]]]] = {}
    text: list[bytes] = []
    sample_count = 0
    additions = iter(added)
    for entry in shape.entries:
        if isinstance(entry, bytes):
            text += (entry, b"\n")
            continue
        series = entry.series
        for labels in next(additions):
            extra = rendered.get(labels)
            if extra is None:
                extra = (render_labels(labels), frozenset(label for label in labels if label[1]))
                rendered[labels] = extra
            identity = (series.identity, extra[1])
            if identity in seen:
                shape.rejected[Reason.DUPLICATE] += 1
                continue
            seen.add(identity)
            sample_count += 1
            text += (series.open, extra[0], b"}") if extra[0] else (series.bare,)
            text += (entry.gap, entry.value, entry.timestamp)
            if not entry.value:
                pieces.append(b"".join(text))
                order.append(entry.slot)
                text = []
            text.append(b"\n")
    pieces.append(b"".join(text))
    is_value_word = [False] * len(heads)
    for position in shape.value_positions:
        is_value_word[position] = True
    is_constant = [not is_value_here for is_value_here in is_value_word]
    return Layout(
        heads=heads,
        is_constant=is_constant,
        constants=list(compress(words, is_constant)),
        is_value=is_value_word,
        pieces=pieces,
        order=None if order == list(range(len(shape.value_positions))) else order,
        subjects=tuple(shape.subjects),
        sample_count=sample_count,
        rejected={str(reason): count for reason, count in shape.rejected.items()},
    )
