"""The garbage collector: what goes when its owner has gone, or is waited for by its owner.

It works as that of kube-controller-manager does (tests/data/kubernetes-1.36/operator/gc-deployments.jsonl): an owner
that is deleted in the foreground goes after the dependents that block it, from the leaves up.
"""

import asyncio
import copy
from collections.abc import Iterator

from tests.support.api_server import definitions
from tests.support.api_server.answers import Object
from tests.support.api_server.deleting import FOREGROUND, ORPHAN, delete
from tests.support.api_server.kinds import DEFINITION, NAMESPACE, Kinds
from tests.support.api_server.store import Key, Store

COLLECT_SECONDS = 0.02


class Collector:
    """Sweeps the store after each change."""

    def __init__(self, store: Store, kinds: Kinds) -> None:
        self.seconds = COLLECT_SECONDS  # from a change to the sweep after it
        self._store = store
        self._kinds = kinds

    async def run(self) -> None:
        """Sweep after each change, until it is cancelled."""
        while True:
            self.sweep()
            await self._store.news()
            await asyncio.sleep(self.seconds)

    def sweep(self) -> None:
        """Delete all that is to go now."""
        while any([self._sweep_going(), self._sweep_dependents()]):
            pass

    def _sweep_going(self) -> bool:
        """Let go what is being deleted, once nothing it waits for is there."""
        has_changed = False
        for key, item in tuple(self._store.all()):
            finalizers = item["metadata"].get("finalizers") or ()
            if "deletionTimestamp" not in item["metadata"] or self._store.get(key) is not item:
                continue
            if key.resource == DEFINITION.resource and definitions.CLEANUP in finalizers:
                has_changed |= self._delete_all(key.name, "") or self._release(key, item, definitions.CLEANUP)
            elif key.resource == NAMESPACE.resource:
                has_changed |= self._delete_all("", key.name) or self._release(key, item, "")
            elif FOREGROUND in finalizers:
                has_changed |= self._delete_blocking(item) or self._release(key, item, FOREGROUND)
            elif ORPHAN in finalizers:
                for dependent, _ in tuple(self._dependents(item)):
                    self._forget_owners(dependent, {item["metadata"]["uid"]})
                has_changed |= self._release(key, item, ORPHAN)
        return has_changed

    def _sweep_dependents(self) -> bool:
        """Delete what no owner is left of, and let the others forget the owners that are gone."""
        has_changed = False
        for key, item in tuple(self._store.all()):
            owners = item["metadata"].get("ownerReferences") or ()
            if not owners or self._store.get(key) is not item:
                continue
            gone = {owner["uid"] for owner in owners if self._is_gone(key, owner)}
            if len(gone) == len(owners):
                has_changed |= self._delete(key, "Background")
            elif gone:
                has_changed |= self._forget_owners(key, gone)
        return has_changed

    def _is_gone(self, key: Key, owner: Object) -> bool:
        """Whether an owner is not there; of a kind that is not served nobody knows."""
        kind = self._kinds.of_object(owner["apiVersion"], owner["kind"])
        if kind is None or (kind.namespaced and not key.namespace):
            return False  # what is in no namespace cannot be owned by what is in one, and is left alone
        there = self._store.get(Key(kind.resource, key.namespace if kind.namespaced else "", owner["name"]))
        return there is None or there["metadata"]["uid"] != owner["uid"]

    def _dependents(self, owner: Object, *, blocking: bool = False) -> Iterator[tuple[Key, Object]]:
        uid, namespace = owner["metadata"]["uid"], owner["metadata"].get("namespace", "")
        for key, item in self._store.all():
            for reference in item["metadata"].get("ownerReferences") or ():
                is_it = reference["uid"] == uid and namespace in ("", key.namespace)
                if is_it and (reference.get("blockOwnerDeletion") or not blocking):
                    yield key, item

    def _delete_blocking(self, owner: Object) -> bool:
        """Delete what blocks the owner. Returns whether anything does, were it being deleted already."""
        blocking = tuple(self._dependents(owner, blocking=True))
        for key, item in blocking:
            others = [o for o in item["metadata"]["ownerReferences"] if o["uid"] != owner["metadata"]["uid"]]
            if any(not self._is_gone(key, other) for other in others):
                self._forget_owners(key, {owner["metadata"]["uid"]})
            elif "deletionTimestamp" not in item["metadata"]:
                has_own = next(self._dependents(item), None) is not None
                self._delete(key, "Foreground" if has_own else "Background")
        return False if not blocking else any(self._store.get(key) is not item for key, item in blocking)

    def _delete_all(self, resource: str, namespace: str) -> bool:
        """Delete all of a resource, or of a namespace. Returns whether that has changed anything."""
        deleted = [self._delete(key, "Background") for key, _ in tuple(self._store.all(resource, namespace))]
        return any(deleted)

    def _delete(self, key: Key, policy: str) -> bool:
        before = self._store.get(key)
        if before is None:
            return False
        held = before["metadata"].get("finalizers") or ()
        if ORPHAN in held or FOREGROUND in held:
            policy = "Orphan" if ORPHAN in held else "Foreground"
        delete(self._store, self._kinds.of_storage(key.resource), key, {"propagationPolicy": policy})
        return self._store.get(key) is not before

    def _release(self, key: Key, item: Object, finalizer: str) -> bool:
        """Take a finalizer away; what has none left goes. Nothing is released while something is waited for."""
        if self._is_waiting(key, item):
            return False
        left = [name for name in item["metadata"].get("finalizers") or () if name != finalizer]
        if not left:
            self._store.drop(key)
            return True
        changed = copy.deepcopy(item)
        changed["metadata"]["finalizers"] = left
        if changed == item:
            return False
        self._store.put(key, changed)
        return True

    def _is_waiting(self, key: Key, item: Object) -> bool:
        if key.resource == DEFINITION.resource:
            return next(self._store.all(key.name), None) is not None
        if key.resource == NAMESPACE.resource:
            return next(self._store.all("", key.name), None) is not None
        is_foreground = FOREGROUND in (item["metadata"].get("finalizers") or ())
        return is_foreground and next(self._dependents(item, blocking=True), None) is not None

    def _forget_owners(self, key: Key, uids: set[str]) -> bool:
        item = copy.deepcopy(self._store.get(key))
        if item is None:
            return False
        kept = [owner for owner in item["metadata"].get("ownerReferences") or () if owner["uid"] not in uids]
        item["metadata"]["ownerReferences"] = kept
        if not kept:
            del item["metadata"]["ownerReferences"]
        self._store.put(key, item)
        return True
