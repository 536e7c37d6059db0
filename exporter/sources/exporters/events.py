"""The body of a node's /events (docs/openapi.yaml) → its events. Pure, and strict: any program may answer."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from exporter.errors import Malformed
from exporter.model.cluster import NodeEvent
from exporter.model.pods import Owner
from exporter.model.slices import Work
from exporter.ownership.kernel_events import MOST_EVENTS
from exporter.sources.exporters.asking import LOOK_THERE
from exporter.sources.json_text import JsonText

PATH = "/events"
# A record of the kernel's log has 8 KiB at most, and 48 containers hold a GPU in time slices.
MOST_ROW_CHARS = 32 * 1024
_MOST_TEXT_CHARS = 512
_MOST_HOLDERS = 64
_LARGEST_CODE = 2**31


def read_events(body: bytes, node: str) -> Work[tuple[NodeEvent, ...]]:
    """The events, the newest first as they come, an event a slice. `node` is whose exporter was asked.

    Raises:
        Malformed: the body is not what an exporter of that node answers.
    """
    text = JsonText(body, LOOK_THERE)
    events: list[NodeEvent] = []
    text.expect("[", "it is not a JSON array")
    for row in text.objects(MOST_ROW_CHARS, "event"):
        if len(events) == MOST_EVENTS:
            raise Malformed("oversize", f"its answer has more than {MOST_EVENTS} events", remedy=LOOK_THERE)
        try:
            events.append(_event(row, node, text.raw))
        except (KeyError, TypeError, ValueError) as error:
            raise text.garbage(f"event {len(events)} cannot be read: {error!r:.200}") from error
        yield
    text.end()
    return tuple(events)


def _event(row: dict[str, Any], node: str, raw: str) -> NodeEvent:
    if row["node_name"] != node:
        raise ValueError("it is of another node")
    at, code, holders = datetime.fromisoformat(row["at"]), row["code"], row["holders"] or ()
    if at.tzinfo is None or not (code is None or (type(code) is int and 0 <= code < _LARGEST_CODE)):
        raise ValueError("its moment has no time zone, or its code is no number")
    if len(holders) > _MOST_HOLDERS:
        raise ValueError(f"it has more than {_MOST_HOLDERS} holders")
    kind, uuid, index, instance = _texts(row, "kind", "device_uuid", "device_id", "mig_instance_id")
    return NodeEvent(
        node=node,
        at_seconds=at.timestamp(),
        kind=kind,
        code=code,
        uuid=uuid,
        index=index,
        instance=instance,
        holders=tuple(map(_holder, holders)),
        text=raw.encode(),
    )


def _holder(row: dict[str, Any]) -> Owner:
    namespace, pod, container = _texts(row, "namespace", "pod", "container")
    return Owner(namespace=namespace, pod=pod, container=container)


def _texts(row: dict[str, Any], *names: str) -> Sequence[str]:
    texts = [row[name] for name in names]
    if any(type(text) is not str or len(text) > _MOST_TEXT_CHARS for text in texts):
        raise ValueError(f"one of {', '.join(names)} is no text, or too long")
    return texts
