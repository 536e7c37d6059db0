"""The nodes, from the `up` of their exporters' pages: each has a target of /gpu/metrics. Pure.

A node is missing if a page's last scrape failed or is too old, or if two exporters say that they are of this node.

Tests: tests/cluster/prometheus/test_nodes.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from exporter.cluster.prometheus.queries import ABOUT, LATELY, OWN_PAGE, PAGES, SAMPLES_PAGE, SCRAPED, UP
from exporter.cluster.prometheus.query_answer import REMEDY, VectorSeries, garbage
from exporter.errors import Malformed, Trouble

MOST_NODES = 20_000
_PATH = "metrics_path"
_NODE = "node"
_INSTANCE = "instance"
# Two servers that scrape one target may add different labels to it (replica=…), but it is still one target. Targets in
# two clusters are two, even if their addresses are the same.
_CLUSTER = "cluster"
_SCRAPE_CONFIGS = (
    "scrape the node exporters as deploy/prometheus does: both pages, with the labels metrics_path and node"
)


@dataclass(slots=True)
class Target:
    """A page of an exporter: its address, its labels, and the time (since 1970) and the success of its last scrape."""

    instance: str
    labels: Mapping[str, str]
    is_up: bool = False
    scraped_at_seconds: float = 0.0


@dataclass(slots=True)
class Targets:
    """The pages of a node by their paths; `trouble` is the reason why they do not count."""

    pages: dict[str, Target] = field(default_factory=dict)
    trouble: Trouble | None = None

    @property
    def scraped_at_seconds(self) -> float:
        """The time of the last scrape of all pages; the older one counts."""
        return min((page.scraped_at_seconds for page in self.pages.values()), default=0.0)


_Key = tuple[str, str, str, str]
_Labels = frozenset[tuple[str, str]]


def read_targets(rows: Iterable[VectorSeries], now_seconds: float, max_age_seconds: float) -> dict[str, Targets]:
    """The nodes by name; `now_seconds` is the rows' moment.

    Raises:
        Malformed: there are rows that were not asked for, or too many.
    """
    targets: dict[_Labels, Target] = {}
    nodes: dict[str, Targets] = {}
    lately = set()
    for labels, _, value in rows:
        node = labels.get(_NODE, "")
        if labels.get(ABOUT) == LATELY:
            lately.add(node)
        elif not node or not node.isprintable():
            # the target stands for a node of unknown name
            nodes[f"{labels.get(_INSTANCE, '')[:99]!r}"] = Targets(trouble=_NAMELESS)
        else:
            # the result of a function has no name
            identity = frozenset(label for label in labels.items() if label[0] not in (ABOUT, "__name__"))
            target = targets.setdefault(identity, Target(labels.get(_INSTANCE, ""), labels))
            _note(target, float(value), labels.get(ABOUT))
    nodes |= _by_node(_best(targets.values()), now_seconds - max_age_seconds)
    for node in lately - nodes.keys():
        if node and node.isprintable():
            nodes[node] = Targets(trouble=_LEFT)
    if len(nodes) > MOST_NODES:
        raise Malformed("oversize", f"it knows {len(nodes)} nodes; at most {MOST_NODES} are read", remedy=REMEDY)
    return nodes


def _note(target: Target, value: float, about: str | None) -> None:
    if about == UP:
        target.is_up = value == 1
    elif about == SCRAPED and isfinite(value):
        target.scraped_at_seconds = value
    else:
        raise garbage("a target says something that was not asked")


def _best(targets: Iterable[Target]) -> dict[_Key, Target]:
    """Each target once, even if several servers scrape it: the last one that succeeded counts."""
    best: dict[_Key, Target] = {}
    for target in targets:
        labels = target.labels
        key = (labels[_NODE], labels.get(_PATH, ""), target.instance, labels.get(_CLUSTER, ""))
        other = best.setdefault(key, target)
        if (target.is_up, target.scraped_at_seconds) > (other.is_up, other.scraped_at_seconds):
            best[key] = target
    return best


def _by_node(targets: Mapping[_Key, Target], fresh_since: float) -> dict[str, Targets]:
    of_nodes: dict[str, dict[str, list[tuple[str, Target]]]] = {}
    for (node, path, _, cluster), target in targets.items():
        of_nodes.setdefault(node, {}).setdefault(path, []).append((cluster, target))
    return {node: _of_node(pages, fresh_since) for node, pages in of_nodes.items()}


def _of_node(pages: Mapping[str, list[tuple[str, Target]]], fresh_since: float) -> Targets:
    """The targets of a node that count. If the exporter's pod was replaced, those of the new pod count."""
    chosen = Targets()
    troubles: list[Trouble] = []
    for path in PAGES:
        of_path = pages.get(path, [])
        samples = chosen.pages.get(SAMPLES_PAGE)
        if path == OWN_PAGE and samples is not None:
            # other programs may have a page /metrics, too
            of_path = [(cluster, target) for cluster, target in of_path if target.instance == samples.instance]
        good = [(cluster, target) for cluster, target in of_path if _is_fresh(target, fresh_since)]
        if len(good) > 1:
            troubles.append(_several(good))
        newest = max((target for _, target in good or of_path), key=_scraped_at, default=None)
        if newest is None:
            troubles.append(Trouble("missing", f"Prometheus does not scrape its {path}", _SCRAPE_CONFIGS))
            continue
        chosen.pages[path] = newest
        if not newest.is_up:
            message = f"Prometheus could not scrape its {path} (up is 0)"
            troubles.append(Trouble("unreachable", message, _LOOK_AT_TARGETS))
    if troubles:
        chosen.trouble = troubles[0]
    return chosen


def _is_fresh(target: Target, fresh_since: float) -> bool:
    return target.is_up and target.scraped_at_seconds > fresh_since


def _scraped_at(target: Target) -> float:
    return target.scraped_at_seconds


def _several(targets: Iterable[tuple[str, Target]]) -> Trouble:
    """The trouble that several exporters, each with its cluster, say that they are of one node."""
    places = []
    for cluster, target in targets:
        of_cluster = f" of cluster {cluster}" if cluster else ""
        places.append(f"{target.instance}{of_cluster}")
    message = f"several exporters are scraped as this node's: {', '.join(sorted(places))[:300]}"
    return Trouble("garbage", message, _LABEL_THEM)


_LABEL_THEM = (
    "give each target its own node's name as the label node; of several clusters in one Prometheus choose one with"
    " --cluster.prometheus-matchers 'cluster=\"…\"'"
)
_LOOK_AT_TARGETS = "Prometheus' page of targets says why; look at that node and its exporter"
_NAMELESS = Trouble("garbage", "this target has no label node, or one that cannot be printed", _SCRAPE_CONFIGS)
_LEFT = Trouble(
    "missing",
    "its exporter is no target of Prometheus any more",
    "if the node is gone, too, it is forgotten after two minutes; if it is there, look why no exporter runs on it",
)
