"""The devices of a node, and which of them a device id or a claim means: labels of samples and the inventory say it."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from exporter.model.devices import DeviceKey, DeviceRef, Inventory
from exporter.model.kernel import pci_address
from exporter.model.pages import Subjects

if TYPE_CHECKING:
    from exporter.model.pods import Owner

T = TypeVar("T")
_UNNAMED = "-"  # the parent of an instance whose parent is not known; no UUID looks like this
# what ids mean, by profile and parent
Rivals = Mapping[tuple[str, str], frozenset[object]]


class Sole(NamedTuple):
    """Whether the node has one GPU alone, and whether that is cut into one instance at most."""

    gpu: bool
    instance: bool

    def names(self, ref: DeviceRef) -> bool:
        """Whether an id says which device it is of: a token does only where there is no other."""
        return not ref.allocator or (self.instance if ref.mig else self.gpu)


def bare(uuid: str) -> str:
    """A GPU's UUID without its prefix, as some samples have it."""
    return uuid.removeprefix("GPU-")


class NodeDevices:
    """The devices of the node as samples and the inventory name them: by UUID, name, number and MIG profile."""

    def __init__(self, subjects: Subjects, inventory: Inventory) -> None:
        self._made_from = (subjects, inventory.gpus, inventory.doubts)
        self.uuids: set[str] = {subject.uuid for subject in subjects if subject.uuid}
        # volumes and virtual machines have a label uuid as well
        self.has_gpu_uuids: bool = any(subject.is_device for subject in subjects)
        self.gpus = _gpus_of(subjects, inventory)
        self._has_second_number = any(subject.index not in ("", "0") for subject in subjects if subject.is_device)
        self._names = {subject.device for subject in subjects if subject.device}
        self._by_device = _index((subject.device, subject.uuid) for subject in subjects)
        # addresses on PCI are written in several ways
        self._by_address = _index(
            (pci_address(text), subject.key.uuid) for subject in subjects for text in (subject.address, subject.device)
        )
        self._by_index = _index((subject.index, subject.uuid) for subject in subjects)
        self._has_names: dict[str, bool] = {
            part: any(getattr(subject, part) for subject in subjects) for part in ("uuid", "device", "index")
        }
        # for pages whose samples have no UUID: there a GPU's key is its name, or else its number
        self._names_by_index = _index((subject.index, subject.key.uuid) for subject in subjects if not subject.uuid)
        self._by_inventory_name = _index((gpu.device, gpu.uuid) for gpu in inventory.gpus)
        self._by_inventory = _index((gpu.index, gpu.uuid) for gpu in inventory.gpus)
        migs = [(gpu, mig) for gpu in inventory.gpus for mig in gpu.mig]
        self._mig = {mig.uuid: DeviceKey(uuid=gpu.uuid, instance=mig.instance_id) for gpu, mig in migs}
        self._mapped = frozenset(self._mig.values())
        self._cut = self._mapped | {subject.key for subject in subjects if subject.instance}
        self._contested = frozenset(
            uuid for doubt in inventory.doubts if doubt.is_contradiction for uuid in doubt.leaves_out
        )
        self._instances = _by_profile(
            (
                *((subject.profile, subject.key.uuid, subject.key) for subject in subjects if subject.instance),
                *((mig.profile, gpu.uuid, DeviceKey(uuid=gpu.uuid, instance=mig.instance_id)) for gpu, mig in migs),
            )
        )
        self.owners_by_page = _owners_by_page(subjects)
        self._counts: Counter[DeviceKey] = Counter()
        for subject, count in subjects.items():
            self._counts[subject.key] += count
        self._instances_counted = [(key, DeviceKey(uuid=key.uuid)) for key in self._counts if key.instance]

    def are_of(self, subjects: Subjects, inventory: Inventory) -> bool:
        """Whether these are the devices of a page with the same subjects, as an object, and of an equal inventory.

        A claim that comes changes neither: the places of CDI names are not looked at here.
        """
        of_page, *of_inventory = self._made_from
        return of_page is subjects and of_inventory == [inventory.gpus, inventory.doubts]

    def sole(self, refs: Iterable[DeviceRef], gpus_before: AbstractSet[str]) -> "Sole":
        """What the node surely has a single one of. `refs` are what all ids mean, `gpus_before` were there once.

        A page lacks a GPU that is lost. So numbers on the page count, too, and what ids name.
        """
        uuids, instances = set[str](), set[str]()
        for ref in refs:
            uuids.add(bare(ref.uuid))
            instances.add(ref.mig)
        gpus = self.gpus | gpus_before | (uuids - {""})
        has_one_gpu = bool(self.gpus) and len(gpus) == 1 and not self._has_second_number
        has_one_instance = len(instances - {""}) <= 1 and len(self._cut) <= 1
        return Sole(has_one_gpu, has_one_gpu and has_one_instance)

    def samples_of(self, held: Container[DeviceKey]) -> Mapping[DeviceKey, int]:
        """How many samples came in for each device. A GPU's number includes its instances that have no holder."""
        samples = Counter(self._counts)
        for key, gpu in self._instances_counted:
            if key not in held:
                samples[gpu] += self._counts[key]
        return samples

    def key_of(self, ref: DeviceRef, rivals: Rivals) -> DeviceKey | None:
        """The device that a reference means, by the id itself where nothing names it; None where it fits several.

        `rivals` are all references of the answer: a profile names an instance only if a single id has it.
        """
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
            return self._instance_of(ref, rivals) or DeviceKey(uuid=ref.mig)
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
        without = bare(uuid)
        is_bare = uuid not in self.uuids and without in self.uuids
        return DeviceKey(uuid=without if is_bare else uuid, instance=instance)

    def is_unnamed(self, ref: DeviceRef | None, key: DeviceKey | None) -> bool:
        """Whether an id leads to no sample, and samples are of GPUs and have no name like it."""
        if ref is None or key is None or key in self._counts or ref.is_vfio:
            return False
        return key.uuid in (ref.device, ref.index) and self.carry_no_name_like(ref)

    def carry_no_name_like(self, ref: DeviceRef) -> bool:
        """Whether samples are of GPUs, and none of them says what this id says: a UUID, a name or a number."""
        named = {"uuid": ref.uuid or ref.mig or ref.minor, "device": ref.device, "index": ref.index}
        return any(self._has_names.values()) and not any(named[part] and has for part, has in self._has_names.items())

    def _instance_of(self, ref: DeviceRef, rivals: Rivals) -> DeviceKey | None:
        """The instance with a MIG UUID: by samples, else by the inventory or, if its sources agree, by its profile."""
        if ref.mig in self.uuids:
            return DeviceKey(uuid=ref.mig)
        instance = self._mig.get(ref.mig)
        return instance if instance or ref.mig in self._contested else self._only_one_of_its_profile(ref, rivals)

    def _only_one_of_its_profile(self, ref: DeviceRef, rivals: Rivals) -> DeviceKey | None:
        """The instance of the id's profile, if the profile has one instance and no other id could mean it."""
        if not ref.profile:
            return None
        profile = _normal(ref.profile)
        instances = self._instances.get((profile, ref.parent), frozenset())
        of_profile = rivals.get((profile, ref.parent), frozenset())
        if ref.parent:
            # an id that does not name its parent may mean an instance of this parent
            of_profile = of_profile | rivals.get((profile, _UNNAMED), frozenset())
        if len(instances) != 1 or len(of_profile) > 1 or instances & self._mapped:
            return None
        return next(iter(instances))

    def _uuids_of(self, ref: DeviceRef) -> set[str]:
        """The UUIDs (or keys) of the GPUs that have this name or, where names say nothing, this number."""
        if ref.device in self._by_inventory_name:
            return self._by_inventory_name[ref.device]
        if address := pci_address(ref.device):
            return self._by_address.get(address, set())
        # names before numbers, where samples carry names: the number in a name is not always the GPU's index
        if ref.device and self._names:
            return self._by_device.get(ref.device, set())
        for uuids_by_name in (self._by_index, self._names_by_index, self._by_inventory):
            if ref.index in uuids_by_name:
                return uuids_by_name[ref.index]
        return set()


def _gpus_of(subjects: Subjects, inventory: Inventory) -> frozenset[str]:
    """The GPUs of samples and of the inventory, by their UUIDs without GPU-."""
    of_page = (subject.uuid for subject in subjects if subject.is_device)
    of_inventory = (gpu.uuid for gpu in inventory.gpus)
    return frozenset(bare(uuid) for uuid in (*of_page, *of_inventory) if uuid and not uuid.startswith("MIG-"))


def _owners_by_page(subjects: Subjects) -> Mapping[DeviceKey, AbstractSet["Owner"]]:
    """The GPUs of the page that are not cut, each with the owners that the page names by itself."""
    owners: dict[DeviceKey, set[Owner]] = {}
    for subject in subjects:
        is_gpu = subject.is_device or subject.has_gpu_label
        if not is_gpu or subject.instance or subject.vgpu:
            continue
        of_device = owners.setdefault(subject.key, set())
        if subject.came_with:
            of_device.add(subject.came_with)
    return owners


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


def rivals_among(refs: Iterable[DeviceRef | None]) -> Rivals:
    """What the ids of an answer mean, by the MIG profiles of their resources."""
    return _by_profile((ref.profile, ref.parent, identity(ref)) for ref in refs if ref is not None and ref.profile)


def identity(ref: DeviceRef) -> object:
    """What an id means, without its share: the ids of two shares of one instance are equal."""
    return ref.mig or (ref.uuid, ref.device, ref.index, ref.minor, ref.instance)


def _normal(profile: str) -> str:
    """A profile as resources write it: with a dot where samples and inventories have a + (1g.10gb+me)."""
    return profile.replace("+", ".")
