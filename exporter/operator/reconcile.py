"""The worker. It takes a key, asks its controller for the wanted objects, and writes what differs, and the status.

An event only names the key, and the worker reads the current state. So a lost event or an interruption does no harm.
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
from exporter.operator.objects.change_report import ObjectChange, called, change_of
from exporter.operator.objects.kinds import Key, Kind, is_for, key_of, metadata, whose
from exporter.operator.objects.needs_write import WritePlan, fingerprint
from exporter.operator.objects.object_fields import as_trouble, is_going, is_same
from exporter.operator.objects.resources import Object
from exporter.operator.outputs import OperatorMetrics
from exporter.operator.work_queue import EVERYTHING, WorkQueue
from exporter.reading import Invalid

RESYNC_SECONDS = 600.0
# The worker looks at each custom resource this often without an event: the target of a GPUAutoscaler is not watched.
LOOK_AGAIN_SECONDS = 30.0
MOST_NEEDLESS = 10_000
# An object that is not ours, or is being deleted, may be gone after this time, and perhaps no event says so.
WAIT_SECONDS = 1.0
# Failures that a status can tell, since the API server has answered.
_ANSWERED = frozenset({"permission", "http_status", "rate_limited", "oversize"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredObjects:
    """The objects to write for a custom resource.

    Attributes:
        plan: the objects to apply and to delete. While it waits, nothing is applied.
        live: the custom resource's objects as they are, by their names.
        waits_for: the object that must be gone first, in words; "" if there is none.
        about: the controller's own notes for the status.
    """

    plan: WritePlan
    live: Mapping[Key, AnyObject]
    waits_for: str = ""
    about: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookResult:
    """The result of one look at a custom resource.

    Attributes:
        owner: the custom resource.
        desired: the objects to write, None if they are not known.
        live: the objects as they are now.
        changes: the changes that were written.
        problem: the reason why it is unknown what to write, or why it could not be written.
        refused: the errors of objects that the API server refused, or does not let the operator write.
    """

    owner: AnyObject
    desired: DesiredObjects | None
    live: Mapping[Key, AnyObject]
    changes: Sequence[ObjectChange] = field(default=())
    problem: Invalid | SourceError | None = None
    refused: Sequence[SourceError] = field(default=())

    @property
    def refusals(self) -> list[Trouble]:
        """The requests that the API server refused, the worst first."""
        problems = [self.problem] if isinstance(self.problem, SourceError) else []
        return [*map(as_trouble, (*problems, *self.refused))]


class Controller(Protocol):
    """The rules for the custom resources of one kind."""

    kind: Kind

    async def desired(self, owner: AnyObject, served: AbstractSet[Kind]) -> DesiredObjects:
        """The objects to write for a custom resource, in order.

        `served` are the kinds of COME_AND_GO that the API serves now.

        Raises:
            Invalid: the spec cannot be used. The objects stay as they are.
            SourceError: it is not known which objects there are.
        """

    async def status(self, outcome: LookResult) -> Mapping[str, object]:
        """The whole status, which is equal to the old one if nothing has changed.

        Raises:
            SourceError: the status cannot be known now.
        """

    def events(self, old: AnyObject, new: AnyObject, changes: Sequence[ObjectChange]) -> Sequence[Event]:
        """The events for people, from the old and the new status, and from the changes that were written."""

    def keep_only(self, keys: AbstractSet[Key]) -> None:  # noqa: ARG002 - for a controller that remembers something
        """Forget all custom resources other than `keys`, which has those of every kind."""
        return

    async def gone(self, key: Key) -> Sequence[AnyObject]:  # noqa: ARG002 - for a controller with such objects
        """The objects to delete with a custom resource that is gone, since it could not own them.

        Raises:
            SourceError: the objects are not known.
        """
        return ()


@dataclass(eq=False, kw_only=True)
class Reconciler:
    """The worker. It takes one key after another as long as this process is the leader. No `namespaces` means all."""

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
        """Work until this is cancelled."""
        while True:
            key = await self.work.get()
            self.reader.named_at_seconds = self.work.named_at_seconds
            began = time.monotonic()
            result = await self._looked_at(key)
            self.metrics.reconciled(key.kind or "all", result, time.monotonic() - began)
            log.debug("reconciled", key=str(key), result=result, seconds=round(time.monotonic() - began, 6))

    async def _looked_at(self, key: Key) -> str:
        """Look at a key. Return the result, which is a label's value."""
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

        Raises:
            SourceError: some custom resources cannot be listed. The others are queued all the same.
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
        if not self.namespaces:  # only an operator of all namespaces knows that a custom resource is in none
            await self._sweep(there)
        return True

    async def _sweep(self, there: AbstractSet[Key]) -> None:
        for item in await self.reader.listed(kinds.CLUSTER_ROLE_BINDING, None, {kinds.MANAGER_LABEL: kinds.OPERATOR}):
            for owner in whose(item):
                if owner not in there and is_for(item, owner) and await self.reader.get(owner) is None:
                    await self._deleted(item, None)

    async def _one(self, key: Key) -> bool:
        """Write a custom resource's objects and its status. Return whether nothing is left to do."""
        controller = next((controller for controller in self.controllers if controller.kind.name == key.kind), None)
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
            return True  # the garbage collector deletes its objects, and an event will tell that it is gone
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

    async def _outcome(self, owner: AnyObject, controller: Controller) -> LookResult:
        """Delete and apply the controller's objects. A refusal costs only its object; another failure ends the work."""
        desired: DesiredObjects | None = None
        live: dict[Key, AnyObject] = {}
        changes: list[ObjectChange] = []
        refused: list[SourceError] = []
        problem: Invalid | SourceError | None = None
        try:
            desired = await controller.desired(owner, self.served)
            live.update(desired.live)
            for item in desired.plan.delete:
                with _noting_refusal(item, refused):
                    await self._deleted(item, owner)
                    changes.append(ObjectChange("deleted", called(item)))
                    live.pop(key_of(item), None)
            for item, there in () if desired.waits_for else desired.plan.apply:
                with _noting_refusal(item, refused):
                    live[key_of(item)] = await self._applied(item, there, changes)
        except (Invalid, SourceError) as error:
            problem = error
        return LookResult(owner=owner, desired=desired, live=live, changes=changes, problem=problem, refused=refused)

    async def _applied(self, item: Object, there: AnyObject | None, changes: list[ObjectChange]) -> AnyObject:
        """Apply an object, and note the change if it was one. Return the object as it is then."""
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
        """Delete an object; `owner` is None if it is gone."""
        await self.writer.delete(item)
        log.info("deleted", item=str(key_of(item)), owner=str(key_of(owner)) if owner else "gone")

    async def _tell(self, controller: Controller, outcome: LookResult) -> None:
        """Write the status if it has changed, and the events for people."""
        owner = outcome.owner
        old = mapping(owner, "status")
        new = await controller.status(outcome)
        try:
            if not is_same(old, new):
                await self.writer.apply_status(owner, new)
        except Refused as error:
            # If the custom resource is gone, or was made anew, an event tells it, and this refusal is no trouble.
            is_gone = error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
            write = log.info if is_gone else log.warning
            write("the status was not taken", key=str(key_of(owner)), error=error.why)
            return
        for event in controller.events(old, new, outcome.changes):
            await self.events.tell(owner, event)


@contextmanager
def _noting_refusal(item: AnyObject, refused: list[SourceError]) -> Iterator[None]:
    """Note an object that the API server refuses, and let the others go on."""
    try:
        yield
    except SourceError as error:
        if not isinstance(error, Refused) and error.reason != "permission":
            raise
        # A simultaneous deletion or change may have caused the refusal. The status has a refusal that lasts.
        write = log.info if isinstance(error, Refused) else log.warning
        write("not written", what=str(key_of(item)), error=str(error.trouble))
        refused.append(error)
