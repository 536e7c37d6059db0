"""/events: the last errors of GPUs and NVSwitches by the kernel's log, and who held the GPU then."""

import json
from dataclasses import asdict
from typing import Any

from exporter.dcgm.xids import OTHER_XID, XIDS
from exporter.model.kernel import DeviceEvent
from exporter.outputs.objects import rfc3339
from exporter.outputs.output import JSON_FORMAT, Answer, Look, Output, answer, json_refusal

_OFF = "the kernel's log is not read: set --kernel-log.mode on, and give the exporter /dev/kmsg (docs/install.md)"


def rows(node: str, events: tuple[DeviceEvent, ...]) -> list[dict[str, Any]]:
    """One object for each event, in their order."""
    return [_row(node, each) for each in events]


def _row(node: str, device_event: DeviceEvent) -> dict[str, Any]:
    event, holders = device_event.event, device_event.holders
    xid = XIDS.get(event.code or 0, OTHER_XID) if event.kind == "xid" else None
    return {
        "node_name": node,
        "at": rfc3339(device_event.at_seconds),
        "kind": event.kind,
        "code": event.code,
        "name": xid.name if xid else "",
        "cause": xid.cause if xid else "",
        "remedy": xid.remedy if xid else "",
        "severity": event.severity,
        "text": event.text,
        "pci_address": event.address,
        "device_uuid": device_event.uuid,
        "device_id": device_event.index,
        "mig_instance_id": event.instance,
        "holders": None if holders is None else [asdict(owner) for owner in holders],
        "pid": event.pid,
        "process": event.process,
        "container": asdict(device_event.container) if device_event.container else None,
    }


def _make(look: Look) -> Answer:
    events = look.snapshot.events
    if events is None:
        return json_refusal(_OFF, 404)
    return answer(JSON_FORMAT, json.dumps(rows(look.snapshot.node, events), separators=(",", ":")).encode() + b"\n")


OUTPUT = Output(
    path="/events",
    says="the last errors of GPUs in the kernel's log, with who held them, as JSON, with --kernel-log.mode on",
    make=_make,
)
