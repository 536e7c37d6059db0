"""/: a node's page for people: its GPUs, their holders, and the sources that the exporter asks.

Tests: tests/outputs/test_page.py.
"""

from collections import Counter
from collections.abc import Sequence

from exporter.model.device_row import DeviceRow
from exporter.model.slices import Work
from exporter.model.snapshot import Snapshot
from exporter.outputs.device_rows import SILENT, are_owners_unknown, rows
from exporter.outputs.event_rows import event_rows
from exporter.outputs.output import Answer, Look
from exporter.outputs.page.device_table import devices_table, summary, tools
from exporter.outputs.page.document import alert, document, sources
from exporter.outputs.page.event_list import events_section
from exporter.outputs.page.pod import of_pod, pod_accounts, pod_section
from exporter.outputs.page.tree import figures_of
from exporter.outputs.page.view import PageView


def render(look: Look) -> Work[Answer]:
    """The page of this look, with links to the outputs."""
    snapshot = look.snapshot
    view = PageView.of(look.question.query)
    device_rows = yield from rows(snapshot)
    figures = yield from figures_of(device_rows)
    yield
    events = event_rows(snapshot)
    mine = of_pod(device_rows, view.pod) if view.pod else device_rows
    table, fold = yield from devices_table(mine, view, with_node=False)
    sections = (
        alert(_trouble(snapshot, device_rows), snapshot.health),
        pod_section(mine, view) if view.pod else summary(figures, view),
        tools(view, fold, with_node=False),
        *table,
        pod_accounts(view.pod, snapshot.accounts) if view.pod else "",
        events_section(events, device_rows, with_node=False),
        sources(snapshot.health),
    )
    about = models(device_rows, figures["gpus"]) if snapshot.joined else "No GPU page."
    title = f"Pod {view.pod}" if view.pod else f"GPUs of {snapshot.node}"
    return document(title, about, sections, look.outputs, is_stale=snapshot.joined is None)


def _trouble(snapshot: Snapshot, device_rows: Sequence[DeviceRow]) -> str:
    """What is wrong with the whole page; "" if nothing is, or if a source says it."""
    if snapshot.joined:
        return SILENT if are_owners_unknown(snapshot, device_rows) else ""
    is_explained = any(health.trouble for health in snapshot.health.values())
    return "" if is_explained else "no GPU metrics"


def models(device_rows: Sequence[DeviceRow], gpus: int) -> str:
    """A sentence with the number of GPUs and their models."""
    model_of = {row.row_device: row.model_name for row in device_rows if row.entity != "mig"}
    counts = Counter(filter(None, model_of.values()))
    if not counts:
        return f"{gpus} GPUs seen."
    if len(counts) == 1:
        return f"{gpus} GPUs seen: {next(iter(counts))}."
    return f"{gpus} GPUs seen: {', '.join(f'{count} {model}' for model, count in counts.items())}."
