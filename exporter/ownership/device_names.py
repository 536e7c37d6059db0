"""The devices of a node by their names in samples and the inventory, and the device that an id or a claim means.

Tests: tests/ownership/test_many_devices.py.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import DeviceKey, Inventory, bare
from exporter.model.kernel import pci_address
from exporter.model.pages import Subjects

if TYPE_CHECKING:
    from exporter.model.pods import Owner

T = TypeVar("T")
_UNNAMED = "-"  # the parent of an instance whose parent is not known; no UUID looks like this
# The identities of all ids of an answer, by profile and parent.
Rivals = Mapping[tuple[str, str], AbstractSet[object]]


class Sole(NamedTuple):
    """Whether the node has only one GPU, which is not cut, and whether its GPU has at most one MIG instance."""

    gpu: bool
    instance: bool

    def names(self, ref: DeviceRef) -> bool:
        """Whether an id names its device. An allocator's token does so only if the node has no other device."""
        return not ref.allocator or (self.instance if ref.mig else self.gpu)


class NodeDevices:
    """The devices of the node by their names in samples and the inventory: UUID, name, number and MIG profile."""

    def __init__(self, subjects: Subjects, inventory: Inventory) -> None:
        self._made_from = (subjects, inventory.gpus, inventory.doubts)
        self.uuids: AbstractSet[str] = {subject.uuid for subject in subjects} - {""}
        self._names = {subject.device for subject in subjects} - {""}
        self._numbers = {subject.index for subject in subjects} - {""}
        # samples of volumes and virtual machines have a label uuid, too
        self.has_gpu_uuids: bool = any(subject.is_device for subject in subjects)
        self._has_second_number = any(subject.index not in ("", "0") for subject in subjects if subject.is_device)
        self.gpus = _gpus_of(subjects, inventory)
        self.owners_by_page = _owners_by_page(subjects)
        self._contested = frozenset(
            uuid for doubt in inventory.doubts if doubt.is_contradiction for uuid in doubt.leaves_out
        )
        self._by_device = _Index()
        self._by_address = _Index()
        self._by_index = _Index()
        self._names_by_index = _Index()
        self._by_inventory_name = _Index()
        self._by_inventory = _Index()
        self._mig: dict[str, DeviceKey] = {}
        self._instances = _ByProfile[DeviceKey]()
        self._counts: Counter[DeviceKey] = Counter()
        self._add_subjects(subjects)
        self._add_inventory(inventory)
        self._mapped = frozenset(self._mig.values())
        self._instances_counted = [(key, DeviceKey(uuid=key.uuid)) for key in self._counts if key.instance]
        self._cut = self._mapped.union(instance for instance, _ in self._instances_counted)

    def _add_subjects(self, subjects: Subjects) -> None:
        for subject, count in subjects.items():
            key = subject.key
            self._counts[key] += count
            self._by_device.add(subject.device, subject.uuid)
            self._by_index.add(subject.index, subject.uuid)
            # samples write PCI addresses in several ways
            self._by_address.add(pci_address(subject.address), key.uuid)
            self._by_address.add(pci_address(subject.device), key.uuid)
            if not subject.uuid:
                # if a page's samples have no UUID, a GPU's key is its name, or else its number
                self._names_by_index.add(subject.index, key.uuid)
            if subject.instance:
                self._instances.add(subject.profile, key.uuid, key)

    def _add_inventory(self, inventory: Inventory) -> None:
        for gpu in inventory.gpus:
            self._by_inventory_name.add(gpu.device, gpu.uuid)
            self._by_inventory.add(gpu.index, gpu.uuid)
            for mig in gpu.mig:
                key = DeviceKey(uuid=gpu.uuid, instance=mig.instance_id)
                self._mig[mig.uuid] = key
                self._instances.add(mig.profile, gpu.uuid, key)

    def are_of(self, subjects: Subjects, inventory: Inventory) -> bool:
        """Whether this was made of the same `subjects`, as an object, and of an equal inventory.

        A new claim changes neither, since the places of CDI names do not count here.
        """
        of_page, *of_inventory = self._made_from
        return of_page is subjects and of_inventory == [inventory.gpus, inventory.doubts]

    def sole(self, refs: Iterable[DeviceRef], gpus_before: AbstractSet[str]) -> "Sole":
        """The devices of which the node certainly has only one.

        `refs` are the references of all ids, `gpus_before` earlier GPUs. A page lacks a lost GPU, so the GPUs' numbers
        on the page and the UUIDs in ids count, too.
        """
        uuids = set[str]()
        instances = set[str]()
        for ref in refs:
            uuids.add(bare(ref.uuid))
            instances.add(ref.mig)
        gpus = self.gpus | gpus_before | (uuids - {""})
        has_one_gpu = bool(self.gpus) and len(gpus) == 1 and not self._has_second_number
        has_one_instance = len(instances - {""}) <= 1 and len(self._cut) <= 1
        # where a GPU is cut, a token of the GPU stands for an instance that HAMi cut for it
        return Sole(has_one_gpu and not self._cut, has_one_gpu and has_one_instance)

    def samples_of(self, held: Container[DeviceKey]) -> Mapping[DeviceKey, int]:
        """The number of samples of each device.

        A GPU's number includes the samples of its instances without a holder.
        """
        samples = Counter(self._counts)
        for key, gpu in self._instances_counted:
            if key not in held:
                samples[gpu] += self._counts[key]
        return samples

    def key_of(self, ref: DeviceRef, rivals: Rivals) -> DeviceKey | None:
        """The device that a reference means; None if it fits several.

        A device that nothing names has the id as its key. `rivals` are all references of the answer: a profile names an
        instance only if just one id has that profile.
        """
        if not ref.names_device:
            return self._only_gpu if ref.allocator else None
        if ref.is_vfio:
            return None if ref.minor else DeviceKey(uuid=ref.device)
        if ref.minor:
            gpus = self._by_inventory_name.get(f"nvidia{ref.minor}", ())
            if len(gpus) == 1:
                return self._of_node(ref, *gpus)
            if not (ref.uuid or ref.mig):
                return None
        if ref.uuid:
            return self._of_uuid(ref.uuid, ref.instance)
        if ref.mig:
            return self._instance_of(ref, rivals) or DeviceKey(uuid=ref.mig)
        uuids = self._uuids_of(ref)
        if len(uuids) > 1:
            return None
        return DeviceKey(uuid=next(iter(uuids), ref.device or ref.index), instance=ref.instance)

    @property
    def _only_gpu(self) -> DeviceKey | None:
        """The page's GPU, if the page has one alone. It is what a token means that has no name at all."""
        return next(iter(self.owners_by_page)) if len(self.owners_by_page) == 1 else None

    def _of_node(self, ref: DeviceRef, uuid: str) -> DeviceKey | None:
        """The device by its device node, which belongs to the GPU `uuid`.

        None if the reference also says another GPU.
        """
        other = ref.uuid or ref.parent
        if other and bare(other) != bare(uuid):
            return None
        key = self._of_uuid(uuid, ref.instance)
        by_uuid = self._mig.get(ref.mig)
        return key if by_uuid is None or by_uuid == key else None

    def _of_uuid(self, uuid: str, instance: str) -> DeviceKey:
        """The key of a GPU or instance, without the UUID's prefix if samples lack it."""
        if uuid not in self.uuids and bare(uuid) in self.uuids:
            uuid = bare(uuid)
        return DeviceKey(uuid=uuid, instance=instance)

    def is_unnamed(self, ref: DeviceRef | None, key: DeviceKey | None) -> bool:
        """Whether an id leads to no sample, although there are samples of GPUs, and these have no name of its kind."""
        if ref is None or key is None or key in self._counts or ref.is_vfio:
            return False
        return key.uuid in (ref.device, ref.index) and self.carry_no_name_like(ref)

    def carry_no_name_like(self, ref: DeviceRef) -> bool:
        """Whether there are samples of GPUs, and none has a name of the id's kind: a UUID, a name or a number."""
        kinds: Iterable[tuple[str, AbstractSet[str]]] = (
            (ref.uuid or ref.mig or ref.minor, self.uuids),
            (ref.device, self._names),
            (ref.index, self._numbers),
        )
        return any(names for _, names in kinds) and not any(name and names for name, names in kinds)

    def _instance_of(self, ref: DeviceRef, rivals: Rivals) -> DeviceKey | None:
        """The instance with a MIG UUID: by samples, the inventory or, if no sources disagree on it, its profile."""
        if ref.mig in self.uuids:
            return DeviceKey(uuid=ref.mig)
        instance = self._mig.get(ref.mig)
        if instance is None and ref.mig not in self._contested:
            return self._only_one_of_its_profile(ref, rivals)
        return instance

    def _only_one_of_its_profile(self, ref: DeviceRef, rivals: Rivals) -> DeviceKey | None:
        """The instance of the id's profile, if the profile has one instance and no other id could mean it."""
        if not ref.profile:
            return None
        profile = _normal(ref.profile)
        instances = self._instances.get((profile, ref.parent), set())
        of_profile = {*rivals.get((profile, ref.parent), ())}
        if ref.parent:
            # an id that names no parent may mean an instance of this parent
            of_profile.update(rivals.get((profile, _UNNAMED), ()))
        if len(instances) != 1 or len(of_profile) > 1 or instances & self._mapped:
            return None
        return next(iter(instances))

    def _uuids_of(self, ref: DeviceRef) -> set[str]:
        """The UUIDs (or keys) of the GPUs that have this name or, if samples have no names, this number."""
        if ref.device in self._by_inventory_name:
            return self._by_inventory_name[ref.device]
        address = pci_address(ref.device)
        if address:
            return self._by_address.get(address, set())
        # if samples have names, these come before numbers: the number in a name is not always the GPU's index
        if ref.device and self._names:
            return self._by_device.get(ref.device, set())
        for uuids_by_name in (self._by_index, self._names_by_index, self._by_inventory):
            if ref.index in uuids_by_name:
                return uuids_by_name[ref.index]
        return set()


def _gpus_of(subjects: Subjects, inventory: Inventory) -> frozenset[str]:
    """The UUIDs, without GPU-, of the GPUs that samples or the inventory have."""
    of_page = (subject.uuid for subject in subjects if subject.is_device)
    of_inventory = (gpu.uuid for gpu in inventory.gpus)
    return frozenset(bare(uuid) for uuid in (*of_page, *of_inventory) if uuid and not uuid.startswith("MIG-"))


def _owners_by_page(subjects: Subjects) -> Mapping[DeviceKey, AbstractSet["Owner"]]:
    """The page's GPUs without MIG instances, each with the owners that the page itself names."""
    owners: dict[DeviceKey, set[Owner]] = {}
    for subject in subjects:
        is_gpu = subject.is_device or subject.has_gpu_label
        if not is_gpu or subject.instance or subject.vgpu:
            continue
        of_device = owners.setdefault(subject.key, set())
        if subject.came_with:
            of_device.add(subject.came_with)
    return owners


class _Index(defaultdict[str, set[str]]):
    """The UUIDs of the GPUs that have a name, by the name."""

    def __init__(self) -> None:
        super().__init__(set)

    def add(self, name: str, uuid: str) -> None:
        """Note a GPU's name, if it has one and a UUID."""
        if name and uuid:
            self[name].add(uuid)


class _ByProfile(dict[tuple[str, str], set[T]]):
    """The instances or ids by (profile, parent).

    The parent "" stands for all parents together, _UNNAMED for an unknown parent. A key has at most two entries, since
    callers only ask whether it has more than one.
    """

    def add(self, profile: str, parent: str, entry: T) -> None:
        """Note an instance, or the identity of an id, if its profile is known."""
        if not profile:
            return
        for any_parent in ("", parent or _UNNAMED):
            entries = self.setdefault((_normal(profile), any_parent), set())
            if len(entries) < 2:  # noqa: PLR2004 - see above
                entries.add(entry)


def rivals_among(refs: Iterable[DeviceRef | None]) -> Rivals:
    """The identities of an answer's ids, by the MIG profiles of their resources."""
    rivals = _ByProfile[object]()
    for ref in refs:
        if ref is not None and ref.profile:
            rivals.add(ref.profile, ref.parent, identity(ref))
    return rivals


def identity(ref: DeviceRef) -> object:
    """The identity of the device that an id means: equal for two shares of one instance."""
    return ref.mig or (ref.uuid, ref.device, ref.index, ref.minor, ref.instance)


def _normal(profile: str) -> str:
    """A profile as resources write it: with a dot in place of the + of samples and inventories (1g.10gb+me)."""
    return profile.replace("+", ".")
