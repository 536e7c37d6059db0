"""The growth of the accounts' rows: exact, from scraped values, with nothing estimated.

PromQL's increase() extrapolates from a row's first and last value to the ends of the window, and cannot know that a row
begins at 0. Here a row's growth is the difference of two values, piece by piece of the span, so that pieces add up. Two
values do not show that a row began anew inside a piece, as after a restart of the exporter. The nodes of such rows are
left out of the piece. The reader then asks about them in smaller pieces, and in the smallest pieces for every sample.

Rows:
1. A new row of a known node began at 0, since the exporter writes rows so. A server with created-timestamp zero
   ingestion has a 0 at that moment.
2. The first values of a new node may be older than the span. Only the growth after them counts.
3. Several series of one key are one counter. Several targets scrape it, or labels came late. But two series of one
   target may also be two pods of one name, with different labels. Then the later series begins at 0.

A target is the view that one job, or one server, has of the exporter. Prometheus stamps a sample with the beginning of
the scrape, by that server's clock. If the answer is late, the value is newer than its stamp. So the times of two
targets' samples do not tell their order, and a value below another target's value is no restart.

Counters that several targets scrape:
1. If a target's value falls, the counter began at 0 since that target's last sample: an epoch begins.
2. A counter's growth in an epoch is the highest value that any target saw in it. So one target fills in what another
   one missed, and nothing counts twice.
3. A target whose value has not fallen yet may show the previous epoch, for at most `SLACK_SECONDS`.
4. A value that is lower than any target's value `SLACK_SECONDS` earlier belongs to a new epoch.
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
# Prometheus waits for an answer for 10 s by default, and two servers' clocks may differ by some seconds.
SLACK_SECONDS = 15.0
_LONG_AGO = float("-inf")


class EndValues(NamedTuple):
    """A target's values at both ends of a piece of the span: one for each of the row's series, the least first."""

    first: Sequence[float]
    last: Sequence[float]

    @property
    def low(self) -> float:
        """The least of all values."""
        return min(self.first[0], self.last[-1])

    @property
    def high(self) -> float:
        """The highest of all values."""
        return self.last[-1]

    @property
    def overlap(self) -> bool:
        """Whether series overlap. They follow each other if they are one counter whose labels changed."""
        return any(begin < end for end, begin in zip(self.last, self.first[1:], strict=False))


@dataclass(slots=True, eq=False)
class ScrapedCounter:
    """A counter, as all targets saw it.

    It begins with the first target's value, `high`; without a target it begins at 0.
    """

    _target: str = ""
    high: float = 0.0  # the highest value in the newest epoch
    _high_before: float = 0.0
    _epoch: int = 0
    _began: float = _LONG_AGO  # the time of the newest epoch's first sample
    # the epoch and the value of each target's last sample; None as long as `_target` alone saw the counter, at `high`
    _last: dict[str, tuple[int, float]] | None = None

    def join(self, target: str, value: float) -> None:
        """Note that another target sees the counter at this value. It has not grown."""
        self._enter(target)
        self._leave(target, self._epoch, value)
        self.high = max(self.high, value)

    def has_begun_anew(self, target: str, ends: EndValues) -> bool:
        """Whether a target's value fell since its last one. A new target's is compared with the highest of all."""
        before = self._value_before(target)
        return ends.low < (self.high if before is None else before[1])

    def is_clear(self, seen: Mapping[str, EndValues]) -> bool:
        """Whether the values at the ends of a piece of the span, by target, show the growth in it."""
        if any(self.has_begun_anew(target, ends) for target, ends in seen.items()):
            # it began anew between two pieces; only the samples show when
            return False
        return all(ends.high >= self.high for ends in seen.values())

    def count(self, seen: Mapping[str, EndValues]) -> float:
        """Return the counter's growth in a piece of the span for which `is_clear` is true."""
        before = self.high
        high = max(ends.high for ends in seen.values())
        for target, ends in seen.items():
            self._enter(target)
            self._leave(target, self._epoch, ends.high)
        self.high = high
        return high - before

    def follow(self, samples: Sequence[tuple[float, str, float]], since: float) -> tuple[float, Sequence[float]]:
        """Return the counter's growth, and the moments at which it began anew.

        `samples` are seconds, target and value, in order of time. All earlier values are older than `since`.
        """
        grown = 0.0
        begun = []
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
        """The growth that a target's value shows. A value below `settled`, or its last, has begun anew."""
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
        """Whether a target still shows the previous epoch, soon after another target's value fell.

        `before` is the target's last epoch and value. A new target shows the epoch whose highest value is nearer.
        """
        if before is None:
            return abs(value - self._high_before) < abs(value - self.high)
        return before[0] < self._epoch

    def _begin_epoch(self, at: float, value: float) -> None:
        self._high_before = self.high
        self.high = value
        self._epoch += 1
        self._began = at

    def _value_before(self, target: str) -> tuple[int, float] | None:
        if self._last is None:
            return (self._epoch, self.high) if target == self._target else None
        return self._last.get(target)

    def _enter(self, target: str) -> None:
        """Note the target. From the second target on, every target's last value is remembered."""
        if not self._target:
            self._target = target
        elif self._last is None and target != self._target:
            self._last = {self._target: (self._epoch, self.high)}

    def _leave(self, target: str, epoch: int, value: float) -> None:
        if self._last is not None:
            self._last[target] = epoch, value


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyPiece:
    """A server's answers about one family in a piece of the span.

    They are each series' first value and last value, and the series that fell.
    """

    first: Sequence[CountedSeries]
    last: Sequence[CountedSeries]
    fell: Sequence[CountedSeries]


class Growth:
    """The sum of each row's growth. `labels` has the newest labels of each key, `targets` each node's, by its place."""

    def __init__(self) -> None:
        self.labels: dict[RowKey, dict[str, str]] = defaultdict(dict)
        self.targets: dict[str, set[str]] = {}
        # Unix time of the very first sample, if there was none at the beginning of the span
        self.began_seconds: float | None = None
        self._counters: tuple[dict[RowKey, ScrapedCounter], ...] = tuple({} for _ in FAMILIES)
        self._grown: dict[RowKey, list[float]] = defaultdict(lambda: [0.0] * len(FAMILIES))
        self._lately = [0.0] * len(FAMILIES)
        self._restarted: dict[str, list[float]] = defaultdict(list)

    @property
    def grown(self) -> Mapping[RowKey, Amounts]:
        """The growth so far of each row that has grown."""
        return {key: Amounts(*amounts) for key, amounts in self._grown.items() if any(amounts)}

    @property
    def restarts(self) -> Mapping[str, int]:
        """The number of times that a node's counters began anew, by node."""
        return {node: len(moments) for node, moments in self._restarted.items()}

    @property
    def rows(self) -> int:
        """The number of rows that are remembered."""
        return max(len(counters) for counters in self._counters)

    def take_lately(self) -> Amounts:
        """Return the growth of all rows since the last call."""
        taken = Amounts(*self._lately)
        self._lately = [0.0] * len(FAMILIES)
        return taken

    def begin(self, families: Families, scraped: Sequence[CountedSeries] = ()) -> None:
        """Note the values at the beginning of the span. For `scraped` see `replay`."""
        for counters, series in zip(self._counters, families, strict=True):
            for counted in series:
                counter = counters.get(counted.key)
                if counter is None:
                    counters[counted.key] = ScrapedCounter(counted.target, counted.value)
                else:
                    counter.join(counted.target, counted.value)
        self._note(chain.from_iterable(families), scraped)

    def count(self, pieces: Sequence[FamilyPiece]) -> Nodes:
        """Add the growth in a piece of the span. Return the nodes left out, whose values at its ends do not show it.

        On such a node a row fell, or went on as another series with a lower value, or a target is new.
        """
        rows_of_families = [_ends(piece) for piece in pieces]
        unclear = self._unclear(pieces, rows_of_families)
        for family, rows in zip(_FAMILIES, rows_of_families, strict=True):
            for key, seen in rows.items():
                if key.place not in unclear:
                    self._add(family, key, self._counter(family, key).count(seen))
        self._note(counted for piece in pieces for counted in piece.last if counted.key.place not in unclear)
        return unclear

    def _unclear(
        self, pieces: Sequence[FamilyPiece], rows_of_families: Sequence[Mapping[RowKey, Mapping[str, EndValues]]]
    ) -> Nodes:
        """The nodes whose growth does not show at the ends of a piece."""
        unclear: set[str] = set()
        for piece in pieces:
            unclear.update(counted.key.place for counted in piece.fell)
            for counted in piece.last:
                place = counted.key.place
                if counted.target not in self.targets.get(place, ()):
                    unclear.add(place)
        for counters, rows in zip(self._counters, rows_of_families, strict=True):
            for key, seen in rows.items():
                if not _is_clear(counters.get(key), seen):
                    unclear.add(key.place)
        return unclear

    def replay(self, families: Families, since_seconds: float, scraped: Sequence[CountedSeries] = ()) -> None:
        """Add the growth in a piece of the span, from all its samples.

        Args:
            families: the samples of each family.
            since_seconds: the piece's beginning, in Unix time.
            scraped: samples of a gauge, which show when a node was scraped. A counter's first sample does not, since a
                0 may stand for the row's beginning.
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
        """The Unix time of each new node's first scrape, by its place."""
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
        nodes = {counted.key.place for counted in scraped}
        for counted in series:
            # a single 0 may stand for the row's beginning
            if len(counted.points) > 1 or counted.value or counted.key.place in nodes:
                self.targets.setdefault(counted.key.place, set()).add(counted.target)
            if counted.labels:
                self.labels[counted.key].update(counted.labels)


def _is_clear(counter: ScrapedCounter | None, seen: Mapping[str, EndValues]) -> bool:
    if counter is None:
        return not any(ends.overlap for ends in seen.values())
    return counter.is_clear(seen)


def _first_moments(series: Iterable[CountedSeries]) -> Mapping[str, float]:
    """The Unix time of each node's first sample, by its place."""
    moments: dict[str, float] = {}
    for counted in series:
        place = counted.key.place
        at_seconds = counted.points[0][0]
        moments[place] = min(at_seconds, moments.get(place, at_seconds))
    return moments


def _at_place(rows: Mapping[RowKey, Samples], place: str) -> Mapping[RowKey, Samples]:
    return {key: samples for key, samples in rows.items() if key.place == place}


def _ends(piece: FamilyPiece) -> Mapping[RowKey, Mapping[str, EndValues]]:
    """Each row's values at both ends of a piece, by target. A row that has no first value there has its last."""
    first_of_rows = _by_target(piece.first)
    ends: dict[RowKey, dict[str, EndValues]] = {}
    for key, last_of_targets in _by_target(piece.last).items():
        first = first_of_rows.get(key, {})
        ends[key] = {target: EndValues(first.get(target, last), last) for target, last in last_of_targets.items()}
    return ends


def _by_target(series: Iterable[CountedSeries]) -> Mapping[RowKey, Mapping[str, Sequence[float]]]:
    """The values of each row's series by target, the least first."""
    values: dict[RowKey, dict[str, list[float]]] = defaultdict(dict)
    for counted in series:
        each = values[counted.key].setdefault(counted.target, [])
        each.append(counted.value)
        each.sort()
    return values


def _samples(series: Iterable[CountedSeries]) -> Mapping[RowKey, Samples]:
    """All targets' samples of each row, in order of time. If a target has several at one time, the highest counts."""
    values_of_rows: dict[RowKey, dict[tuple[float, str], float]] = defaultdict(dict)
    for counted in series:
        values = values_of_rows[counted.key]
        for at, value in counted.points:
            moment = (at, counted.target)
            values[moment] = max(value, values.get(moment, value))
    samples: dict[RowKey, Samples] = {}
    for key, values in values_of_rows.items():
        samples[key] = sorted((at, target, value) for (at, target), value in values.items())
    return samples
