"""The worker: a key → what its custom resource wants → what is there → what is written, and the status.

It looks at how things are now, whatever event named the key: so it does not matter which events were lost, or how often
it was interrupted. What it needs is read from the API server each time; nothing is written that is so already.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager

from exporter.errors import SourceError
from exporter.log import debug, log
from exporter.operator.api.events import Events
from exporter.operator.api.reader import Reader
from exporter.operator.api.refused import Refused
from exporter.operator.api.writer import Writer
from exporter.operator.care import Aim, Care, Outcome
from exporter.operator.counted import Counted
from exporter.operator.objects.changes import Needless
from exporter.operator.objects.conditions import is_same
from exporter.operator.objects.edits import Change, change_of, deletion_of
from exporter.operator.objects.kinds import (
    CLUSTER_ROLE_BINDING,
    OPERATOR,
    Key,
    Kind,
    Object,
    is_for,
    key_of,
    metadata,
    whose,
)
from exporter.operator.objects.names import MANAGER_LABEL
from exporter.operator.objects.parts import AnyObject, is_going, mapping
from exporter.operator.objects.reading import Invalid
from exporter.operator.work import EVERYTHING, Work

RESYNC_SECONDS = 600.0
# What is not ours, or is going, may be gone soon: nothing may tell us.
WAIT_SECONDS = 1.0
# Failures of which the custom resource can tell: the API server has answered.
_ANSWERED = frozenset({"permission", "http_status", "rate_limited", "oversize"})


class Reconciler:
    """Takes one key after another, for as long as this process is the leader."""

    def __init__(
        self,
        *,
        writer: Writer,
        reader: Reader,
        events: Events,
        cares: Sequence[Care],
        namespaces: Sequence[str],
        work: Work,
        counted: Counted,
    ) -> None:
        """`namespaces` are those that it looks at; empty: all."""
        self.served: AbstractSet[Kind] = frozenset()
        self._writer = writer
        self._reader = reader
        self._events = events
        self._cares: Mapping[str, Care] = {care.kind.name: care for care in cares}
        self._namespaces: Sequence[str | None] = tuple(namespaces) or (None,)
        self._work = work
        self._counted = counted
        self._needless = Needless()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            key = await self._work.get()
            self._reader.named_at_seconds = self._work.named_at_seconds
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
        """Queue every custom resource, and delete objects without an owner reference whose custom resource is gone.

        Raises:
            SourceError: some cannot be listed. The others are queued all the same.
        """
        there: set[Key] = set()
        failed: SourceError | None = None
        for kind in (care.kind for care in self._cares.values() if care.kind in self.served):
            for namespace in self._namespaces:
                try:
                    there |= await self._reader.keys(kind, namespace)
                except SourceError as error:
                    failed = error
        for key in sorted(there):
            self._work.add(key)
        if failed is not None:
            raise failed
        self._counted.keep_only(there)
        for care in self._cares.values():
            care.keep_only(there)
        self._work.add_after(EVERYTHING, RESYNC_SECONDS)
        if self._namespaces == (None,):  # only who looks everywhere knows who is nowhere
            await self._sweep(there)
        return True

    async def _sweep(self, there: AbstractSet[Key]) -> None:
        for item in await self._reader.listed(CLUSTER_ROLE_BINDING, None, {MANAGER_LABEL: OPERATOR}):
            for owner in whose(item):
                if owner not in there and is_for(item, owner) and await self._reader.get(owner) is None:
                    await self._deleted(item, None)

    async def _one(self, key: Key) -> bool:
        """Write what is to be written for a custom resource, and its status; whether nothing is left to be done."""
        care = self._cares.get(key.kind)
        if care is None or care.kind not in self.served:
            return True
        owner = await self._reader.get(key)
        if owner is None:
            self._work.forget(key)
            self._counted.forget(key)
            for item in await care.gone(key):
                await self._deleted(item, None)
            return True
        if is_going(owner):
            return True  # the garbage collector takes what it owns; its end is told
        outcome = await self._outcome(owner, care)
        self._counted.keeps(key, len(outcome.live))
        problem = outcome.problem
        if not isinstance(problem, SourceError) or problem.reason in _ANSWERED:
            await self._tell(care, outcome)
        if isinstance(problem, SourceError):
            raise problem
        self._work.add_after(key, care.look_again_seconds)
        aim = outcome.aim
        return aim is None or not (outcome.refused or aim.plan.not_ours or aim.plan.going or aim.waits_for)

    async def _outcome(self, owner: AnyObject, care: Care) -> Outcome:
        """Write what is to be written; how that went."""
        aim: Aim | None = None
        live: dict[Key, AnyObject] = {}
        changes: list[Change] = []
        refused: list[tuple[Key, SourceError]] = []
        problem: Invalid | SourceError | None = None
        try:
            aim = await care.aim(owner, self.served)
            live.update(aim.live)
            for item in aim.plan.delete:
                with _noting_refusal(item, refused):
                    await self._deleted(item, owner)
                    changes.append(deletion_of(item))
                    live.pop(key_of(item), None)
            for item, there in () if aim.waits_for else aim.plan.apply:
                with _noting_refusal(item, refused):
                    live[key_of(item)] = await self._applied(item, there, changes)
        except (Invalid, SourceError) as error:
            problem = error
        return Outcome(owner=owner, aim=aim, live=live, changes=changes, problem=problem, refused=refused)

    async def _applied(self, item: Object, there: AnyObject | None, changes: list[Change]) -> AnyObject:
        """Apply an object, and note the change if it was one; the object afterwards."""
        key = key_of(item)
        if there is not None and self._needless.is_known(key, item, there):
            return there
        answer = await self._writer.apply(item, there)
        if there is not None and metadata(answer).get("resourceVersion") == metadata(there).get("resourceVersion"):
            self._needless.note(key, item, there)
            return answer
        change = change_of(item, there)
        changes.append(change)
        log(logging.INFO, "applied", namespace=key.namespace, did=change.verb, what=str(change), by=",".join(change.by))
        return {**answer, "apiVersion": item["apiVersion"], "kind": key.kind}

    async def _deleted(self, item: AnyObject, owner: AnyObject | None) -> None:
        """Delete an object; `owner` is None where that is gone."""
        await self._writer.delete(item)
        log(logging.INFO, "deleted", item=str(key_of(item)), owner=str(key_of(owner)) if owner else "gone")

    async def _tell(self, care: Care, outcome: Outcome) -> None:
        """Write the status, unless it says so already, and tell people what happened."""
        owner = outcome.owner
        old, new = mapping(owner, "status"), await care.status(outcome)
        try:
            if not is_same(old, new):
                await self._writer.apply_status(owner, new)
        except Refused as error:
            # it is gone, or made anew: that is told by an event of its own
            log(logging.WARNING, "the status was not taken", key=str(key_of(owner)), error=error.why)
            return
        for event in care.events(old, new, outcome.changes):
            await self._events.tell(owner, event.type, event.reason, event.action, event.note)


@contextmanager
def _noting_refusal(item: AnyObject, refused: list[tuple[Key, SourceError]]) -> Iterator[None]:
    """Note an object that the API server refuses, and go on with the others."""
    try:
        yield
    except SourceError as error:
        if not isinstance(error, Refused) and error.reason != "permission":
            raise
        # a refusal may come of a deletion or a change at the same moment; one that stays is in the status
        level = logging.INFO if isinstance(error, Refused) else logging.WARNING
        log(level, "not written", what=str(key_of(item)), error=str(error.trouble))
        refused.append((key_of(item), error))
