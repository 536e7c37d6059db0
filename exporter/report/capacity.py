"""The capacity: the number of GPUs that nodes had, from a look at each node every so often. Pure.

Accounts bridge the time in which nobody scraped a node: a container that held a GPU before and after that time counts
as its holder in between. The capacity bridges it likewise: else the node would have fewer GPU-hours than were held.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

# After a longer time without a look, the node may just as well have been switched off.
MOST_GAP_MS = 10 * 60_000
# The time held may exceed the capacity by this much: the scrape at each end of the span is up to 15 s late.
LATE_SECONDS = 30.0
MOST_OF_ALL = 1.02  # of the capacity, since a piece of the span has only twelve looks


@dataclass(slots=True)
class CapacityLooks:
    """The sums over all looks, which are added in order of time. Nodes are named by their places (`RowKey.place`).

    `seconds` are GPU-seconds by node and model. `seen_ms` is the time that each node was there.
    """

    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    seen_ms: dict[str, float] = field(default_factory=dict)
    _latest: dict[str, tuple[int, Mapping[str, float]]] = field(default_factory=dict)

    def begin(self, place: str, from_ms: int, gpus: Mapping[str, float]) -> None:
        """Note a node's GPUs by model shortly before the span, which begins at `from_ms`. Nothing is counted yet."""
        self._latest[place] = from_ms, gpus

    def add(self, place: str, at_ms: int, step_ms: int, gpus: Mapping[str, float]) -> None:
        """Add a look. In a short gap before it, the node had the GPUs of the look before.

        Args:
            place: the node's place.
            at_ms: the moment of the look.
            step_ms: the time before that moment for which the look stands.
            gpus: the number of the node's GPUs, by model.
        """
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
    """The number of GPUs that each node had while it was seen."""
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
    """The most GPU-seconds that scrapes can show for so many GPUs in so many seconds."""
    return gpus * (seconds * MOST_OF_ALL + LATE_SECONDS)
