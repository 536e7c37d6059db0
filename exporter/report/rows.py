"""What a server has of a span: the accounts, row by row, and facts beside them."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from sys import intern
from typing import Final, NamedTuple, Self

# In the order of the first fields of Amounts. Each is a counter with a row for every container and device.
FAMILIES: Final = (
    "pod_gpu_allocated_seconds_total",
    "pod_gpu_active_seconds_total",
    "pod_gpu_idle_seconds_total",
    "pod_gpu_energy_joules_total",
    "pod_gpu_observed_seconds_total",
    "pod_gpu_idle_unknown_seconds_total",
)
# What a row is about, and what stays as long as it is counted. Labels of pods may come later than the row.
KEY_LABELS: Final = ("namespace", "pod", "container", "UUID", "GPU_I_ID", "node")
# What else the exporter writes of a row's pod; all other labels tell one target from another.
_OF_ROW = frozenset({*KEY_LABELS, "pod_uid", "workload_name", "workload_kind", "__name__"})
_OF_ROW_PREFIXES = ("label_", "exported_")


class RowKey(NamedTuple):
    """Who held which device. The first three are "" where nobody did, `cluster` where series have no such label."""

    namespace: str
    pod: str
    container: str
    uuid: str
    instance: str
    node: str
    cluster: str = ""

    @property
    def place(self) -> str:
        """The node, with its cluster where that is known: nodes of two clusters may have one name."""
        return place_of(self.cluster, self.node)


def place_of(cluster: str, node: str) -> str:
    """See `RowKey.place`. No name of a node has a slash."""
    return f"{cluster}/{node}" if cluster else node


class Amounts(NamedTuple):
    """Seconds of physical GPUs, and joules. `observed` are those held whose use is known.

    Of `idle_unknown`, which are observed ones, nobody can tell whether they were idle. `free` are those nobody held.
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
        """The sum of each."""
        return Amounts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class ReportRow(NamedTuple):
    """What a row had of a model's GPUs, and the labels by which it may be grouped."""

    key: RowKey
    labels: Mapping[str, str]
    model: str
    amounts: Amounts


Points = tuple[tuple[float, float], ...]


class CountedSeries(NamedTuple):
    """A series as it was scraped. `target` says by whom and from where: the labels that Prometheus and its store add.

    `labels` are those that a report may group by. A point is seconds of Unix time, and the value then.
    """

    key: RowKey
    target: str
    labels: Mapping[str, str]
    points: Points

    @property
    def value(self) -> float:
        """The newest."""
        return self.points[-1][1]


def is_renamed(labels: Mapping[str, str]) -> bool:
    """Whether Prometheus has replaced labels of the row by its own."""
    return "exported_pod" in labels


def series_of(
    labels: Mapping[str, str], points: Points, wanted: frozenset[str], cluster_label: str = "cluster"
) -> CountedSeries:
    """A series by its labels; of those that are no part of its key, the `wanted` ones are kept.

    If Prometheus scrapes without honor_labels, it puts the exporter's own pod into the row's labels, and renames those
    to `exported_…`: these win.
    """
    prefix = "exported_" if is_renamed(labels) else ""
    return CountedSeries(
        key=RowKey(*(labels.get(prefix + name) or labels.get(name, "") for name in (*KEY_LABELS, cluster_label))),
        target=target_of(labels),
        labels={name: labels[name] for name in wanted if labels.get(name)},
        points=points,
    )


def target_of(labels: Mapping[str, str]) -> str:
    """Two servers of an HA pair have the same job and instance, and tell their series apart by a label of any name."""
    added = (name for name in sorted(labels) if name not in _OF_ROW and not name.startswith(_OF_ROW_PREFIXES))
    return intern(",".join(f"{name}={labels[name]}" for name in added))


def gaps_of(seen: Mapping[tuple[str, str], float], targets: Mapping[str, AbstractSet[str]]) -> Mapping[str, float]:
    """Seconds of gaps by reason. `seen` has them by target and reason; `targets` names those of each node.

    Several targets may be one exporter: its gaps are those of the target that saw most.
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
    """What a server says of a span beside the accounts. The reader adds to it.

    `models` names the model of a GPU by its UUID. Nodes are places (`RowKey.place`). `capacity` has GPU-seconds that
    there were, by node and model. `seen_ms` is for how long each node was scraped; `gaps` has what exporters themselves
    did not see, in seconds by reason. Containers held devices that were failing or gone for `failing_seconds` in all.
    `nodes_elsewhere` have GPUs by kube-state-metrics. `retention` is how long the server keeps samples, "" if it does
    not say. `unanswered` are the questions that it refused, by kind of error; `odd` counts values that were no numbers.
    `has_renamed`: Prometheus put its own labels in the place of the rows'.
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
