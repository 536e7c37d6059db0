"""What a GPU draws while nobody holds it, by model, as far as the counters of the node's own GPUs tell.

A time in which nobody held a GPU shows it. Where no GPU of the model has ever rested for so long, the lowest power is
that of a busy one. There the line through what was drawn and how active the GPU was, continued to no activity, tells it
better: in nanoseconds t with active time a, a GPU draws p * t + s * a, and p is what is looked for.
"""

from dataclasses import dataclass
from math import gcd

Power = tuple[int, int]  # microjoules in nanoseconds, exactly

# A line through fewer times than this is not believed, nor one whose p may be off by more than this part of the mean
# power: its standard error.
_FEWEST = 10
_MOST_OFF = 10  # one of so many parts
# Then each of these counts for half, so that new ones tell.
_MOST_TIMES = 4_096


@dataclass(slots=True, eq=False)
class IdlePower:
    """The power of one model at rest.

    `lowest` is the lowest of all times; `has_rested`: nobody held a GPU in one of them. Of `times`
    the sums of squares and products are kept: of lengths t (ns), active times a (ns) and energies e (uj).
    """

    lowest: Power | None = None
    has_rested: bool = False
    times: int = 0
    tt: int = 0
    ta: int = 0
    aa: int = 0
    te: int = 0
    ae: int = 0
    ee: int = 0

    def note(self, power: Power, *, is_nobodys: bool) -> None:
        """Note what a GPU drew in a time that no restart of its counter is in; in one of nobody's, it rested."""
        energy, ns = power
        lowest = self.lowest
        if lowest is None or is_nobodys or energy * lowest[1] < lowest[0] * ns:
            self.lowest = power
        self.has_rested = self.has_rested or is_nobodys

    def note_active(self, power: Power, active_ns: int) -> None:
        """Note for how long the GPU was active in the time in which it drew this."""
        energy, ns = power
        self.times += 1
        self.tt += ns * ns
        self.ta += ns * active_ns
        self.aa += active_ns * active_ns
        self.te += ns * energy
        self.ae += active_ns * energy
        self.ee += energy * energy
        if self.times >= _MOST_TIMES:
            self.times //= 2
            self.tt //= 2
            self.ta //= 2
            self.aa //= 2
            self.te //= 2
            self.ae //= 2
            self.ee //= 2

    @property
    def power(self) -> Power | None:
        """What is known best; None before a counter has grown."""
        if self.lowest is None or self.has_rested:
            return self.lowest
        at_rest = self._on_the_line()
        if at_rest is None or at_rest[0] * self.lowest[1] >= self.lowest[0] * at_rest[1]:
            return self.lowest
        return at_rest

    def _on_the_line(self) -> Power | None:
        """What the line says of no activity, by least squares; None where the times do not tell.

        All sums are whole numbers, so each side of the comparison is multiplied by what it is divided by: fractions
        would bring a library of decimals onto every node.
        """
        of_all = self.tt * self.aa - self.ta * self.ta
        if self.times < _FEWEST or of_all <= 0:
            return None
        at_rest = self.te * self.aa - self.ae * self.ta  # / of_all
        by_activity = self.ae * self.tt - self.te * self.ta  # / of_all
        left = self.ee * of_all - at_rest * self.te - by_activity * self.ae  # / of_all
        # variance: left * aa / (of_all² * (times - 2)); mean: te / tt
        variance = left * self.aa * (_MOST_OFF * self.tt) ** 2
        most = (self.te * of_all) ** 2 * (self.times - 2)
        if variance > most:
            return None
        at_rest = max(at_rest, 0)
        common = gcd(at_rest, of_all)
        return at_rest // common, of_all // common
