"""The worker: a key → what its controller wants → what is there → what differs is written, and the status.

An event only names the key; the worker reads the current state: so a lost event or an interruption costs nothing.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol

from exporter import log
from exporter.errors import SourceError, Trouble
from exporter.lenient import AnyObject, mapping
from exporter.operator.api.event_writer import Events
from exporter.operator.api.reader import Reader
from exporter.operator.api.writer import Refused, Writer
from exporter.operator.event_texts import Event
from exporter.operator.objects import kinds
from exporter.operator.objects.change_report import Change, called, change_of
from exporter.operator.objects.kinds import Key, Kind, is_for, key_of, metadata, whose
from exporter.operator.objects.needs_write import Plan, fingerprint
from exporter.operator.objects.object_fields import as_trouble, is_going, is_same
from exporter.operator.objects.resources import Object
from exporter.operator.outputs import OperatorMetrics
from exporter.operator.work_queue import EVERYTHING, WorkQueue
from exporter.reading import Invalid

RESYNC_SECONDS = 600.0
# How often the worker looks at each custom resource although no event came. What a GPUAutoscaler scales is not watched.
LOOK_AGAIN_SECONDS = 30.0
MOST_NEEDLESS = 10_000
# An object that is not ours, or is being deleted, may be gone soon, and no event may say so.
WAIT_SECONDS = 1.0
# Failures of which the custom resource can tell: the API server has answered.
_ANSWERED = frozenset({"permission", "http_status", "rate_limited", "oversize"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """What is to be written for a custom resource.

    `live` are its objects as they are, by what they are called. While `waits_for` says what is still there, `plan` is
    to delete, and to apply nothing. `about` is what the controller wants to know again for the status.
    """

    plan: Plan
    live: Mapping[Key, AnyObject]
    waits_for: str = ""
    about: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it went with a custom resource this time.

    `desired` is None where it is not known what is to be written; `problem` says why, or why it could not be written.
    `live` are the objects as they are now, `changes` what was written of them. `refused` are those that the API server
    did not take, or does not let the operator write.
    """

    owner: AnyObject
    desired: Desired | None
    live: Mapping[Key, AnyObject]
    changes: Sequence[Change] = field(default=())
    problem: Invalid | SourceError | None = None
    refused: Sequence[SourceError] = field(default=())

    @property
    def refusals(self) -> list[Trouble]:
        """What the API server does not let the operator do, the worst first."""
        problems = [self.problem] if isinstance(self.problem, SourceError) else []
        return [*map(as_trouble, (*problems, *self.refused))]


class Controller(Protocol):
    """Looks after the custom resources of one kind."""

    kind: Kind

    async def desired(self, owner: AnyObject, served: AbstractSet[Kind]) -> Desired:
        """What is to be written for it, in order. `served` are the kinds that come and go, and that are there now.

        Raises Invalid: its spec cannot be used: what it has stays as it is. SourceError: it is not known what there is.
        """

    async def status(self, outcome: Outcome) -> Mapping[str, object]:
        """Its status, whole; equal where nothing has changed. Raises SourceError: it cannot be known now."""

    def events(self, old: AnyObject, new: AnyObject, changes: Sequence[Change]) -> Sequence[Event]:
        """The events for people: from the status before and now, and from what was written."""

    def keep_only(self, keys: AbstractSet[Key]) -> None:  # noqa: ARG002 - for who remembers something
        """Forget what is known of custom resources other than these. `keys` has those of every kind."""
        return

    async def gone(self, key: Key) -> Sequence[AnyObject]:  # noqa: ARG002 - for who has something of the kind
        """What nobody could own, and is to be deleted with the custom resource. Raises SourceError: it is not known."""
        return ()


@dataclass(eq=False, kw_only=True)
class Reconciler:
    """Takes one key after another, for as long as this process is the leader. No `namespaces` means all."""

    writer: Writer
    reader: Reader
    events: Events
    controllers: Sequence[Controller]
    namespaces: Sequence[str]
    work: WorkQueue
    metrics: OperatorMetrics
    served: AbstractSet[Kind] = frozenset()
    # the fingerprints of applies that changed nothing
    _needless: dict[Key, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            key = await self.work.get()
            self.reader.named_at_seconds = self.work.named_at_seconds
            began = time.monotonic()
            result = await self._looked_at(key)
            self.metrics.reconciled(key.kind or "all", result, time.monotonic() - began)
            log.debug("reconciled", key=str(key), result=result, seconds=round(time.monotonic() - began, 6))

    async def _looked_at(self, key: Key) -> str:
        """Look at a key; what came of it, as a label's value."""
        try:
            settled = await (self._everything() if key == EVERYTHING else self._one(key))
        except SourceError as error:
            pause = self.work.failed(key, error.retry_after_seconds or 0.0)
            log.warning("will try again", key=str(key), in_seconds=round(pause, 1), error=str(error.trouble))
            return "error"
        except Exception as error:  # noqa: BLE001 - the other custom resources go on, and this one is tried again
            self.work.failed(key)
            log.error("a fault of the operator", error, key=str(key))
            return "fault"
        if not settled:
            self.work.failed(key, WAIT_SECONDS)
            return "waits"
        self.work.went_well(key)
        return "settled"

    async def _everything(self) -> bool:
        """Queue every custom resource, and delete objects without an owner reference whose custom resource is gone.

        Raises SourceError: some cannot be listed. The others are queued all the same.
        """
        there: set[Key] = set()
        failed: SourceError | None = None
        for kind in (controller.kind for controller in self.controllers if controller.kind in self.served):
            for namespace in self.namespaces or (None,):
                try:
                    there |= await self.reader.keys(kind, namespace)
                except SourceError as error:
                    failed = error
        for key in sorted(there):
            self.work.add(key)
        if failed is not None:
            raise failed
        for gone in self.metrics.objects.keys() - there:
            del self.metrics.objects[gone]
        for controller in self.controllers:
            controller.keep_only(there)
        self.work.add_after(EVERYTHING, RESYNC_SECONDS)
        if not self.namespaces:  # only who looks everywhere knows who is nowhere
            await self._sweep(there)
        return True

    async def _sweep(self, there: AbstractSet[Key]) -> None:
        for item in await self.reader.listed(kinds.CLUSTER_ROLE_BINDING, None, {kinds.MANAGER_LABEL: kinds.OPERATOR}):
            for owner in whose(item):
                if owner not in there and is_for(item, owner) and await self.reader.get(owner) is None:
                    await self._deleted(item, None)

    async def _one(self, key: Key) -> bool:
        """Write what is to be written for a custom resource, and its status; whether nothing is left to be done."""
        controller = next((each for each in self.controllers if each.kind.name == key.kind), None)
        if controller is None or controller.kind not in self.served:
            return True
        owner = await self.reader.get(key)
        if owner is None:
            self.work.forget(key)
            self.metrics.objects.pop(key, None)
            for item in await controller.gone(key):
                await self._deleted(item, None)
            return True
        if is_going(owner):
            return True  # the garbage collector takes what it owns; its end is told
        outcome = await self._outcome(owner, controller)
        self.metrics.objects[key] = len(outcome.live)
        problem = outcome.problem
        if not isinstance(problem, SourceError) or problem.reason in _ANSWERED:
            await self._tell(controller, outcome)
        if isinstance(problem, SourceError):
            raise problem
        self.work.add_after(key, LOOK_AGAIN_SECONDS)
        desired = outcome.desired
        return desired is None or not (
            outcome.refused or desired.plan.not_ours or desired.plan.going or desired.waits_for
        )

    async def _outcome(self, owner: AnyObject, controller: Controller) -> Outcome:
        desired: Desired | None = None
        live: dict[Key, AnyObject] = {}
        changes: list[Change] = []
        refused: list[SourceError] = []
        problem: Invalid | SourceError | None = None
        try:
            desired = await controller.desired(owner, self.served)
            live.update(desired.live)
            for item in desired.plan.delete:
                with _noting_refusal(item, refused):
                    await self._deleted(item, owner)
                    changes.append(Change("deleted", called(item)))
                    live.pop(key_of(item), None)
            for item, there in () if desired.waits_for else desired.plan.apply:
                with _noting_refusal(item, refused):
                    live[key_of(item)] = await self._applied(item, there, changes)
        except (Invalid, SourceError) as error:
            problem = error
        return Outcome(owner=owner, desired=desired, live=live, changes=changes, problem=problem, refused=refused)

    async def _applied(self, item: Object, there: AnyObject | None, changes: list[Change]) -> AnyObject:
        """Apply an object, and note the change if it was one; the object afterwards."""
        key = key_of(item)
        if there is not None and key in self._needless and self._needless[key] == fingerprint(item, there):
            return there
        answer = await self.writer.apply(item, there)
        if there is not None and metadata(answer).get("resourceVersion") == metadata(there).get("resourceVersion"):
            if len(self._needless) >= MOST_NEEDLESS:
                self._needless.clear()
            self._needless[key] = fingerprint(item, there)
            return answer
        change = change_of(item, there)
        changes.append(change)
        log.info("applied", namespace=key.namespace, did=change.verb, what=str(change), by=",".join(change.by))
        return {**answer, "apiVersion": item["apiVersion"], "kind": key.kind}

    async def _deleted(self, item: AnyObject, owner: AnyObject | None) -> None:
        """Delete an object; `owner` is None where that is gone."""
        await self.writer.delete(item)
        log.info("deleted", item=str(key_of(item)), owner=str(key_of(owner)) if owner else "gone")

    async def _tell(self, controller: Controller, outcome: Outcome) -> None:
        """Write the status, unless it says so already, and tell people what happened."""
        owner = outcome.owner
        old, new = mapping(owner, "status"), await controller.status(outcome)
        try:
            if not is_same(old, new):
                await self.writer.apply_status(owner, new)
        except Refused as error:
            # An object that is gone, or made anew, has an event of its own: the refusal is no trouble then.
            is_gone = error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
            write = log.info if is_gone else log.warning
            write("the status was not taken", key=str(key_of(owner)), error=error.why)
            return
        for event in controller.events(old, new, outcome.changes):
            await self.events.tell(owner, event)


@contextmanager
def _noting_refusal(item: AnyObject, refused: list[SourceError]) -> Iterator[None]:
    """Note an object that the API server refuses; the others go on."""
    try:
        yield
    except SourceError as error:
        if not isinstance(error, Refused) and error.reason != "permission":
            raise
        # a refusal may come of a deletion or a change at the same moment; one that stays is in the status
        write = log.info if isinstance(error, Refused) else log.warning
        write("not written", what=str(key_of(item)), error=str(error.trouble))
        refused.append(error)
