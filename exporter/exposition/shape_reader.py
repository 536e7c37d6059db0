"""Reading lines into the shape of a block, one by one and carefully.

These rules are kept here, since they need more than one line:

- a family's HELP and TYPE go out once, before its first sample; a late or contradicting one is dropped;
- in a histogram the label `le` is a number, and in a summary the label `quantile` (promtool);
- upstreams may not use the exporter's own names.

These rules may also need lines of earlier blocks. So a shape records the state of each family that it looked up
(`found`) and of each family that it changed (`left`). A block whose families are in the same state again keeps its
shape, and is not read again.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

from exporter.exposition.cuts import MOST_VALUE_BYTES, cuts_of
from exporter.exposition.lines import (
    LONGEST_LINE,
    MetadataLine,
    PassedLine,
    Reason,
    SampleLine,
    is_value,
    read_line,
)
from exporter.exposition.series import Interned, Series, SeriesReader
from exporter.exposition.shape import Family, Shape, ShapeRow

if TYPE_CHECKING:
    from exporter.model.pages import Subject

RESERVED_PREFIX = b"pod_gpu_exporter_"
# The longest head of a line whose value may change without the line being read again: with the longest value that
# cuts.py accepts, the line is still no longer than a line may be.
_LONGEST_MOVING_HEAD = LONGEST_LINE - MOST_VALUE_BYTES
_LONGEST_MARK = 100

Wanted = Callable[[str], bool]


class ShapeReader:
    """Reads the lines of one block into a shape."""

    def __init__(
        self,
        reader: SeriesReader,
        wanted: Wanted,
        *,
        known: Mapping[bytes, Series],
        families: Mapping[bytes, Family],
        interned: Interned,
    ) -> None:
        """`known` are series that need not be read again; `families` are the families of all lines before the block.

        `wanted` says whether a family of this name goes out at all (--families.allow, --families.deny).
        """
        self._reader = reader
        self._wanted = wanted
        self._known = known
        self._families = families
        self._interned = interned
        self._start: bytes | None = None
        self._heads: list[bytes] = []
        self._entries: list[ShapeRow | bytes] = []
        self._values: list[bytes] = []
        self._value_bytes = 0
        self._series: dict[bytes, Series] = {}
        self._rejected: Counter[Reason] = Counter()
        self._counts: dict[int, int] = {}
        self._subjects: dict[int, Subject] = {}
        self._found: dict[bytes, Family | None] = {}
        self._left: dict[bytes, Family] = {}

    @property
    def values(self) -> list[bytes]:
        """The values of the lines taken, in the order of the rows' slots."""
        return self._values

    @property
    def row_count(self) -> int:
        """How many of the samples that were taken may go out."""
        return sum(isinstance(entry, ShapeRow) for entry in self._entries)

    def shape(self) -> Shape:
        """The shape of the lines taken."""
        return Shape(
            start=self._start or b"",
            cuts=cuts_of(self._heads),
            entries=self._entries,
            known=self._series,
            subjects=tuple((self._subjects[key], count) for key, count in self._counts.items()),
            rejected=dict(self._rejected),
            found=self._found,
            left=self._left,
        )

    def take(self, line: bytes) -> None:
        """Read one line, given without its newline, and add it to the shape."""
        is_long, text = len(line) > LONGEST_LINE, line.rstrip(b"\r")
        # split at the last blank, since a head may hold blanks ("NVIDIA H100 80GB HBM3")
        split = text.rfind(b" ") + 1
        head, word = text[:split], text[split:]
        may_move = (
            not is_long
            and len(line) - len(word) <= _LONGEST_MOVING_HEAD
            and self._value_bytes + len(word) + 1 <= MOST_VALUE_BYTES
            and is_value(word)
        )
        if may_move:
            known = self._known.get(head)
            if known is not None:
                self._take_moving(head, word, known)
                return
        self._take_unknown(line, head if may_move else b"", word)

    def _take_unknown(self, line: bytes, head: bytes, word: bytes) -> None:
        """Read a line in full. `head` is b"" where the value may not change without the line being read again."""
        match read_line(line):
            case SampleLine() as sample:
                if sample.had_exemplar:
                    self._rejected[Reason.EXEMPLAR] += 1
                series = self._reader.read(sample, self._interned)
                if head == sample.series + b" " and word == sample.value:
                    self._take_moving(head, word, series)
                    return
                head = sample.series + sample.gap
                self._take_sample(ShapeRow(series, None, head, sample.gap, sample.value, sample.timestamp))
            case MetadataLine() as metadata:
                self._take_metadata(metadata)
            case PassedLine() as passed:
                self._entries.append(passed.line)
            case Reason() as reason:
                self._rejected[reason] += 1
        if self._start is None:
            self._start = line
        self._heads.append(line + b"\n")

    def _take_moving(self, head: bytes, word: bytes, series: Series) -> None:
        """Add a sample whose value is the last word of its line: the value may change without changing the shape."""
        if self._start is None:
            self._start = head
        self._heads.append(head)
        self._series[head] = series
        self._take_sample(ShapeRow(series, len(self._values), head))
        self._values.append(word)
        self._value_bytes += len(word) + 1

    def _take_sample(self, row: ShapeRow) -> None:
        """Count a sample by its subject, and add its row, unless a rule above rejects it or its family is unwanted."""
        series = row.series
        if series.name.startswith(RESERVED_PREFIX):
            self._rejected[Reason.RESERVED_NAME] += 1
            return
        family = self._family(series.name)
        kind = family.type
        if (kind == b"histogram" and not series.le_is_number) or (kind == b"summary" and not series.quantile_is_number):
            self._rejected[Reason.SYNTAX] += 1
            return
        if not family.has_samples:
            self._left[family.name] = family._replace(has_samples=True)
        subject = series.subject
        count = self._counts.get(id(subject), 0)
        self._counts[id(subject)] = count + 1
        if not count:
            self._subjects[id(subject)] = subject
        if family.wanted:
            self._entries.append(row)

    def _take_metadata(self, line: MetadataLine) -> None:
        if line.name.startswith(RESERVED_PREFIX):
            self._rejected[Reason.RESERVED_NAME] += 1
            return
        family = self._family(line.name)
        text = family.help if line.keyword == b"HELP" else family.type
        mark = _mark(line.text)
        if text is not None or family.has_samples:
            # The next upstream repeats HELP and TYPE: if they are the same word for word, nothing is lost.
            if text != mark:
                self._rejected[Reason.LATE_METADATA] += 1
            return
        self._left[family.name] = (
            family._replace(help=mark) if line.keyword == b"HELP" else family._replace(type=line.text)
        )
        if family.wanted:
            self._entries.append(line.line)

    def _family(self, name: bytes) -> Family:
        """The family a name belongs to, as promtool sees it: foo_sum is part of foo once foo is typed summary."""
        family = self._look_up(name)
        if family is not None:
            return family
        for suffix, kinds in _SUFFIXES:
            family = self._look_up(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if family is not None and family.type in kinds:
                return family
        family = self._left[name] = Family(name, self._wanted(name.decode()))
        return family

    def _look_up(self, name: bytes) -> Family | None:
        """A family in its present state. The first look-up of a name is recorded, since the shape depends on it."""
        family = self._left.get(name)
        if family is None and name not in self._found:
            self._found[name] = self._families.get(name)
        return family or self._found.get(name)


def _mark(text: bytes) -> bytes:
    """The text itself, or the digest of a long one: enough to tell whether two texts are the same."""
    return text if len(text) <= _LONGEST_MARK else blake2b(text, digest_size=16).digest()


_SUFFIXES = (
    (b"_sum", (b"summary", b"histogram")),
    (b"_count", (b"summary", b"histogram")),
    (b"_bucket", (b"histogram",)),
)
