"""The queue of keys to look at. A key is in it once, however often it was named.

Namespaces take turns, so a namespace with thousands of objects delays another one by only one look. A key whose look
failed comes again by itself, after a pause of its own that grows from 0.2 s to 60 s. A key that is named again and
again gets fewer looks: after a burst, one every two seconds.
"""

import asyncio
import heapq
import random
from collections import Counter
from itertools import count

from exporter import log
from exporter.operator.objects.kinds import Key
from exporter.sources.pause import Pause

PAUSE = Pause(0.2, 60.0, least=0.5)
# If a cluster has more custom resources, the rest get a look only when something happens to them. Half of the places go
# to the first keys, the other half to namespaces that have less than their share.
MOST_KEYS = 10_000
MOST_KEYS_IN_NAMESPACE = 2_500
# A key may have BURST looks in a row, and one more every FORGIVEN_SECONDS. After that it has to wait.
BURST = 20
FORGIVEN_SECONDS = 2.0
_MOST_DOUBLINGS = 5
# The key that stands for all custom resources: a look lists them, and finds objects whose custom resource is gone. The
# queue always has a place for it.
EVERYTHING = Key("", "", "everything")


class WorkQueue:
    """The queue. Some keys wait for their turn, in the order in which they were named in their namespace.

    Others wait for a time of their own.
    """

    def __init__(self, seed: int | None = None) -> None:
        """Make an empty queue. `seed` is that of the pauses' random part."""
        # the time at which the key that `get` gave last was named; None if it came by its own time
        self.named_at_seconds: float | None = None
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        # keys by namespace; the namespace whose turn is next is first
        self._now: dict[str, dict[Key, None]] = {}
        self._later: list[tuple[float, int, Key]] = []
        # the time at which each key is due; an entry of `_later` with another time does not count
        self._due: dict[Key, float] = {}
        self._named: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        # the number of looks in a row that a key has had, and the time of the last one
        self._looks: dict[Key, tuple[float, float]] = {}
        self._waiting: Counter[str] = Counter()
        self._left_out: set[str] = set()
        self._numbers = count()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return self._waiting.total()

    def add(self, key: Key) -> None:
        """Queue a key for a look as soon as possible, or later if it has just had too many looks."""
        if not self._has_room(key):
            return
        now = self._named[key] = asyncio.get_running_loop().time()
        due = now + self._pause(key, now)
        if due > now:
            self._push(key, due)
        elif not self._is_next(key):
            self._forget_due(key)
            self._put(key)
            self._changed.set()

    def add_after(self, key: Key, seconds: float) -> None:
        """Queue a key for a look in so many seconds, unless it gets one before."""
        if self._has_room(key):
            self._push(key, asyncio.get_running_loop().time() + seconds)

    def failed(self, key: Key, at_least_seconds: float = 0.0) -> float:
        """Queue a key again after a pause that grows with each failure in a row. Return the pause."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = max(PAUSE.after(failures, self._chance), at_least_seconds)
        self.add_after(key, pause)
        return pause

    def went_well(self, key: Key) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """Forget a key whose object is gone."""
        self._failures.pop(key, None)
        self._named.pop(key, None)
        self._forget_due(key)

    async def get(self) -> Key:
        """Wait for the next key, and take it out of the queue. If it is named again, it comes again."""
        while True:
            self._changed.clear()
            wait_seconds = self._ripen()
            if self._now:
                return self._taken()
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _taken(self) -> Key:
        """Take the first key of the namespace whose turn it is, and put the namespace at the end."""
        namespace = next(iter(self._now))
        keys = self._now.pop(namespace)
        key = next(iter(keys))
        del keys[key]
        if keys:
            self._now[namespace] = keys
        self._count(key, -1)
        self.named_at_seconds = self._named.pop(key, None)
        now = asyncio.get_running_loop().time()
        looks = self._looks_in_a_row(key, now) + 1
        if len(self._looks) >= MOST_KEYS:
            self._looks = {other: seen for other, seen in self._looks.items() if self._looks_in_a_row(other, now)}
        self._looks[key] = (looks, now)
        return key

    def _looks_in_a_row(self, key: Key, now: float) -> float:
        looks, last = self._looks.get(key, (0.0, now))
        return max(looks - (now - last) / FORGIVEN_SECONDS, 0.0)

    def _pause(self, key: Key, now: float) -> float:
        """The pause before the next look at a key. It grows while the key is named again and again."""
        too_many = min(self._looks_in_a_row(key, now) - BURST, _MOST_DOUBLINGS)
        return 0.0 if too_many <= 0 or key == EVERYTHING else PAUSE.first_seconds * 2.0**too_many

    def _has_room(self, key: Key) -> bool:
        """Whether a key may join the queue. A namespace has a limit, which is lower once the queue is half full."""
        if key in self._due or self._is_next(key) or key == EVERYTHING:
            return True
        here = self._waiting[key.namespace]
        half = MOST_KEYS / 2
        if here < MOST_KEYS_IN_NAMESPACE and (len(self) < half or here < half / len(self._waiting)):
            return True
        if key.namespace not in self._left_out:
            self._left_out.add(key.namespace)
            log.warning(
                "too many custom resources wait in a namespace: more of them are looked at when there is room",
                namespace=key.namespace,
                waiting=here,
                remedy="delete those that nobody needs, or spread them over several namespaces",
            )
        return False

    def _is_next(self, key: Key) -> bool:
        return key in self._now.get(key.namespace, ())

    def _put(self, key: Key) -> None:
        self._now.setdefault(key.namespace, {})[key] = None
        self._count(key, 1)

    def _push(self, key: Key, due: float) -> None:
        """Let a key come at a time, unless it comes before."""
        if self._is_next(key) or self._due.get(key, due) < due:
            return
        self._forget_due(key)
        self._due[key] = due
        self._count(key, 1)
        heapq.heappush(self._later, (due, next(self._numbers), key))
        self._changed.set()

    def _forget_due(self, key: Key) -> None:
        if self._due.pop(key, None) is not None:
            self._count(key, -1)

    def _count(self, key: Key, by: int) -> None:
        self._waiting[key.namespace] += by
        if not self._waiting[key.namespace]:
            del self._waiting[key.namespace]
            self._left_out.discard(key.namespace)

    def _ripen(self) -> float | None:
        """Queue the keys that are due. Return the seconds until the next one is due, None if there is none."""
        now = asyncio.get_running_loop().time()
        while self._later:
            at, _, key = self._later[0]
            if self._due.get(key) == at:
                if at > now:
                    return at - now
                self._forget_due(key)
                self._put(key)
            heapq.heappop(self._later)
        return None
