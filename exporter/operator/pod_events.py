"""Kubernetes events on pods about XIDs of GPUs that they held: `kubectl describe pod` shows them.

Node exporters name holders by namespace and name, as the kubelet does, and also by uid if they read pods. The operator
reads the pod of that name from the API. The pod is the holder if it is on that node and has the uid. Without a uid, it
is the holder if its kubelet knew it before the XID. `status.startTime` is by the same clock as the XID's time, so
a later pod of the same name gets no event.

An XID that is no error gives a Normal event if it says that a program has ended, and no event otherwise.

An event's name is made of its content, so a process does not write again what another one has written. Each process
lists the events of a namespace once. Their times, which outlive the process, decide which events may be written.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple

from exporter import log
from exporter.dcgm.xids import OTHER_XID, XIDS
from exporter.errors import SourceError, Trouble
from exporter.lenient import AnyObject, mapping, text
from exporter.model.cluster_view import NodeEvent
from exporter.operator.api.event_writer import Events
from exporter.operator.api.reader import Reader
from exporter.operator.event_texts import Event, EventType, noted
from exporter.operator.objects.kinds import EVENT, OPERATOR, POD, Key, name_of, uid_of
from exporter.operator.objects.object_fields import as_trouble, moment
from exporter.ownership.workloads import is_object_name
from exporter.sources.pause import Pause
from exporter.sources.source import Clock
from exporter.wording import one_line

REASON = "GpuXid"
# A pod gets one event for an XID of a device in this time, and none for an older XID.
AGAIN_SECONDS = 3600.0
MOST_IN_NAMESPACE = 20
MOST_WAITING = 1_000
_MOST_HEARD = 10_000
_MOST_NAMESPACES = 1_000
_MOST_LISTED = 2_000  # events of a namespace, which the API server keeps for an hour by default
_MOST_CHARS = 80  # of a GPU's index
# The time for which nothing is asked or written in a namespace after a failure.
_PAUSE = Pause(30.0, 600.0)
_START_SECONDS = 1.0  # the true start may be this much later than a start time, since metav1.Time has whole seconds


class _HeldAtXid(NamedTuple):
    """A pod that held a device at an XID, according to a node's exporter, whose later answers repeat it."""

    owner: Key
    node: str
    namespace: str
    pod: str
    uid: str
    gpu: str
    code: int
    at_seconds: float


class _RefusedWrites(NamedTuple):
    trouble: Trouble
    failures: int
    until: float


class PodEvents:
    """The events to write, and the events that were written. `run` writes until it is cancelled."""

    def __init__(
        self, reader: Reader, events: Events, on_change: Callable[[Key], None], clock: Clock = time.time
    ) -> None:
        """`on_change` is called with each GPUExporter whose troubles have changed; `clock` counts from 1970."""
        self.waiting: asyncio.Queue[_HeldAtXid] = asyncio.Queue(MOST_WAITING)
        self._reader = reader
        self._events = events
        self._on_change = on_change
        self._clock = clock
        self._heard: set[_HeldAtXid] = set()
        # by namespace: the times of its events by their names
        self._written: dict[str, dict[str, float]] = {}
        self._refusals: dict[tuple[Key, str], _RefusedWrites] = {}

    def hear(self, owner: Key, node: str, events: Iterable[NodeEvent]) -> None:
        """Queue the events that the exporter of a GPUExporter's node tells, the newest first.

        An event that finds no room is told again later.
        """
        for event in reversed([*events]):
            if event.kind != "xid" or not event.code or abs(self._clock() - event.at_seconds) >= AGAIN_SECONDS:
                continue
            xid = XIDS.get(event.code, OTHER_XID)
            if xid.informs and not xid.is_program_end:
                continue
            gpu = event.index or event.uuid
            if event.instance:
                gpu = f"{gpu}, instance {event.instance}"
            for namespace, pod, uid in event.holders:
                self._queue(_HeldAtXid(owner, node, namespace, pod, uid, gpu, event.code, event.at_seconds))

    def _queue(self, held: _HeldAtXid) -> None:
        if held in self._heard or self.waiting.full() or self._is_paused(held):
            return
        _bound(self._heard, _MOST_HEARD)
        self._heard.add(held)
        self.waiting.put_nowait(held)

    def troubles(self, owner: Key) -> Sequence[Trouble]:
        """The reason why events of a GPUExporter are not written, in the first such namespace.

        A reason that passes by itself is left out.
        """
        since = self._clock() - AGAIN_SECONDS
        for (key, _), refusal in sorted(self._refusals.items()):
            if key == owner and refusal.until > since and refusal.trouble.reason != "ApiUnavailable":
                return [refusal.trouble]
        return []

    async def run(self) -> None:
        """Write queued events. First forget all that is known, since another process may have written meanwhile."""
        self._heard.clear()
        self._written.clear()
        while True:
            held = await self.waiting.get()
            await self._attend(held)
            self.waiting.task_done()

    def _is_paused(self, held: _HeldAtXid) -> bool:
        refusal = self._refusals.get((held.owner, held.namespace))
        return refusal is not None and self._clock() < refusal.until

    async def _attend(self, held: _HeldAtXid) -> None:
        """Write one event. If the API refuses it, its namespace pauses, and the event may come again."""
        if self._is_paused(held):
            self._heard.discard(held)
            return
        try:
            await self._tell(held)
        except SourceError as error:
            self._heard.discard(held)
            self._note_refusal(held, error)
        except Exception as error:  # noqa: BLE001 - a fault of this program must not cost the other pods
            log.error("a fault of the operator: an Event on a pod is not written", error, pod=held.pod)
        else:
            if self._refusals.pop((held.owner, held.namespace), None):
                self._on_change(held.owner)

    def _note_refusal(self, held: _HeldAtXid, error: SourceError) -> None:
        key = held.owner, held.namespace
        before = self._refusals.get(key)
        failures = before.failures + 1 if before else 1
        why = as_trouble(error)
        why = replace(why, message=f"no events are written on pods of the namespace {held.namespace}: {why.message}")
        _bound(self._refusals, _MOST_NAMESPACES)
        until = self._clock() + max(_PAUSE.after(failures), error.retry_after_seconds or 0.0)
        self._refusals[key] = _RefusedWrites(why, failures, until)
        if before is None or before.trouble != why:
            log.warning("an Event on a pod is not written", key=str(held.owner), error=str(why))
            self._on_change(held.owner)

    async def _tell(self, held: _HeldAtXid) -> None:
        """Write the event, if the pod should get it.

        Raises:
            SourceError: it is not known whether it should, or the event could not be written.
        """
        if not (is_object_name(held.namespace) and is_object_name(held.pod)):
            return
        xid = XIDS.get(held.code, OTHER_XID)
        most = MOST_IN_NAMESPACE // 2 if xid.informs else MOST_IN_NAMESPACE  # the other half is for warnings
        written = await self._written_in(held.namespace)
        now = self._clock()
        if sum(now - at_seconds < AGAIN_SECONDS for at_seconds in written.values()) >= most:
            return
        kind: EventType = "Normal" if xid.informs else "Warning"
        gpu = one_line(held.gpu, _MOST_CHARS)
        note = f"Xid {held.code} on GPU {gpu} ({xid.name}) while this pod held it; {xid.remedy}"
        event = noted(Event(kind, REASON, "Hold", note))
        for pod in await self._reader.listed(POD, held.namespace, fields={"metadata.name": held.pod}):
            name = _name_of_event(pod, held)
            if _is_holder(pod, held) and held.at_seconds - written.get(name, 0.0) >= AGAIN_SECONDS:
                await self._events.write(pod, event, name, held.at_seconds)
                written[name] = held.at_seconds

    async def _written_in(self, namespace: str) -> dict[str, float]:
        written = self._written.get(namespace)
        if written is None or len(written) >= _MOST_LISTED:
            rows = await self._reader.listed(
                EVENT, namespace, fields={"reason": REASON}, use=_used_of, most=_MOST_LISTED
            )
            written = {}
            for row in rows:
                written |= row
            _bound(self._written, _MOST_NAMESPACES)
            self._written[namespace] = written
        return written


def _name_of_event(pod: AnyObject, held: _HeldAtXid) -> str:
    """Made of what it tells: what another process wrote has the same name."""
    content = f"{uid_of(pod)} {held.gpu} {held.code}"
    return f"{held.pod[:200].rstrip('-.')}.{sha256(content.encode()).hexdigest()[:20]}"


def _is_holder(pod: AnyObject, held: _HeldAtXid) -> bool:
    """Whether a pod is the holder: on that node, with that uid, or else known to the kubelet before the XID."""
    if text(mapping(pod, "spec"), "nodeName") != held.node:
        return False
    if held.uid:
        return uid_of(pod) == held.uid
    started = moment(mapping(pod, "status"), "startTime")
    return started is not None and started.timestamp() + _START_SECONDS <= held.at_seconds


def _used_of(event: AnyObject) -> AnyObject:
    """The time of an event of the operator, by its name; nothing for others' events."""
    time = moment(event, "eventTime")
    is_ours = text(event, "reportingController") == OPERATOR
    return {name_of(event): time.timestamp()} if time and is_ours else {}


def _bound(entries: set[_HeldAtXid] | dict[Any, Any], most: int) -> None:
    """Make room for an entry, by forgetting all entries. The API is then asked for them again."""
    if len(entries) >= most:
        entries.clear()
