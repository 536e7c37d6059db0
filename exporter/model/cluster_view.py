"""A view of many nodes: the last answer of each node's exporter, and the nodes of which nothing is known now.

Tests: tests/cluster/exporters/test_known_nodes.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.errors import Trouble
from exporter.model.device_row import DeviceRow
from exporter.model.nothing import nothing

OWNERS_UNKNOWN = Trouble(
    "missing",
    "its exporter does not know who holds the GPUs, for the kubelet does not say",
    "look at /metrics of that exporter, which says why",
)


@dataclass(frozen=True, slots=True, eq=False)
class HeldDevice:
    """A device of a node and one container that holds it: one object of the node's /container/metrics.

    `text` is the whole object as JSON, as docs/openapi.yaml describes it; it has been checked, and `row` is what this
    version reads in it.
    """

    row: DeviceRow
    text: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """One object of a node's /events: an error of a GPU or NVSwitch. `at_seconds` counts from 1970.

    `holders` are the pods that held the device then, as namespace, name and uid ("" if the exporter does not read
    pods). They are also empty if nobody can say who held it. `text` is the whole object as JSON; only the fields above
    have been checked.
    """

    node: str
    at_seconds: float
    kind: str
    code: int | None
    uuid: str
    index: str
    instance: str
    holders: tuple[tuple[str, str, str], ...]
    text: bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeView:
    """A node with an exporter: the exporter's last answer, and its moment in seconds since 1970.

    `devices` are empty before the first answer. `trouble` says why the node is missing: why it has not answered, or
    what was wrong with the answer. A node without trouble has answered lately.
    """

    name: str
    devices: tuple[HeldDevice, ...] = ()
    answered_at_seconds: float | None = None
    trouble: Trouble | None = None

    @property
    def is_missing(self) -> bool:
        """Whether nothing is known about the node, or the last facts may be wrong by now."""
        return self.trouble is not None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterView:
    """A look at the cluster: its nodes by name, in stable order, at `at_seconds` since 1970.

    `trouble` is set if it is not even known which nodes there are. A node that is not in the view may then exist all
    the same. `events` are the last events of all nodes, the newest first. Nodes that are missing, and nodes
    `without_events`, which did not tell theirs, have none among them. `events` is None if the source of this view has
    no events.
    """

    nodes: Mapping[str, NodeView] = field(default_factory=nothing)
    at_seconds: float = 0.0
    trouble: Trouble | None = None
    events: tuple[NodeEvent, ...] | None = None
    without_events: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the nodes that are missing."""
        return tuple(name for name, node in self.nodes.items() if node.is_missing)
