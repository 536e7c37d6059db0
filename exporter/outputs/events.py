"""/events: the last errors of GPUs and NVSwitches in the kernel's log, and the holders of the GPU then."""

import json

from exporter.outputs.device_rows import event_rows
from exporter.outputs.output import JSON_FORMAT, Answer, Look, Output, answer, json_refusal

_OFF = "the kernel's log is not read: set --kernel-log.mode on, and give the exporter /dev/kmsg (docs/install.md)"


def _make(look: Look) -> Answer:
    node = look.snapshot.node
    events = look.snapshot.events
    if events is None:
        return json_refusal(_OFF, 404)
    return answer(JSON_FORMAT, json.dumps(event_rows(node, events), separators=(",", ":")).encode() + b"\n")


OUTPUT = Output(
    path="/events",
    says="the last errors of GPUs in the kernel's log, with who held them, as JSON, with --kernel-log.mode on",
    make=_make,
)
