"""The devices of the node as samples and an inventory know them, to look up what an id refers to."""

import re
from collections.abc import Iterable, Mapping, Sequence

from exporter.model import DeviceKey, DeviceRef, Inventory, Subject

_PART_OF_INSTANCE = re.compile(r"[0-9]+c\.")


def profile_of_resource(resource: str) -> str:
    """`nvidia.com/mig-1g.10gb` is of profile 1g.10gb; "" for a resource that names none.

    NVIDIA's device plugin writes a profile's + as a dot (1g.10gb+me is mig-1g.10gb.me), and .shared after one that it
    shares.
    """
    name = resource.rpartition("/")[2]
    return name.removeprefix("mig-").removesuffix(".shared") if name.startswith("mig-") else ""


def is_part_of_instance(profile: str) -> bool:
    """Whether a profile is one of a compute instance, such as 1c.3g.20gb: a part of the GPU instance 3g.20gb."""
    return _PART_OF_INSTANCE.match(profile) is not None


class SeenDevices:
    """What is known of the node's devices beside the ids that the kubelet hands out."""

    def __init__(self, subjects: Mapping[Subject, int], inventory: Inventory, refs: Sequence[DeviceRef]) -> None:
        """`refs` are all that were handed out: a MIG instance is told by its profile only if there is no other."""
        self.uuids: set[str] = {subject.uuid for subject in subjects if subject.uuid}
        self._names = {subject.device for subject in subjects if subject.device}
        self._by_device = _index((subject.device, subject.uuid) for subject in subjects)
        self._by_index = _index((subject.index, subject.uuid) for subject in subjects)
        # of pages whose samples have no UUID: a GPU goes by its name, or else by its number
        self._names_by_index = _index((subject.index, subject.key.uuid) for subject in subjects if not subject.uuid)
        self._by_inventory_name = _index((gpu.device, gpu.uuid) for gpu in inventory.gpus)
        self._by_inventory = _index((gpu.index, gpu.uuid) for gpu in inventory.gpus)
        self._mig = {
            mig.uuid: DeviceKey(uuid=gpu.uuid, instance=mig.instance_id) for gpu in inventory.gpus for mig in gpu.mig
        }
        self._instances = {
            (subject.key, _normal(subject.profile)) for subject in subjects if subject.instance and subject.profile
        } | {
            (DeviceKey(uuid=gpu.uuid, instance=mig.instance_id), _normal(mig.profile))
            for gpu in inventory.gpus
            for mig in gpu.mig
        }
        self._refs = refs

    def key_of(self, ref: DeviceRef) -> DeviceKey | None:
        """The device; one that nothing is known of goes by what the id says. None where it could be several."""
        if ref.uuid:
            bare = ref.uuid.removeprefix("GPU-")
            uuid = bare if ref.uuid not in self.uuids and bare in self.uuids else ref.uuid
            return DeviceKey(uuid=uuid, instance=ref.instance)
        if ref.mig:
            return self._instance_of(ref) or DeviceKey(uuid=ref.mig)
        found = self._uuids_of(ref)
        if len(found) > 1:
            return None
        return DeviceKey(uuid=next(iter(found), ref.device or ref.index), instance=ref.instance)

    def _instance_of(self, ref: DeviceRef) -> DeviceKey | None:
        if ref.mig in self.uuids:
            return DeviceKey(uuid=ref.mig)
        return self._mig.get(ref.mig) or self._only_one_of_its_profile(ref)

    def _only_one_of_its_profile(self, ref: DeviceRef) -> DeviceKey | None:
        """The instance of the id's profile, if it is the only one and no other id could mean it."""
        if not ref.profile:
            return None
        instances = {
            key
            for key, profile in self._instances
            if profile == _normal(ref.profile) and (not ref.parent or key.uuid == ref.parent)
        }
        rivals = {
            other.mig or (other.uuid, other.device, other.index, other.instance)
            for other in self._refs
            if _normal(other.profile) == _normal(ref.profile)
            and (not ref.parent or not other.parent or other.parent == ref.parent)
        }
        if len(instances) > 1 or len(rivals) > 1 or instances & set(self._mig.values()):
            return None
        return next(iter(instances), None)

    def _uuids_of(self, ref: DeviceRef) -> set[str]:
        if ref.device in self._by_inventory_name:
            return self._by_inventory_name[ref.device]
        # by its name where samples carry names: the number of a name is not always the index
        if ref.device and self._names:
            return self._by_device.get(ref.device, set())
        for known in (self._by_index, self._names_by_index, self._by_inventory):
            if ref.index in known:
                return known[ref.index]
        return set()


def _index(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, uuid in pairs:
        if name and uuid:
            found.setdefault(name, set()).add(uuid)
    return found


def _normal(profile: str) -> str:
    return profile.replace("+", ".")
