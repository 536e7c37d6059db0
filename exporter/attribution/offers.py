"""What the kubelet can hand out, and what becomes of it while the kubelet does not say so.

GetAllocatableResources names an id only while a device plugin serves it and calls it healthy. So a plugin that restarts
takes all of its ids out of the answer (measured on 1.36: an empty message at once), and a GPU with an error takes out
its own, while containers hold them all the time. A share of such a GPU must not look like the whole of it.
"""

from collections.abc import Collection, Hashable
from types import MappingProxyType

from exporter.attribution.retention import Read
from exporter.attribution.seen import identity
from exporter.model.devices import Assignment, Offers
from exporter.model.pods import Owner

_NOBODY = Owner(namespace="", pod="", container="")


def offered_now(before: Offers, answer: Offers, held: Collection[Assignment], read: Read) -> Offers:
    """The ids on offer after another answer: `before` itself where nothing changed.

    A device that the answer does not name keeps the ids that it had, as long as somebody holds one of them. `held` are
    the assignments in force, and `read` says what an assignment refers to.
    """

    def device(resource: str, device_id: str) -> Hashable:
        ref = read(Assignment(owner=_NOBODY, resource=resource, device_id=device_id))
        return device_id if ref is None else identity(ref)

    held_devices = {(one.resource, device(one.resource, one.device_id)) for one in held if one.claim is None and before}
    now: dict[str, frozenset[str]] = {}
    for resource in sorted(before.keys() | answer.keys()):
        ids = answer.get(resource, frozenset())
        named = {device(resource, one) for one in ids} if resource in before else set()
        kept = frozenset(
            one
            for one in before.get(resource, frozenset())
            if (of := device(resource, one)) not in named and (resource, of) in held_devices
        )
        if ids or kept:
            now[resource] = ids | kept
    return before if now == before else MappingProxyType(now)
