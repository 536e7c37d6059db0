"""/debug/log: the last lines of the exporter's log, for those who cannot read its standard error, and for a bundle."""

from exporter.log import last_lines
from exporter.outputs.output import NOTHING, PLAIN, Answer, Look, Output, answer


def _make(_: Look) -> Answer:
    lines = "".join(f"{line}\n" for line in last_lines())
    return answer(PLAIN, lines.encode("utf-8", "replace"))


OUTPUT = Output(path="/debug/log", says="the last 1,000 lines of the exporter's log", make=_make, needs=NOTHING)
