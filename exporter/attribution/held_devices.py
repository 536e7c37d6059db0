"""The devices of each container as CUDA would list them: those that the kubelet gave it, by index and instance."""

import re
from collections.abc import Iterator, Sequence

from exporter.attribution.visible_devices import VisibleDevice
from exporter.model.devices import DeviceKey, Inventory, InventoryGpu, Owners
from exporter.model.pods import Owner

# of a GPU that the inventory does not have
_NOWHERE = -1
_INDEX = re.compile("[0-9]{1,6}")
_Placed = tuple[int, VisibleDevice]


class HeldDevices:
    """Who holds what, of one state of the owners and of the inventory."""

    def __init__(self, owners: Owners, inventory: Inventory) -> None:
        self._made_of = owners, inventory
        self._gpus: dict[str, tuple[int, InventoryGpu]] = {}
        self._instances: dict[str, tuple[int, InventoryGpu, str]] = {}
        for place, gpu in enumerate(_in_order(inventory.gpus)):
            for name in (gpu.uuid, gpu.uuid.removeprefix("GPU-"), gpu.device, gpu.index):
                if name:
                    self._gpus.setdefault(name, (place, gpu))
            for mig in gpu.mig:
                self._instances[mig.uuid] = place, gpu, mig.instance_id
        placed: dict[Owner | None, list[_Placed]] = {}
        for key, holders in owners.holders.items():
            devices = tuple(self._devices(key))
            for owner in {holder.owner for holder in holders}:
                placed.setdefault(owner, []).extend(devices)
        # gpu-manager chooses the GPU after the kubelet, and does not say which one
        for assignment in owners.units:
            placed.pop(assignment.owner, None)
        placed[None] = [device for key in self._keys(owners) for device in self._devices(key)]
        self._of = {owner: _sorted(devices) for owner, devices in placed.items()}

    def is_of(self, owners: Owners, inventory: Inventory) -> bool:
        """Whether it was made of these."""
        return self._made_of[0] is owners and self._made_of[1] is inventory

    def of(self, owner: Owner | None) -> tuple[Sequence[VisibleDevice], bool]:
        """The devices of a container, or all for a process in none (None); and whether their order is known.

        The instances of a GPU that is held as a whole have the GPU's key.
        """
        return self._of.get(owner, ((), True))

    def _keys(self, owners: Owners) -> Iterator[DeviceKey]:
        """Those of all devices, by the names that owners have for them."""
        for gpu in _in_order(self._made_of[1].gpus):
            names = (gpu.uuid, gpu.uuid.removeprefix("GPU-"), gpu.device, gpu.index)
            of_gpu = [key for key in owners.holders if key.uuid in names or key.uuid in {mig.uuid for mig in gpu.mig}]
            if any(not key.instance and key.uuid in names for key in of_gpu) or not gpu.mig:
                yield next((key for key in of_gpu if not key.instance), DeviceKey(uuid=gpu.uuid))
                continue
            for mig in gpu.mig:
                own = (key for key in of_gpu if key.uuid == mig.uuid or key.instance == mig.instance_id)
                yield next(own, DeviceKey(uuid=gpu.uuid, instance=mig.instance_id))

    def _devices(self, key: DeviceKey) -> Iterator[_Placed]:
        """What CUDA sees of what has this key."""
        if key.uuid in self._instances:
            place, gpu, instance = self._instances[key.uuid]
            yield place, VisibleDevice(key, gpu.uuid, key.uuid, instance)
        elif key.uuid in self._gpus:
            place, gpu = self._gpus[key.uuid]
            fitting = [mig for mig in gpu.mig if key.instance in ("", mig.instance_id)]
            for mig in fitting:
                yield place, VisibleDevice(key, gpu.uuid, mig.uuid, mig.instance_id)
            if not fitting:
                yield place, VisibleDevice(key, gpu.uuid, "", key.instance)
        elif key.uuid.startswith("MIG-"):
            yield _NOWHERE, VisibleDevice(key, "", key.uuid)
        else:
            yield _NOWHERE, VisibleDevice(key, key.uuid, "", key.instance)


def _in_order(gpus: Sequence[InventoryGpu]) -> Sequence[InventoryGpu]:
    """By index; where not all have one, as they are listed: the driver lists them by their places on the bus."""
    if all(_INDEX.fullmatch(gpu.index) for gpu in gpus):
        return sorted(gpus, key=lambda gpu: int(gpu.index))
    return gpus


def _sorted(placed: list[_Placed]) -> tuple[Sequence[VisibleDevice], bool]:
    are_in_order = len(placed) < 2 or all(place != _NOWHERE for place, _ in placed)  # noqa: PLR2004 - one has an order
    devices = sorted(placed, key=lambda each: (each[0], len(each[1].instance), each[1].instance))
    return tuple(device for _, device in devices), are_in_order
