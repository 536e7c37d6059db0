"""Keeping owners while the kubelet is away, and through the first moments after it is back.

Only the kubelet hands devices out, so what it last said holds while it is down. A kubelet that starts lists nothing
at first, then for about 0.1 s a part of its pods (measured on 1.20.2), so after a reconnect a pod that is not listed
is not gone yet. It is kept until one of these:

- it is listed again: from then on the answer's word holds for it, at once;
- one of the devices it holds is given to another;
- 60 seconds pass.

Pure: every moment comes in as `now`, in seconds of any clock that never steps back.
"""

from dataclasses import dataclass, replace

from exporter.attribution.device_ids import read_device_id
from exporter.model import Assignment, PodResources

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


def answered(before: Retained, answer: PodResources, *, now: float, reconnected: bool) -> Retained:
    """The kubelet answered; `reconnected` says that the connection is not the one of the last answer."""
    unlisted = before.assignments if reconnected else before.unlisted
    reconnected_at = now if reconnected else before.reconnected_at
    if now - reconnected_at >= GRACE_SECONDS:
        unlisted = frozenset()
    if unlisted:
        given = {assignment.device_id for assignment in answer.assignments}
        unlisted = frozenset(
            assignment
            for assignment in unlisted
            if (assignment.owner.namespace, assignment.owner.pod) not in answer.listed
            and not any(_displaces(device_id, assignment.device_id) for device_id in given)
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


def _displaces(given: str, held: str) -> bool:
    """Whether handing out the id `given` shows that `held` was given back: the same id, or one device held whole."""
    if given == held:
        return True
    new, old = read_device_id(given), read_device_id(held)
    return new is not None and old is not None and new.key == old.key and not (new.shared and old.shared)
