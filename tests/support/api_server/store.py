"""The objects of the simulated API server, each change of them, and the number that both count by."""

import asyncio
import copy
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.support.api_server.answers import Object

MOST_CHANGES = 20_000  # that are remembered; a watch from before them is answered with 410
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Key(NamedTuple):
    """By which an object is stored; the namespace of one that has none is ""."""

    resource: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What happened to one object; `item` is what it is after that, or what it was when it was deleted."""

    version: int
    what: str
    key: Key
    item: Object
    before: Object | None


class Store:
    """Objects by key, in versions that rise with every change of any.

    What it gives is its own: whoever changes it makes a copy first.
    """

    def __init__(self) -> None:
        self.version = 1
        self.oldest = 1  # a watch cannot begin before it
        self.changes: list[Change] = []
        self.listeners: list[Callable[[Change], None]] = []  # told of each change at once
        self._objects: dict[Key, Object] = {}
        self._keys: defaultdict[str, set[Key]] = defaultdict(set)  # by resource
        self._news = asyncio.Event()

    def get(self, key: Key) -> Object | None:
        """The object, or None."""
        return self._objects.get(key)

    def all(self, resource: str = "", namespace: str = "") -> Iterator[tuple[Key, Object]]:
        """The objects of a resource ("" for every one) in a namespace ("" for all of them), in the order of names."""
        for key in sorted(self._keys[resource] if resource else self._objects):
            if namespace in ("", key.namespace):
                yield key, self._objects[key]

    def put(self, key: Key, item: Object) -> Object:
        """Store the object, new or changed, in a new version. Returns it."""
        before = self._objects.get(key)
        stored = self._renewed(item)
        self._objects[key] = stored
        self._keys[key.resource].add(key)
        self._note(MODIFIED if before else ADDED, key, stored, before)
        return stored

    def drop(self, key: Key) -> Object:
        """Delete the object. Returns it as its last version tells."""
        before = self._objects.pop(key)
        self._keys[key.resource].discard(key)
        gone = self._renewed(before)
        self._note(DELETED, key, gone, before)
        return gone

    def at(self, version: int, resource: str, namespace: str) -> list[tuple[Key, Object]]:
        """The objects as they were at a version that is still known."""
        there = dict(self.all(resource, namespace))
        for change in reversed(self.changes):
            if change.version <= version:
                break
            if change.key.resource != resource or namespace not in ("", change.key.namespace):
                continue
            if change.before is None:
                del there[change.key]
            else:
                there[change.key] = change.before
        return sorted(there.items())

    def since(self, version: int) -> list[Change]:
        """The changes after a version, the oldest first."""
        first = bisect_right(self.changes, version, key=lambda change: change.version)
        return self.changes[first:]

    def compact(self) -> None:
        """Forget every version before now."""
        self.version += 1
        self.oldest = self.version
        self.changes.clear()
        self._tell()

    def wake(self) -> None:
        """Let everybody who waits for a change look up, though there is none."""
        self._tell()

    async def news(self) -> None:
        """Wait until something has changed."""
        await self._news.wait()

    def _renewed(self, item: Object) -> Object:
        self.version += 1
        renewed = copy.deepcopy(item)
        renewed["metadata"]["resourceVersion"] = str(self.version)
        return renewed

    def _note(self, what: str, key: Key, item: Object, before: Object | None) -> None:
        change = Change(version=self.version, what=what, key=key, item=item, before=before)
        self.changes.append(change)
        if len(self.changes) > MOST_CHANGES:
            del self.changes[: MOST_CHANGES // 2]
            self.oldest = self.changes[0].version
        self._tell()
        for listen in self.listeners:
            listen(change)

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
