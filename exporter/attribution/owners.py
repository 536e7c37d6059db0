"""From assignments (who was given which device id) to owners (who holds which device).

device_ids.py and claims.py say what an id refers to. Whether that is a device of this node, and which one, is looked up
here: in the labels of the samples and, where there is one, in an inventory.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING

from exporter.attribution.claims import read_claim
from exporter.attribution.device_ids import RULES, Rule, read_device_id
from exporter.attribution.seen import SeenDevices, is_part_of_instance, profile_of_resource
from exporter.model.devices import (
    NO_OFFERS,
    Assignment,
    DeviceKey,
    DeviceRef,
    Holder,
    Inventory,
    Match,
    Offers,
    Owners,
    SliceDevice,
)
from exporter.model.pages import UNREAD, UNREAD_OWNED, Subject

if TYPE_CHECKING:
    from exporter.model.pods import Owner

NOTHING_OFFERED: Mapping[tuple[str, DeviceKey], int] = MappingProxyType({})
DRA_DRIVERS = ("gpu.nvidia.com",)


class Unmatched(StrEnum):
    """Why an assigned device has no samples: the values of `unmatched_devices{reason}`. explain.py has the words."""

    UNKNOWN_ID = "unknown_id"
    MIG_UNRESOLVED = "mig_unresolved"
    CLAIM_UNRESOLVED = "claim_unresolved"
    AMBIGUOUS = "ambiguous"
    OTHER_NODE = "other_node"
    NO_SAMPLE = "no_sample"
    TOO_MANY_DEVICES = "too_many_devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Where assignments are looked up: the rules for ids, the inventory, and the devices of ResourceSlices.

    `node` is this node's name, which samples of its own dcgm-exporter carry as Hostname; "" where it is not known.
    """

    rules: Sequence[Rule] = RULES
    inventory: Inventory = field(default_factory=Inventory)
    slices: Mapping[tuple[str, str, str], SliceDevice] = field(default_factory=lambda: MappingProxyType({}))
    node: str = ""


def is_meant(resource: str, globs: Iterable[str], *, of_claim: bool = False) -> bool:
    """Whether a resource matches one of the globs (`--resources`).

    A claim's resource is the name of its driver, and NVIDIA's driver for GPUs (DRA_DRIVERS) always matches.
    """
    return (of_claim and resource in DRA_DRIVERS) or any(fnmatchcase(resource, glob) for glob in globs)


def read_assignment(assignment: Assignment, knowledge: Knowledge) -> DeviceRef | None:
    """The device that an assignment refers to, from its id or claim alone; None where no rule or slice knows it."""
    if assignment.claim is not None:
        return read_claim(assignment.claim, knowledge.slices)
    return _read_id(assignment.resource, assignment.device_id, knowledge)


def _read_id(resource: str, device_id: str, knowledge: Knowledge) -> DeviceRef | None:
    ref = read_device_id(resource, device_id, knowledge.rules)
    if ref is None:
        return None
    profile = profile_of_resource(resource)
    if not profile:
        return ref
    # a compute instance is a part of a GPU instance, and samples are of the whole GPU instance
    return replace(ref, profile=profile, shared=ref.shared or is_part_of_instance(profile))


def needs_slices(assignment: Assignment) -> bool:
    """Whether a claim's device is fully known only from ResourceSlices: a CDI name gives at most a GPU's UUID."""
    if assignment.claim is None:
        return False
    ref = read_claim(assignment.claim, {})
    return ref is None or not ref.uuid


def build_owners(
    assignments: Iterable[Assignment],
    subjects: Mapping[Subject, int] = MappingProxyType({}),
    knowledge: Knowledge | None = None,
    offers: Offers = NO_OFFERS,
) -> Owners:
    """Who holds which device.

    A container that has several shares of a device is one holder. A device with several holders is shared.

    Args:
        assignments: what the kubelet handed out.
        subjects: what the samples are about, with the number of samples of each.
        knowledge: where ids are looked up; None for the built-in rules alone.
        offers: what the kubelet can hand out, handed out or not.
    """
    knowledge = knowledge or Knowledge()
    ordered = sorted(assignments, key=lambda assignment: assignment.order)
    refs = {assignment: read_assignment(assignment, knowledge) for assignment in ordered if not assignment.units}
    seen = SeenDevices(subjects, knowledge.inventory, [ref for ref in refs.values() if ref])
    placed = {
        assignment: (ref, key)
        for assignment, ref in refs.items()
        if ref is not None and (key := seen.key_of(ref)) is not None
    }
    holders: dict[DeviceKey, dict[Owner, Holder]] = {}
    for assignment, (ref, key) in placed.items():
        of_key = holders.setdefault(key, {})
        before = of_key.get(assignment.owner)
        of_key[assignment.owner] = Holder(
            owner=assignment.owner,
            resource=assignment.resource,
            shared=ref.shared or (before is not None and before.shared),
            claim=assignment.claim,
        )
    for key, of_key in holders.items():
        if len(of_key) > 1:
            # two pods on one claim hold no shares by their ids, but they do share the device
            holders[key] = {owner: replace(holder, shared=True) for owner, holder in of_key.items()}
    samples = _SamplesByKey(subjects, holders)
    missing = _why_missing(subjects, knowledge.node, placed.values(), seen)
    matches = []
    for assignment, found_ref in refs.items():
        found_key = placed[assignment][1] if assignment in placed else None
        count = samples.of(found_key)
        reason = "" if count else _why(assignment, found_ref, found_key, missing)
        matches.append(Match(assignment=assignment, ref=found_ref, key=found_key, samples=count, reason=reason))
    return Owners(
        holders=MappingProxyType(
            {key: tuple(sorted(of_key.values(), key=lambda holder: holder.owner)) for key, of_key in holders.items()}
        ),
        matches=tuple(matches),
        units=tuple(assignment for assignment in ordered if assignment.units),
        offered=_offered(offers, refs.values(), subjects, knowledge) if offers else NOTHING_OFFERED,
    )


def _offered(
    offers: Offers, held: Iterable[DeviceRef | None], subjects: Mapping[Subject, int], knowledge: Knowledge
) -> Mapping[tuple[str, DeviceKey], int]:
    """How many ids of each resource mean each device. `held` is what the ids refer to that are handed out.

    An id that is not handed out may mean the instance of its profile just as well as one that is: so all are rivals.
    """
    refs = [
        (resource, _read_id(resource, device_id, knowledge)) for resource, ids in offers.items() for device_id in ids
    ]
    seen = SeenDevices(subjects, knowledge.inventory, [ref for ref in (*held, *(ref for _, ref in refs)) if ref])
    keys = ((resource, seen.key_of(ref)) for resource, ref in refs if ref)
    return MappingProxyType(Counter((resource, key) for resource, key in keys if key is not None))


class _SamplesByKey:
    """How many samples came in for each device. A GPU's number includes its instances that have no holder."""

    def __init__(self, subjects: Mapping[Subject, int], held: Iterable[DeviceKey]) -> None:
        self._held = frozenset(held)
        self._of: Counter[DeviceKey] = Counter()
        for subject, count in subjects.items():
            key = subject.key
            self._of[key] += count
            if key.instance and key not in self._held:
                self._of[DeviceKey(uuid=key.uuid)] += count

    def of(self, key: DeviceKey | None) -> int:
        return self._of[key] if key is not None else 0


def _why_missing(
    subjects: Mapping[Subject, int], node: str, placed: Iterable[tuple[DeviceRef, DeviceKey]], seen: SeenDevices
) -> Unmatched:
    """Why a device that is known has no samples."""
    if UNREAD in subjects or UNREAD_OWNED in subjects:
        return Unmatched.TOO_MANY_DEVICES
    is_elsewhere = not _is_named_here(subjects, node) and _is_of_another_node(placed, seen)
    return Unmatched.OTHER_NODE if is_elsewhere else Unmatched.NO_SAMPLE


def _is_named_here(subjects: Iterable[Subject], node: str) -> bool:
    """Whether a GPU's Hostname is this node: then the page is this node's, whatever ids the kubelet handed out."""
    return any(subject.is_device and subject.host and subject.host == node for subject in subjects)


def _is_of_another_node(placed: Iterable[tuple[DeviceRef, DeviceKey]], seen: SeenDevices) -> bool:
    """Whether the pages are surely another node's: GPU samples and ids both carry UUIDs, and have none in common."""
    if not seen.has_gpu_uuids:
        return False
    handed_out = False
    for ref, key in placed:
        # an id that is only a name or number proves nothing: every node has a GPU 0
        if not (ref.uuid or ref.mig):
            continue
        if key.uuid in seen.uuids:
            return False
        # a MIG id that nothing resolves proves nothing either
        handed_out = handed_out or key.uuid != ref.mig
    return handed_out


def _why(assignment: Assignment, ref: DeviceRef | None, key: DeviceKey | None, missing: Unmatched) -> Unmatched:
    """Why an assignment has no samples: `ref` is None for an unknown form, `key` where the id fits several devices.

    `missing` is what `_why_missing` says.
    """
    if ref is None:
        return Unmatched.CLAIM_UNRESOLVED if assignment.claim else Unmatched.UNKNOWN_ID
    if key is None:
        return Unmatched.AMBIGUOUS
    if ref.mig and key.uuid == ref.mig:
        return Unmatched.MIG_UNRESOLVED
    return missing
