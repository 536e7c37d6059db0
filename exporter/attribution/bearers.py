"""Which pod an owner's name means: the one that bore it when the kubelet last listed it.

The kubelet's List names pods without their uid, and pods are made anew under one name (a StatefulSet's). The source of
pods knows the new one as soon as it is made; the kubelet may not have heard of it, be down, or be in its first
moments, and then its word is still about the old one. So the two are joined by time. In doubt a name means nobody: a
pod's uid and labels are left off rather than wrong.

Pure, but for what `PodsOfOwners` remembers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType

from exporter.model.devices import Assignment
from exporter.model.pods import Bearer, Bearers, PodInfo

PodName = tuple[str, str]
ENDED_PHASES = frozenset({"Succeeded", "Failed"})


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
    """The pods that the names of owners mean; a name that is not in the answer means none that is known.

    Args:
        names: of the pods that hold devices.
        before: what they meant until now. A name that was not listed since goes on meaning it.
        bearers: who bears and who bore a name.
        listing: the kubelet's last answer.
    """
    found: dict[PodName, PodInfo] = {}
    for name in names:
        of_name = bearers.get(name, ())
        if name in listing.unlisted or listing.asked_at_seconds is None:
            pod = _as_it_is_now(before.get(name), of_name)
        else:
            pod = _borne_at(of_name, listing.asked_at_seconds)
        if pod is not None:
            found[name] = pod
    return before if found == before else found


def may_change(names: Iterable[PodName], bearers: Bearers) -> bool:
    """Whether a later answer of the kubelet may change what a name means, with everything else as it is."""
    return any(len(of_name) > 1 or of_name[0].until < inf for name in names if (of_name := bearers.get(name)))


class PodsOfOwners:
    """The pods that hold devices. Worked out anew only where something may have changed."""

    def __init__(self) -> None:
        self.pods: Mapping[PodName, PodInfo] = MappingProxyType({})
        self._names: frozenset[PodName] = frozenset()
        self._made_from: tuple[frozenset[Assignment], Bearers, frozenset[PodName]] | None = None

    def update(
        self, assignments: frozenset[Assignment], bearers: Bearers, listing: Listing
    ) -> Mapping[PodName, PodInfo]:
        """By namespace and name; the same object as long as nothing changed."""
        before = self._made_from
        if before is None or before[0] is not assignments:
            owners = (assignment.owner for assignment in assignments)
            self._names = frozenset((owner.namespace, owner.pod) for owner in owners)
            before = None
        is_same = before is not None and before[1] is bearers and before[2] == listing.unlisted
        if not is_same or may_change(self._names, bearers):
            self.pods = pods_of(self._names, self.pods, bearers, listing)
            self._made_from = assignments, bearers, listing.unlisted
        return self.pods


def _as_it_is_now(pod: PodInfo | None, of_name: Sequence[Bearer]) -> PodInfo | None:
    return next((bearer.pod for bearer in of_name if pod and bearer.pod.uid == pod.uid), pod)


def _borne_at(of_name: Sequence[Bearer], moment: float) -> PodInfo | None:
    """Who bore a name at a moment. The first of a name may be younger: there is nobody to take it for."""
    then = [bearer for bearer in of_name if (bearer.is_first or bearer.since <= moment) and moment < bearer.until]
    alive = [bearer for bearer in then if bearer.pod.phase not in ENDED_PHASES]
    if not alive and not any(bearer.until == inf and bearer.pod.phase not in ENDED_PHASES for bearer in of_name):
        alive = then
    return alive[0].pod if len(alive) == 1 else None
