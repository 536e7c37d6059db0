"""/-/healthy, and /healthz as others name it: 200 while the process works."""

from dataclasses import replace

from exporter.outputs.output import NOTHING, Answer, Look, Output, line


def _make(_: Look) -> Answer:
    return line("healthy", 200)


OUTPUT = Output(path="/-/healthy", says="200 while the process works", make=_make, needs=NOTHING, is_probe=True)
HEALTHZ = replace(OUTPUT, path="/healthz", says="")
