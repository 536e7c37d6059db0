"""The pod that an owner's name means: the pod that had the name when the kubelet last listed it.

The kubelet's List names pods without their uid, and a StatefulSet makes its pods anew under one name. The source of
pods knows a new pod at once. The kubelet may not know the new pod yet, since it is down or has just started: then its
List still means the old pod. So this module joins List and pods by time. In doubt a name means no pod: no uid and
labels are better than wrong ones.

Pure, except for what `PodsOfOwners` remembers.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from exporter.model.devices import Assignment
from exporter.model.memo import Memo
from exporter.model.nothing import NOTHING
from exporter.model.pods import PodInfo, PodName, PodOfName, PodsByName, PodsOfNames
from exporter.ownership.allocators.gpu_groups import reserves

ENDED_PHASES = frozenset({"Succeeded", "Failed"})
# the ending that an API server appends to a generateName: letters and digits that form no words
_GENERATED = re.compile(r".*-[bcdfghjklmnpqrstvwxz2456789]{5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The kubelet's last answer: the moment at which it was asked for (clock of `PodOfName`), None before the first.

    `listed` are all pods that it lists, with devices or without. `unlisted` are the pods in force (retention.py) that
    it does not list.
    """

    asked_at_seconds: float | None = None
    listed: frozenset[PodName] = frozenset()
    unlisted: frozenset[PodName] = frozenset()


def pods_of(
    names: Iterable[PodName],
    before: PodsByName,
    pods_of_names: PodsOfNames,
    listing: Listing,
    *,
    keeps_gone: bool = True,
) -> PodsByName:
    """The pod that each name of a pod with devices means; names without a known pod are left out.

    `before` has the pods until now; it is returned if nothing changed. A name in force that is not listed keeps its
    pod. `pods_of_names` has, by name, the pods that have or had it. Without `keeps_gone`, a pod that is gone or
    has ended is left out although the kubelet's last answer, which may be old, means it; and so is one of which nobody
    has told since that answer.
    """
    pods: dict[PodName, PodInfo] = {}
    for name in names:
        of_name = pods_of_names.get(name, ())
        if name in listing.unlisted or listing.asked_at_seconds is None:
            pod = _as_it_is_now(before.get(name), of_name)
        else:
            pod = _borne_at(of_name, listing.asked_at_seconds, doubts=not keeps_gone)
        if pod is not None and (keeps_gone or not _is_gone(pod, of_name)):
            pods[name] = pod
    return before if pods == before else pods


def may_change(names: Iterable[PodName], pods_of_names: PodsOfNames) -> bool:
    """Whether the kubelet's next answer alone, with the same pods, may change the pod of one of these names."""
    for name in names:
        pods = pods_of_names.get(name, ())
        if len(pods) > 1 or (pods and min(pods[0].until, pods[0].doubted_since) < inf):
            return True
    return False


def may_come_again(pod: PodInfo) -> bool:
    """Whether another pod may get this pod's name: not if its controller had the name generated.

    Nor if it reserves a GPU for a group of pods. Its name has random letters or, in newer versions of KAI Scheduler,
    follows from the group, so that another pod of this name is of the same group, too.
    """
    is_generated = any(owner.is_controller for owner in pod.owners) and _GENERATED.fullmatch(pod.name)
    return not (reserves(pod) or is_generated)


class PodsOfOwners:
    """The pods that hold devices, worked out again only if their inputs may have changed."""

    def __init__(self, *, keeps_gone: bool = True) -> None:
        """For `keeps_gone` see `pods_of`."""
        self.pods: PodsByName = NOTHING
        self._keeps_gone = keeps_gone
        self._names: Memo[frozenset[PodName]] = Memo(frozenset())
        self._unlisted = Memo[frozenset[PodName]](frozenset())

    def update(
        self,
        assignments: frozenset[Assignment],
        pods_of_names: PodsOfNames,
        listing: Listing,
        others: frozenset[PodName] = frozenset(),
    ) -> PodsByName:
        """The pods by namespace and name; the same object while the inputs are the same objects.

        `others` are the names of pods that are wanted, too.
        """
        names = self._names.of(_pods_of, assignments, others)
        is_same = self._unlisted.is_of(names, pods_of_names) and self._unlisted.value == listing.unlisted
        if not is_same or (pods_of_names and may_change(names, pods_of_names)):
            self.pods = pods_of(names, self.pods, pods_of_names, listing, keeps_gone=self._keeps_gone)
            self._unlisted.keep(listing.unlisted, names, pods_of_names)
        return self.pods


def _pods_of(assignments: frozenset[Assignment], others: frozenset[PodName]) -> frozenset[PodName]:
    owners = (assignment.owner for assignment in assignments)
    return others.union(owner.pod_key for owner in owners)


def _as_it_is_now(pod: PodInfo | None, of_name: Sequence[PodOfName]) -> PodInfo | None:
    """The newest state of a pod that keeps its name, found by its uid; the pod as it was if there is none."""
    if pod is None:
        return None
    return next((named.pod for named in of_name if named.pod.uid == pod.uid), pod)


def _is_gone(pod: PodInfo, of_name: Sequence[PodOfName]) -> bool:
    return pod.phase in ENDED_PHASES or any(named.is_gone and named.pod.uid == pod.uid for named in of_name)


def _borne_at(of_name: Sequence[PodOfName], moment: float, *, doubts: bool) -> PodInfo | None:
    """The one pod that had a name at `moment`; None for several or none. Seconds as in `PodOfName`.

    With `doubts`, a pod had its name only as long as somebody told of it.

    The first pod of a name counts even if it came later: the name can mean no other pod. A pod that has ended counts
    only if no pod of the name is alive, then or now.
    """
    named_since = [named for named in of_name if named.is_first or named.since <= moment]
    then = [named for named in named_since if moment < named.until and not (doubts and moment >= named.doubted_since)]
    alive = [named for named in then if named.pod.phase not in ENDED_PHASES]
    there = [named for named in of_name if named.until == inf]
    if not alive and all(named.pod.phase in ENDED_PHASES for named in there):
        alive = then
    return alive[0].pod if len(alive) == 1 else None
