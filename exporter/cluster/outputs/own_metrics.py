"""/metrics: what the cluster role says of itself and of the nodes that it knows."""

from collections import Counter
from collections.abc import Mapping, Sequence

from exporter.cluster.outputs.look import ClusterLook
from exporter.exposition.families import Samples, render
from exporter.model.snapshot import Health
from exporter.outputs.complaints import complaints
from exporter.outputs.families import counters, health
from exporter.outputs.families.family import OwnFamily, filled, gauge
from exporter.outputs.output import Answer, Output, metrics_answer


def _health(look: ClusterLook) -> Mapping[str, Health]:
    return look.health


def _missing(look: ClusterLook) -> Samples:
    reasons = Counter(node.trouble.reason for node in look.view.nodes.values() if node.trouble)
    return [((reason,), float(count)) for reason, count in sorted(reasons.items())]


OF_NODES: Sequence[OwnFamily[ClusterLook]] = (
    gauge(
        "pod_gpu_exporter_cluster_nodes",
        "Nodes whose exporters are known. Not there while it is not known which there are.",
        fill=lambda look: [] if look.view.trouble and not look.view.nodes else [((), float(len(look.view.nodes)))],
    ),
    gauge(
        "pod_gpu_exporter_cluster_missing_nodes",
        "Nodes of which nothing is known that counts, by the reason.",
        ("reason",),
        fill=_missing,
    ),
    gauge(
        "pod_gpu_exporter_cluster_node_up",
        "Whether a node's exporter has answered within --cluster.max-age (1), or the node is missing (0).",
        ("node",),
        fill=lambda look: [((name,), float(not node.is_missing)) for name, node in look.view.nodes.items()],
    ),
    gauge(
        "pod_gpu_exporter_cluster_node_age_seconds",
        "How old the last answer of a node's exporter is.",
        ("node",),
        fill=lambda look: [
            ((name,), max(0.0, look.at_seconds - node.answered_at_seconds))
            for name, node in look.view.nodes.items()
            if node.answered_at_seconds is not None
        ],
    ),
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
