"""What is to be done: a queue of keys, each of which is in it once, however often it was named.

A key whose work failed comes again by itself, later each time, and each with a pause of its own: 0.2 s to 60 s.
"""

import asyncio
import heapq
import random
from itertools import count

from exporter.operator.objects.kinds import Key

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 60.0
# In a cluster with more custom resources than this, the rest are looked at only when something happens to them.
MOST_KEYS = 10_000
# Stands for all custom resources: list them, and look for objects whose custom resource is gone. Always has a place.
EVERYTHING = Key("", "", "")


class Work:
    """Keys to look at: at once, in the order in which they were named, or at a time of their own."""

    def __init__(self, seed: int | None = None) -> None:
        """`seed` is of the pauses."""
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._now: dict[Key, None] = {}
        self._later: list[tuple[float, int, Key]] = []
        # when each key is due; an entry of `_later` with another time is forgotten
        self._due: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._numbers = count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait."""
        return len(self._now) + len(self._due)

    def add(self, key: Key) -> None:
        """Look at it as soon as possible."""
        if key in self._now or not self._has_room(key):
            return
        self._due.pop(key, None)
        self._now[key] = None
        self._changed.set()

    def add_after(self, key: Key, seconds: float) -> None:
        """Look at it in so many seconds, unless it is looked at before."""
        at = asyncio.get_running_loop().time() + seconds
        if key in self._now or self._due.get(key, at) < at or not self._has_room(key):
            return
        self._due[key] = at
        heapq.heappush(self._later, (at, next(self._numbers), key))
        self._changed.set()

    def _has_room(self, key: Key) -> bool:
        return len(self) < MOST_KEYS or key in self._due or key == EVERYTHING

    def failed(self, key: Key, at_least_seconds: float = 0.0) -> float:
        """Look at it again, after a pause that grows with each failure in a row; the pause."""
        failures = self._failures[key] = min(self._failures.get(key, 0) + 1, 32)
        longest = min(FIRST_PAUSE_SECONDS * 2.0 ** (failures - 1), LONGEST_PAUSE_SECONDS)
        pause = max(self._chance.uniform(longest / 2, longest), at_least_seconds)
        self.add_after(key, pause)
        return pause

    def went_well(self, key: Key) -> None:
        """The next failure of it is the first one."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """There is no such object any more."""
        self._failures.pop(key, None)
        self._due.pop(key, None)

    async def get(self) -> Key:
        """The next key; waits for it. It is out of the queue: named again, it comes again."""
        while True:
            self._changed.clear()
            wait_seconds = self._ripen()
            if self._now:
                key = next(iter(self._now))
                del self._now[key]
                return key
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _ripen(self) -> float | None:
        """Move what is due to what is to be done; how long until the next is due, None where none is."""
        now = asyncio.get_running_loop().time()
        while self._later:
            at, _, key = self._later[0]
            if self._due.get(key) == at:
                if at > now:
                    return at - now
                del self._due[key]
                self._now[key] = None
            heapq.heappop(self._later)
        return None
