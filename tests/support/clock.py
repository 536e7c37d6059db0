"""One clock for all tests of what keeps, ages and expires."""

from collections.abc import Callable


class Clock:
    """A clock in seconds that a test sets: it stands still at 1000 s, or runs on with another one (`of`).

    `ahead` is how far the test has set it ahead of that; a negative number sets it back.
    """

    def __init__(self, of: Callable[[], float] = lambda: 1000.0) -> None:
        self.ahead = 0.0
        self._of = of

    def __call__(self) -> float:
        return self._of() + self.ahead
