"""The cluster role's outputs, in the order in which the page for people names them.

Tests: tests/cluster/test_role.py.
"""

from collections.abc import Sequence
from typing import Any

from exporter.cluster.outputs import autoscale, containers, debug, events, nodes, own_metrics, page, ready
from exporter.outputs import openapi, probes
from exporter.outputs.output import Output
from exporter.outputs.page import document

OUTPUTS: Sequence[Output[Any]] = (
    containers.OUTPUT,
    nodes.OUTPUT,
    own_metrics.OUTPUT,
    events.OUTPUT,
    autoscale.OUTPUT,
    debug.OUTPUT,
    openapi.OUTPUT,
    page.OUTPUT,
    document.STYLE,
    document.SCRIPT,
    probes.HEALTHY,
    probes.HEALTHZ,
    ready.OUTPUT,
)
