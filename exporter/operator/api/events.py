"""Events of Kubernetes (events.k8s.io/v1) about what the operator does: what `kubectl describe` shows below an object.

The same event again is the first one with a count (its `series`), as client-go does it. Events are told as well as may
be: that one cannot be written never holds up anything else.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from exporter.errors import SourceError
from exporter.log import debug
from exporter.operator.api.writer import Writer
from exporter.operator.objects.kinds import EVENT, OPERATOR, Object, metadata
from exporter.operator.objects.parts import AnyObject, text

MOST_REMEMBERED = 1000
# The API server keeps an event for an hour. One that comes again after this is a new one.
SERIES_SECONDS = 360.0
# A series is written no more often than this, however often its event comes.
QUIET_SECONDS = 30.0
MOST_NOTE_BYTES = 1024  # of the API


@dataclass(slots=True)
class _Series:
    item: Object
    count: int
    last_seconds: float
    written_seconds: float


class Events:
    """Tells what was done, and remembers the last thousand things that it told."""

    def __init__(self, writer: Writer, instance: str, clock: Callable[[], float] = time.time) -> None:
        """`instance` is this process' name; `clock` counts from 1970."""
        self._writer = writer
        self._instance = instance
        self._clock = clock
        self._told: OrderedDict[tuple[str, ...], _Series] = OrderedDict()

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._told)

    async def tell(self, about: AnyObject, kind: str, reason: str, action: str, note: str) -> None:
        """An event about an object; `kind` is Normal or Warning, `note` a sentence for people."""
        now = self._clock()
        key = (text(metadata(about), "uid"), kind, reason, action, note)
        series = self._told.get(key)
        try:
            if series is not None and now - series.last_seconds < SERIES_SECONDS:
                await self._again(series, now)
            else:
                item = self._event(about, kind, reason, action, note, now)
                await self._writer.create(item, tries=2)
                self._told[key] = _Series(item, 1, now, now)
                while len(self._told) > MOST_REMEMBERED:
                    self._told.popitem(last=False)
        except SourceError as error:
            debug("an event could not be told", reason=reason, note=note, error=str(error))

    async def _again(self, series: _Series, now: float) -> None:
        series.count, series.last_seconds = series.count + 1, now
        if now - series.written_seconds < QUIET_SECONDS and series.count > 2:  # noqa: PLR2004 - the second makes a series
            return
        series.written_seconds = now
        named = {name: series.item[name] for name in ("apiVersion", "kind", "metadata")}
        await self._writer.merge({**named, "series": {"count": series.count, "lastObservedTime": _micro(now)}})

    def _event(self, about: AnyObject, kind: str, reason: str, action: str, note: str, now: float) -> Object:
        named = metadata(about)
        name, namespace = text(named, "name"), text(named, "namespace") or "default"
        regarding = {
            "apiVersion": about.get("apiVersion"),
            "kind": about.get("kind"),
            "name": name,
            "namespace": text(named, "namespace"),
            "uid": text(named, "uid"),
        }
        return {
            "apiVersion": EVENT.api_version,
            "kind": EVENT.name,
            # as client-go names them: when it was, in hexadecimal nanoseconds
            "metadata": {"name": f"{name[:230].rstrip('-.')}.{time.time_ns():x}", "namespace": namespace},
            "eventTime": _micro(now),
            "reportingController": OPERATOR,
            "reportingInstance": self._instance[:128],
            "type": kind,
            "reason": reason,
            "action": action,
            "note": note.encode()[:MOST_NOTE_BYTES].decode(errors="ignore"),
            "regarding": regarding,
        }


def _micro(seconds: float) -> str:
    """A moment as MicroTime has it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
