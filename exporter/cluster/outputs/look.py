"""A look at the cluster, from which every answer is made, and the texts that several answers have.

Tests: tests/cluster/test_role.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.cluster.seen_workloads import SeenWorkloads
from exporter.model.cluster_view import ClusterView, NodeView
from exporter.model.snapshot import Health
from exporter.outputs.output import AnyLook
from exporter.wording import listed

# Proxies refuse headers of more than 8 KiB.
MOST_HEADER_CHARS = 4096
MOST_NAMED = 20


@dataclass(kw_only=True, eq=False)
class ClusterLook(AnyLook):
    """A look at the cluster at `at_seconds` since 1970, with the health of the sources.

    `workloads` are the workloads that autoscalers have asked about.
    """

    view: ClusterView
    health: Mapping[str, Health]
    at_seconds: float
    workloads: SeenWorkloads = field(default_factory=SeenWorkloads)


def answered(view: ClusterView) -> Sequence[NodeView]:
    """The nodes whose last answer is not too old."""
    return [node for node in view.nodes.values() if not node.is_missing]


def why_nothing(view: ClusterView) -> str:
    """One line that says why no node's devices are known; "" if some are."""
    missing = view.missing
    if view.trouble and len(missing) == len(view.nodes):
        return f"it is not known which nodes there are: {view.trouble}"
    if missing and len(missing) == len(view.nodes):
        return f"no node has answered: {which_are_missing(view)}"
    return ""


def which_are_missing(view: ClusterView) -> str:
    """The missing nodes, the first few with the reason."""
    missing = view.missing
    # thousands may be missing, and only the first few are told
    reasons = [f"{name}: {view.nodes[name].trouble}" for name in missing[:MOST_NAMED]]
    return listed([*reasons, *missing[MOST_NAMED:]], MOST_NAMED, "; ")


def missing_header(view: ClusterView, more: Sequence[str] = ()) -> Sequence[tuple[str, str]]:
    """The header that names the missing nodes and `more`, if there are any; `...` at its end says that it is cut."""
    missing = tuple(dict.fromkeys((*view.missing, *more)))
    if not missing:
        return ()
    names = []
    chars = 0
    for name in missing:
        chars += len(name) + 2
        if chars > MOST_HEADER_CHARS:
            names.append("...")
            break
        names.append("".join(char if char.isascii() and char.isprintable() and char != "," else "?" for char in name))
    return (("X-Missing-Nodes", ", ".join(names)),)
