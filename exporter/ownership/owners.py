"""The way from assignments (device ids that containers were given) to owners (containers that hold devices).

device_ids.py says which device an id refers to, and device_names.py which device of this node that is, if any.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import (
    NO_PLACES,
    Allocatable,
    Assignment,
    CdiPlaces,
    Claim,
    DeviceKey,
    Holder,
    Inventory,
    Match,
    Owners,
    SliceDevice,
    bare,
)
from exporter.model.grants import together
from exporter.model.nothing import NOTHING, nothing
from exporter.model.pages import UNREAD, UNREAD_OWNED, Subjects
from exporter.ownership.admin_access import NO_CLAIMS, KnownClaims
from exporter.ownership.counted_ids import granted
from exporter.ownership.device_ids import CDI_SPEC, DRA_DRIVERS, RULES, Rule, read_claim, read_device_id
from exporter.ownership.device_names import NodeDevices, Rivals, rivals_among
from exporter.ownership.other_names import NamesOfKubelet, Renamed, joined

if TYPE_CHECKING:
    from exporter.model.pods import Owner

# the prefix of a compute instance's profile: 1c.3g.20gb is a part of the GPU instance 3g.20gb
_PART_OF_INSTANCE = re.compile(r"[0-9]+c\.")


def profile_of_resource(resource: str) -> str:
    """The MIG profile in a resource's name: 1g.10gb of `nvidia.com/mig-1g.10gb`; "" if the name has none.

    NVIDIA's device plugin writes the + of a profile as a dot (1g.10gb+me is mig-1g.10gb.me), and adds .shared to a
    resource whose devices it shares.
    """
    name = resource.rpartition("/")[2]
    return name.removeprefix("mig-").removesuffix(".shared") if name.startswith("mig-") else ""


ADMIN_ACCESS = "admin access"
NOTHING_OFFERED: "Offered" = NOTHING


class Unmatched(StrEnum):
    """The reasons why an assigned device has no samples: values of `unmatched_devices{reason}`.

    explain.py has the texts.
    """

    UNKNOWN_ID = "unknown_id"
    MIG_UNRESOLVED = "mig_unresolved"
    CLAIM_UNRESOLVED = "claim_unresolved"
    AMBIGUOUS = "ambiguous"
    OTHER_NODE = "other_node"
    NO_SAMPLE = "no_sample"
    UNNAMED = "unnamed"
    TOO_MANY_DEVICES = "too_many_devices"
    CONTRADICTED = "contradicted"
    ALLOCATOR = "allocator"
    NO_GPU = "no_gpu"
    VFIO = "vfio"


# reasons with which nothing is wrong, since no samples are to be expected
WITHOUT_SAMPLES = frozenset({Unmatched.NO_GPU, Unmatched.VFIO})


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """The facts by which assignments are looked up.

    `node` is the Hostname of this node's samples; "" if it is not known. `places` has the CDI devices that the present
    assignments name. `claims` says which devices of claims containers only look at.
    """

    rules: Sequence[Rule] = RULES
    inventory: Inventory = field(default_factory=Inventory)
    slices: Mapping[tuple[str, str, str], SliceDevice] = field(default_factory=nothing)
    node: str = ""
    places: CdiPlaces = field(default_factory=nothing)
    claims: KnownClaims = NO_CLAIMS


def is_meant(resource: str, globs: Iterable[str], *, of_claim: bool = False) -> bool:
    """Whether `--resources` matches a resource, or a claim's driver. NVIDIA's DRA driver for GPUs always matches."""
    return (of_claim and resource in DRA_DRIVERS) or any(fnmatchcase(resource, glob) for glob in globs)


def read_assignment(assignment: Assignment, knowledge: Knowledge) -> DeviceRef | None:
    """The device that an assignment refers to, by a word, or by its id or claim; None if no rule or slice knows it."""
    word = assignment.word
    if word is not None and word.ref is not None:
        return word.ref
    claim = assignment.claim
    if claim is not None:
        if knowledge.claims.is_to_be_asked(claim):
            return None
        ref = read_claim(claim, knowledge.slices, knowledge.places)
        if knowledge.claims.is_look(claim):
            ref = replace(ref or DeviceRef(form=ADMIN_ACCESS), is_look=True)
        return ref
    ref = _read_id(assignment.resource, assignment.device_id, knowledge)
    if word is None:
        return ref
    # an id may be a token by a mark on its pod alone
    return replace(ref or DeviceRef(form=word.grant.allocator), allocator=word.grant.allocator)


def _read_id(resource: str, device_id: str, knowledge: Knowledge) -> DeviceRef | None:
    ref = read_device_id(resource, device_id, knowledge.rules)
    if ref is None:
        return None
    profile = profile_of_resource(resource)
    if not profile:
        return ref
    # a compute instance is a part of a GPU instance, but samples describe only the whole GPU instance
    return replace(ref, profile=profile, shared=ref.shared or _PART_OF_INSTANCE.match(profile) is not None)


def needs_slices(assignment: Assignment, places: CdiPlaces = NO_PLACES) -> bool:
    """Whether only ResourceSlices tell all of a claim's device. A CDI name alone gives at most a GPU's UUID."""
    if assignment.claim is None:
        return False
    ref = read_claim(assignment.claim, {}, places)
    return ref is None or ref.is_no_gpu or not (ref.uuid or ref.form == CDI_SPEC)


ReadId = tuple[Assignment, DeviceRef | None]


class OwnersBuilder:
    """Works out the holders of devices, and keeps for the next time all results that a new claim does not change.

    An assignment that is the same object still refers to the same device, unless `Knowledge` has changed. A device
    whose holders are the same keeps the same tuple of holders, as an object.
    """

    def __init__(self, gpus: frozenset[str] = frozenset()) -> None:
        """`gpus` are the GPUs of earlier pages, since a page lacks a lost GPU."""
        self.gpus = gpus
        self._devices = NodeDevices({}, Inventory())
        self._ordered: list[Assignment] = []
        self._knowledge = Knowledge()
        # by id(assignment): the device, and the facts that decide it beside the rules and slices
        self._refs: dict[int, tuple[object, DeviceRef | None]] = {}
        self._holders: Mapping[DeviceKey, tuple[Holder, ...]] = {}

    def build(
        self, assignments: Iterable[Assignment], subjects: Subjects, knowledge: Knowledge, allocatable: Allocatable
    ) -> Owners:
        """The owners, by the kubelet's assignments and the subjects of samples (with the number of samples of each).

        A container with several shares of a device counts as one holder. A device with several holders is shared.
        `knowledge` has the facts for the look-up of ids. `allocatable` has all ids that the kubelet can hand out.
        """
        if not self._devices.are_of(subjects, knowledge.inventory):
            self._devices = NodeDevices(subjects, knowledge.inventory)
        if len(self.gpus) < 2:  # noqa: PLR2004 - whether there was a second one is all that is asked of them
            self.gpus |= self._devices.gpus
        read = self._read(assignments, knowledge)
        held: list[ReadId] = []
        looks: list[Match] = []
        for assignment, ref in read:
            if ref is not None and ref.is_look:
                looks.append(Match(assignment=assignment, ref=ref, key=self._devices.key_of(ref, {})))
            else:
                held.append((assignment, ref))
        owners = _build(held, subjects, knowledge, allocatable, self._devices, self.gpus)
        holders = dict(owners.holders)
        for key, before in self._holders.items():
            if holders.get(key) == before:
                holders[key] = before
        self._holders = MappingProxyType(holders)
        units = tuple(assignment for assignment in self._ordered if assignment.units)
        return replace(owners, holders=self._holders, units=units, looks=tuple(looks))

    def _read(self, assignments: Iterable[Assignment], knowledge: Knowledge) -> Sequence[ReadId]:
        """The assignments that do not count units, with the devices that they refer to, in stable order."""
        last = self._knowledge
        self._knowledge = knowledge
        refs = self._refs if knowledge.rules is last.rules and knowledge.slices is last.slices else {}
        new = {id(assignment): assignment for assignment in frozenset(assignments)}
        # sorting is fast if nearly all of them are in order already
        self._ordered = [assignment for assignment in self._ordered if new.pop(id(assignment), None)]
        self._ordered += new.values()
        self._ordered.sort(key=attrgetter("order"))
        kept: dict[int, tuple[object, DeviceRef | None]] = {}
        read: list[ReadId] = []
        for assignment in self._ordered:
            if assignment.units:
                continue
            decides = _deciding(assignment.claim, knowledge) if assignment.claim else None
            before = None if id(assignment) in new else refs.get(id(assignment))
            if before is None or before[0] != decides:
                before = (decides, read_assignment(assignment, knowledge))
            kept[id(assignment)] = before
            read.append((assignment, before[1]))
        self._refs = kept
        return read


def _deciding(claim: Claim, knowledge: Knowledge) -> tuple[object, ...]:
    """The facts that decide which device a claim means, and whether a container holds it."""
    claims = knowledge.claims
    return (claims.is_to_be_asked(claim), claims.is_look(claim), *map(knowledge.places.get, claim.cdi_names))


_Placed = tuple[Assignment, DeviceRef | None, DeviceKey | None]
Placed = Sequence[_Placed]
Offered = Mapping[tuple[str, DeviceKey], int]


def _build(
    refs: Sequence[ReadId],
    subjects: Subjects,
    knowledge: Knowledge,
    allocatable: Allocatable,
    devices: NodeDevices,
    gpus_before: frozenset[str],
) -> Owners:
    """The owners, without units and looks. All ids, in use or on offer, tell together which device each one means."""
    on_offer = [(resource, device_id) for resource, ids in allocatable.items() for device_id in ids]
    offered_refs = [_read_id(*offer, knowledge) for offer in on_offer]
    held_refs = [ref for _, ref in refs]
    every_ref = [ref for ref in (*held_refs, *offered_refs) if ref is not None]
    sole = devices.sole(every_ref, gpus_before)

    def key_of(ref: DeviceRef | None, rivals: Rivals) -> DeviceKey | None:
        return devices.key_of(ref, rivals) if ref is not None and sole.names(ref) else None

    rivals = rivals_among(held_refs)
    placed = [(assignment, ref, key_of(ref, rivals)) for assignment, ref in refs]
    placed = _without_foreign(placed, devices, refs, offered_refs)
    # all ids are rivals, since a free id may mean the instance of its profile just as well as an id in use
    rivals = rivals_among(every_ref)
    # a token on offer is a share of the GPU that it names; only the one in use is mostly another GPU's
    offers = [(ref, devices.key_of(ref, rivals) if ref is not None else None) for ref in offered_refs]
    renamed, unnamed = _by_other_names(placed, offers, devices)
    placed = [(assignment, ref, renamed.get(key, key) if key else None) for assignment, ref, key in placed]
    offered = _counts(on_offer, offers, renamed, allocatable)
    holders = _holders(placed, offered)
    missing = _why_missing(subjects, knowledge, placed, devices)
    return Owners(
        holders={key: tuple(sorted(of_key, key=attrgetter("owner"))) for key, of_key in holders.items()},
        matches=_matches(placed, devices, devices.samples_of(holders), missing),
        offered=MappingProxyType(offered) if allocatable else NOTHING_OFFERED,
        unnamed=unnamed,
    )


def _counts(
    on_offer: Sequence[tuple[str, str]],
    offers: Sequence[tuple[DeviceRef | None, DeviceKey | None]],
    renamed: Renamed,
    allocatable: Allocatable,
) -> Counter[tuple[str, DeviceKey]]:
    """The number of ids by resource and device. `on_offer` are resources and ids, `offers` the devices of these."""
    counts: Counter[tuple[str, DeviceKey]] = Counter()
    for (resource, device_id), (_, key) in zip(on_offer, offers, strict=True):
        if key is not None:
            counts[resource, renamed.get(key, key)] += allocatable[resource][device_id]
    return counts


def _gpus_of_ids(held: Sequence[ReadId], on_offer: Sequence[DeviceRef | None]) -> AbstractSet[str]:
    """The GPUs, without GPU-, that the kubelet's ids themselves name, in use or on offer."""
    of_ids = [ref for assignment, ref in held if assignment.word is None]
    of_ids += on_offer
    return {bare(ref.uuid) for ref in of_ids if ref is not None}


def _without_foreign(
    placed: list[_Placed],
    devices: NodeDevices,
    held: Sequence[ReadId],
    on_offer: Sequence[DeviceRef | None],
) -> list[_Placed]:
    """The same, but a word that names a GPU which the node lacks leads to no device.

    A page lacks a lost GPU, so the GPUs that the kubelet's ids name count, too.
    """
    if not devices.gpus or not any(assignment.word for assignment, _ in held):
        return placed  # without a page and an inventory nobody can say what the node lacks
    gpus = devices.gpus | _gpus_of_ids(held, on_offer)

    def is_foreign(assignment: Assignment, ref: DeviceRef | None, key: DeviceKey | None) -> bool:
        if assignment.word is None or ref is None or key is None:
            return False
        if ref.uuid:
            return bare(key.uuid) not in gpus
        return key.uuid in (ref.index, ref.device)

    return [(held, ref, None if is_foreign(held, ref, key) else key) for held, ref, key in placed]


def _by_other_names(
    placed: Placed, offers: Sequence[tuple[DeviceRef | None, DeviceKey | None]], devices: NodeDevices
) -> tuple[Renamed, frozenset[DeviceKey]]:
    """The page's devices by the kubelet's other names for them, and the names whose device is not clear.

    If there are more such names than devices on the page, the rest are names of devices that the page lacks.
    """
    held: dict[DeviceKey, set[Owner]] = {}
    taken = {key for _, key in offers}
    are_all = True
    for assignment, ref, key in placed:
        if key is not None and devices.is_unnamed(ref, key):
            held.setdefault(key, set()).add(assignment.owner)
        elif key is not None:
            taken.add(key)
        else:
            are_all = are_all and ref is not None and ref.is_no_gpu and assignment.word is None
    offered = {key for ref, key in offers if key is not None and devices.is_unnamed(ref, key)}
    if not held and not offered:
        return {}, frozenset()
    names = NamesOfKubelet(held=held, offered=offered, are_all=are_all)
    of_page = {key: owners for key, owners in devices.owners_by_page.items() if key not in taken}
    renamed = joined(names, of_page)
    others = sorted(names.every - renamed.keys(), key=lambda key: (key not in held, key))
    return renamed, frozenset(others[: len(of_page) - len(renamed)])


def _holders(placed: Placed, offered: Offered) -> Mapping[DeviceKey, Iterable[Holder]]:
    """The holders of each device. It is shared if several hold it, and not if it has only one share."""
    holders: dict[DeviceKey, dict[Owner, Holder]] = {}
    for assignment, ref, key in placed:
        if ref is None or key is None:
            continue
        of_key = holders.setdefault(key, {})
        before = of_key.get(assignment.owner)
        grant = granted(assignment, offered.get((assignment.resource, key), 0))
        of_key[assignment.owner] = Holder(
            owner=assignment.owner,
            resource=assignment.resource,
            shared=ref.shared or (before is not None and before.shared),
            claim=assignment.claim,
            grant=together(before.grant if before else None, grant),
        )
    ids: Counter[DeviceKey | None] = Counter()
    for assignment, _, key in placed:
        ids[key] += assignment.count
    return {key: _shared(tuple(of_key.values()), key, ids[key], offered) for key, of_key in holders.items()}


def _shared(holders: Sequence[Holder], key: DeviceKey, ids: int, offered: Offered) -> Sequence[Holder]:
    """The holders of a device that has this number of `ids` in use, each with whether it shares the device."""
    if len(holders) > 1:
        # by their ids two pods on one claim have no shares, but they do share the device
        return [replace(holder, shared=True) for holder in holders]
    if ids == 1 and offered.get((holders[0].resource, key)) == 1:
        # if a device has only one share, nobody else can have a part of it
        return [replace(holders[0], shared=False)]
    return holders


def _matches(
    placed: Placed, devices: NodeDevices, samples: Mapping[DeviceKey, int], missing: Unmatched
) -> tuple[Match, ...]:
    matches = []
    for assignment, ref, key in placed:
        count = samples.get(key, 0) if key else 0
        reason = "" if count else _why(assignment, ref, key, missing)
        if reason == Unmatched.NO_SAMPLE and ref and devices.carry_no_name_like(ref):
            reason = Unmatched.UNNAMED
        matches.append(Match(assignment=assignment, ref=ref, key=key, samples=count, reason=reason))
    return tuple(matches)


def _why_missing(subjects: Subjects, knowledge: Knowledge, placed: Placed, devices: NodeDevices) -> Unmatched:
    if UNREAD in subjects or UNREAD_OWNED in subjects:
        return Unmatched.TOO_MANY_DEVICES
    # a page with this node's Hostname is of this node, whatever ids the kubelet handed out
    is_here = any(subject.is_device and subject.host and subject.host == knowledge.node for subject in subjects)
    if not is_here and _is_of_another_node(placed, devices):
        return Unmatched.OTHER_NODE
    return Unmatched.NO_SAMPLE


def _is_of_another_node(placed: Placed, devices: NodeDevices) -> bool:
    """Whether the pages are certainly of another node: samples and ids both have UUIDs, but none in common."""
    if not devices.has_gpu_uuids:
        return False
    handed_out = False
    for _, ref, key in placed:
        # an id that is only a name or number proves nothing, since every node has a GPU 0
        if ref is None or key is None or not (ref.uuid or ref.mig):
            continue
        if key.uuid in devices.uuids:
            return False
        # a MIG id that nothing resolves proves nothing either
        handed_out = handed_out or key.uuid != ref.mig
    return handed_out


def _why(assignment: Assignment, ref: DeviceRef | None, key: DeviceKey | None, missing: Unmatched) -> Unmatched:
    """The reason why an assignment has no samples.

    `ref` is None for an unknown form, `key` if the id fits several devices.
    """
    if ref is None:
        return Unmatched.CLAIM_UNRESOLVED if assignment.claim else Unmatched.UNKNOWN_ID
    if key is None:
        return _why_no_device(ref) if assignment.word is None else Unmatched.ALLOCATOR
    if ref.is_vfio:
        return Unmatched.VFIO
    if ref.mig and key.uuid == ref.mig:
        return Unmatched.MIG_UNRESOLVED
    return missing


def _why_no_device(ref: DeviceRef) -> Unmatched:
    """The reason why a reference means no device of the node."""
    if ref.allocator:
        return Unmatched.ALLOCATOR
    if ref.is_no_gpu:
        return Unmatched.NO_GPU
    if not ref.minor:
        return Unmatched.AMBIGUOUS
    if ref.uuid or ref.mig or ref.is_vfio:
        return Unmatched.CONTRADICTED
    return Unmatched.CLAIM_UNRESOLVED
