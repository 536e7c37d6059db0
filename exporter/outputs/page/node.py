"""/: the page for people of a node: its GPUs, who holds them, and what the exporter knows it from."""

from collections.abc import Iterable
from typing import Any

from exporter.model.slices import Work
from exporter.model.snapshot import Snapshot
from exporter.outputs.complaints import why_not
from exporter.outputs.objects import SILENT, are_owners_unknown, event_rows, rows
from exporter.outputs.output import Answer, Look, Need, Output
from exporter.outputs.page.devices import Figures, devices_table, summary
from exporter.outputs.page.document import MORE, TOOLS, alert, document, sources
from exporter.outputs.page.events import events_section


def render(snapshot: Snapshot, outputs: Iterable[Output[Any]] = ()) -> Work[Answer]:
    """The page of this moment, with links to the outputs."""
    objects = yield from rows(snapshot)
    figures = Figures.of(objects)
    trouble = SILENT if are_owners_unknown(snapshot, objects) else ""
    yield
    events = None if snapshot.events is None else event_rows(snapshot.node, snapshot.events)
    table = yield from devices_table(objects, with_node=False)
    sections = (
        alert(trouble if snapshot.joined else why_not(snapshot)),
        summary(figures),
        events_section(events, with_node=False),
        sources(snapshot.health),
        TOOLS,
        *table,
        MORE,
    )
    about = f"{figures.gpus} GPUs seen." if snapshot.joined else "No GPU page."
    # the script asks there for what the objects do not say: the sources, and the events
    data = {"health": "debug/mapping", "silent": SILENT, "events": "" if events is None else "events"}
    return document(f"GPUs of {snapshot.node}", about, sections, data, outputs)


def _make(look: Look) -> Work[Answer]:
    return render(look.snapshot, look.outputs)


OUTPUT = Output(
    path="/", says="", make=_make, needs=frozenset({Need.NODE, Need.WORKLOADS, Need.IDLE_SINCE, Need.VERDICTS})
)
