"""The reader of lines into the shape of a block, one by one and carefully.

This file keeps the rules that need more than one line:

- a family's HELP and TYPE go out once, before its first sample; a late or contradicting one is dropped;
- in a histogram the label `le` is a number, and in a summary the label `quantile` (promtool);
- upstreams may not use the exporter's own names.

These rules may also need lines of earlier blocks. So a shape records the state of each family that it looked up
(`families_before`) and of each family that it changed (`left`). A block whose families are in the same state again
keeps its shape, and is not read again.

Tests: tests/exposition/test_blocks.py.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import count
from typing import TYPE_CHECKING

from exporter.exposition.block_shape import PageFamily, Shape, ShapeRow
from exporter.exposition.cuts import MOST_VALUE_BYTES, Converted, Cuts, runs_of
from exporter.exposition.lines import LONGEST_LINE, MetadataLine, PassedLine, Reason, SampleLine, is_value, read_line
from exporter.exposition.renaming import AS_IT_CAME
from exporter.exposition.series import Interned, Series, SeriesReader

if TYPE_CHECKING:
    from exporter.exposition.renaming import Texts
    from exporter.model.pages import Subject

RESERVED_PREFIX = b"pod_gpu_exporter_"
# The longest head of a line that is not read again when its value changes: with the longest value that cuts.py accepts,
# the line is still within the limit of a line.
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
        series_before: Mapping[bytes, Series],
        families: Mapping[bytes, PageFamily | None],
        interned: Interned,
    ) -> None:
        """`series_before` are series that need not be read again.

        `families` are the families of all lines before the block; None: not seen before. `wanted` says whether a family
        of this name goes out at all (--families.allow, --families.deny).
        """
        self._reader = reader
        self._wanted = wanted
        self._series_before = series_before
        self._families = families
        self._interned = interned
        self._start: bytes | None = None
        self._heads: list[bytes] = []
        self._entries: list[ShapeRow | bytes] = []
        self._twins: list[ShapeRow | bytes] = []  # twins, which follow the entries
        # by the number of a line whose value goes out as another text: the texts
        self._changes: dict[int, Texts] = {}
        self._twin_lines: dict[int, Texts | None] = {}
        self.values: list[bytes] = []  # the values of the lines taken, in the order of the rows' slots
        self._value_bytes = 0
        self._series: dict[bytes, Series] = {}
        self._rejected: Counter[Reason] = Counter()
        self._counts: dict[int, int] = {}
        self._subjects: dict[int, Subject] = {}
        self._families_here: dict[bytes, PageFamily | None] = {}
        self._left: dict[bytes, PageFamily] = {}

    @property
    def is_renaming(self) -> bool:
        """Whether lines may go out under another name."""
        return self._reader.renaming is not AS_IT_CAME

    @property
    def has_twins(self) -> bool:
        """Whether lines go out twice."""
        return bool(self._twins)

    @property
    def row_count(self) -> int:
        """The number of taken samples that may go out."""
        return sum(isinstance(entry, ShapeRow) for entry in self._entries)

    def shape(self) -> Shape:
        """The shape of the lines taken."""
        slots = count(len(self.values))
        twins = [
            entry if isinstance(entry, bytes) or entry.slot is None else replace(entry, slot=next(slots))
            for entry in self._twins
        ]
        return Shape(
            start=self._start or b"",
            cuts=Cuts(
                heads=self._heads,
                size=sum(map(len, self._heads)),
                changes=[Converted(*run) for run in runs_of(self._changes.items())],
                twins=runs_of(self._twin_lines.items()),
            ),
            entries=self._entries + twins,
            series_by_head=self._series,
            subjects=tuple((self._subjects[key], count) for key, count in self._counts.items()),
            rejected=dict(self._rejected),
            families_before=self._families_here,
            left=self._left,
            is_renamed=self.is_renaming,
        )

    def take(self, line: bytes) -> None:
        """Read one line, given without its newline, and add it to the shape."""
        is_long = len(line) > LONGEST_LINE
        text = line.rstrip(b"\r")
        # split at the last blank, since a head may have blanks ("NVIDIA H100 80GB HBM3")
        split = text.rfind(b" ") + 1
        head = text[:split]
        word = text[split:]
        may_move = (
            not is_long
            and len(line) - len(word) <= _LONGEST_MOVING_HEAD
            and self._value_bytes + len(word) + 1 <= MOST_VALUE_BYTES
            and is_value(word)
        )
        if may_move:
            series = self._series_before.get(head)
            if series is not None:
                self._take_moving(head, word, series)
                return
        self._take_unknown(line, head if may_move else b"", word)

    def _take_unknown(self, line: bytes, head: bytes, word: bytes) -> None:
        """Read a line in full. `head` is b"" if the line must be read again when its value changes."""
        match read_line(line):
            case SampleLine() as sample:
                if sample.had_exemplar:
                    self._rejected[Reason.EXEMPLAR] += 1
                series = self._reader.read(sample, self._interned)
                if head == sample.series + b" " and word == sample.value:
                    self._take_moving(head, word, series)
                    return
                self._take_sample(series, None, sample.series + sample.gap, sample)
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
        """Add a sample whose value is its line's last word, and so may change without changing the shape."""
        if self._start is None:
            self._start = head
        self._series[head] = series
        self._take_sample(series, len(self.values), head)
        self._heads.append(head)
        self.values.append(word)
        self._value_bytes += len(word) + 1

    def _take_sample(self, series: Series, slot: int | None, head: bytes, line: SampleLine | None = None) -> None:
        """Count a sample by its subject, and add its row, unless a rule above rejects it or its family is unwanted.

        The value is in the block's `slot` or, if that is None, in `line`.
        """
        reason = self._reason_against(series)
        if reason is not None:
            self._rejected[reason] += 1
            return
        if series.texts is not None:
            self._changes[len(self._heads)] = series.texts
        subject = series.subject
        samples = self._counts.get(id(subject), 0)
        self._counts[id(subject)] = samples + 1
        if not samples:
            self._subjects[id(subject)] = subject
        if self._note_sample(series):
            self._entries.append(_row(series, slot, head, line))
        twin = series.twin
        if twin is not None and self._reason_against(twin) is None and self._note_sample(twin):
            self._twins.append(_row(twin, slot, head, line))
            self._twin_lines[len(self._heads)] = twin.texts

    def _reason_against(self, series: Series) -> Reason | None:
        if series.name.startswith(RESERVED_PREFIX):
            return Reason.RESERVED_NAME
        kind = self._family(series.name).type
        if (kind == b"histogram" and not series.le_is_number) or (kind == b"summary" and not series.quantile_is_number):
            return Reason.SYNTAX
        return None

    def _note_sample(self, series: Series) -> bool:
        """Note that a sample's family has samples. Returns whether the sample goes out."""
        family = self._family(series.name)
        if not family.has_samples:
            self._left[family.name] = family._replace(has_samples=True)
        return family.wanted

    def _take_metadata(self, line: MetadataLine) -> None:
        """Take in a HELP or TYPE, under the name that its family goes out with, and once more for the family's twin."""
        renaming = self._reader.renaming
        renamed = renaming.families.get(line.name)
        twin = renaming.twins.get(line.name)
        if renamed is not None and renamed.texts is not None:
            self._changes[len(self._heads)] = renamed.texts
        out = line if renamed is None else renamed.metadata(line)
        reason = self._add_metadata(out, self._entries)
        if reason is not None:
            self._rejected[reason] += 1
        if twin is not None:
            entries = len(self._twins)
            self._add_metadata(twin.metadata(line), self._twins)
            if len(self._twins) > entries:
                self._twin_lines[len(self._heads)] = twin.texts

    def _add_metadata(self, line: MetadataLine, entries: list[ShapeRow | bytes]) -> Reason | None:
        """Add a HELP or TYPE to the entries. Returns the reason why it cannot go out."""
        if line.name.startswith(RESERVED_PREFIX):
            return Reason.RESERVED_NAME
        family = self._family(line.name)
        text = family.help if line.keyword == b"HELP" else family.type
        mark = _mark(line.text)
        if text is not None or family.has_samples:
            # The next upstream repeats HELP and TYPE. If they are the same word for word, nothing is lost.
            return Reason.LATE_METADATA if text != mark else None
        if line.keyword == b"HELP":
            self._left[family.name] = family._replace(help=mark)
        else:
            self._left[family.name] = family._replace(type=line.text)
        if family.wanted:
            entries.append(line.line)
        return None

    def _family(self, name: bytes) -> PageFamily:
        """The family of a name, as promtool sees it: foo_sum is a part of foo once foo has the TYPE summary."""
        family = self._look_up(name)
        if family is not None:
            return family
        for suffix, kinds in _SUFFIXES:
            family = self._look_up(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if family is not None and family.type in kinds:
                return family
        family = self._left[name] = PageFamily(name, self._wanted(name.decode()))
        return family

    def _look_up(self, name: bytes) -> PageFamily | None:
        """A family in its present state. The first look-up of a name is recorded, since the shape depends on it."""
        family = self._left.get(name)
        if family is None and name not in self._families_here:
            self._families_here[name] = self._families.get(name)
        return family or self._families_here.get(name)


def _row(series: Series, slot: int | None, head: bytes, line: SampleLine | None) -> ShapeRow:
    if line is None:
        return ShapeRow(series, slot, head)
    value = line.value if series.texts is None else series.texts[line.value + b"\n"][:-1]
    return ShapeRow(series, None, head, line.gap, value, line.timestamp)


def _mark(text: bytes) -> bytes:
    """The text itself, or the digest of a long text, which is enough to tell whether two texts are the same."""
    return text if len(text) <= _LONGEST_MARK else blake2b(text, digest_size=16).digest()


_SUFFIXES = (
    (b"_sum", (b"summary", b"histogram")),
    (b"_count", (b"summary", b"histogram")),
    (b"_bucket", (b"histogram",)),
)
