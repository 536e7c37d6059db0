"""Memory that many share: where it does not suffice, the one that holds the most of it loses what it holds.

So whoever answers with megabytes takes them from himself, and not from those who answer as they should.
"""

from collections.abc import Callable, Hashable


class Room:
    """`most` bytes, and who holds how many of them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self._held: dict[Hashable, tuple[int, Callable[[], None]]] = {}

    def hold(self, holder: Hashable, size: int, lose: Callable[[], None]) -> None:
        """`holder` holds `size` bytes from now on. `lose` is called if it is to let go of them."""
        self.free(holder)
        self._held[holder] = (size, lose)
        self.used += size
        while self.used > self.most:
            largest = max(self._held, key=lambda of: self._held[of][0])
            _, tell = self._held[largest]
            self.free(largest)
            tell()

    def free(self, holder: Hashable) -> None:
        """`holder` holds nothing more."""
        size, _ = self._held.pop(holder, (0, None))
        self.used -= size
