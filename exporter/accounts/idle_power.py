"""The power that a GPU draws while nobody holds it, by model, as far as the counters of the node's own GPUs tell.

A time in which nobody held a GPU shows this power. If no GPU of the model has ever rested for a whole such time, the
lowest power seen is that of a busy GPU. Then a line tells it better: the line through energy and activity, continued to
no activity. In t nanoseconds with active time a, a GPU draws the energy p * t + s * a, and p is the power at rest.
"""

from dataclasses import dataclass
from math import gcd

Power = tuple[int, int]  # microjoules in nanoseconds, exactly

# A line does not count if it goes through fewer times than _FEWEST, or if the standard error of p is more than one part
# in _MOST_OFF of the mean power.
_FEWEST = 10
_MOST_OFF = 10  # the denominator of that part
# After this number of times all of them count for half, so that new times have weight.
_MOST_TIMES = 4_096


@dataclass(slots=True, eq=False)
class IdlePower:
    """The power of one model at rest.

    `lowest` is the lowest power in any time; `has_rested`: in one of the times nobody held a GPU. `times` counts the
    times whose sums of squares and products are kept: of lengths t (ns), active times a (ns) and energies e (uj).
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
        """Note the power of a GPU in a time without a restart of its counter.

        `is_nobodys`: nobody held it, so it rested.
        """
        energy, ns = power
        lowest = self.lowest
        if lowest is None or is_nobodys or energy * lowest[1] < lowest[0] * ns:
            self.lowest = power
        self.has_rested = self.has_rested or is_nobodys

    def note_active(self, power: Power, active_ns: int) -> None:
        """Note for how long the GPU was active in the time in which it drew this power."""
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
        """The best estimate of the power at rest; None before a counter has grown."""
        if self.lowest is None or self.has_rested:
            return self.lowest
        at_rest = self._on_the_line()
        if at_rest is None:
            return self.lowest
        uj, ns = at_rest
        lowest_uj, lowest_ns = self.lowest
        return at_rest if uj * lowest_ns < lowest_uj * ns else self.lowest

    def _on_the_line(self) -> Power | None:
        """The power without activity on the line of least squares; None if the line does not count.

        All sums are whole numbers. So both sides of the comparison are multiplied by their denominators: fractions
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
