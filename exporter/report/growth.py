"""By how much the rows of the accounts grew: exactly, from what was scraped, with nothing estimated.

increase() guesses what lies between a row's ends and the ends of its window, and cannot know that a row begins at 0.
Here a row's growth is its last value less the last one before, a piece of the span after the other, so that pieces add
up. What makes a row begin anew inside a piece, a restart of the exporter above all, cannot be told from two values.
Such nodes are left out: they are asked for in smaller pieces, and in the smallest for each sample.

Rules:
1. A row that was not there before began at 0, if its node was known before. That is how the exporter writes them.
2. Of a node that was not known, what its first scrape shows may be older than the span: it counts from there on.
3. Several series of one key are one counter, scraped by several targets (counter.py) or under labels that came late.
   Of one target two of them may also be two pods of one name, with other labels: then the later one begins at 0.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from exporter.report.counter import Ends, ScrapedCounter
from exporter.report.rows import FAMILIES, Amounts, Key, Series

_FAMILIES = range(len(FAMILIES))
# Rows of one node begin anew together, but for those that have nothing yet, and not at the same time for each target.
_ONE_RESTART_SECONDS = 60.0
Nodes = AbstractSet[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What a server says of one family in a piece of the span: each series' first and last value, and what fell."""

    first: Sequence[Series]
    last: Sequence[Series]
    fell: Sequence[Series]


class Growth:
    """Adds up what rows have grown. `labels` are the newest of each key, `targets` those of each node."""

    def __init__(self) -> None:
        self.labels: dict[Key, dict[str, str]] = defaultdict(dict)
        self.targets: dict[str, set[str]] = {}
        # seconds of Unix time of the very first sample, where none was there at the beginning of the span
        self.began_seconds: float | None = None
        self._counters: tuple[dict[Key, ScrapedCounter], ...] = tuple({} for _ in FAMILIES)
        self._grown: dict[Key, list[float]] = defaultdict(lambda: [0.0] * len(FAMILIES))
        self._lately = [0.0] * len(FAMILIES)
        self._restarted: dict[str, list[float]] = defaultdict(list)

    @property
    def grown(self) -> Mapping[Key, Amounts]:
        """By how much each row has grown so far; rows that did not grow are left out."""
        return {key: Amounts(*amounts) for key, amounts in self._grown.items() if any(amounts)}

    @property
    def restarts(self) -> Mapping[str, int]:
        """How many times the counters of a node began anew, by node."""
        return {node: len(moments) for node, moments in self._restarted.items()}

    @property
    def rows(self) -> int:
        """How many are remembered."""
        return max(len(counters) for counters in self._counters)

    def take_lately(self) -> Amounts:
        """By how much all rows have grown since this was asked last."""
        taken, self._lately = Amounts(*self._lately), [0.0] * len(FAMILIES)
        return taken

    def begin(self, families: Sequence[Sequence[Series]]) -> None:
        """The values at the beginning of the span."""
        for counters, series in zip(self._counters, families, strict=True):
            for one in series:
                if one.key in counters:
                    counters[one.key].join(one.target, one.value)
                else:
                    counters[one.key] = ScrapedCounter(one.target, one.value)
        self._note(one for series in families for one in series)

    def count(self, pieces: Sequence[Piece]) -> Nodes:
        """Add what grew in a piece of the span, but for the nodes that are returned: ends do not tell what grew there.

        A row fell, or went on as another series that is lower, or a target is new there.
        """
        unclear = {one.key.node for piece in pieces for one in piece.fell}
        for piece in pieces:
            unclear.update(one.key.node for one in piece.last if one.target not in self.targets.get(one.key.node, ()))
        ends = [_ends(piece) for piece in pieces]
        for counters, rows in zip(self._counters, ends, strict=True):
            unclear.update(key.node for key, seen in rows.items() if not _is_clear(counters.get(key), key, seen))
        for family, rows in zip(_FAMILIES, ends, strict=True):
            for key, seen in rows.items():
                if key.node not in unclear:
                    self._add(family, key, self._counter(family, key).count(seen))
        self._note(one for piece in pieces for one in piece.last if one.key.node not in unclear)
        return unclear

    def replay(self, families: Sequence[Sequence[Series]], since_seconds: float) -> None:
        """Add what grew in a piece of which every sample is there; it begins at a moment of Unix time."""
        began: dict[str, float] = {}
        for one in (one for series in families for one in series):
            node = one.key.node
            if node not in self.targets:
                began[node] = min(began.get(node, one.points[0][0]), one.points[0][0])
        if not self.targets:
            self.began_seconds = min(began.values(), default=None)
        for family, series in zip(_FAMILIES, families, strict=True):
            for key, samples in _samples(series).items():
                at, target, value = samples[0]
                if key not in self._counters[family] and at == began.get(key.node):
                    self._counters[family][key] = ScrapedCounter(target, value)
                grew, begun = self._counter(family, key).follow(samples, since_seconds)
                self._add(family, key, grew)
                if not key.pod:
                    # these rows are there as long as their GPU, so it was not the row that went and came back
                    self._note_restarts(key.node, begun)
        self._note(one for series in families for one in series)

    def _counter(self, family: int, key: Key) -> ScrapedCounter:
        return self._counters[family].setdefault(key, ScrapedCounter())

    def _add(self, family: int, key: Key, grew: float) -> None:
        if grew:
            self._grown[key][family] += grew
            self._lately[family] += grew

    def _note_restarts(self, node: str, moments: Iterable[float]) -> None:
        for at in moments:
            if all(abs(at - other) > _ONE_RESTART_SECONDS for other in self._restarted[node]):
                self._restarted[node].append(at)

    def _note(self, series: Iterable[Series]) -> None:
        for one in series:
            self.targets.setdefault(one.key.node, set()).add(one.target)
            if one.labels:
                self.labels[one.key].update(one.labels)


def _is_clear(counter: ScrapedCounter | None, key: Key, seen: Mapping[str, Ends]) -> bool:
    if counter is None:
        return not any(ends.overlap for ends in seen.values())
    # nobody's row is there as long as its GPU: where it begins anew, the exporter did, and its moment is wanted
    has_restarted = not key.pod and any(counter.has_begun_anew(target, ends) for target, ends in seen.items())
    return not has_restarted and counter.is_clear(seen)


def _ends(piece: Piece) -> Mapping[Key, Mapping[str, Ends]]:
    first, last = _by_target(piece.first), _by_target(piece.last)
    return {
        key: {target: Ends(first.get(key, {}).get(target, values), values) for target, values in targets.items()}
        for key, targets in last.items()
    }


def _by_target(series: Iterable[Series]) -> Mapping[Key, Mapping[str, Sequence[float]]]:
    """The values of a row's series, the least first."""
    values: dict[Key, dict[str, list[float]]] = defaultdict(dict)
    for one in series:
        each = values[one.key].setdefault(one.target, [])
        each.append(one.value)
        each.sort()
    return values


def _samples(series: Iterable[Series]) -> Mapping[Key, Sequence[tuple[float, str, float]]]:
    """All targets' samples of each row, in order of time. Of several that a target has at a time it is the highest."""
    rows: dict[Key, dict[tuple[float, str], float]] = defaultdict(dict)
    for one in series:
        row = rows[one.key]
        for at, value in one.points:
            row[at, one.target] = max(value, row.get((at, one.target), value))
    return {key: sorted((at, target, value) for (at, target), value in row.items()) for key, row in rows.items()}
