"""From assignments (who was given which device id) to owners (who holds which device).

device_ids.py says what an id refers to. Whether that is a device of this node, and which one, is looked up here: in the
labels of the samples and, where there is one, in an inventory.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from exporter.model.devices import (
    NO_PLACES,
    NONE_ALLOCATABLE,
    Allocatable,
    Assignment,
    CdiPlaces,
    DeviceKey,
    DeviceRef,
    Holder,
    Inventory,
    Match,
    Owners,
    SliceDevice,
)
from exporter.model.pages import UNREAD, UNREAD_OWNED, Subject
from exporter.ownership.device_ids import CDI_SPEC, DRA_DRIVERS, RULES, Rule, read_claim, read_device_id

if TYPE_CHECKING:
    from exporter.model.pods import Owner, PodInfo

T = TypeVar("T")
# of a compute instance's profile: 1c.3g.20gb is a part of the GPU instance 3g.20gb
_PART_OF_INSTANCE = re.compile(r"[0-9]+c\.")
_UNNAMED = "-"  # the parent of an instance whose parent is not known; no UUID looks like this


def profile_of_resource(resource: str) -> str:
    """The MIG profile in a resource's name: 1g.10gb of `nvidia.com/mig-1g.10gb`; "" where the name has none.

    NVIDIA's device plugin writes the + of a profile as a dot (1g.10gb+me is mig-1g.10gb.me), and adds .shared to a
    resource whose devices it shares.
    """
    name = resource.rpartition("/")[2]
    return name.removeprefix("mig-").removesuffix(".shared") if name.startswith("mig-") else ""


class NodeDevices:
    """The devices of the node as samples and the inventory name them: by UUID, name, number and MIG profile."""

    def __init__(self, subjects: Mapping[Subject, int], inventory: Inventory, refs: Sequence[DeviceRef]) -> None:
        """`refs` are those of the whole answer: a profile names an instance only if a single id has it."""
        self.uuids: set[str] = {subject.uuid for subject in subjects if subject.uuid}
        # volumes and virtual machines have a label uuid as well
        self.has_gpu_uuids: bool = any(subject.is_device for subject in subjects)
        self._names = {subject.device for subject in subjects if subject.device}
        self._by_device = _index((subject.device, subject.uuid) for subject in subjects)
        self._by_index = _index((subject.index, subject.uuid) for subject in subjects)
        self._has_names: dict[str, bool] = {
            part: any(getattr(subject, part) for subject in subjects) for part in ("uuid", "device", "index")
        }
        # for pages whose samples have no UUID: there a GPU's key is its name, or else its number
        self._names_by_index = _index((subject.index, subject.key.uuid) for subject in subjects if not subject.uuid)
        self._by_inventory_name = _index((gpu.device, gpu.uuid) for gpu in inventory.gpus)
        self._by_inventory = _index((gpu.index, gpu.uuid) for gpu in inventory.gpus)
        self._mig = {
            mig.uuid: DeviceKey(uuid=gpu.uuid, instance=mig.instance_id) for gpu in inventory.gpus for mig in gpu.mig
        }
        self._mapped = frozenset(self._mig.values())
        self._contested = frozenset(
            uuid for doubt in inventory.doubts if doubt.is_contradiction for uuid in doubt.leaves_out
        )
        self._instances = _by_profile(
            (
                *((subject.profile, subject.key.uuid, subject.key) for subject in subjects if subject.instance),
                *(
                    (mig.profile, gpu.uuid, DeviceKey(uuid=gpu.uuid, instance=mig.instance_id))
                    for gpu in inventory.gpus
                    for mig in gpu.mig
                ),
            )
        )
        self._rivals = _by_profile((ref.profile, ref.parent, identity(ref)) for ref in refs)

    def key_of(self, ref: DeviceRef) -> DeviceKey | None:
        """The device that a reference means, by the id itself where nothing names it; None where it fits several."""
        if ref.is_no_gpu:
            return None
        if ref.is_vfio:
            return DeviceKey(uuid=ref.device) if not ref.minor else None
        if ref.minor:
            of_node = self._by_inventory_name.get(f"nvidia{ref.minor}", set())
            if len(of_node) == 1 or not (ref.uuid or ref.mig):
                return self._of_node(ref, *of_node) if len(of_node) == 1 else None
        if ref.uuid:
            return self._of_uuid(ref.uuid, ref.instance)
        if ref.mig:
            return self._instance_of(ref) or DeviceKey(uuid=ref.mig)
        uuids = self._uuids_of(ref)
        if len(uuids) > 1:
            return None
        return DeviceKey(uuid=next(iter(uuids), ref.device or ref.index), instance=ref.instance)

    def _of_node(self, ref: DeviceRef, uuid: str) -> DeviceKey | None:
        """The device by its node, which is that of the GPU `uuid`; None where the reference also says another one."""
        other = ref.uuid or ref.parent
        if other and other.removeprefix("GPU-") != uuid.removeprefix("GPU-"):
            return None
        key = self._of_uuid(uuid, ref.instance)
        by_uuid = self._mig.get(ref.mig)
        return key if by_uuid is None or by_uuid == key else None

    def _of_uuid(self, uuid: str, instance: str) -> DeviceKey:
        """Samples may lack the prefix of a GPU's UUID."""
        bare = uuid.removeprefix("GPU-")
        return DeviceKey(uuid=bare if uuid not in self.uuids and bare in self.uuids else uuid, instance=instance)

    def carry_no_name_like(self, ref: DeviceRef) -> bool:
        """Whether samples are of GPUs, and none of them says what this id says: a UUID, a name or a number."""
        named = {"uuid": ref.uuid or ref.mig or ref.minor, "device": ref.device, "index": ref.index}
        return any(self._has_names.values()) and not any(named[part] and has for part, has in self._has_names.items())

    def _instance_of(self, ref: DeviceRef) -> DeviceKey | None:
        """The instance with a MIG UUID: by samples, else by the inventory or, if its sources agree, by its profile."""
        if ref.mig in self.uuids:
            return DeviceKey(uuid=ref.mig)
        instance = self._mig.get(ref.mig)
        return instance if instance or ref.mig in self._contested else self._only_one_of_its_profile(ref)

    def _only_one_of_its_profile(self, ref: DeviceRef) -> DeviceKey | None:
        """The instance of the id's profile, if the profile has one instance and no other id could mean it."""
        if not ref.profile:
            return None
        profile = _normal(ref.profile)
        instances = self._instances.get((profile, ref.parent), frozenset())
        rivals = self._rivals.get((profile, ref.parent), frozenset())
        if ref.parent:
            # an id that does not name its parent may mean an instance of this parent
            rivals = rivals | self._rivals.get((profile, _UNNAMED), frozenset())
        if len(instances) != 1 or len(rivals) > 1 or instances & self._mapped:
            return None
        return next(iter(instances))

    def _uuids_of(self, ref: DeviceRef) -> set[str]:
        """The UUIDs (or keys) of the GPUs that have this name or, where names say nothing, this number."""
        if ref.device in self._by_inventory_name:
            return self._by_inventory_name[ref.device]
        # names before numbers, where samples carry names: the number in a name is not always the GPU's index
        if ref.device and self._names:
            return self._by_device.get(ref.device, set())
        for uuids_by_name in (self._by_index, self._names_by_index, self._by_inventory):
            if ref.index in uuids_by_name:
                return uuids_by_name[ref.index]
        return set()


def _index(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    uuids_of: dict[str, set[str]] = {}
    for name, uuid in pairs:
        if name and uuid:
            uuids_of.setdefault(name, set()).add(uuid)
    return uuids_of


def _by_profile(entries: Iterable[tuple[str, str, T]]) -> Mapping[tuple[str, str], frozenset[T]]:
    """The instances or ids of each profile, by (profile, parent); an entry is a profile, a parent and one of them.

    The parent "" stands for all parents together, _UNNAMED for an unknown one. A key keeps two at most: callers only
    ask whether there is more than one.
    """
    few: dict[tuple[str, str], set[T]] = {}
    for profile, parent, what in entries:
        if profile:
            for key in ((_normal(profile), ""), (_normal(profile), parent or _UNNAMED)):
                of_key = few.setdefault(key, set())
                if len(of_key) < 2:  # noqa: PLR2004 - see above
                    of_key.add(what)
    return {key: frozenset(of_key) for key, of_key in few.items()}


def identity(ref: DeviceRef) -> object:
    """What an id means, without its share: the ids of two shares of one instance are equal."""
    return ref.mig or (ref.uuid, ref.device, ref.index, ref.minor, ref.instance)


def _normal(profile: str) -> str:
    """A profile as resources write it: with a dot where samples and inventories have a + (1g.10gb+me)."""
    return profile.replace("+", ".")


NOTHING_OFFERED: Mapping[tuple[str, DeviceKey], int] = MappingProxyType({})


class Unmatched(StrEnum):
    """Why an assigned device has no samples: the values of `unmatched_devices{reason}`. explain.py has the words."""

    UNKNOWN_ID = "unknown_id"
    MIG_UNRESOLVED = "mig_unresolved"
    CLAIM_UNRESOLVED = "claim_unresolved"
    AMBIGUOUS = "ambiguous"
    OTHER_NODE = "other_node"
    NO_SAMPLE = "no_sample"
    UNNAMED = "unnamed"
    TOO_MANY_DEVICES = "too_many_devices"
    CONTRADICTED = "contradicted"
    NO_GPU = "no_gpu"
    VFIO = "vfio"


# with these nothing is wrong: no samples are to be expected
WITHOUT_SAMPLES = frozenset({Unmatched.NO_GPU, Unmatched.VFIO})


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Where assignments are looked up. `node` is the name that this node's samples have as Hostname; "" for unknown.

    `places` are those of the CDI devices that assignments name; one stays as long as an assignment names it.
    """

    rules: Sequence[Rule] = RULES
    inventory: Inventory = field(default_factory=Inventory)
    slices: Mapping[tuple[str, str, str], SliceDevice] = field(default_factory=lambda: MappingProxyType({}))
    node: str = ""
    places: CdiPlaces = field(default_factory=lambda: NO_PLACES)


def is_meant(resource: str, globs: Iterable[str], *, of_claim: bool = False) -> bool:
    """Whether `--resources` matches a resource (of a claim its driver). NVIDIA's driver for GPUs always matches."""
    return (of_claim and resource in DRA_DRIVERS) or any(fnmatchcase(resource, glob) for glob in globs)


def read_assignment(assignment: Assignment, knowledge: Knowledge) -> DeviceRef | None:
    """The device that an assignment refers to, from its id or claim alone; None where no rule or slice knows it."""
    if assignment.claim is not None:
        return read_claim(assignment.claim, knowledge.slices, knowledge.places)
    return _read_id(assignment.resource, assignment.device_id, knowledge)


def _read_id(resource: str, device_id: str, knowledge: Knowledge) -> DeviceRef | None:
    ref = read_device_id(resource, device_id, knowledge.rules)
    if ref is None:
        return None
    profile = profile_of_resource(resource)
    if not profile:
        return ref
    # a compute instance is a part of a GPU instance, and samples are of the whole GPU instance
    return replace(ref, profile=profile, shared=ref.shared or _PART_OF_INSTANCE.match(profile) is not None)


def of_their_containers(
    assignments: frozenset[Assignment], pods: "Mapping[tuple[str, str], PodInfo]"
) -> frozenset[Assignment]:
    """The assignments, without the devices of a claim that another container of the pod asked for.

    The kubelet names all devices of a claim for each container of the pod, though each may have asked for one request
    alone (measured on 1.36.2). A container's own status names those that it got, by their CDI names.
    """
    if not any(pod.allocated for pod in pods.values()):
        return assignments
    return frozenset(each for each in assignments if each.claim is None or _is_of_container(each, pods))


def _is_of_container(assignment: Assignment, pods: "Mapping[tuple[str, str], PodInfo]") -> bool:
    owner, claim = assignment.owner, assignment.claim
    pod = pods.get((owner.namespace, owner.pod))
    if pod is None or claim is None:
        return True
    names = {
        device.device_id
        for device in pod.allocated.get(owner.container, ())
        if device.resource.startswith("claim:") and device.device_id
    }
    return not names or not names.isdisjoint(claim.status_names)


def needs_slices(assignment: Assignment, places: CdiPlaces = NO_PLACES) -> bool:
    """Whether a claim's device is fully known only from ResourceSlices: a CDI name gives at most a GPU's UUID."""
    if assignment.claim is None:
        return False
    ref = read_claim(assignment.claim, {}, places)
    return ref is None or ref.is_no_gpu or not (ref.uuid or ref.form == CDI_SPEC)


def build_owners(
    assignments: Iterable[Assignment],
    subjects: Mapping[Subject, int] = MappingProxyType({}),
    knowledge: Knowledge | None = None,
    allocatable: Allocatable = NONE_ALLOCATABLE,
) -> Owners:
    """Who holds which device, by what the kubelet handed out and by what the samples are about, with their numbers.

    A container that has several shares of a device is one holder. A device with several holders is shared. Ids are
    looked up in `knowledge` (None: the built-in rules). `allocatable` is what the kubelet can hand out.
    """
    knowledge = knowledge or Knowledge()
    ordered = sorted(assignments, key=lambda assignment: assignment.order)
    refs = {assignment: read_assignment(assignment, knowledge) for assignment in ordered if not assignment.units}
    devices = NodeDevices(subjects, knowledge.inventory, [ref for ref in refs.values() if ref])
    placed = {
        assignment: (ref, key)
        for assignment, ref in refs.items()
        if ref is not None and (key := devices.key_of(ref)) is not None
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
    offered = _offered(allocatable, refs.values(), subjects, knowledge) if allocatable else NOTHING_OFFERED
    ids = Counter(key for _, key in placed.values())
    for key, of_key in holders.items():
        # of a device that has one share alone nobody else can have a part
        if ids[key] == 1 and all(offered.get((holder.resource, key)) == 1 for holder in of_key.values()):
            holders[key] = {owner: replace(holder, shared=False) for owner, holder in of_key.items()}
    samples = _samples_by_key(subjects, holders)
    missing = _why_missing(subjects, knowledge.node, placed.values(), devices)
    matches = []
    for assignment, device_ref in refs.items():
        device = placed[assignment][1] if assignment in placed else None
        count = samples.get(device, 0) if device else 0
        reason = "" if count else _why(assignment, device_ref, device, missing)
        if reason == Unmatched.NO_SAMPLE and device_ref and devices.carry_no_name_like(device_ref):
            reason = Unmatched.UNNAMED
        matches.append(Match(assignment=assignment, ref=device_ref, key=device, samples=count, reason=reason))
    return Owners(
        holders=MappingProxyType(
            {key: tuple(sorted(of_key.values(), key=lambda holder: holder.owner)) for key, of_key in holders.items()}
        ),
        matches=tuple(matches),
        units=tuple(assignment for assignment in ordered if assignment.units),
        offered=offered,
    )


def _offered(
    allocatable: Allocatable, held: Iterable[DeviceRef | None], subjects: Mapping[Subject, int], knowledge: Knowledge
) -> Mapping[tuple[str, DeviceKey], int]:
    """How many ids of each resource mean each device. `held` is what the ids in use refer to.

    A free id may mean the instance of its profile just as well as one in use: all are rivals.
    """
    refs = [
        (resource, _read_id(resource, device_id, knowledge))
        for resource, ids in allocatable.items()
        for device_id in ids
    ]
    devices = NodeDevices(subjects, knowledge.inventory, [ref for ref in (*held, *(ref for _, ref in refs)) if ref])
    keys = ((resource, devices.key_of(ref)) for resource, ref in refs if ref)
    return MappingProxyType(Counter((resource, key) for resource, key in keys if key is not None))


def _samples_by_key(subjects: Mapping[Subject, int], held: Container[DeviceKey]) -> Mapping[DeviceKey, int]:
    """How many samples came in for each device. A GPU's number includes its instances that have no holder."""
    samples: Counter[DeviceKey] = Counter()
    for subject, count in subjects.items():
        key = subject.key
        samples[key] += count
        if key.instance and key not in held:
            samples[DeviceKey(uuid=key.uuid)] += count
    return samples


def _why_missing(
    subjects: Mapping[Subject, int], node: str, placed: Iterable[tuple[DeviceRef, DeviceKey]], devices: NodeDevices
) -> Unmatched:
    if UNREAD in subjects or UNREAD_OWNED in subjects:
        return Unmatched.TOO_MANY_DEVICES
    # with this node's Hostname the page is this node's, whatever ids the kubelet handed out
    is_here = any(subject.is_device and subject.host and subject.host == node for subject in subjects)
    is_elsewhere = not is_here and _is_of_another_node(placed, devices)
    return Unmatched.OTHER_NODE if is_elsewhere else Unmatched.NO_SAMPLE


def _is_of_another_node(placed: Iterable[tuple[DeviceRef, DeviceKey]], devices: NodeDevices) -> bool:
    """Whether the pages are surely another node's: samples and ids both carry UUIDs, and have none in common."""
    if not devices.has_gpu_uuids:
        return False
    handed_out = False
    for ref, key in placed:
        # an id that is only a name or number proves nothing: every node has a GPU 0
        if not (ref.uuid or ref.mig):
            continue
        if key.uuid in devices.uuids:
            return False
        # a MIG id that nothing resolves proves nothing either
        handed_out = handed_out or key.uuid != ref.mig
    return handed_out


def _why(assignment: Assignment, ref: DeviceRef | None, key: DeviceKey | None, missing: Unmatched) -> Unmatched:
    """Why an assignment has no samples: `ref` is None for an unknown form, `key` where the id fits several devices."""
    if ref is None:
        return Unmatched.CLAIM_UNRESOLVED if assignment.claim else Unmatched.UNKNOWN_ID
    if ref.is_no_gpu:
        return Unmatched.NO_GPU
    if ref.is_vfio and key is not None:
        return Unmatched.VFIO
    if key is None and ref.minor:
        return Unmatched.CONTRADICTED if ref.uuid or ref.mig or ref.is_vfio else Unmatched.CLAIM_UNRESOLVED
    if key is None:
        return Unmatched.AMBIGUOUS
    if ref.mig and key.uuid == ref.mig:
        return Unmatched.MIG_UNRESOLVED
    return missing
