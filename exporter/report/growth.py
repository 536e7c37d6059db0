"""By how much the rows of the accounts grew: exactly, from what was scraped, with nothing estimated.

increase() guesses what lies between a row's ends and the ends of its window, and cannot know that a row begins at 0.
Here a row's growth is its last value less the last one before, a piece of the span after the other, so that pieces add
up. What makes a row begin anew inside a piece, a restart of the exporter above all, cannot be told from two values.
The nodes where that happened are `unclear`: they are asked for in smaller pieces, and in the smallest for each sample.

Rules:
1. A row that was not there before began at 0, if its node was known before. That is how the exporter writes them.
2. Of a node that was not known, what its first scrape shows may be older than the span: it counts from there on.
3. A value below the one before means that the row began at 0 in between.
4. Several series of one key are one counter, scraped twice or under labels that came late. Their samples are one line.
   Of one exporter two of them may also be two pods of one name, with other labels: then the later one begins at 0.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from exporter.report.rows import FAMILIES, Amounts, Key, Series

_FAMILIES = range(len(FAMILIES))
Nodes = AbstractSet[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What a server says of one family in a piece of the span: each series' first and last value, and what fell."""

    first: Sequence[Series]
    last: Sequence[Series]
    fell: Sequence[Series]


class Growth:
    """Adds up what rows have grown. `labels` are the newest of each key."""

    def __init__(self) -> None:
        self.labels: dict[Key, dict[str, str]] = defaultdict(dict)
        self._fell: dict[tuple[int, Key], int] = defaultdict(int)
        self.targets: dict[str, set[tuple[str, str]]] = {}
        # seconds of Unix time of the very first sample, where none was there at the beginning of the span
        self.began_seconds: float | None = None
        self._values: tuple[dict[Key, float], ...] = tuple({} for _ in FAMILIES)
        self._grown: dict[Key, list[float]] = defaultdict(lambda: [0.0] * len(FAMILIES))
        self._lately = [0.0] * len(FAMILIES)

    @property
    def grown(self) -> Mapping[Key, Amounts]:
        """By how much each row has grown so far; rows that did not grow are left out."""
        return {key: Amounts(*amounts) for key, amounts in self._grown.items() if any(amounts)}

    @property
    def restarts(self) -> Mapping[str, int]:
        """How many times the counters of a node began anew, by node."""
        found: dict[str, int] = {}
        for (_, key), count in self._fell.items():
            found[key.node] = max(count, found.get(key.node, 0))
        return found

    @property
    def rows(self) -> int:
        """How many are remembered."""
        return max(len(values) for values in self._values)

    def take_lately(self) -> Amounts:
        """By how much all rows have grown since this was asked last."""
        taken, self._lately = Amounts(*self._lately), [0.0] * len(FAMILIES)
        return taken

    def begin(self, families: Sequence[Sequence[Series]]) -> None:
        """The values at the beginning of the span."""
        for values, found in zip(self._values, families, strict=True):
            for one in found:
                values[one.key] = max(one.value, values.get(one.key, 0.0))
        self._note(one for found in families for one in found)

    def unclear(self, pieces: Sequence[Piece]) -> Nodes:
        """The nodes whose growth cannot be told from first and last values alone.

        A row fell, or went on as another series that is lower, or an exporter is new there.
        """
        fell = {one.key.node for piece in pieces for one in piece.fell}
        for family, piece in zip(_FAMILIES, pieces, strict=True):
            fell.update(self._anew(family, piece))
        new = {
            one.key.node
            for piece in pieces
            for one in piece.last
            if one.target not in self.targets.get(one.key.node, ())
        }
        return fell | new

    def _anew(self, family: int, piece: Piece) -> Iterable[str]:
        """The nodes where one exporter has several series of a row that are several counters.

        Several series can be one counter whose labels changed: then they follow each other, and none begins below the
        row's value before.
        """
        before = self._values[family]
        several = {source: ends for source, ends in _by_source(piece.last).items() if len(ends) > 1}
        firsts = _by_source(piece.first) if several else {}
        for (key, target), ends in several.items():
            begins = firsts.get((key, target), ends)
            overlap = any(begin < end for end, begin in zip(ends, begins[1:], strict=False))
            if begins[0] < before[key] if key in before else overlap:
                yield key.node

    def count(self, pieces: Sequence[Piece], *, without: Nodes) -> None:
        """Add what grew in a piece of the span, but for these nodes."""
        for family, piece in zip(_FAMILIES, pieces, strict=True):
            first = _by_key(piece.first, min)
            for key, last in _by_key(piece.last, max).items():
                if key.node not in without:
                    self._step(family, key, min(first.get(key, last), last))
                    self._step(family, key, last)
        self._note(one for piece in pieces for one in piece.last if one.key.node not in without)

    def replay(self, families: Sequence[Sequence[Series]]) -> None:
        """Add what grew in a piece of which every sample is known."""
        began: dict[str, float] = {}
        for one in (one for found in families for one in found):
            node = one.key.node
            if node not in self.targets:
                began[node] = min(began.get(node, one.points[0][0]), one.points[0][0])
        if not self.targets:
            self.began_seconds = min(began.values(), default=None)
        for family, found in zip(_FAMILIES, families, strict=True):
            points = defaultdict[Key, list[tuple[float, float]]](list)
            for one in found:
                points[one.key] += one.points
            for key, line in points.items():
                for at, value in sorted(line):
                    if key not in self._values[family] and at == began.get(key.node):
                        self._values[family][key] = value
                    else:
                        self._step(family, key, value)
        self._note(one for found in families for one in found)

    def _step(self, family: int, key: Key, value: float) -> None:
        before = self._values[family].get(key, 0.0)
        grew = value - before if value >= before else value
        if value < before and not key.pod:
            # these rows are there as long as their GPU, so it was not the row that went and came back
            self._fell[family, key] += 1
        self._values[family][key] = value
        if grew:
            self._grown[key][family] += grew
            self._lately[family] += grew

    def _note(self, found: Iterable[Series]) -> None:
        for one in found:
            self.targets.setdefault(one.key.node, set()).add(one.target)
            if one.labels:
                self.labels[one.key].update(one.labels)


def _by_key(found: Iterable[Series], choose: Callable[[float, float], float]) -> dict[Key, float]:
    values: dict[Key, float] = {}
    for one in found:
        values[one.key] = choose(one.value, values.get(one.key, one.value))
    return values


def _by_source(found: Iterable[Series]) -> Mapping[tuple[Key, tuple[str, str]], Sequence[float]]:
    """The values of a row's series by exporter, the least first."""
    values = defaultdict[tuple[Key, tuple[str, str]], list[float]](list)
    for one in found:
        values[one.key, one.target].append(one.value)
    return {source: sorted(each) for source, each in values.items()}
