"""/events: the last errors of GPUs, links and NVSwitches, suspicions, and who held the GPU then.

Tests: tests/node/test_kernel_log.py.
"""

import json

from exporter.outputs.event_rows import event_rows
from exporter.outputs.output import JSON_FORMAT, Answer, Look, Need, Output, answer, json_refusal

_OFF = (
    "there is no event, and the kernel's log is not read: set --kernel-log.mode on, and give the exporter /dev/kmsg"
    " (docs/install.md)"
)


def _make(look: Look) -> Answer:
    events = event_rows(look.snapshot)
    if events is None:
        return json_refusal(_OFF, 404)
    return answer(JSON_FORMAT, json.dumps(events, separators=(",", ":")).encode() + b"\n")


OUTPUT = Output(
    path="/events",
    says="the last errors of GPUs (--kernel-log.mode on) and of their links, and suspicions, as JSON",
    make=_make,
    needs=frozenset({Need.NODE, Need.IDLE_SINCE, Need.VERDICTS}),
)
