"""The data that a server has of a span: the rows of the accounts, and facts beside them.

Tests: tests/report/test_counters.py, tests/report/test_growth.py.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import repeat
from sys import intern
from typing import Final, NamedTuple, Self

# Counters with a row for each container and device, in the order of the first fields of Amounts.
FAMILIES: Final = (
    "pod_gpu_allocated_seconds_total",
    "pod_gpu_active_seconds_total",
    "pod_gpu_idle_seconds_total",
    "pod_gpu_energy_joules_total",
    "pod_gpu_observed_seconds_total",
    "pod_gpu_idle_unknown_seconds_total",
)
# The labels that identify a row as long as it is counted. Labels of pods may come later than the row.
KEY_LABELS: Final = ("namespace", "pod", "container", "UUID", "GPU_I_ID", "node")
# The row's labels from the exporter. All other labels distinguish targets.
_OF_ROW = frozenset({*KEY_LABELS, "pod_uid", "workload_name", "workload_kind", "queue", "__name__"})
_OF_ROW_PREFIXES = ("label_", "exported_")
_NOTHING = repeat("")


class RowKey(NamedTuple):
    """A container and the device that it held. The first three fields are "" if nobody held it.

    `cluster` is "" if series have no label for it.
    """

    namespace: str
    pod: str
    container: str
    uuid: str
    instance: str
    node: str
    cluster: str = ""

    @property
    def place(self) -> str:
        """The node, with its cluster if that is known, since nodes of two clusters may have the same name."""
        return place_of(self.cluster, self.node)


def place_of(cluster: str, node: str) -> str:
    """The place as in `RowKey.place`. No node's name has a slash."""
    return f"{cluster}/{node}" if cluster else node


class Amounts(NamedTuple):
    """Seconds of physical GPUs, and joules.

    `observed` are the held seconds whose use is known. `idle_unknown` is the part of them for which it is unknown
    whether the GPU was idle. `free` are the seconds that nobody held.
    """

    held: float = 0.0
    used: float = 0.0
    idle: float = 0.0
    joules: float = 0.0
    observed: float = 0.0
    idle_unknown: float = 0.0
    free: float = 0.0
    tokens: float = 0.0  # that model servers generated

    def plus(self, other: Self) -> "Amounts":
        """The sum of each field."""
        return Amounts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class ReportRow(NamedTuple):
    """A row's amounts of a model's GPUs, and the labels by which the row may be grouped."""

    key: RowKey
    labels: Mapping[str, str]
    model: str
    amounts: Amounts


Points = tuple[tuple[float, float], ...]


class CountedSeries(NamedTuple):
    """A series as it was scraped.

    `target` names the scraper and the exporter by the labels that Prometheus and its store add. `labels` are the labels
    by which a report may group. A point is a moment in Unix time, in seconds, and the value at that moment.
    """

    key: RowKey
    target: str
    labels: Mapping[str, str]
    points: Points

    @property
    def value(self) -> float:
        """The newest value."""
        return self.points[-1][1]


def is_renamed(labels: Mapping[str, str]) -> bool:
    """Whether Prometheus has replaced labels of the row by labels of its own."""
    return "exported_pod" in labels


def series_of(
    labels: Mapping[str, str], points: Points, wanted: frozenset[str], cluster_label: str = "cluster"
) -> CountedSeries:
    """Make a series from the labels and points of an answer.

    If Prometheus scrapes without honor_labels, the row's labels are called `exported_…`, and the plain names say the
    exporter's own pod. Then the `exported_…` labels count.

    Args:
        labels: the labels of the answer.
        points: the points, in order of time.
        wanted: the labels that are kept beside the key's labels.
        cluster_label: the label that names the cluster.
    """
    names = (*KEY_LABELS, cluster_label)
    if is_renamed(labels):
        key = RowKey(*(labels.get(f"exported_{name}") or labels.get(name, "") for name in names))
    else:
        key = RowKey(*map(labels.get, names, _NOTHING))  # a month has hundreds of thousands of series
    return CountedSeries(
        key=key,
        target=target_of(labels),
        labels={name: labels[name] for name in wanted if labels.get(name)},
        points=points,
    )


def target_of(labels: Mapping[str, str]) -> str:
    """The name of a series' target: all labels that are not the row's.

    Job and instance are not enough: the two servers of an HA pair have the same, and differ in a label of any name.
    """
    added = [name for name in labels.keys() - _OF_ROW if not name.startswith(_OF_ROW_PREFIXES)]
    added.sort()
    return intern(",".join([f"{name}={labels[name]}" for name in added]))


def gaps_of(seen: Mapping[tuple[str, str], float], targets: Mapping[str, AbstractSet[str]]) -> Mapping[str, float]:
    """Seconds of gaps by reason, from the gaps by target and reason (`seen`) and the targets of each node.

    Several targets may scrape an exporter. Then the gaps of the target with the most seconds count.
    """
    exporters = {target: place for place, names in targets.items() for target in names}
    most: dict[tuple[str, str], float] = {}
    for (target, reason), seconds in seen.items():
        of = exporters.get(target, target), reason
        most[of] = max(seconds, most.get(of, 0.0))
    gaps: dict[str, float] = {}
    for (_, reason), seconds in most.items():
        gaps[reason] = gaps.get(reason, 0.0) + seconds
    return gaps


@dataclass(slots=True, kw_only=True)
class SpanFacts:
    """Facts that a server has of a span beside the accounts. The reader adds to them.

    Nodes are named by their places (`RowKey.place`).

    Attributes:
        models: the model of each GPU, by its UUID.
        capacity: the GPU-seconds of all GPUs, by node and model.
        seen_ms: the time during which each node was scraped.
        gaps: the time that exporters themselves did not see, in seconds by reason.
        failing_seconds: the time during which containers held devices that were failing or gone.
        nodes_elsewhere: the nodes that have GPUs according to kube-state-metrics.
        retention: the time that the server keeps samples, "" if it does not say.
        unanswered: the questions that the server refused, by kind of error.
        odd: the number of values that were no numbers.
        has_renamed: whether Prometheus put its own labels in the place of the rows'.
    """

    models: dict[str, str] = field(default_factory=dict)
    capacity: dict[tuple[str, str], float] = field(default_factory=dict)
    seen_ms: dict[str, float] = field(default_factory=dict)
    gaps: Mapping[str, float] = field(default_factory=dict)
    failing_seconds: float = 0.0
    nodes_elsewhere: set[str] = field(default_factory=set)
    has_exporter: bool = False
    retention: str = ""
    warnings: tuple[str, ...] = ()
    unanswered: dict[str, str] = field(default_factory=dict)
    odd: int = 0
    began_ms: int | None = None
    has_renamed: bool = False
    tokens: dict[tuple[str, str, str], dict[str, float]] | None = None  # by cluster, namespace, pod; by model
    restarts: Mapping[str, int] = field(default_factory=dict)
