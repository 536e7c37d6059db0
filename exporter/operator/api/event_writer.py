"""Kubernetes events (events.k8s.io/v1) about the operator's work, which `kubectl describe` shows below an object.

If an event comes again, its count (`series`) grows, as in client-go. An event that cannot be written delays nothing.

Tests: tests/operator/test_writer.py.
"""

import time
from collections import OrderedDict
from dataclasses import dataclass, field

from exporter import log
from exporter.errors import SourceError
from exporter.lenient import AnyObject, text
from exporter.operator.api.writer import Refused, Writer
from exporter.operator.event_texts import Event
from exporter.operator.objects.kinds import EVENT, OPERATOR, metadata, uid_of
from exporter.operator.objects.object_fields import in_microseconds
from exporter.operator.objects.resources import Object
from exporter.sources.source import Clock

MOST_REMEMBERED = 1000
# An event that comes again after this time is a new one. (The API server keeps an event for an hour.)
SERIES_SECONDS = 360.0
# The least time between two writes of a series, however often its event comes.
QUIET_SECONDS = 30.0


@dataclass(slots=True)
class _RepeatedEvent:
    item: Object
    count: int
    last_seconds: float
    written_seconds: float


@dataclass(eq=False)
class Events:
    """A writer of events, which remembers the last thousand.

    `instance` is this process's name; `clock` counts from 1970.
    """

    writer: Writer
    instance: str
    clock: Clock = time.time
    _series: OrderedDict[tuple[str, ...], _RepeatedEvent] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._series)

    async def tell(self, about: AnyObject, event: Event) -> None:
        """Write an event about an object."""
        now = self.clock()
        key = (uid_of(about), *event)
        series = self._series.get(key)
        try:
            if series is not None and now - series.last_seconds < SERIES_SECONDS:
                await self._again(series, now)
            else:
                item = self._object(about, event, now)
                await self.writer.create(item, tries=2)
                self._series[key] = _RepeatedEvent(item, 1, now, now)
                while len(self._series) > MOST_REMEMBERED:
                    self._series.popitem(last=False)
        except SourceError as error:
            log.debug("an event could not be told", reason=event.reason, note=event.note, error=str(error))

    async def write(self, about: AnyObject, event: Event, name: str, at_seconds: float) -> None:
        """Write an event under a name of the caller's choice. If there is an event of that name, it stays as it is.

        Args:
            about: the object that the event is about.
            event: the event.
            name: the name of the event's object.
            at_seconds: the time of the event, since 1970.

        Raises:
            SourceError: the event could not be written.
        """
        try:
            await self.writer.create(self._object(about, event, at_seconds, name), tries=2)
        except Refused as error:
            if error.reason_given != "AlreadyExists":
                raise

    async def _again(self, series: _RepeatedEvent, now: float) -> None:
        series.count += 1
        series.last_seconds = now
        if now - series.written_seconds < QUIET_SECONDS and series.count > 2:  # noqa: PLR2004 - the second makes a series
            return
        series.written_seconds = now
        named = {name: series.item[name] for name in ("apiVersion", "kind", "metadata")}
        await self.writer.merge({**named, "series": {"count": series.count, "lastObservedTime": in_microseconds(now)}})

    def _object(self, about: AnyObject, event: Event, now: float, name: str = "") -> Object:
        """The event as the API takes it, at `now` in epoch seconds. Without a `name` it gets a new one."""
        named = metadata(about)
        namespace = text(named, "namespace") or "default"
        regarding = {key: about.get(key) for key in ("apiVersion", "kind")}
        regarding |= {key: text(named, key) for key in ("name", "namespace", "uid")}
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            # as client-go names events: the object's name, and the time in hexadecimal nanoseconds
            "metadata": {
                "name": name or f"{text(named, 'name')[:230].rstrip('-.')}.{time.time_ns():x}",
                "namespace": namespace,
            },
            "eventTime": in_microseconds(now),
            "reportingController": OPERATOR,
            "reportingInstance": self.instance[:128],
            "regarding": regarding,
            **event._asdict(),
        }
