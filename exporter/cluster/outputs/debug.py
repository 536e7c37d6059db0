"""/debug/nodes: every known node, the time of its answer, and why it is missing; and this role's settings.

Tests: tests/cluster/test_role.py.
"""

import json
from datetime import UTC, datetime

from exporter.cluster.outputs.look import ClusterLook
from exporter.model.cluster_view import NodeView
from exporter.outputs.complaints import in_parts
from exporter.outputs.output import JSON_FORMAT, Answer, Need, Output, answer


def _make(look: ClusterLook) -> Answer:
    content = {
        **look.about,
        "sources": {
            name: {"up": health.up, **in_parts(health.trouble), "seconds": health.duration_seconds}
            for name, health in look.health.items()
        },
        "which_nodes": in_parts(look.view.trouble),
        "nodes": [_node(node) for node in look.view.nodes.values()],
    }
    return answer(JSON_FORMAT, json.dumps(content, indent=2).encode() + b"\n")


def _node(node: NodeView) -> dict[str, object]:
    at = node.answered_at_seconds
    return {
        "name": node.name,
        "missing": node.is_missing,
        **in_parts(node.trouble),
        "answered_at": None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
        "devices": len({held.row.row_device for held in node.devices}),
        "containers": sum(bool(held.row.pod) for held in node.devices),
        "without_workload": sorted(
            {held.row.pod_name for held in node.devices if held.row.pod and not held.row.workload_name}
        ),
    }


OUTPUT = Output(
    path="/debug/nodes",
    says="every node, when it answered, and why it is missing",
    make=_make,
    needs=frozenset({Need.NODE, Need.DIAGNOSIS}),
)
