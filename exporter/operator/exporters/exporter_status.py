"""A GPUExporter, its objects, and the troubles of its nodes → its status. Pure.

The status stays equal while nothing changes. So it has no age, no count of restarts, no time of a look, and nothing
that is not known.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice, zip_longest
from typing import Self

from exporter.errors import Trouble
from exporter.lenient import AnyObject, mapping, mappings, number, text
from exporter.operator.exporters.exporter_pods import (
    EXPORTER,
    POD,
    NodeTrouble,
    age_seconds,
    is_ready,
    node_of,
    on_node,
    pod_troubles,
)
from exporter.operator.objects.kinds import SERVICE_ACCOUNT, Key, name_of
from exporter.operator.objects.object_fields import (
    Condition,
    base_status,
    condition,
    is_going,
    word,
)
from exporter.operator.objects.resources import Object
from exporter.reading import Invalid
from exporter.wording import and_listed, one_line


def invalid(error: Invalid) -> Trouble:
    """The trouble that the spec cannot be used."""
    return Trouble("InvalidSpec", str(error), "change it; until then all stays as it is")


def in_the_way(item: AnyObject) -> Trouble:
    """The trouble that an object of somebody else has a wanted name."""
    is_account = text(item, "kind") == SERVICE_ACCOUNT.name
    return Trouble(
        "NotOurs",
        f"there is a {text(item, 'kind')} {name_of(item)} that is not this GPUExporter's; it is left alone"
        + (": no rights are given to it, and the DaemonSet stays as it is" if is_account else ""),
        "delete or rename it, or give the GPUExporter another name",
    )


def overlap(older: Key, node: str) -> Trouble:
    """The trouble that an older GPUExporter chooses nodes of this one.

    Only one of them, `node`, is named, since nodes come and go.
    """
    return Trouble(
        "Overlaps",
        f"the older GPUExporter {older.namespace}/{older.name} chooses nodes of this one, such as {node}, and gets all"
        " nodes that its spec.nodeSelector selects: both would count each GPU there",
        "change spec.nodeSelector of one of the two, or delete one",
    )


def no_counters(name: str, key: str, *, is_there: bool) -> Trouble:
    """The trouble that the ConfigMap of spec.collectors.configMap is not there, or lacks the key."""
    lacks = f"has no key {key}" if is_there else "is not there"
    return Trouble(
        "CollectorsMissing",
        f"the ConfigMap {name} of spec.collectors.configMap {lacks}",
        "make it, in the GPUExporter's namespace; until then the DaemonSet stays as it is",
    )


NO_POD_MONITORS = Trouble(
    "PodMonitorMissing",
    'spec.serviceMonitor.enabled is "on", and the cluster does not know PodMonitors',
    "install the CRDs of Prometheus Operator, or set it to auto; all else is kept in line",
)
_MOST_NAMED = 5
# these settings are in ConfigMaps, which the kubelet reads every minute or a little more
_ROLLED_OUT = (
    "every chosen node has the newest exporter; a change of collectors, sharing, labels, nvml or probe reaches its pod"
    " within two minutes"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The progress of a DaemonSet, in numbers of nodes.

    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/daemon-set-v1/#DaemonSetStatus says what each
    of the DaemonSet's numbers means.

    Attributes:
        wanted: the nodes that should have an exporter.
        updated: the nodes with the newest exporter.
        ready: the nodes with an exporter that is ready.
        available: the nodes with an exporter that has been ready for long enough.
        misplaced: the nodes that have an exporter and should not.
        is_known: whether the DaemonSet's controller has counted the nodes.
        is_current: whether the controller has seen the newest DaemonSet.
    """

    wanted: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    misplaced: int = 0
    is_known: bool = False
    is_current: bool = False

    @classmethod
    def of(cls, daemon_set: AnyObject | None) -> Self:
        """Read a DaemonSet's status. Impossible numbers are cut."""
        status = mapping(daemon_set, "status")
        seen = number(status, "observedGeneration") or 0
        wanted = number(status, "desiredNumberScheduled")
        if wanted is None or not seen:
            return cls()
        return cls(
            wanted=wanted,
            updated=min(wanted, number(status, "updatedNumberScheduled") or 0),
            ready=min(wanted, number(status, "numberReady") or 0),
            available=min(wanted, number(status, "numberAvailable") or 0),
            misplaced=number(status, "numberMisscheduled") or 0,
            is_known=True,
            is_current=seen >= (number(mapping(daemon_set, "metadata"), "generation") or 0),
        )

    @property
    def is_done(self) -> bool:
        """Whether every node that should have an exporter has the newest one, and it works."""
        return self.is_current and self.wanted == self.updated == self.ready == self.available


def readiness_of(rollout: Rollout, in_trouble: AbstractSet[str]) -> Condition:
    """The condition Ready: whether the newest exporter is ready on every node that should have it."""
    too_many = (
        f"; {rollout.misplaced} more {_nodes(rollout.misplaced)} still run one, and are not selected or not tolerated"
        if rollout.misplaced
        else ""
    )
    if not rollout.is_known:
        return Condition("False", "Starting", "the DaemonSet has just been made: its nodes are not counted yet")
    if rollout.is_done and not rollout.wanted:
        return Condition(
            "True",
            "NoNodes",
            "no node is chosen -> if some should be, look at their labels and taints, and at"
            f" spec.nodeSelector and spec.tolerations{too_many}",
        )
    if rollout.is_done:
        count = "the exporter of the node is ready" if rollout.wanted == 1 else f"all {rollout.wanted} nodes are ready"
        return Condition("True", "AllNodesReady", f"{count}{too_many}")
    if rollout.is_current and rollout.updated == rollout.wanted:
        waits = f", in trouble: {and_listed(sorted(in_trouble), _MOST_NAMED)}" if in_trouble else ""
        return Condition(
            "False", "NodesNotReady", f"{rollout.ready} of {rollout.wanted} nodes are ready{waits}{too_many}"
        )
    return Condition(
        "False",
        "RollingOut",
        f"{rollout.updated if rollout.is_current else 0} of {rollout.wanted} nodes have the newest exporter, and"
        f" {rollout.ready} are ready{too_many}",
    )


def progress_of(rollout: Rollout, in_trouble: AbstractSet[str]) -> Condition:
    """The condition Progressing: whether a change is under way that will end by itself."""
    if rollout.is_done:
        return Condition("False", "RolledOut", _ROLLED_OUT)
    if not rollout.is_known or not rollout.is_current:
        return Condition("True", "Starting", "Kubernetes has not looked at the changed DaemonSet yet")
    waiting = rollout.wanted - min(rollout.updated, rollout.available)
    if in_trouble and len(in_trouble) >= waiting:
        return Condition(
            "False",
            "WaitsForNodes",
            f"{waiting} {_nodes(waiting)} cannot go on by themselves: {and_listed(sorted(in_trouble), _MOST_NAMED)} ->"
            " mend what the condition Degraded names",
        )
    return Condition("True", "RollingOut", f"{waiting} of {rollout.wanted} nodes are still being brought there")


def _nodes(count: int) -> str:
    return "node" if count == 1 else "nodes"


_MOST_KINDS = 4
_MOST_CHARS = 600


def by_kind(troubles: Iterable[NodeTrouble]) -> list[list[NodeTrouble]]:
    """The troubles by kind, the most frequent first. A kind is a source and a reason, and has each node once."""
    kinds: dict[tuple[str, str], dict[str, NodeTrouble]] = {}
    for trouble in sorted(troubles):
        kinds.setdefault((trouble.source, trouble.reason), {}).setdefault(trouble.node, trouble)
    # `sorted` keeps the order of those that are as frequent
    in_order = sorted(kinds.items())
    return sorted((list(nodes.values()) for _, nodes in in_order), key=len, reverse=True)


def first_of_each_kind(troubles: Iterable[NodeTrouble], most: int) -> list[NodeTrouble]:
    """At most `most` of the troubles, sorted: the first of each kind, then the second of each kind, and so on."""
    in_turn = chain.from_iterable(zip_longest(*by_kind(troubles)))
    return sorted(islice(filter(None, in_turn), most))


def summary(troubles: Sequence[NodeTrouble], nodes: int) -> str:
    """The troubles in one text: the nodes, the reasons, and what to do. `nodes` counts all nodes; 0 if unknown."""
    in_trouble = {trouble.node for trouble in troubles}
    of_all = f" of {nodes}" if nodes >= len(in_trouble) else ""
    kinds = by_kind(troubles)
    sentences = [
        f"{kind[0].source} ({kind[0].reason}) on {and_listed([trouble.node for trouble in kind], _MOST_NAMED)}:"
        f" {one_line(kind[0].message, _MOST_CHARS)}"
        for kind in kinds[:_MOST_KINDS]
    ]
    if len(kinds) > _MOST_KINDS:
        sentences.append(f"and {len(kinds) - _MOST_KINDS} more kinds of trouble, see troubles")
    noun = "node is" if (nodes or len(in_trouble)) == 1 else "nodes are"
    return f"{len(in_trouble)}{of_all} {noun} in trouble; {'; '.join(sentences)}"


MOST_TROUBLES = 20
# The reasons of the condition Ready that tell the progress of nodes. Any other reason is that of a `Trouble`.
NOT_OBSTACLES = frozenset({"Starting", "NoNodes", "AllNodesReady", "NodesNotReady", "RollingOut"})
# The troubles that a new exporter has with its sources count after this time, since dcgm-exporter starts beside it.
GRACE_SECONDS = 60.0
# the type of the condition that says whether the operator writes events on pods (spec.events)
EVENTS_WRITTEN = "EventsWritten"
_DEGRADED = {"True": "NodesInTrouble", "False": "NoTrouble"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterObjects:
    """The objects and the troubles of a GPUExporter.

    Attributes:
        daemon_set: the DaemonSet, None if there is none yet.
        pods: the DaemonSet's pods.
        troubles: the troubles that the exporters tell (`ExporterHealth.troubles`), None if they were not asked yet.
        event_troubles: the reasons why events on pods are not written, None if the spec wants no events.
        obstacles: the reasons why not all objects are as wanted, the worst first.
        holding: those obstacles that keep the DaemonSet as it is, so that its nodes are in trouble.
    """

    daemon_set: AnyObject | None = None
    pods: Sequence[AnyObject] = ()
    troubles: Sequence[NodeTrouble] | None = None
    event_troubles: Sequence[Trouble] | None = None
    obstacles: Sequence[Trouble] = ()
    holding: Sequence[Trouble] = ()


def status_of(exporter: AnyObject, seen: ExporterObjects, now: datetime) -> Object:
    """The whole status. `exporter` is the GPUExporter with its present status; `now` is in UTC."""
    old = mapping(exporter, "status")
    rollout = Rollout.of(seen.daemon_set)
    troubles = _troubles(seen, now)
    nodes = {trouble.node for trouble in troubles}
    blocked = Condition("False", seen.obstacles[0].reason, _all_of(seen.obstacles)) if seen.obstacles else None
    status: Object = {}
    if rollout.is_known:
        status["nodesWanted"] = rollout.wanted
        status["nodesReady"] = rollout.ready
    conditions = {
        "Ready": blocked or readiness_of(rollout, nodes),
        "Progressing": blocked or progress_of(rollout, nodes),
        "Degraded": _degraded(seen, troubles, rollout),
    }
    if seen.event_troubles is not None:
        conditions[EVENTS_WRITTEN] = _events_written(seen.event_troubles, old, are_asked=seen.troubles is not None)
    known_before = _said_before(old, "Degraded", _DEGRADED) if seen.troubles is None and not blocked else None
    if known_before:
        # this process has asked no exporter yet: the status keeps what the last process knew
        conditions["Degraded"] = known_before
        status |= _troubles_before(old)
    elif troubles or seen.troubles is not None:
        status["nodesInTrouble"] = len(nodes)
        status["troubles"] = [trouble._asdict() for trouble in first_of_each_kind(troubles, MOST_TROUBLES)]
    return status | base_status(exporter, conditions, now)


def _all_of(obstacles: Sequence[Trouble]) -> str:
    return one_line("; ".join(dict.fromkeys(map(str, obstacles))), 4096)


def _said_before(old: AnyObject, kind: str, usual: Mapping[str, str]) -> Condition | None:
    """A condition as the last process left it; None if that process did not know it either.

    `usual` has the reason for each status, True and False, in case the condition has none.
    """
    before = condition(old, kind)
    if before.status not in usual:
        return None
    return before._replace(reason=word(before.reason) or usual[before.status])


def troubles_in(status: AnyObject) -> list[NodeTrouble]:
    """The troubles that a status names. If they are MOST_TROUBLES, there may be more."""
    items = mappings(status, "troubles", MOST_TROUBLES)
    rows = ([text(item, name) for name in NodeTrouble._fields] for item in items)
    return [on_node(node, source, Trouble(reason, message)) for node, source, reason, message in rows]


def _troubles_before(old: AnyObject) -> Object:
    troubles = troubles_in(old)
    nodes = number(old, "nodesInTrouble")
    if nodes is None:
        nodes = len({trouble.node for trouble in troubles})
    return {"nodesInTrouble": nodes, "troubles": [trouble._asdict() for trouble in troubles]}


def _troubles(seen: ExporterObjects, now: datetime) -> list[NodeTrouble]:
    """All troubles of nodes, sorted."""
    troubles: set[NodeTrouble] = set()
    ready = set()
    old_enough = set()
    for pod in seen.pods:
        if is_going(pod):
            continue
        node = node_of(pod)
        troubles.update(pod_troubles(pod, now))
        troubles.update(on_node(node, POD, trouble) for trouble in seen.holding)
        if is_ready(pod):
            ready.add(node)
        if age_seconds(pod, now) >= GRACE_SECONDS:
            old_enough.add(node)
    for trouble in seen.troubles or ():
        # an exporter that is not ready need not answer: its pod says why
        if trouble.node in ready or (trouble.node in old_enough and trouble.source != EXPORTER):
            troubles.add(trouble)
    return sorted(troubles)


def _events_written(troubles: Sequence[Trouble], old: AnyObject, *, are_asked: bool) -> Condition:
    """The condition EventsWritten: whether the operator writes events about XIDs on pods.

    Exporters serve without these events, so no other condition depends on them. `are_asked` says whether this process
    has asked the exporters, which tell the XIDs.
    """
    if troubles:
        return Condition("False", troubles[0].reason, _all_of(troubles))
    if not are_asked:
        # nobody knows yet whether an event would be refused
        before = _said_before(old, EVENTS_WRITTEN, {"True": "NoneRefused", "False": "Refused"})
        return before or Condition("Unknown", "NotAskedYet", "the exporters are being asked for XIDs")
    return Condition("True", "NoneRefused", "within the last hour the API server has refused no event on a pod")


def _degraded(seen: ExporterObjects, troubles: Sequence[NodeTrouble], rollout: Rollout) -> Condition:
    if seen.obstacles:
        worst = seen.obstacles[0].reason
        others = [trouble for trouble in troubles if trouble.reason != worst]
        more = f"; besides: {summary(others, rollout.wanted)}" if others else ""
        return Condition("True", worst, f"{_all_of(seen.obstacles)}{more}")
    if troubles:
        return Condition("True", "NodesInTrouble", summary(troubles, rollout.wanted))
    if seen.troubles is None:
        return Condition("Unknown", "NotAskedYet", "the exporters are being asked how their sources are")
    return Condition("False", "NoTrouble", "no node says that anything fails")
