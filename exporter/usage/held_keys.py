"""The held devices that the driver knows, and the containers that may have processes on them. Pure.

Tests: tests/usage/test_owner_use.py.
"""

from collections.abc import Collection, Iterable, Sequence

from exporter.model.devices import DeviceKey, Inventory, Owners, bare
from exporter.model.pods import Owner


class HeldKeys:
    """The held devices that the driver knows, by the keys that `Owners` has for them.

    The driver names an instance by its GPU and its number. `Owners` follows the samples, which may use the UUID of the
    instance, or the GPU's name or number. Instances of a GPU that a container holds as a whole count for the GPU.
    """

    def __init__(
        self,
        owners: Owners,
        inventory: Inventory,
        others: Iterable[DeviceKey],
        unresolved: Collection[tuple[str, str]] | None,
        known_at: float,
    ) -> None:
        """`others` are devices that may be missing in the inventory.

        The other arguments are those of `measure` (owner_use.py).
        """
        self._unresolved = unresolved
        self._known_at = known_at
        self.holders: dict[DeviceKey, frozenset[Owner]] = {}
        self.unplaced = owners.unplaced
        self._held = owners.holders
        self._names: dict[DeviceKey, DeviceKey] = {}
        for gpu in inventory.gpus:
            self._add(DeviceKey(uuid=gpu.uuid), gpu.names)
            for mig in gpu.mig:
                self._add(DeviceKey(uuid=gpu.uuid, instance=mig.instance_id), gpu.names, mig.uuid)
        for device in others:
            if device not in self._names:
                self._add(device, (device.uuid, bare(device.uuid)))

    def of(self, device: DeviceKey) -> DeviceKey:
        """The key of a driver's device; the driver's own key if nobody holds the device."""
        return self._names.get(device, device)

    def of_gpu(self, uuid: str) -> set[DeviceKey]:
        """The keys of a GPU and of its instances."""
        return {key for device, key in self._names.items() if device.uuid == uuid}

    def holder_for(self, device: DeviceKey, owner: Owner) -> Owner | None:
        """The holder for which a container's processes count: the container itself, or the only holder in its pod."""
        if owner in self.holders.get(device, ()) or owner in self.unplaced:
            return owner
        of_pod = self._of_pod(device, owner)
        return of_pod[0] if len(of_pod) == 1 else None

    def may_hold(self, device: DeviceKey, owner: Owner, started_at: float) -> bool:
        """Whether the owner's pod may hold the device, as far as is known.

        `started_at` is the start of the owner's process.
        """
        if started_at > self._known_at or self._unresolved is None:
            return True
        return owner.pod_key in self._unresolved or bool(self._of_pod(device, owner))

    def instances(self, uuid: str, owner: Owner) -> set[DeviceKey]:
        """The keys of the instances of a GPU that an owner holds."""
        return {
            key
            for device, key in self._names.items()
            if device.uuid == uuid and device.instance and owner in self.holders[key]
        }

    def _of_pod(self, device: DeviceKey, owner: Owner) -> list[Owner]:
        holders = self.holders.get(device, ())
        return [holder for holder in holders if holder.pod_key == owner.pod_key]

    def _add(self, device: DeviceKey, names: Sequence[str], mig: str = "") -> None:
        keys = [DeviceKey(uuid=name, instance=device.instance) for name in names]
        if mig:
            keys.append(DeviceKey(uuid=mig))
        keys += [DeviceKey(uuid=name) for name in names]
        for key in keys:
            if key in self._held:
                self._names[device] = key
                self.holders[key] = frozenset(holder.owner for holder in self._held[key])
                return
