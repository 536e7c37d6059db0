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
from itertools import islice
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
from exporter.wording import one_line

REASON = "GpuXid"
# A pod gets one event for an XID of a device in this time, and none for an older XID.
AGAIN_SECONDS = 3600.0
MOST_IN_NAMESPACE = 20
MOST_WAITING = 1_000
_MOST_HEARD, _MOST_NAMESPACES = 10_000, 1_000
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
        self, reader: Reader, events: Events, on_change: Callable[[Key], None], clock: Callable[[], float] = time.time
    ) -> None:
        """`on_change` is called with each GPUExporter whose troubles have changed; `clock` counts from 1970."""
        self.waiting: asyncio.Queue[_HeldAtXid] = asyncio.Queue(MOST_WAITING)
        self._reader, self._events, self._on_change, self._clock = reader, events, on_change, clock
        self._heard: set[_HeldAtXid] = set()
        # by namespace: the times of its events by their names
        self._written: dict[str, dict[str, float]] = {}
        self._refusals: dict[tuple[Key, str], _RefusedWrites] = {}

    def hear(self, owner: Key, node: str, events: Iterable[NodeEvent]) -> None:
        """Queue the events that the exporter of a GPUExporter's node tells, the newest first.

        An event that finds no room is told again later.
        """
        for event in [*events][::-1]:
            xid = XIDS.get(event.code or 0, OTHER_XID)
            if event.kind != "xid" or not event.code or (xid.informs and not xid.is_program_end):
                continue
            if abs(self._clock() - event.at_seconds) >= AGAIN_SECONDS:
                continue
            gpu = f"{event.index or event.uuid}{f', instance {event.instance}' if event.instance else ''}"
            for namespace, pod, uid in event.holders:
                held = _HeldAtXid(owner, node, namespace, pod, uid, gpu, event.code, event.at_seconds)
                if held not in self._heard and not self.waiting.full() and not self._is_paused(held):
                    _bound(self._heard, _MOST_HEARD)
                    self._heard.add(held)
                    self.waiting.put_nowait(held)

    def troubles(self, owner: Key) -> Sequence[Trouble]:
        """The reason why events of a GPUExporter are not written, in the first such namespace.

        A reason that passes by itself is left out.
        """
        since = self._clock() - AGAIN_SECONDS
        refusals = (refusal for (key, _), refusal in sorted(self._refusals.items()) if key == owner)
        lasting = (
            refusal.trouble
            for refusal in refusals
            if refusal.until > since and refusal.trouble.reason != "ApiUnavailable"
        )
        return [*islice(lasting, 1)]

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
        key = held.owner, held.namespace
        before = self._refusals.get(key)
        try:
            if not self._is_paused(held):
                await self._tell(held)
                if self._refusals.pop(key, None):
                    self._on_change(held.owner)
                return
        except SourceError as error:
            failures, why = before.failures + 1 if before else 1, as_trouble(error)
            until = self._clock() + max(_PAUSE.after(failures), error.retry_after_seconds or 0.0)
            why = replace(
                why, message=f"no events are written on pods of the namespace {held.namespace}: {why.message}"
            )
            _bound(self._refusals, _MOST_NAMESPACES)
            self._refusals[key] = _RefusedWrites(why, failures, until)
            if before is None or before.trouble != why:
                log.warning("a pod is not told", key=str(held.owner), error=str(why))
                self._on_change(held.owner)
        except Exception as error:  # noqa: BLE001 - a fault of this program must not cost the other pods
            log.error("a pod is not told by a fault of the operator", error, pod=held.pod)
            return
        self._heard.discard(held)

    async def _tell(self, held: _HeldAtXid) -> None:
        """Write the event, if the pod should get it.

        Raises:
            SourceError: it is not known whether it should, or the event could not be written.
        """
        if not (is_object_name(held.namespace) and is_object_name(held.pod)):
            return
        xid = XIDS.get(held.code, OTHER_XID)
        most = MOST_IN_NAMESPACE // 2 if xid.informs else MOST_IN_NAMESPACE  # the other half is for warnings
        written, now = await self._written_in(held.namespace), self._clock()
        if sum(now - at_seconds < AGAIN_SECONDS for at_seconds in written.values()) >= most:
            return
        pods = await self._reader.listed(POD, held.namespace, fields={"metadata.name": held.pod})
        for pod in (pod for pod in pods if _is_holder(pod, held)):
            about = f"{uid_of(pod)} {held.gpu} {held.code}"
            name = f"{held.pod[:200].rstrip('-.')}.{sha256(about.encode()).hexdigest()[:20]}"
            if held.at_seconds - written.get(name, 0.0) >= AGAIN_SECONDS:
                kind: EventType = "Normal" if xid.informs else "Warning"
                gpu = one_line(held.gpu, _MOST_CHARS)
                note = f"Xid {held.code} on GPU {gpu} ({xid.name}) while this pod held it; {xid.remedy}"
                await self._events.write(pod, noted(Event(kind, REASON, "Hold", note)), name, held.at_seconds)
                written[name] = held.at_seconds

    async def _written_in(self, namespace: str) -> dict[str, float]:
        written = self._written.get(namespace)
        if written is None or len(written) >= _MOST_LISTED:
            rows = await self._reader.listed(
                EVENT, namespace, fields={"reason": REASON}, use=_used_of, most=_MOST_LISTED
            )
            written = {name: at_seconds for row in rows for name, at_seconds in row.items()}
            _bound(self._written, _MOST_NAMESPACES)
            self._written[namespace] = written
        return written


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
    at, is_ours = moment(event, "eventTime"), text(event, "reportingController") == OPERATOR
    return {name_of(event): at.timestamp()} if at and is_ours else {}


def _bound(entries: set[_HeldAtXid] | dict[Any, Any], most: int) -> None:
    """Make room for an entry, by forgetting all entries. The API is then asked for them again."""
    if len(entries) >= most:
        entries.clear()
