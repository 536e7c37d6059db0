"""The garbage collector: deletes objects whose owners are all gone, and objects of a kind that is no longer defined."""

import asyncio

from tests.support.api_server.answers import Object
from tests.support.api_server.kinds import DEFINITION, Kinds
from tests.support.api_server.store import DELETED, Change, Store

COLLECT_SECONDS = 0.02


class Collector:
    """Sweeps the store after each change by which something may have lost its owner."""

    def __init__(self, store: Store, kinds: Kinds) -> None:
        self._store = store
        self._kinds = kinds
        self._has_work = False
        store.listeners.append(self._note)

    async def run(self) -> None:
        """Sweep, until it is cancelled."""
        while True:
            while self._has_work:
                self._has_work = False
                self.sweep()
            await self._store.news()
            await asyncio.sleep(COLLECT_SECONDS)

    def sweep(self) -> None:
        """Delete all that is to go now."""
        uids = {item["metadata"]["uid"] for _, item in self._store.all()}
        for key, item in tuple(self._store.all()):
            owners = item["metadata"].get("ownerReferences")
            if owners and all(self._is_gone(owner, uids) for owner in owners):
                self._store.drop(key)

    def _is_gone(self, owner: Object, uids: set[str]) -> bool:
        """Whether an owner is gone; False if its kind is not served, since nobody can know."""
        is_served = self._kinds.of_object(owner["apiVersion"], owner["kind"]) is not None
        return is_served and owner["uid"] not in uids

    def _note(self, change: Change) -> None:
        before = change.before["metadata"].get("ownerReferences") if change.before else None
        self._has_work |= change.what == DELETED or change.item["metadata"].get("ownerReferences") != before
        if change.what == DELETED and change.key.resource == DEFINITION.resource:
            for key, _ in tuple(self._store.all(change.key.name)):
                self._store.drop(key)
