"""The node role's outputs, in the order in which the page for people names them."""

from exporter.model.slices import Work
from exporter.outputs import (
    containers,
    events,
    gpu_metrics,
    log_lines,
    mapping,
    nodes,
    openapi,
    own_metrics,
    probes,
    processes,
)
from exporter.outputs.output import OF_OBJECTS, Answer, Look, Output
from exporter.outputs.page import document


def _page(look: Look) -> Work[Answer]:
    from exporter.outputs.page.node_page import render  # noqa: PLC0415 - most nodes are never asked for it

    return render(look)


PAGE = Output(path="/", says="", make=_page, needs=OF_OBJECTS)
OUTPUTS = (
    gpu_metrics.OUTPUT,
    containers.OUTPUT,
    own_metrics.OUTPUT,
    nodes.OUTPUT,
    own_metrics.METRIC,
    processes.OUTPUT,
    events.OUTPUT,
    mapping.OUTPUT,
    log_lines.OUTPUT,
    openapi.OUTPUT,
    PAGE,
    document.STYLE,
    document.SCRIPT,
    probes.HEALTHY,
    probes.HEALTHZ,
    probes.READY,
)
