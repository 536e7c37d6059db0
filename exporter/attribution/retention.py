"""Keeping owners while the kubelet is away, and through the first moments after it is back.

Only the kubelet hands devices out, so what it last said holds while it is down. A kubelet that starts lists no pod at
first (for 0.4 to 2 s; as long as it cannot reach the API server, until it can), then perhaps a part of them, then all
(measured on 1.20.2 and 1.36.2). So after a reconnect a pod that is not listed is not gone yet. It is kept until one of
these:

- it is listed again: from then on the answer's word holds for it, at once;
- one of the devices it holds is given to another;
- the kubelet has listed other pods for 10 seconds, and not this one;
- the kubelet lists no pod at all, and its last word is older than `--kubelet.max-stale`.

The 10 seconds count from the first answer that lists a pod, or from the kubelet's start where no empty answer of it was
seen: it may have been listing for long. Time in which it was down or listed nothing is not counted, and a further
restart goes on where the one before stopped. Static pods are listed without the API server, so they do not show that
it was reached.

Pure: every moment comes in as `now`, in seconds of any clock that never steps back.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from exporter.attribution.owners import Knowledge, read_assignment
from exporter.model.devices import Assignment, DeviceRef, PodResources

Read = Callable[[Assignment], DeviceRef | None]

GRACE_SECONDS = 10.0
STALE_WHILE_REFUSED_SECONDS = 600.0
STALE_OTHERWISE_SECONDS = 60.0
_NONE: Mapping[Assignment, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What is in force.

    `unlisted` is the part that has not been listed since the reconnect; each with the seconds for which the kubelet has
    listed other pods without it. `lists_pods` says whether it has listed any since the reconnect; `listed_at` is the
    last answer of which that is true, `answered_at` the last of all.
    """

    assignments: frozenset[Assignment] = frozenset()
    unlisted: Mapping[Assignment, float] = field(default_factory=lambda: _NONE)
    lists_pods: bool = False
    answered_at: float | None = None
    listed_at: float | None = None

    @property
    def known_at(self) -> float | None:
        """When the kubelet gave the word that is in force; None before the first."""
        return self.listed_at if self.unlisted and not self.lists_pods else self.answered_at


def read_by_built_in_rules(assignment: Assignment) -> DeviceRef | None:
    """What an assignment refers to, by the rules that every node has."""
    return read_assignment(assignment, Knowledge())


def answered(
    before: Retained,
    answer: PodResources,
    *,
    now: float,
    reconnected: bool,
    up_for_seconds: float = 0.0,
    max_stale_seconds: float = STALE_WHILE_REFUSED_SECONDS,
    node: str = "",
    read: Read = read_by_built_in_rules,
) -> Retained:
    """The kubelet answered.

    Args:
        before: what was in force.
        answer: what it says now.
        now: the moment.
        reconnected: whether the connection is not the one of the last answer.
        up_for_seconds: how long this kubelet has been up, as far as that is known; asked for where it `reconnected`.
        max_stale_seconds: how long the last word of a kubelet holds that lists no pod since.
        node: the node's name, in which those of static pods end.
        read: what an assignment refers to.
    """
    unlisted = dict.fromkeys(before.assignments, 0.0) | dict(before.unlisted) if reconnected else before.unlisted
    if unlisted:
        given = _Given(answer.assignments, read)
        unlisted = {
            assignment: missing
            for assignment, missing in unlisted.items()
            if (assignment.owner.namespace, assignment.owner.pod) not in answer.listed
            and not given.displaces(assignment)
        }
    listed_before = before.lists_pods and not reconnected
    lists_pods = listed_before or _lists_pods(answer, unlisted, node)
    listed_at = now if lists_pods else before.listed_at
    if lists_pods:
        since = 0.0 if before.answered_at is None else now - before.answered_at
        if reconnected:
            # a clock that was set would make the kubelet too old, or not even born: it was not back before the last one
            since = max(0.0, min(up_for_seconds, since))
        elif not listed_before:
            since = 0.0
        unlisted = {held: missing + since for held, missing in unlisted.items() if missing + since < GRACE_SECONDS}
    elif listed_at is not None and now - listed_at > max_stale_seconds:
        unlisted = _NONE
    # An equal state stays the same object, so that nothing is worked out anew for it.
    assignments = answer.assignments.union(unlisted)
    return Retained(
        assignments=before.assignments if assignments == before.assignments else assignments,
        unlisted=unlisted,
        lists_pods=lists_pods,
        answered_at=now,
        listed_at=listed_at,
    )


def failed(
    before: Retained,
    *,
    now: float,
    max_stale_seconds: float,
    max_unlisted_seconds: float = STALE_WHILE_REFUSED_SECONDS,
) -> Retained:
    """The kubelet did not answer: what is known stays until the last answer is older than `max_stale_seconds`.

    Where that answer listed no pod, the last that did is not older than `max_unlisted_seconds` either.
    """
    if before.answered_at is None or before.known_at is None:
        return before
    if now - before.answered_at <= max_stale_seconds and now - before.known_at <= max_unlisted_seconds:
        return before
    return replace(before, assignments=frozenset(), unlisted=_NONE)


def _lists_pods(answer: PodResources, unlisted: Iterable[Assignment], node: str) -> bool:
    """Whether an answer shows that the kubelet knows its pods: those that are awaited, or some like them."""
    # the kubelet's own rule for the names of static pods: name-node, in lower case
    ending = f"-{node.lower()}" if node else "/"
    if any(not pod.endswith(ending) for _, pod in answer.listed):
        return True
    return bool(answer.listed) and all(held.owner.pod.endswith(ending) for held in unlisted)


class _Given:
    """What an answer hands out, to see whether it shows that a device was given back."""

    def __init__(self, assignments: Iterable[Assignment], read: Read) -> None:
        self._read = read
        self._claims, self._ids = set(), set()
        self._devices, self._whole = set(), set()
        for found in assignments:
            ref = read(found)
            if ref is not None:
                self._devices.add(_device(ref))
                if not ref.shared:
                    self._whole.add(_device(ref))
            if found.claim is not None:
                self._claims.add(found.claim)
            if found.claim is None or not found.claim.share:
                self._ids.add(found.device_id)

    def displaces(self, held: Assignment) -> bool:
        """The same id is given to another, or one of the two holds their device whole."""
        if held.claim in self._claims:
            return False  # several pods may hold one claim
        if held.device_id in self._ids:
            return True
        ref = self._read(held)
        return ref is not None and _device(ref) in (self._whole if ref.shared else self._devices)


def _device(ref: DeviceRef) -> tuple[str, ...]:
    return ref.uuid, ref.mig, ref.device, ref.index, ref.instance
