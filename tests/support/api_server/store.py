"""The objects of the simulated API server, each change of them, and the number that both count by."""

import asyncio
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from tests.support.api_server.answers import Object

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
        self.listeners: list[Callable[[Change], None]] = []  # are called with each change at once
        self._changes: list[Change] = []
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
        """Store a copy of the object, new or changed, in a new version. Returns it."""
        before = self._objects.get(key)
        stored = self._renewed(item)
        self._objects[key] = stored
        self._keys[key.resource].add(key)
        self._note(MODIFIED if before else ADDED, key, stored, before)
        return stored

    def drop(self, key: Key) -> None:
        """Delete the object."""
        before = self._objects.pop(key)
        self._keys[key.resource].discard(key)
        self._note(DELETED, key, self._renewed(before), before)

    def since(self, version: int) -> list[Change]:
        """The changes after a version, the oldest first."""
        first = bisect_right(self._changes, version, key=lambda change: change.version)
        return self._changes[first:]

    def compact(self) -> None:
        """Forget every version before now."""
        self.version += 1
        self.oldest = self.version
        self._changes.clear()
        self.wake()

    def wake(self) -> None:
        """Wake everybody who waits for a change, even if there is none."""
        self._news.set()
        self._news = asyncio.Event()

    async def news(self) -> None:
        """Wait until something has changed."""
        await self._news.wait()

    def _renewed(self, item: Object) -> Object:
        self.version += 1
        renewed = copied(item)
        renewed["metadata"]["resourceVersion"] = str(self.version)
        return renewed

    def _note(self, what: str, key: Key, item: Object, before: Object | None) -> None:
        change = Change(version=self.version, what=what, key=key, item=item, before=before)
        self._changes.append(change)
        for listen in self.listeners:
            listen(change)
        self.wake()


def copied(item: Object) -> Object:
    """A copy of all of an object: a quarter of the work of copy.deepcopy."""
    copy: Any = msgspec.json.decode(msgspec.json.encode(item))
    return dict(copy)
