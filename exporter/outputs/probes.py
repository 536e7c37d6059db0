"""/-/healthy (other programs call it /healthz), which is 200 while the process works, and /-/ready.

/-/ready is 503 with the reason until the first page with the kubelet's answer could be made, then 200 for good.

Tests: tests/web/test_endpoints.py.
"""

from dataclasses import replace

from exporter.outputs.output import NOTHING, Answer, Look, Need, Output, line


def _healthy(_: Look) -> Answer:
    return line("healthy", 200)


def _ready(look: Look) -> Answer:
    return line(look.not_ready, 503) if look.not_ready else line("ready", 200)


HEALTHY = Output(path="/-/healthy", says="200 while the process works", make=_healthy, needs=NOTHING, is_probe=True)
HEALTHZ = replace(HEALTHY, path="/healthz", says="")
READY = Output(
    path="/-/ready", says="200 once a page could be made", make=_ready, needs=frozenset({Need.READINESS}), is_probe=True
)
