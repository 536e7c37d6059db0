"""The families of the cluster role: of the nodes that it knows, and of itself."""

from collections import Counter
from collections.abc import Mapping, Sequence

from exporter.cluster.outputs.look import ClusterLook
from exporter.exposition.families import Samples
from exporter.model.snapshot import Health
from exporter.outputs.families import counters, health
from exporter.outputs.families.family import OwnFamily


def _health(look: ClusterLook) -> Mapping[str, Health]:
    return look.health


def _missing(look: ClusterLook) -> Samples:
    reasons = Counter(node.trouble.reason for node in look.view.nodes.values() if node.trouble)
    return [((reason,), float(count)) for reason, count in sorted(reasons.items())]


OF_NODES: Sequence[OwnFamily[ClusterLook]] = (
    OwnFamily(
        "pod_gpu_exporter_cluster_nodes",
        "gauge",
        "Nodes whose exporters are known. Not there while it is not known which there are.",
        fill=lambda look: [] if look.view.trouble and not look.view.nodes else [((), float(len(look.view.nodes)))],
    ),
    OwnFamily(
        "pod_gpu_exporter_cluster_missing_nodes",
        "gauge",
        "Nodes of which nothing is known that counts, by the reason.",
        ("reason",),
        fill=_missing,
    ),
    OwnFamily(
        "pod_gpu_exporter_cluster_node_up",
        "gauge",
        "Whether a node's exporter has answered within --cluster.max-age (1), or the node is missing (0).",
        ("node",),
        fill=lambda look: [((name,), float(not node.is_missing)) for name, node in look.view.nodes.items()],
    ),
    OwnFamily(
        "pod_gpu_exporter_cluster_node_age_seconds",
        "gauge",
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
