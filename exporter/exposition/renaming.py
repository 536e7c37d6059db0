"""Renaming: families go out under other names, with values in other units, as `--families.names` asks.

A line is renamed when it is read, which happens once for each series. All readers of the joined page see the new names
and values. `Texts` keeps the texts of values, so that most of them are not worked out again.

Tests: tests/exposition/test_renaming.py, tests/exposition/test_join.py.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from exporter.exposition.lines import MetadataLine
from exporter.model.nothing import NOTHING

_MOST_TEXTS = 2_048
_LONGEST_KEPT = 40

Labels = list[tuple[bytes, bytes]]


class Texts(dict[bytes, bytes]):
    """A cache: a value with its line's end → the same value in another unit.

    It forgets all entries when they are too many.
    """

    def __init__(self, convert: Callable[[bytes], bytes]) -> None:
        """`convert` is given a value without its line's end."""
        super().__init__()
        self._convert = convert

    def __missing__(self, rest: bytes) -> bytes:
        if not rest:
            return rest  # the rest of a line that is no sample
        text = self._convert(rest[:-1]) + b"\n"
        if len(rest) <= _LONGEST_KEPT:
            if len(self) >= _MOST_TEXTS:
                self.clear()
            self[rest] = text
        return text


@dataclass(frozen=True, slots=True)
class Renamed:
    """The new name of a family. Its TYPE and HELP text stay if `kind` and `help` are empty.

    `texts` has its values' new texts; None if values stay as they are. `labels` are the labels that go out under other
    names, or under several.
    """

    name: bytes
    kind: bytes
    help: bytes
    texts: Texts | None = None
    labels: Mapping[bytes, tuple[bytes, ...]] = field(default_factory=dict)

    def metadata(self, line: MetadataLine) -> MetadataLine:
        """A HELP or TYPE line as it goes out."""
        text = (self.help if line.keyword == b"HELP" else self.kind) or line.text
        return MetadataLine(line.keyword, self.name, text, b"# %b %b %b" % (line.keyword, self.name, text))

    def labels_of(self, labels: Iterable[tuple[bytes, bytes]]) -> Labels:
        """A sample's labels as they go out. If two labels get the same name, the first stays."""
        out: dict[bytes, bytes] = {}
        for name, value in labels:
            for new in self.labels.get(name, (name,)):
                out.setdefault(new, value)
        return list(out.items())


@dataclass(frozen=True, slots=True)
class Renaming:
    """The renamed families, by the names with which they come.

    Families in `twins` go out a second time, under the other name, behind the lines of their block. Only scrapers see
    twins.
    """

    families: Mapping[bytes, Renamed]
    twins: Mapping[bytes, Renamed] = field(default_factory=dict)

    @property
    def twin_names(self) -> frozenset[bytes]:
        """The names under which families go out a second time."""
        return frozenset(twin.name for twin in self.twins.values())


AS_IT_CAME = Renaming(NOTHING)
