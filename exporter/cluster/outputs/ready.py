"""/-/ready: 200 for good as soon as the nodes are known and each has been asked. The answer names missing nodes.

A missing node does not make a replica unready: other replicas would miss it, too, and most answers do not need it.

Tests: tests/cluster/test_role.py.
"""

from exporter.cluster.outputs.look import ClusterLook, which_are_missing
from exporter.outputs.output import Answer, Need, Output, line


def _make(look: ClusterLook) -> Answer:
    if look.not_ready:
        return line(look.not_ready, 503)
    missing = len(look.view.missing)
    if not missing:
        return line("ready", 200)
    return line(f"ready; {missing} of {len(look.view.nodes)} nodes are missing: {which_are_missing(look.view)}", 200)


OUTPUT = Output(
    path="/-/ready",
    says="200 once every node was asked; names those that are missing",
    make=_make,
    needs=frozenset({Need.READINESS}),
    is_probe=True,
)
