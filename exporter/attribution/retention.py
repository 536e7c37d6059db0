"""Keeping owners while the kubelet is down, and in the first moments after it is back.

Only the kubelet hands devices out, so its last answer holds while it is down. A kubelet that has just started lists no
pod (for 0.4 to 2 s, or until it reaches the API server), then perhaps some of them, then all (measured on 1.20.2 and
1.36.2). So a pod that is not listed after a reconnect may still be there. It is kept until one of these:

- the kubelet lists it again: from then on the answer holds for it, at once;
- one of its devices is given to another pod;
- the kubelet has listed other pods for 10 seconds without it;
- the kubelet lists no pod at all, and its last answer with pods is older than `--kubelet.max-stale`.

The 10 seconds count from the first answer that lists a pod. Where no empty answer was seen they count from the
kubelet's start, since it may have listed pods for long. Time in which the kubelet is down or lists nothing does not
count, and a further restart goes on with the count of the last one. Static pods are listed without the API server, so
they do not show that the kubelet has reached it.

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
    """The assignments in force, and what their retention depends on. Moments are in seconds of `now`'s clock.

    `unlisted` are the assignments that no answer has listed since the reconnect, each with the seconds for which the
    kubelet has listed other pods. `lists_pods` says whether the kubelet has listed pods since the reconnect.
    `listed_at` is the last answer after which it had, `answered_at` the last answer of all; None before the first.
    """

    assignments: frozenset[Assignment] = frozenset()
    unlisted: Mapping[Assignment, float] = field(default_factory=lambda: _NONE)
    lists_pods: bool = False
    answered_at: float | None = None
    listed_at: float | None = None

    @property
    def known_at(self) -> float | None:
        """The moment of the answer that is in force; None before the first."""
        return self.listed_at if self.unlisted and not self.lists_pods else self.answered_at


def read_by_built_in_rules(assignment: Assignment) -> DeviceRef | None:
    """The device that an assignment refers to by the built-in rules, without inventory or slices."""
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
    """What is in force after an answer of the kubelet.

    Args:
        before: what was in force.
        answer: the new answer.
        now: the moment of the answer.
        reconnected: whether the answer came over another connection than the last one.
        up_for_seconds: how long this kubelet has been up, as far as that is known; used only if `reconnected`.
        max_stale_seconds: how long the last answer with pods holds while the kubelet lists none.
        node: the node's name, in which the names of static pods end.
        read: the device that an assignment refers to; None where that is not known.
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
            # a clock that was set can make the start too early, or put it in the future: the start lies between the
            # last answer and this one
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
    """What is in force after the kubelet failed to answer: all of it, until it is too old, and then nothing.

    It is too old when the last answer is older than `max_stale_seconds`, or when the last answer that listed pods is
    older than `max_unlisted_seconds`.
    """
    if before.answered_at is None or before.known_at is None:
        return before
    if now - before.answered_at <= max_stale_seconds and now - before.known_at <= max_unlisted_seconds:
        return before
    return replace(before, assignments=frozenset(), unlisted=_NONE)


def _lists_pods(answer: PodResources, unlisted: Iterable[Assignment], node: str) -> bool:
    """Whether an answer shows that the kubelet has learnt its pods from the API server.

    A pod that is not static shows it. Static pods show it only where every awaited pod (`unlisted`) is static, too.
    """
    # the kubelet's own rule for the names of static pods: name-node, in lower case
    ending = f"-{node.lower()}" if node else "/"
    if any(not pod.endswith(ending) for _, pod in answer.listed):
        return True
    return bool(answer.listed) and all(held.owner.pod.endswith(ending) for held in unlisted)


class _Given:
    """The devices that an answer hands out: they show which devices other pods have given back."""

    def __init__(self, assignments: Iterable[Assignment], read: Read) -> None:
        self._read = read
        self._claims, self._ids = set(), set()
        self._devices, self._whole = set(), set()
        for assignment in assignments:
            ref = read(assignment)
            if ref is not None:
                self._devices.add(_device(ref))
                if not ref.shared:
                    self._whole.add(_device(ref))
            if assignment.claim is not None:
                self._claims.add(assignment.claim)
            if assignment.claim is None or not assignment.claim.share:
                self._ids.add(assignment.device_id)

    def displaces(self, held: Assignment) -> bool:
        """Whether the answer gives the device of `held` to another container.

        It does if it hands out the same id, or the same device where one of the two containers holds it whole.
        """
        if held.claim in self._claims:
            return False  # several pods may hold one claim
        if held.device_id in self._ids:
            return True
        ref = self._read(held)
        return ref is not None and _device(ref) in (self._whole if ref.shared else self._devices)


def _device(ref: DeviceRef) -> tuple[str, ...]:
    """What tells two devices apart: two shares of one device are equal here."""
    return ref.uuid, ref.mig, ref.device, ref.index, ref.instance
