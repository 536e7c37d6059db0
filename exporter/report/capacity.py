"""How many GPUs there were, from looks at each node every so often. Pure.

Accounts bridge the time in which nobody scraped a node: who held a GPU before and after it held it meanwhile. So does
the capacity, or such a node would have fewer GPU-hours than were held there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

# A longer time without a look is a node that was switched off, as likely as one that nobody scraped.
MOST_GAP_MS = 10 * 60_000
# What was held may be as much more than what there was: a scrape at either end of the span is up to 15 s late.
LATE_SECONDS = 30.0
MOST_OF_ALL = 1.02  # of capacity: there are twelve looks in a piece of the span


@dataclass(slots=True)
class CapacityLooks:
    """Adds up looks, which come in order of time. Nodes are places (`RowKey.place`).

    `seconds` are GPU-seconds by node and model, `seen_ms` for how long each node was there.
    """

    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    seen_ms: dict[str, float] = field(default_factory=dict)
    _latest: dict[str, tuple[int, Mapping[str, float]]] = field(default_factory=dict)

    def begin(self, place: str, from_ms: int, gpus: Mapping[str, float]) -> None:
        """Note the GPUs by model of a look shortly before the span, which begins at `from_ms`: it counts nothing."""
        self._latest[place] = from_ms, gpus

    def add(self, place: str, at_ms: int, step_ms: int, gpus: Mapping[str, float]) -> None:
        """A look that stands for the `step_ms` up to it; what was there before a short gap was there in it."""
        before_ms, before = self._latest.get(place, (at_ms, gpus))
        missing_ms = at_ms - before_ms - step_ms
        if step_ms <= missing_ms <= MOST_GAP_MS:
            self._count(place, missing_ms, before)
        self._count(place, step_ms, gpus)
        self._latest[place] = at_ms, gpus

    def _count(self, place: str, ms: int, gpus: Mapping[str, float]) -> None:
        self.seen_ms[place] = self.seen_ms.get(place, 0.0) + ms
        for model, count in gpus.items():
            where = place, model
            self.seconds[where] = self.seconds.get(where, 0.0) + count * ms / 1000


def gpus_of(capacity: Mapping[tuple[str, str], float], seen_ms: Mapping[str, float]) -> Mapping[str, float]:
    """How many GPUs each node had while it was seen."""
    seconds: dict[str, float] = {}
    for (place, _), amount in capacity.items():
        seconds[place] = seconds.get(place, 0.0) + amount
    gpus: dict[str, float] = {}
    for place, amount in seconds.items():
        seen_seconds = seen_ms.get(place, 0.0) / 1000
        if seen_seconds:
            gpus[place] = amount / seen_seconds
    return gpus


def most_held(gpus: float, seconds: float) -> float:
    """The most GPU-seconds that so many GPUs can have given in a time, as scrapes tell it."""
    return gpus * (seconds * MOST_OF_ALL + LATE_SECONDS)
