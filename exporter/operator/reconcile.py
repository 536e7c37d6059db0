"""The worker: a key → what its custom resource wants → what is there → what is written, and the status.

It looks at how things are now, whatever event named the key: so it does not matter which events were lost, or how often
it was interrupted. What it needs is read from the API server each time; nothing is written that is so already.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from exporter.errors import SourceError, Unsupported
from exporter.log import debug, log
from exporter.operator.care import Care, Outcome, Unfit
from exporter.operator.changes import Needless
from exporter.operator.counted import Counted
from exporter.operator.events import Events
from exporter.operator.kinds import (
    BY_NAME,
    CLUSTER_ROLE_BINDING,
    CLUSTER_WIDE,
    COME_AND_GO,
    OPERATOR,
    AnyObject,
    Key,
    Kind,
    Object,
    is_for,
    key_of,
    metadata,
    path_of,
    text,
    whose,
)
from exporter.operator.names import MANAGER_LABEL
from exporter.operator.plan import Plan, plan
from exporter.operator.work import Work
from exporter.operator.writer import Refused, Writer

RESYNC_SECONDS = 600.0
# What is not ours, or is going, may be gone soon: nothing may tell us.
WAIT_SECONDS = 1.0
# Said of all custom resources: look which there are, and at what has none any more.
EVERYTHING = Key("", "", "")


class Reconciler:
    """Takes one key after another, for as long as this process is the leader."""

    def __init__(
        self,
        *,
        writer: Writer,
        events: Events,
        cares: Sequence[Care],
        namespaces: Sequence[str],
        work: Work,
        counted: Counted,
    ) -> None:
        """`namespaces` are those that it looks at; empty: all."""
        self.served: AbstractSet[Kind] = frozenset()
        self._writer = writer
        self._events = events
        self._cares: Mapping[str, Care] = {care.kind.name: care for care in cares}
        self._namespaces: Sequence[str | None] = namespaces or (None,)
        self._work = work
        self._counted = counted
        self._needless = Needless()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            key = await self._work.get()
            began = time.monotonic()
            result = await self._looked_at(key)
            self._counted.reconciled(key.kind or "all", result, time.monotonic() - began)
            debug("reconciled", key=str(key), result=result, seconds=round(time.monotonic() - began, 6))

    async def _looked_at(self, key: Key) -> str:
        """Look at a key; what came of it, as a label's value."""
        try:
            settled = await (self._everything() if key == EVERYTHING else self._one(key))
        except SourceError as error:
            pause = self._work.failed(key, error.retry_after_seconds or 0.0)
            log(logging.WARNING, "will try again", key=str(key), in_seconds=round(pause, 1), error=str(error.trouble))
            return "error"
        except Exception as error:  # noqa: BLE001 - the other custom resources go on, and this one is tried again
            self._work.failed(key)
            log(logging.ERROR, "a fault of the operator", error, key=str(key))
            return "fault"
        if not settled:
            self._work.failed(key, WAIT_SECONDS)
            return "waits"
        self._work.went_well(key)
        return "settled"

    async def _everything(self) -> bool:
        """Name every custom resource that there is, and delete what nobody can own and no one is there for."""
        there: set[Key] = set()
        for kind in (care.kind for care in self._cares.values()):
            if kind in self.served:
                there.update([key_of({"kind": kind.name, **item}) for item in await self._listed(kind)])
        for key in sorted(there):
            self._work.add(key)
        self._counted.keep_only(there)
        self._work.add_after(EVERYTHING, RESYNC_SECONDS)
        await self._sweep(there)
        return True

    async def _listed(self, kind: Kind) -> Sequence[AnyObject]:
        found: list[AnyObject] = []
        for namespace in self._namespaces:
            answer = await self._writer.list(kind.path(namespace), {})
            items = answer.get("items")
            found += [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
        return found

    async def _sweep(self, there: AbstractSet[Key]) -> None:
        """Delete the bindings of custom resources that are gone; only who looks at all namespaces knows that."""
        if self._namespaces != (None,):
            return
        selector = {"labelSelector": f"{MANAGER_LABEL}={OPERATOR}"}
        answer = await self._writer.list(CLUSTER_ROLE_BINDING.path(None), selector)
        items = answer.get("items")
        for item in items if isinstance(items, list) else ():
            for owner in whose(item):
                if owner not in there and is_for(item, owner) and await self._read(owner) is None:
                    await self._deleted({**item, "kind": CLUSTER_ROLE_BINDING.name}, None)

    async def _one(self, key: Key) -> bool:
        """Make what a custom resource has what it wants; whether that is so now."""
        care = self._cares.get(key.kind)
        if care is None or care.kind not in self.served:
            return True
        owner = await self._read(key)
        if owner is None:
            await self._gone(key, care)
            return True
        owner = {**owner, "apiVersion": care.kind.api_version, "kind": care.kind.name}
        if metadata(owner).get("deletionTimestamp"):
            return True  # the garbage collector takes what it owns; its end is told
        reason = why = ""
        again_seconds = care.look_again_seconds
        live = await self._live(key, care)
        made: Plan | None = None
        try:
            wanted = await care.wanted(owner, self.served)
            made = plan(key, text(metadata(owner), "uid"), wanted, live)
            reason, why = await self._write(owner, care, made, live)
        except Unfit as error:
            reason, why, again_seconds = error.reason, str(error), error.again_seconds
        except Refused as error:
            reason, why = "Refused", error.why
        self._counted.keeps(key, len(made.kept) + len(made.apply) if made and not reason else len(live))
        outcome = Outcome(owner=owner, live=live, plan=made, reason=reason, why=why, served=self.served)
        await self._tell(outcome, await care.status(outcome))
        if again_seconds is not None:
            self._work.add_after(key, again_seconds)
        return not reason or made is None

    async def _read(self, key: Key) -> AnyObject | None:
        try:
            return await self._writer.get(BY_NAME[key.kind].path(key.namespace, key.name))
        except Unsupported:
            return None

    async def _live(self, owner: Key, care: Care) -> dict[Key, AnyObject]:
        """What there is under the names of all that it may have."""
        keys = [
            key
            for key in care.may_have(owner)
            if BY_NAME[key.kind] not in COME_AND_GO or BY_NAME[key.kind] in self.served
        ]
        found = await asyncio.gather(*(self._read_allowed(key) for key in keys))
        return {
            key: {**item, "apiVersion": BY_NAME[key.kind].api_version, "kind": key.kind}
            for key, item in zip(keys, found, strict=True)
            if item is not None
        }

    async def _read_allowed(self, key: Key) -> AnyObject | None:
        """An object; of the whole cluster's only where that is allowed: who may not read it has not made it."""
        try:
            return await self._read(key)
        except SourceError as error:
            if BY_NAME[key.kind] in CLUSTER_WIDE and error.reason == "permission":
                return None
            raise

    async def _write(self, owner: AnyObject, care: Care, made: Plan, live: dict[Key, AnyObject]) -> tuple[str, str]:
        """Write what is to be written, and note it in `live`; why that is not all, as reason and sentence."""
        for item in made.delete:
            await self._deleted(item, owner)
            del live[key_of(item)]
        if care.is_exclusive and (left := await self._left(made)):
            return "Waiting", f"{_named(left)} is being deleted; what is wanted is made once it is gone"
        refused = [why for item, there in made.apply if (why := await self._made(item, there, owner, live))]
        if refused:
            return "Refused", refused[0]
        if made.not_ours:
            why = f"{_named(made.not_ours)} is somebody else's: it is left alone, and what is wanted cannot be made"
            await self._events.tell(owner, "Warning", "NotOurs", "Apply", why)
            return "NotOurs", why
        if made.going:
            return "Waiting", f"{_named(made.going)} is being deleted"
        return "", ""

    async def _left(self, made: Plan) -> Sequence[AnyObject]:
        """What is being deleted, and still there: KEDA's finalizer keeps a ScaledObject for a while."""
        left = [*made.going]
        for item in made.delete:
            there = await self._read(key_of(item))
            if there is not None:
                left.append({**there, "kind": item["kind"]})
        return left

    async def _made(self, item: Object, there: AnyObject | None, owner: AnyObject, live: dict[Key, AnyObject]) -> str:
        """Apply an object, and note it in `live`; why it was refused, or ""."""
        key = key_of(item)
        if there is not None and self._needless.is_known(key, item, there):
            return ""
        try:
            live[key] = await self._applied(item, there, owner)
        except Refused as error:
            await self._events.tell(owner, "Warning", "Refused", "Apply", error.why)
            return error.why
        return ""

    async def _applied(self, item: Object, there: AnyObject | None, owner: AnyObject) -> AnyObject:
        answer = await self._writer.apply(item, there)
        about = metadata(answer)
        if there is not None and about.get("resourceVersion") == metadata(there).get("resourceVersion"):
            self._needless.note(key_of(item), item, there)
            return answer
        key, did = key_of(item), "Updated" if there else "Created"
        log(logging.INFO, "applied", owner=str(key_of(owner)), item=str(key), did=did.lower())
        await self._events.tell(owner, "Normal", did, "Apply", f"{did.lower()} {key.kind} {key.name}")
        return answer

    async def _deleted(self, item: AnyObject, owner: AnyObject | None) -> None:
        await self._writer.delete(item)
        key = key_of(item)
        log(logging.INFO, "deleted", item=str(key))
        if owner is not None:
            await self._events.tell(owner, "Normal", "Deleted", "Delete", f"deleted {key.kind} {key.name}")

    async def _gone(self, key: Key, care: Care) -> None:
        """A custom resource is no more. What it owned is the garbage collector's; what it could not own is deleted."""
        self._work.forget(key)
        self._counted.forget(key)
        for other in care.may_have(key):
            if BY_NAME[other.kind] in CLUSTER_WIDE:
                item = await self._read_allowed(other)
                if item is not None and is_for(item, key):
                    await self._deleted({**item, "kind": other.kind}, None)

    async def _tell(self, outcome: Outcome, status: Mapping[str, object]) -> None:
        """Write the status, unless it says so already."""
        if outcome.owner.get("status") == status:
            return
        try:
            await self._writer.apply_status(outcome.owner, status)
        except Refused as error:
            # it is gone, or made anew: that is told by an event of its own
            log(logging.WARNING, "the status was not taken", key=path_of(outcome.owner), error=error.why)


def _named(items: Sequence[AnyObject]) -> str:
    return " and ".join(f"{item['kind']} {text(metadata(item), 'name')}" for item in items)
