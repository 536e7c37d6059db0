"""The node role's outputs, in the order in which the page for people names them."""

from exporter.outputs import containers, events, gpu_metrics, mapping, nodes, openapi, own_metrics, probes, processes
from exporter.outputs.page import document, node

OUTPUTS = (
    gpu_metrics.OUTPUT,
    containers.OUTPUT,
    own_metrics.OUTPUT,
    nodes.OUTPUT,
    own_metrics.METRIC,
    processes.OUTPUT,
    events.OUTPUT,
    mapping.OUTPUT,
    openapi.OUTPUT,
    node.OUTPUT,
    document.STYLE,
    document.SCRIPT,
    probes.HEALTHY,
    probes.HEALTHZ,
    probes.READY,
)
