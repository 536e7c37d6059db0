"""The reader of a node's /events (docs/openapi.yaml). Pure, and strict, since any program may answer.

Tests: tests/operator/test_pod_events.py.
"""

from datetime import datetime

from exporter.errors import Malformed
from exporter.lenient import AnyObject, mappings, number, text
from exporter.model.cluster_view import NodeEvent
from exporter.model.slices import Work
from exporter.ownership.kernel_events import MOST_EVENTS
from exporter.sources.exporters.asking import LOOK_THERE
from exporter.sources.json_text import JsonText

PATH = "/events"
# A record of the kernel's log has at most 8 KiB, and up to 48 containers hold a GPU in time slices.
MOST_ROW_CHARS = 32 * 1024
_MOST_HOLDERS = 64


def read_events(body: bytes, node: str) -> Work[tuple[NodeEvent, ...]]:
    """Read the events, newest first, an event in each slice. `node` is the node whose exporter was asked.

    Raises Malformed: the body has no events, or another node's.
    """
    content = JsonText(body, LOOK_THERE)
    events: list[NodeEvent] = []
    content.expect("[", "it is not a JSON array")
    for row in content.objects(MOST_ROW_CHARS, "event"):
        if len(events) == MOST_EVENTS:
            raise Malformed("oversize", f"its answer has more than {MOST_EVENTS} events", remedy=LOOK_THERE)
        if row.get("node_name") != node:
            raise content.garbage(f"event {len(events)} is of another node")
        try:
            at_seconds = datetime.strptime(text(row, "at"), "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
        except ValueError as error:
            raise content.garbage(f"event {len(events)} has no moment") from error
        events.append(_event(row, node, at_seconds, content.raw))
        yield
    content.end()
    return tuple(events)


def _event(row: AnyObject, node: str, at_seconds: float, raw: str) -> NodeEvent:
    return NodeEvent(
        node=node,
        at_seconds=at_seconds,
        kind=text(row, "kind"),
        code=number(row, "code"),
        uuid=text(row, "device_uuid"),
        index=text(row, "device_id"),
        instance=text(row, "mig_instance_id"),
        holders=tuple(dict.fromkeys(map(_pod_of, mappings(row, "holders", _MOST_HOLDERS)))),
        text=raw.encode(),
    )


def _pod_of(holder: AnyObject) -> tuple[str, str, str]:
    return text(holder, "namespace"), text(holder, "pod"), text(holder, "pod_uid")
