"""By how much the rows of the accounts grew: exactly, from what was scraped, with nothing estimated.

increase() guesses what lies between a row's ends and the ends of its window, and cannot know that a row begins at 0.
Here a row's growth is its last value less the one before, piece by piece of the span, so that pieces add up. Two values
do not show what makes a row begin anew inside a piece, such as a restart of the exporter. Such nodes are left out: they
are asked for in smaller pieces, and in the smallest for each sample.

Rows:
1. A row that was not there before began at 0, if its node was there before. That is how the exporter writes them.
   A server with created-timestamp zero ingestion has a 0 at that moment.
2. What the first scrape of a new node shows may be older than the span: it counts from there on.
3. Several series of one key are one counter, scraped by several targets or under labels that came late. Of one target
   two of them may also be two pods of one name, with other labels: then the later one begins at 0.

A target is one job's, or one server's, view of the exporter. Prometheus stamps a sample with the time at which its
scrape began, by that server's clock, and the value may be as much newer as the answer was late. So samples of two
targets do not stand in the order of their times, and a value below another target's is no restart.

Counters that several targets scrape:
1. A value below the same target's value before means that the counter began at 0 in between: an epoch begins.
2. A counter's growth in an epoch is the highest value that any target saw of it. What one target missed, another one
   fills in, and nothing counts twice.
3. A target that has not fallen yet may show the epoch before, but not for longer than `SLACK_SECONDS`.
4. A value below what any target saw `SLACK_SECONDS` earlier belongs to a new epoch, whoever saw it.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from exporter.report.restarts import ONE_RESTART_SECONDS, Begin, Samples, restarts_in
from exporter.report.rows import FAMILIES, Amounts, CountedSeries, RowKey

_FAMILIES = range(len(FAMILIES))
Nodes = AbstractSet[str]
Families = Sequence[Sequence[CountedSeries]]
# An answer may be as late as Prometheus waits for it (10 s, unless told otherwise), and two clocks some seconds apart.
SLACK_SECONDS = 15.0
_LONG_AGO = float("-inf")


class EndValues(NamedTuple):
    """A target's values at both ends of a piece of the span: of each of its series of the row, the least first."""

    first: Sequence[float]
    last: Sequence[float]

    @property
    def low(self) -> float:
        """The least of all."""
        return min(self.first[0], self.last[-1])

    @property
    def high(self) -> float:
        """The highest of all."""
        return self.last[-1]

    @property
    def overlap(self) -> bool:
        """Whether series do not follow each other, as they do when one counter's labels change."""
        return any(begin < end for end, begin in zip(self.last, self.first[1:], strict=False))


@dataclass(slots=True, eq=False)
class ScrapedCounter:
    """A counter, seen first by a target at a value, `high`; without a target it begins at 0."""

    _target: str = ""
    high: float = 0.0  # of the newest epoch
    _high_before: float = 0.0
    _epoch: int = 0
    _began: float = _LONG_AGO  # when the newest epoch was seen first
    # the epoch and the value of each target's last sample; None as long as `_target` is the only one, at `high`
    _last: dict[str, tuple[int, float]] | None = None

    def join(self, target: str, value: float) -> None:
        """Another target sees the counter at this value; nothing has grown."""
        self._enter(target)
        self._leave(target, self._epoch, value)
        self.high = max(self.high, value)

    def has_begun_anew(self, target: str, ends: EndValues) -> bool:
        """Whether a target's values fell. A new target has no value before: then the highest of all targets' counts."""
        before = self._value_before(target)
        return ends.low < (self.high if before is None else before[1])

    def is_clear(self, seen: Mapping[str, EndValues]) -> bool:
        """Whether the ends of a piece of the span, by target, show what grew in it."""
        if any(self.has_begun_anew(target, ends) for target, ends in seen.items()):
            # it began anew between two pieces: only its samples show when, and what makes it
            return False
        return all(ends.high >= self.high for ends in seen.values())

    def count(self, seen: Mapping[str, EndValues]) -> float:
        """By how much the counter grew in a piece of the span that is clear."""
        before = self.high
        high = max(ends.high for ends in seen.values())
        for target, ends in seen.items():
            self._enter(target)
            self._leave(target, self._epoch, ends.high)
        self.high = high
        return high - before

    def follow(self, samples: Sequence[tuple[float, str, float]], since: float) -> tuple[float, Sequence[float]]:
        """By how much the counter grew, and when it began anew.

        `samples` are seconds, target and value, in order of time. What was seen before is older than `since`.
        """
        grown, begun = 0.0, []
        later = deque([(since, self.high)])
        settled = 0.0
        for at, target, value in samples:
            while later and later[0][0] <= at - SLACK_SECONDS:
                settled = later.popleft()[1]
            before = self._epoch
            grown += self._add(target, at, value, settled)
            if self._epoch != before:
                begun.append(at)
                later.clear()
                settled = 0.0
            later.append((at, self.high))
        return grown, begun

    def _add(self, target: str, at: float, value: float, settled: float) -> float:
        self._enter(target)
        before = self._value_before(target)
        has_fallen = before is not None and value < before[1]
        if at < self._began + SLACK_SECONDS and not has_fallen and self._shows_epoch_before(before, value):
            epoch = before[0] if before else self._epoch - 1
            self._leave(target, epoch, value)
            grew = max(0.0, value - self._high_before) if epoch == self._epoch - 1 else 0.0
            self._high_before += grew
            return grew
        if value < settled or (has_fallen and before is not None and before[0] == self._epoch):
            self._begin_epoch(at, value)
            grew = value
        else:
            grew = max(0.0, value - self.high)
            self.high += grew
        self._leave(target, self._epoch, value)
        return grew

    def _shows_epoch_before(self, before: tuple[int, float] | None, value: float) -> bool:
        """Whether a target still shows the epoch before, soon after another target fell.

        `before` is the epoch and the value that the target showed last. A new target shows the epoch whose highest
        value is nearer.
        """
        if before is None:
            return abs(value - self._high_before) < abs(value - self.high)
        return before[0] < self._epoch

    def _begin_epoch(self, at: float, value: float) -> None:
        self._high_before, self.high = self.high, value
        self._epoch += 1
        self._began = at

    def _value_before(self, target: str) -> tuple[int, float] | None:
        if self._last is None:
            return (self._epoch, self.high) if target == self._target else None
        return self._last.get(target)

    def _enter(self, target: str) -> None:
        """From the second target on, each one's last value is remembered."""
        if not self._target:
            self._target = target
        elif self._last is None and target != self._target:
            self._last = {self._target: (self._epoch, self.high)}

    def _leave(self, target: str, epoch: int, value: float) -> None:
        if self._last is not None:
            self._last[target] = epoch, value


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What a server says of one family in a piece of the span: each series' first and last value, and what fell."""

    first: Sequence[CountedSeries]
    last: Sequence[CountedSeries]
    fell: Sequence[CountedSeries]


class Growth:
    """Adds up what rows have grown. `labels` are the newest of each key, `targets` those of each node, by its place."""

    def __init__(self) -> None:
        self.labels: dict[RowKey, dict[str, str]] = defaultdict(dict)
        self.targets: dict[str, set[str]] = {}
        # seconds of Unix time of the very first sample, where none was there at the beginning of the span
        self.began_seconds: float | None = None
        self._counters: tuple[dict[RowKey, ScrapedCounter], ...] = tuple({} for _ in FAMILIES)
        self._grown: dict[RowKey, list[float]] = defaultdict(lambda: [0.0] * len(FAMILIES))
        self._lately = [0.0] * len(FAMILIES)
        self._restarted: dict[str, list[float]] = defaultdict(list)

    @property
    def grown(self) -> Mapping[RowKey, Amounts]:
        """By how much each row has grown so far, of those that have."""
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

    def begin(self, families: Families, scraped: Sequence[CountedSeries] = ()) -> None:
        """The values at the beginning of the span. For `scraped` see `replay`."""
        for counters, series in zip(self._counters, families, strict=True):
            for one in series:
                counter = counters.get(one.key)
                if counter is None:
                    counters[one.key] = ScrapedCounter(one.target, one.value)
                else:
                    counter.join(one.target, one.value)
        self._note(chain.from_iterable(families), scraped)

    def count(self, pieces: Sequence[Piece]) -> Nodes:
        """Add what grew in a piece of the span. Returns the nodes left out, where its ends do not show what grew.

        There a row fell, or went on as another series that is lower, or a target is new.
        """
        rows_of_families = [_ends(piece) for piece in pieces]
        unclear = self._unclear(pieces, rows_of_families)
        for family, rows in zip(_FAMILIES, rows_of_families, strict=True):
            for key, seen in rows.items():
                if key.place not in unclear:
                    self._add(family, key, self._counter(family, key).count(seen))
        self._note(one for piece in pieces for one in piece.last if one.key.place not in unclear)
        return unclear

    def _unclear(
        self, pieces: Sequence[Piece], rows_of_families: Sequence[Mapping[RowKey, Mapping[str, EndValues]]]
    ) -> Nodes:
        """The nodes of which the ends of a piece do not show what grew."""
        unclear: set[str] = set()
        for piece in pieces:
            unclear.update(one.key.place for one in piece.fell)
            for one in piece.last:
                place = one.key.place
                if one.target not in self.targets.get(place, ()):
                    unclear.add(place)
        for counters, rows in zip(self._counters, rows_of_families, strict=True):
            for key, seen in rows.items():
                if not _is_clear(counters.get(key), seen):
                    unclear.add(key.place)
        return unclear

    def replay(self, families: Families, since_seconds: float, scraped: Sequence[CountedSeries] = ()) -> None:
        """Add what grew in a piece of the span.

        `families` have every sample of it, and it begins at `since_seconds` of Unix time. `scraped` are samples of a
        gauge: they show when a node was scraped, where a first 0 may be a begin.
        """
        node_began = self._first_moments_of_new_nodes(families, scraped)
        if not self.targets:
            self.began_seconds = min(node_began.values(), default=None)
        rows_of_families = [_samples(series) for series in families]
        begins = defaultdict[str, list[Begin]](list)
        for family, rows in zip(_FAMILIES, rows_of_families, strict=True):
            counters = self._counters[family]
            for key, samples in rows.items():
                at, target, value = samples[0]
                if key not in counters and at == node_began.get(key.place):
                    counters[key] = ScrapedCounter(target, value)
                grew, begun = self._counter(family, key).follow(samples, since_seconds)
                self._add(family, key, grew)
                if begun:
                    begins[key.place] += [Begin(moment, key) for moment in begun]
        for place, of_place in begins.items():
            of_families = [_at_place(rows, place) for rows in rows_of_families]
            self._note_restarts(place, restarts_in(of_place, of_families))
        self._note(chain.from_iterable(families), scraped)

    def _first_moments_of_new_nodes(self, families: Families, scraped: Sequence[CountedSeries]) -> Mapping[str, float]:
        """When each node that was not there before was scraped first, in seconds of Unix time, by its place."""
        of_rows = _first_moments(chain.from_iterable(families))
        of_gauge = _first_moments(scraped)
        return {
            place: of_gauge.get(place, at_seconds) for place, at_seconds in of_rows.items() if place not in self.targets
        }

    def _counter(self, family: int, key: RowKey) -> ScrapedCounter:
        return self._counters[family].setdefault(key, ScrapedCounter())

    def _add(self, family: int, key: RowKey, grew: float) -> None:
        if grew:
            self._grown[key][family] += grew
            self._lately[family] += grew

    def _note_restarts(self, node: str, moments: Iterable[float]) -> None:
        for at in moments:
            if all(abs(at - other) > ONE_RESTART_SECONDS for other in self._restarted[node]):
                self._restarted[node].append(at)

    def _note(self, series: Iterable[CountedSeries], scraped: Sequence[CountedSeries] = ()) -> None:
        nodes = {one.key.place for one in scraped}
        for one in series:
            # a 0 alone may be the row's begin
            if len(one.points) > 1 or one.value or one.key.place in nodes:
                self.targets.setdefault(one.key.place, set()).add(one.target)
            if one.labels:
                self.labels[one.key].update(one.labels)


def _is_clear(counter: ScrapedCounter | None, seen: Mapping[str, EndValues]) -> bool:
    if counter is None:
        return not any(ends.overlap for ends in seen.values())
    return counter.is_clear(seen)


def _first_moments(series: Iterable[CountedSeries]) -> Mapping[str, float]:
    """The time of each node's first sample, in seconds of Unix time, by its place."""
    moments: dict[str, float] = {}
    for one in series:
        place = one.key.place
        at_seconds = one.points[0][0]
        moments[place] = min(at_seconds, moments.get(place, at_seconds))
    return moments


def _at_place(rows: Mapping[RowKey, Samples], place: str) -> Mapping[RowKey, Samples]:
    return {key: samples for key, samples in rows.items() if key.place == place}


def _ends(piece: Piece) -> Mapping[RowKey, Mapping[str, EndValues]]:
    """Each row's values at both ends of a piece, by target. A row that has no first value there has its last."""
    first_of_rows = _by_target(piece.first)
    ends: dict[RowKey, dict[str, EndValues]] = {}
    for key, last_of_targets in _by_target(piece.last).items():
        first = first_of_rows.get(key, {})
        ends[key] = {target: EndValues(first.get(target, last), last) for target, last in last_of_targets.items()}
    return ends


def _by_target(series: Iterable[CountedSeries]) -> Mapping[RowKey, Mapping[str, Sequence[float]]]:
    """The values of a row's series, the least first."""
    values: dict[RowKey, dict[str, list[float]]] = defaultdict(dict)
    for one in series:
        each = values[one.key].setdefault(one.target, [])
        each.append(one.value)
        each.sort()
    return values


def _samples(series: Iterable[CountedSeries]) -> Mapping[RowKey, Samples]:
    """All targets' samples of each row, in order of time; of several of one target at a time, the highest."""
    values_of_rows: dict[RowKey, dict[tuple[float, str], float]] = defaultdict(dict)
    for one in series:
        values = values_of_rows[one.key]
        for at, value in one.points:
            moment = (at, one.target)
            values[moment] = max(value, values.get(moment, value))
    samples: dict[RowKey, Samples] = {}
    for key, values in values_of_rows.items():
        samples[key] = sorted((at, target, value) for (at, target), value in values.items())
    return samples
