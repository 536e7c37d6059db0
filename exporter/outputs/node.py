"""The node role's outputs, in the order in which the page for people names them."""

from exporter.outputs import (
    containers,
    gpu_metrics,
    healthy,
    mapping,
    metric,
    nodes,
    openapi,
    own_metrics,
    page,
    processes,
    ready,
)

OUTPUTS = (
    gpu_metrics.OUTPUT,
    containers.OUTPUT,
    own_metrics.OUTPUT,
    nodes.OUTPUT,
    metric.OUTPUT,
    processes.OUTPUT,
    mapping.OUTPUT,
    openapi.OUTPUT,
    page.OUTPUT,
    healthy.OUTPUT,
    healthy.HEALTHZ,
    ready.OUTPUT,
)
