"""/-/ready: 200 once a page could be made with the kubelet's word, then for good; until then 503, and why."""

from exporter.outputs.output import Answer, Look, Need, Output, line


def _make(look: Look) -> Answer:
    return line(look.not_ready, 503) if look.not_ready else line("ready", 200)


OUTPUT = Output(
    path="/-/ready",
    says="200 once a page could be made",
    make=_make,
    needs=frozenset({Need.READINESS}),
    is_probe=True,
)
