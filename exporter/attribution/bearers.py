"""Which pod an owner's name means: the pod that bore the name when the kubelet last listed it.

The kubelet's List names pods without their uid, and a StatefulSet makes its pods anew under one name. The source of
pods knows a new pod as soon as it is made. The kubelet may not have heard of it yet: it is down, or it has just
started. Then its List still means the old pod. So List and pods are joined by time. In doubt a name means no pod: the
uid and the labels are left off rather than wrong.

Pure, except for what `PodsOfOwners` remembers.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

from exporter.model.devices import Assignment
from exporter.model.pods import Bearer, Bearers, PodInfo

PodName = tuple[str, str]
ENDED_PHASES = frozenset({"Succeeded", "Failed"})
# what an API server appends to a generateName: letters and digits that form no words
_GENERATED = re.compile(r".*-[bcdfghjklmnpqrstvwxz2456789]{5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The kubelet's last answer: when it was asked for, in seconds of the clock of `Bearer`, None before the first.

    `unlisted` are the pods, by namespace and name, that are in force although that answer does not list them.
    """

    asked_at_seconds: float | None = None
    unlisted: frozenset[PodName] = frozenset()


def pods_of(
    names: Iterable[PodName], before: Mapping[PodName, PodInfo], bearers: Bearers, listing: Listing
) -> Mapping[PodName, PodInfo]:
    """The pod that each name means; a name without a known pod is left out. `before` itself where nothing changed.

    Args:
        names: the names of the pods that hold devices.
        before: the pods that the names meant until now. A name that is in force but not listed keeps its pod.
        bearers: the pods that bear or bore each name.
        listing: the kubelet's last answer.
    """
    pods: dict[PodName, PodInfo] = {}
    for name in names:
        of_name = bearers.get(name, ())
        if name in listing.unlisted or listing.asked_at_seconds is None:
            pod = _as_it_is_now(before.get(name), of_name)
        else:
            pod = _borne_at(of_name, listing.asked_at_seconds)
        if pod is not None:
            pods[name] = pod
    return before if pods == before else pods


def may_change(names: Iterable[PodName], bearers: Bearers) -> bool:
    """Whether the kubelet's next answer alone, with the same bearers, may change the pod of one of these names."""
    return any(len(of_name) > 1 or of_name[0].until < inf for name in names if (of_name := bearers.get(name)))


def may_come_again(pod: PodInfo) -> bool:
    """Whether another pod may get this one's name: not where its controller had the name generated."""
    return not (any(owner.is_controller for owner in pod.owners) and _GENERATED.fullmatch(pod.name))


class PodsOfOwners:
    """The pods that hold devices. They are worked out anew only when their inputs may have changed."""

    def __init__(self) -> None:
        self.pods: Mapping[PodName, PodInfo] = MappingProxyType({})
        self._names: frozenset[PodName] = frozenset()
        self._made_from: tuple[frozenset[Assignment], Bearers, frozenset[PodName]] | None = None

    def update(
        self, assignments: frozenset[Assignment], bearers: Bearers, listing: Listing
    ) -> Mapping[PodName, PodInfo]:
        """The pods by namespace and name; the same object as long as nothing changed.

        Assignments and bearers are compared by identity: an equal state must be the same object.
        """
        before = self._made_from
        if before is None or before[0] is not assignments:
            owners = (assignment.owner for assignment in assignments)
            self._names = frozenset((owner.namespace, owner.pod) for owner in owners)
            before = None
        is_same = before is not None and before[1] is bearers and before[2] == listing.unlisted
        if not is_same or (bearers and may_change(self._names, bearers)):
            self.pods = pods_of(self._names, self.pods, bearers, listing)
            self._made_from = assignments, bearers, listing.unlisted
        return self.pods


def _as_it_is_now(pod: PodInfo | None, of_name: Sequence[Bearer]) -> PodInfo | None:
    """The newest state of a pod that keeps its name: by uid among the bearers, or unchanged where none has its uid."""
    return next((bearer.pod for bearer in of_name if pod and bearer.pod.uid == pod.uid), pod)


def _borne_at(of_name: Sequence[Bearer], moment: float) -> PodInfo | None:
    """The one pod that bore a name at `moment`; None for several or none. Seconds as in `Bearer`.

    The first pod of a name counts even if it came later: the name can mean no other pod. A pod that has ended counts
    only where no pod of the name is alive, then or now.
    """
    then = [bearer for bearer in of_name if (bearer.is_first or bearer.since <= moment) and moment < bearer.until]
    alive = [bearer for bearer in then if bearer.pod.phase not in ENDED_PHASES]
    if not alive and not any(bearer.until == inf and bearer.pod.phase not in ENDED_PHASES for bearer in of_name):
        alive = then
    return alive[0].pod if len(alive) == 1 else None
