"""The cluster role's outputs, in the order in which the page for people names them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from exporter.cluster.outputs import autoscale, containers, debug, nodes, own_metrics, page, ready
from exporter.outputs import healthy, openapi
from exporter.outputs.output import Output
from exporter.outputs.page import files

OUTPUTS: Sequence[Output[Any]] = (
    containers.OUTPUT,
    nodes.OUTPUT,
    own_metrics.OUTPUT,
    autoscale.OUTPUT,
    debug.OUTPUT,
    openapi.OUTPUT,
    page.OUTPUT,
    files.STYLE,
    files.SCRIPT,
    healthy.OUTPUT,
    replace(healthy.OUTPUT, path="/healthz", says=""),
    ready.OUTPUT,
)
