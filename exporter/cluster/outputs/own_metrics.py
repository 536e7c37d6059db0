"""/metrics: the cluster role's metrics about itself and the nodes that it knows.

Tests: tests/outputs/test_openmetrics.py.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from exporter.cluster.outputs.look import ClusterLook
from exporter.exposition.families import render
from exporter.model.snapshot import Health
from exporter.outputs.complaints import complaints
from exporter.outputs.families import counters, health
from exporter.outputs.families.family import OwnFamily, by_label, filled, own, single
from exporter.outputs.output import Answer, Output, metrics_answer


def _health(look: ClusterLook) -> Mapping[str, Health]:
    return look.health


def _nodes(look: ClusterLook) -> int | None:
    return None if look.view.trouble and not look.view.nodes else len(look.view.nodes)


def _missing(look: ClusterLook) -> Mapping[str, int]:
    reasons = Counter(node.trouble.reason for node in look.view.nodes.values() if node.trouble)
    return dict(sorted(reasons.items()))


def _ages(look: ClusterLook) -> Mapping[str, float]:
    answered = ((name, node.answered_at_seconds) for name, node in look.view.nodes.items())
    return {name: max(0.0, look.at_seconds - at_seconds) for name, at_seconds in answered if at_seconds is not None}


OF_NODES: Sequence[OwnFamily[ClusterLook]] = (
    own("pod_gpu_exporter_cluster_nodes", single(_nodes)),
    own("pod_gpu_exporter_cluster_missing_nodes", by_label(_missing)),
    own(
        "pod_gpu_exporter_cluster_node_up",
        by_label(lambda look: {name: not node.is_missing for name, node in look.view.nodes.items()}),
    ),
    own("pod_gpu_exporter_cluster_node_age_seconds", by_label(_ages)),
)
FAMILIES: Sequence[OwnFamily[ClusterLook]] = (
    health.BUILD_INFO,
    *health.of_sources(_health),
    *OF_NODES,
    # no page goes through this role, so none of its lines is rejected
    *(family for family in counters.FAMILIES if family is not counters.REJECTED),
)


def _make(look: ClusterLook) -> Answer:
    is_open = look.question.is_open
    families = render(filled(FAMILIES, look), is_open=is_open)
    return metrics_answer(look, b"" if is_open else complaints(look.health), families)


OUTPUT = Output(path="/metrics", says="the role's own metrics, and which nodes are missing", make=_make, has_open=True)
