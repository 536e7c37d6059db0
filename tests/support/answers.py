"""What an output answers, in one go: the web makes large answers in slices."""

from typing import Any

from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot
from exporter.outputs import containers, device_rows
from exporter.outputs.output import Answer, AnyLook, Output


def answer_of(output: Output[Any], look: AnyLook) -> Answer:
    made = output.make(look)
    return made if isinstance(made, Answer) else at_once(made)


def json_of(snapshot: Snapshot) -> bytes:
    """The body of /container/metrics."""
    return b"".join(at_once(containers.render(at_once(device_rows.rows(snapshot)), {})))
