"""Keeping owners while the kubelet is away, and through the first moments after it is back.

Only the kubelet hands devices out, so what it last said holds while it is down. A kubelet that starts lists nothing
at first, then for about 0.1 s a part of its pods (measured on 1.20.2), so after a reconnect a pod that is not listed
is not gone yet. It is kept until one of these:

- it is listed again: from then on the answer's word holds for it, at once;
- one of the devices it holds is given to another;
- 60 seconds pass.

Pure: every moment comes in as `now`, in seconds of any clock that never steps back.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from exporter.attribution.owners import Knowledge, read_assignment
from exporter.model import Assignment, DeviceRef, PodResources

Read = Callable[[Assignment], DeviceRef | None]

GRACE_SECONDS = 60.0
STALE_WHILE_REFUSED_SECONDS = 600.0
STALE_OTHERWISE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """What is in force. `unlisted` is the part that has not been listed since the reconnect."""

    assignments: frozenset[Assignment] = frozenset()
    unlisted: frozenset[Assignment] = frozenset()
    reconnected_at: float = 0.0
    answered_at: float | None = None


def read_by_built_in_rules(assignment: Assignment) -> DeviceRef | None:
    """What an assignment refers to, by the rules that every node has."""
    return read_assignment(assignment, Knowledge())


def answered(
    before: Retained,
    answer: PodResources,
    *,
    now: float,
    reconnected: bool,
    read: Read = read_by_built_in_rules,
) -> Retained:
    """The kubelet answered; `reconnected` says that the connection is not the one of the last answer."""
    unlisted = before.assignments if reconnected else before.unlisted
    reconnected_at = now if reconnected else before.reconnected_at
    if now - reconnected_at >= GRACE_SECONDS:
        unlisted = frozenset()
    if unlisted:
        given = _Given(answer.assignments, read)
        unlisted = frozenset(
            assignment
            for assignment in unlisted
            if (assignment.owner.namespace, assignment.owner.pod) not in answer.listed
            and not given.displaces(assignment)
        )
    # An equal state stays the same object, so that nothing is worked out anew for it.
    assignments = answer.assignments | unlisted
    return Retained(
        assignments=before.assignments if assignments == before.assignments else assignments,
        unlisted=unlisted,
        reconnected_at=reconnected_at,
        answered_at=now,
    )


def failed(before: Retained, *, now: float, max_stale_seconds: float) -> Retained:
    """The kubelet did not answer: what is known stays until it is older than `max_stale_seconds`."""
    if before.answered_at is None or now - before.answered_at <= max_stale_seconds:
        return before
    return replace(before, assignments=frozenset(), unlisted=frozenset())


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
