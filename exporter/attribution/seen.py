"""The devices of the node as samples and an inventory know them, to look up what an id refers to."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from exporter.model.devices import DeviceKey, DeviceRef, Inventory
from exporter.model.pages import Subject

T = TypeVar("T")
_PART_OF_INSTANCE = re.compile(r"[0-9]+c\.")
_UNNAMED = "-"  # no UUID is this


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
        self._mapped = frozenset(self._mig.values())
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
        self._rivals = _by_profile((ref.profile, ref.parent, _identity(ref)) for ref in refs)

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
        profile = _normal(ref.profile)
        instances = self._instances.get((profile, ref.parent), frozenset())
        rivals = self._rivals.get((profile, ref.parent), frozenset())
        if ref.parent:
            # an id that does not name its parent could be of this one
            rivals = rivals | self._rivals.get((profile, _UNNAMED), frozenset())
        if len(instances) != 1 or len(rivals) > 1 or instances & self._mapped:
            return None
        return next(iter(instances))

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


def _by_profile(found: Iterable[tuple[str, str, T]]) -> Mapping[tuple[str, str], frozenset[T]]:
    """What there is of a profile, by (profile, parent); with the parent "" of all parents, with _UNNAMED of none.

    Two of a kind stand for any number of them: whether there is more than one is all that is asked.
    """
    few: dict[tuple[str, str], set[T]] = {}
    for profile, parent, what in found:
        if profile:
            for key in ((_normal(profile), ""), (_normal(profile), parent or _UNNAMED)):
                of_key = few.setdefault(key, set())
                if len(of_key) < 2:  # noqa: PLR2004 - see above
                    of_key.add(what)
    return {key: frozenset(of_key) for key, of_key in few.items()}


def _identity(ref: DeviceRef) -> object:
    """What an id means: shares of one instance mean the same."""
    return ref.mig or (ref.uuid, ref.device, ref.index, ref.instance)


def _normal(profile: str) -> str:
    return profile.replace("+", ".")
