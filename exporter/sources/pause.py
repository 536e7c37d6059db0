"""The pause before something that failed is tried again."""

import random
from dataclasses import dataclass
from math import inf

_MOST_GROWTHS = 64  # far beyond every limit, and small enough to compute


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause that grows with each failure in a row: `first_seconds`, then `factor` times as long, and so on.

    `longest_seconds` is its limit. A random factor from `least` to `most` keeps many programs from coming back at once.
    """

    first_seconds: float
    longest_seconds: float = inf
    factor: float = 2.0
    least: float = 1.0
    most: float = 1.0

    def after(self, failures: int, chance: random.Random | None = None) -> float:
        """The pause in seconds after this number of failures in a row. `chance` is for tests."""
        growths = min(max(0, failures - 1), _MOST_GROWTHS)
        longest = min(self.first_seconds * self.factor**growths, self.longest_seconds)
        uniform = chance.uniform if chance else random.uniform
        return longest * uniform(self.least, self.most)
