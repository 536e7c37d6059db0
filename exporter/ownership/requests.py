"""The devices of a claim that a container asked for. The kubelet names all of a claim's devices for every container.

A container of the pod may ask for only one request of a claim. Its own status names the devices that it got, by their
CDI names (measured on kubelet 1.36.2). The status stays true as long as the claim is there. So it also counts while
nobody can say which pod the name means, as when the API server is away. It ends when the kubelet no longer lists the
claim for the container, lists another claim of that name, or another pod has the pod's name.

Pure, except for what `Requests` remembers.
"""

from typing import NamedTuple

from exporter.model.devices import Assignment, Claim
from exporter.model.pods import Owner, PodInfo, PodsByName

# A container, and the namespace and name of its claim.
_Use = tuple[Owner, str, str]


class _Got(NamedTuple):
    """The devices that a container got, by their names in its status, and the uid of its pod."""

    uid: str
    names: frozenset[str]


class Requests:
    """Remembers the devices that each container got of its claims."""

    def __init__(self) -> None:
        self._got: dict[_Use, _Got] = {}

    def of_their_containers(self, assignments: frozenset[Assignment], pods: PodsByName) -> frozenset[Assignment]:
        """The assignments without those devices of a claim for which only another container of the pod asked."""
        claims: dict[_Use, set[str]] = {}
        for assignment in assignments:
            if assignment.claim is not None:
                claims.setdefault(_use(assignment.owner, assignment.claim), set()).update(assignment.claim.status_names)
        got: dict[_Use, _Got] = {}
        for use, names in claims.items():
            owner = use[0]
            of_use = _now(owner, pods.get(owner.pod_key), self._got.get(use))
            # the names of another claim, such as an earlier claim of the same name, say nothing of this claim
            if of_use is not None and not names.isdisjoint(of_use.names):
                got[use] = of_use
        self._got = got
        if not got:
            return assignments
        return frozenset(filter(self._has, assignments))

    def _has(self, assignment: Assignment) -> bool:
        """Whether the container asked for the device, as far as is known."""
        claim = assignment.claim
        if claim is None:
            return True
        got = self._got.get(_use(assignment.owner, claim))
        return got is None or not got.names.isdisjoint(claim.status_names)


def _use(owner: Owner, claim: Claim) -> _Use:
    return owner, claim.namespace, claim.name


def _now(owner: Owner, pod: PodInfo | None, before: _Got | None) -> _Got | None:
    """The devices in the container's status. While it names none, the earlier ones count, unless the pod is another."""
    if pod is None:
        return before
    names = frozenset(
        device.device_id
        for device in pod.allocated.get(owner.container, ())
        if device.resource.startswith("claim:") and device.device_id
    )
    if names:
        return _Got(pod.uid, names)
    return before if before is not None and before.uid == pod.uid else None
