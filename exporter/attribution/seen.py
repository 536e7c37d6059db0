"""The devices of the node by the labels of samples and by an inventory: where the parts of an id are looked up."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from exporter.model.devices import DeviceKey, DeviceRef, Inventory
from exporter.model.pages import Subject

T = TypeVar("T")
_PART_OF_INSTANCE = re.compile(r"[0-9]+c\.")
_UNNAMED = "-"  # the parent of an instance whose parent is not known; no UUID looks like this


def profile_of_resource(resource: str) -> str:
    """The MIG profile in a resource's name: 1g.10gb of `nvidia.com/mig-1g.10gb`; "" where the name has none.

    NVIDIA's device plugin writes the + of a profile as a dot (1g.10gb+me is mig-1g.10gb.me), and adds .shared to a
    resource whose devices it shares.
    """
    name = resource.rpartition("/")[2]
    return name.removeprefix("mig-").removesuffix(".shared") if name.startswith("mig-") else ""


def is_part_of_instance(profile: str) -> bool:
    """Whether a profile means a compute instance: 1c.3g.20gb is a part of the GPU instance 3g.20gb."""
    return _PART_OF_INSTANCE.match(profile) is not None


class SeenDevices:
    """The devices of the node, by UUID, name, number and MIG profile."""

    def __init__(self, subjects: Mapping[Subject, int], inventory: Inventory, refs: Sequence[DeviceRef]) -> None:
        """`refs` are all of the kubelet's answer: a profile names an instance only if one id alone has it."""
        self.uuids: set[str] = {subject.uuid for subject in subjects if subject.uuid}
        # volumes and virtual machines have a label uuid as well
        self.has_gpu_uuids: bool = any(subject.is_device for subject in subjects)
        self._names = {subject.device for subject in subjects if subject.device}
        self._by_device = _index((subject.device, subject.uuid) for subject in subjects)
        self._by_index = _index((subject.index, subject.uuid) for subject in subjects)
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
        """The device that a reference means; None where it fits several devices.

        A device that is not known here gets a key from the id itself: it then has no samples.
        """
        if ref.uuid:
            bare = ref.uuid.removeprefix("GPU-")
            uuid = bare if ref.uuid not in self.uuids and bare in self.uuids else ref.uuid
            return DeviceKey(uuid=uuid, instance=ref.instance)
        if ref.mig:
            return self._instance_of(ref) or DeviceKey(uuid=ref.mig)
        uuids = self._uuids_of(ref)
        if len(uuids) > 1:
            return None
        return DeviceKey(uuid=next(iter(uuids), ref.device or ref.index), instance=ref.instance)

    def _instance_of(self, ref: DeviceRef) -> DeviceKey | None:
        """The instance with a MIG UUID: by samples that carry it, else by the inventory, else by its profile.

        Where the inventory's sources contradict each other, its profile is no help: one of them says otherwise.
        """
        if ref.mig in self.uuids:
            return DeviceKey(uuid=ref.mig)
        known = self._mig.get(ref.mig)
        return known if known or ref.mig in self._contested else self._only_one_of_its_profile(ref)

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
        for known in (self._by_index, self._names_by_index, self._by_inventory):
            if ref.index in known:
                return known[ref.index]
        return set()


def _index(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    uuids_of: dict[str, set[str]] = {}
    for name, uuid in pairs:
        if name and uuid:
            uuids_of.setdefault(name, set()).add(uuid)
    return uuids_of


def _by_profile(entries: Iterable[tuple[str, str, T]]) -> Mapping[tuple[str, str], frozenset[T]]:
    """The things (instances or ids) of each profile, by (profile, parent); each entry is (profile, parent, thing).

    The parent "" stands for all parents together, _UNNAMED for things without a known parent. At most two things are
    kept for a key: callers only ask whether there is more than one.
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
    return ref.mig or (ref.uuid, ref.device, ref.index, ref.instance)


def _normal(profile: str) -> str:
    """A profile as resources write it: samples and inventories have a + (1g.10gb+me) where resources have a dot."""
    return profile.replace("+", ".")
