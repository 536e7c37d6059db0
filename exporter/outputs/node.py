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
    processes,
    ready,
)
from exporter.outputs.page import files, node

OUTPUTS = (
    gpu_metrics.OUTPUT,
    containers.OUTPUT,
    own_metrics.OUTPUT,
    nodes.OUTPUT,
    metric.OUTPUT,
    processes.OUTPUT,
    mapping.OUTPUT,
    openapi.OUTPUT,
    node.OUTPUT,
    files.STYLE,
    files.SCRIPT,
    healthy.OUTPUT,
    healthy.HEALTHZ,
    ready.OUTPUT,
)
