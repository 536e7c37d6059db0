"""One counter of an exporter, put together of what several targets scraped of it.

A target is one job's, or one server's, view of the exporter. Prometheus stamps a sample with the time at which its
scrape began, by that server's clock, and the value may be as much newer as the answer was late. So samples of two
targets do not stand in the order of their times, and a value below another target's is no restart.

Rules:
1. A value below the same target's value before means that the counter began at 0 in between: an epoch begins.
2. What the counter grew in an epoch is the highest value that any target saw of it. What one target missed another one
   fills in, and nothing counts twice.
3. A target that has not fallen yet may show the epoch before, but not for longer than `SLACK_SECONDS`.
4. A value below what any target saw `SLACK_SECONDS` earlier belongs to a new epoch, whoever saw it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# An answer may be as late as Prometheus waits for it (10 s, unless told otherwise), and two clocks some seconds apart.
SLACK_SECONDS = 15.0
_LONG_AGO = float("-inf")


class Ends(NamedTuple):
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


class ScrapedCounter:
    """Begins at `value`, as `target` saw it; without a target nobody has seen it, and it begins at 0.

    `high` is the highest value of the newest epoch.
    """

    __slots__ = ("_began", "_epoch", "_high_before", "_last", "_target", "high")

    def __init__(self, target: str = "", value: float = 0.0) -> None:
        self.high = value
        self._high_before = 0.0
        self._epoch = 0
        self._began = _LONG_AGO  # when the newest epoch was seen first
        self._target = target
        # the epoch and the value of each target's last sample; None as long as `_target` is the only one, at `high`
        self._last: dict[str, tuple[int, float]] | None = None

    def join(self, target: str, value: float) -> None:
        """Another target sees the counter at this value; nothing has grown."""
        self._enter(target)
        self._leave(target, self._epoch, value)
        self.high = max(self.high, value)

    def has_begun_anew(self, target: str, ends: Ends) -> bool:
        """Whether a target's values say so. One that is new has no value before: then the highest of all counts."""
        before = self._value_before(target)
        return ends.low < (self.high if before is None else before[1])

    def is_clear(self, seen: Mapping[str, Ends]) -> bool:
        """Whether the growth in a piece of the span can be told from its ends, by target."""
        anew = {self.has_begun_anew(target, ends) for target, ends in seen.items()}
        if anew == {True}:
            return all(len(ends.last) == 1 for ends in seen.values())
        return anew == {False} and all(ends.high >= self.high for ends in seen.values())

    def count(self, seen: Mapping[str, Ends]) -> float:
        """By how much the counter grew in a piece of the span that is clear."""
        before = self.high
        high = max(ends.high for ends in seen.values())
        is_anew = any(self.has_begun_anew(target, ends) for target, ends in seen.items())
        if is_anew:
            self._begin_epoch(_LONG_AGO, high)
        for target, ends in seen.items():
            self._enter(target)
            self._leave(target, self._epoch, ends.high)
        self.high = high
        return high if is_anew else high - before

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
        """Of a target that did not fall, soon after another one did. Of one that is new, the nearer value tells."""
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
