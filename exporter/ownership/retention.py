"""Retention: it keeps owners, allocatable ids and devices of ResourceSlices in force while their sources are silent.

**Owners.** Only the kubelet hands devices out, so its last answer stays true while it is down. A kubelet that has just
started lists no pod (for 0.4 to 2 s, or until it reaches the API server), then perhaps some pods, then all (measured on
1.20.2 and 1.36.2). So a pod that is not listed after a reconnect may still be there. It is kept until one of these
happens:

- the kubelet lists it again: from then on the answer holds for it, at once;
- the kubelet gives one of its devices to another pod, and not only to look at it;
- the kubelet has listed other pods for 10 seconds without it;
- the kubelet lists no pod at all, and its last answer with pods is older than `--kubelet.max-stale`.

The 10 seconds begin with the first answer that lists a pod. If no empty answer was seen, they begin with the kubelet's
start, since it may have listed pods for long. Time in which the kubelet is down or lists nothing does not count. A
further restart continues the count. Static pods are listed without the API server, so they do not show that the kubelet
has reached it.

**Allocatable ids.** GetAllocatableResources names an id only while a device plugin serves it and calls it healthy.
While a plugin restarts, the answer lacks all of its ids (measured on 1.36: an empty message at once), and while a GPU
has an error, it lacks the ids of this GPU, although containers hold them. A share of such a GPU must not look like a
whole GPU.

**Devices of ResourceSlices.** A starting kubelet deletes all ResourceSlices of its node. A running kubelet deletes a
driver's slices 30 s after the driver's socket went away. Drivers publish their slices again 30 s later, under other
names and uids (measured on 1.36). The containers keep their devices. So a device outlives its slice until one of these
happens:

- the device's pool is complete again: from then on the pool holds, even if it lacks the device;
- a slice of the pool describes the device in another way, even if the pool is not complete yet;
- no assignment in force names the device, and two minutes have passed: a pod may get its claim meanwhile.

Pure: callers pass every moment in as `now`, in seconds of any clock that never steps back.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import (
    Allocatable,
    Assignment,
    Claim,
    PodResources,
    ResourceSlice,
    SliceDevice,
    SliceDeviceName,
    SliceDevices,
)
from exporter.model.nothing import NOTHING, nothing
from exporter.model.pods import Owner, PodName
from exporter.ownership.device_ids import complete_pools, devices_of
from exporter.ownership.device_names import identity
from exporter.ownership.owners import Knowledge, read_assignment

Read = Callable[[Assignment], DeviceRef | None]

GRACE_SECONDS = 10.0  # after a reconnect, an owner goes when the kubelet has listed other pods for this long without it
STALE_WHILE_REFUSED_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """The assignments in force, and the facts that decide how long they stay.

    `unlisted` are the assignments that no answer has listed since the reconnect, each with the seconds for which the
    kubelet has listed other pods without it. `lists_pods`: the kubelet has listed pods since the reconnect. `listed_at`
    is the moment of the last answer with `lists_pods`, `answered_at` the moment of the last answer of all; None before
    the first. `listed` are the pods that the kubelet lists, with or without devices. `unlisted_pods` are those among
    them that it has not listed since the reconnect, with the seconds as for `unlisted`.
    """

    assignments: frozenset[Assignment] = frozenset()
    unlisted: Mapping[Assignment, float] = field(default_factory=nothing)
    lists_pods: bool = False
    answered_at: float | None = None
    listed_at: float | None = None
    listed: frozenset[PodName] = frozenset()
    unlisted_pods: Mapping[PodName, float] = field(default_factory=nothing)

    @property
    def known_at(self) -> float | None:
        """The moment of the answer that is in force; None before the first."""
        return self.listed_at if self.unlisted else self.answered_at


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
    """The assignments in force after the kubelet's answer at the moment `now`.

    `reconnected`: the answer came over another connection than the last answer; `up_for_seconds` then says how long
    this kubelet has been up, if that is known. The last answer with pods stays in force for `max_stale_seconds` while
    the kubelet lists no pod. The names of static pods end in the name of the `node`. `read` gives the device that an
    assignment refers to.
    """
    unlisted, pods = before.unlisted, before.unlisted_pods
    if reconnected:
        unlisted = {**dict.fromkeys(before.assignments, 0.0), **unlisted}
        pods = {**dict.fromkeys(before.listed, 0.0), **pods}
    unlisted = _still_unlisted(unlisted, before.assignments, answer, read)
    pods = {pod: missing for pod, missing in pods.items() if pod not in answer.listed}
    lists_pods = (before.lists_pods and not reconnected) or _lists_pods(answer, unlisted, node)
    listed_at = now if lists_pods else before.listed_at
    if lists_pods:
        since = _listed_for(before, now, up_for_seconds if reconnected else None)
        unlisted, pods = _awaited_for(unlisted, since), _awaited_for(pods, since)
    elif listed_at is not None and now - listed_at > max_stale_seconds:
        unlisted = pods = NOTHING
    return Retained(
        assignments=_same_if_equal(before.assignments, answer.assignments.union(unlisted)),
        unlisted=unlisted,
        lists_pods=lists_pods,
        answered_at=now,
        listed_at=listed_at,
        listed=_same_if_equal(before.listed, answer.listed.union(pods)),
        unlisted_pods=pods,
    )


T = TypeVar("T")


def _awaited_for(unlisted: Mapping[T, float], seconds: float) -> Mapping[T, float]:
    """The unlisted ones that stay after some more seconds without them."""
    return {held: missing + seconds for held, missing in unlisted.items() if missing + seconds < GRACE_SECONDS}


def _same_if_equal(before: frozenset[T], now: frozenset[T]) -> frozenset[T]:
    """`now`, as the same object as before if it is equal, so that nobody works anything out again for it."""
    return before if now == before else now


def _still_unlisted(
    unlisted: Mapping[Assignment, float], before: frozenset[Assignment], answer: PodResources, read: Read
) -> Mapping[Assignment, float]:
    """The unlisted assignments that an answer leaves in force. `before` were in force until this answer."""
    if not unlisted:
        return unlisted
    given = _AssignedDevices(answer.assignments, read)
    # a claim's share of a GPU has no name of its own, so only new assignments can take a claim's device away
    given_anew = _AssignedDevices(answer.assignments - before, read)
    still: dict[Assignment, float] = {}
    for held, missing in unlisted.items():
        is_listed = held.owner.pod_key in answer.listed
        if not is_listed and not (given_anew if held.claim else given).displaces(held):
            still[held] = missing
    return still


def _listed_for(before: Retained, now: float, up_for_seconds: float | None) -> float:
    """The seconds for which the kubelet has listed pods since its last answer.

    `up_for_seconds` is None without a reconnect.
    """
    if before.answered_at is None:
        return 0.0
    since = now - before.answered_at
    if up_for_seconds is not None:
        # the start may be wrong if somebody set the clock; the true start lies between the last answer and this one
        return max(0.0, min(up_for_seconds, since))
    return since if before.lists_pods else 0.0


def settled(before: Retained, read: Read, cdi_names: AbstractSet[str]) -> Retained:
    """The assignments in force once `read` knows the devices of these CDI names, which it did not at the answer.

    An unlisted claim may have had the device that a new claim has now, since the numbers of MIG instances come again.
    """
    if not before.unlisted:
        return before
    listed = before.assignments - before.unlisted.keys()
    given = _AssignedDevices(
        (held for held in listed if held.claim and not cdi_names.isdisjoint(held.claim.cdi_names)), read
    )
    unlisted = {held: missing for held, missing in before.unlisted.items() if not given.displaces(held)}
    if len(unlisted) == len(before.unlisted):
        return before
    displaced = before.unlisted.keys() - unlisted.keys()
    return replace(before, assignments=before.assignments - displaced, unlisted=unlisted)


def failed(
    before: Retained, *, now: float, max_stale_seconds: float, max_unlisted_seconds: float = STALE_WHILE_REFUSED_SECONDS
) -> Retained:
    """The assignments in force after the kubelet failed to answer: all of them, or none if they are too old.

    They are too old if the last answer is older than `max_stale_seconds`, or the last answer with pods is older than
    `max_unlisted_seconds`.
    """
    if before.answered_at is None or before.known_at is None:
        return before
    if now - before.answered_at <= max_stale_seconds and now - before.known_at <= max_unlisted_seconds:
        return before
    return replace(before, assignments=frozenset(), unlisted=NOTHING, listed=frozenset(), unlisted_pods=NOTHING)


def _lists_pods(answer: PodResources, unlisted: Iterable[Assignment], node: str) -> bool:
    """Whether an answer shows that the kubelet has learnt its pods from the API server.

    A pod that is not static shows it. Static pods show it only if every awaited pod (`unlisted`) is static, too.
    """
    # the kubelet's own rule for the names of static pods: name-node, in lower case
    ending = f"-{node.lower()}" if node else "/"
    if any(not pod.endswith(ending) for _, pod in answer.listed):
        return True
    return bool(answer.listed) and all(held.owner.pod.endswith(ending) for held in unlisted)


class _AssignedDevices:
    """The devices that an answer gives to containers: earlier holders have given them back."""

    def __init__(self, assignments: Iterable[Assignment], read: Read) -> None:
        self._read = read
        self._claims: set[Claim] = set()
        self._ids: set[str] = set()
        self._devices: set[object] = set()
        self._whole: set[object] = set()
        for assignment in assignments:
            ref = read(assignment)
            if ref is not None and ref.is_look:
                continue
            # the id of an allocator's token names another device than the container has
            if ref is not None and not ref.allocator:
                self._devices.add(identity(ref))
                if not ref.shared:
                    self._whole.add(identity(ref))
            if assignment.claim is not None:
                self._claims.add(assignment.claim)
            if assignment.claim is None or not assignment.claim.share:
                self._ids.add(assignment.device_id)

    def displaces(self, held: Assignment) -> bool:
        """Whether the answer gives the device of `held` to another container.

        The answer has the same id; or it has the same device, and one of the two containers holds the whole device.
        """
        if held.claim in self._claims:
            return False  # several pods may hold one claim
        if held.device_id in self._ids:
            return True
        ref = self._read(held)
        if ref is None or ref.allocator or not ref.names_device:
            return False
        return identity(ref) in (self._whole if ref.shared else self._devices)


_NOBODY = Owner(namespace="", pod="", container="")


def offered_now(before: Allocatable, answer: Allocatable, held: Collection[Assignment], read: Read) -> Allocatable:
    """The ids on offer after another answer; `before` itself if nothing changed.

    A device that the answer does not name keeps its ids while somebody holds one of them. `held` are the assignments in
    force, and `read` gives the device that an assignment refers to.
    """

    def device(resource: str, device_id: str) -> tuple[str, object]:
        ref = read(Assignment(owner=_NOBODY, resource=resource, device_id=device_id))
        return resource, device_id if ref is None else identity(ref)

    of_ids = (assignment for assignment in held if assignment.claim is None) if before else ()
    held_devices = {device(assignment.resource, assignment.device_id) for assignment in of_ids}
    now: dict[str, Mapping[str, int]] = {}
    for resource in sorted(before.keys() | answer.keys()):
        ids = answer.get(resource, NOTHING)
        if resource in before:
            lost = held_devices.difference(device(resource, device_id) for device_id in ids)
            kept = {id_: count for id_, count in before[resource].items() if device(resource, id_) in lost}
            ids = {**kept, **ids} if kept else ids
        if ids:
            now[resource] = ids
    return before if now == before else MappingProxyType(now)


# A node of 16 GPUs publishes some 320 devices with its MIG profiles.
MOST_KEPT = 10_000
UNNAMED_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDevices:
    """The known devices of slices.

    `kept` are the devices that no slice describes now, each with the moment since when.
    """

    devices: SliceDevices = field(default_factory=nothing)
    kept: Mapping[SliceDeviceName, float] = field(default_factory=nothing)


def described(before: KnownDevices, slices: Iterable[ResourceSlice], *, now: float) -> KnownDevices:
    """The known devices if `slices` are all slices.

    At most MOST_KEPT devices without a slice stay, the oldest first.
    """
    slices = tuple(slices)
    pools = complete_pools(slices)
    described: dict[SliceDeviceName, list[SliceDevice]] = {}
    for resource_slice in slices:
        for name, device in resource_slice.devices.items():
            described.setdefault((resource_slice.driver, resource_slice.pool, name), []).append(device)
    kept: dict[SliceDeviceName, float] = {}
    devices = dict(devices_of(pools))
    for full_name in {**before.kept, **before.devices}:
        device = before.devices[full_name]
        is_described_otherwise = full_name in described and device not in described[full_name]
        if full_name[:2] not in pools and not is_described_otherwise and len(kept) < MOST_KEPT:
            kept[full_name] = before.kept.get(full_name, now)
            devices[full_name] = device
    return KnownDevices(devices=MappingProxyType(devices), kept=MappingProxyType(kept))


def named(before: KnownDevices, assignments: Iterable[Assignment], *, now: float) -> KnownDevices:
    """`before` without devices that stayed long enough and that no assignment names; `before` itself without such."""
    old = {name for name, since in before.kept.items() if now - since >= UNNAMED_SECONDS}
    if not old:
        return before
    claims = (assignment.claim for assignment in assignments)
    old -= {claim.slice_name for claim in claims if claim is not None}
    if not old:
        return before
    kept = {name: since for name, since in before.kept.items() if name not in old}
    devices = {name: device for name, device in before.devices.items() if name not in old}
    return KnownDevices(devices=MappingProxyType(devices), kept=MappingProxyType(kept))
