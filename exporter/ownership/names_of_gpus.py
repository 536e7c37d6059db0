"""The names by which two references to devices of a node can be compared, as far as an inventory tells them.

Tests: tests/ownership/test_words.py.
"""

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Inventory, bare

NO_INVENTORY = Inventory()


class NamesOfGpus:
    """Compares a GPU's number, name and UUID, and a MIG instance's UUID with its GPU and number."""

    def __init__(self, inventory: Inventory) -> None:
        self._uuid_of: dict[str, str] = {}
        self._instance_of: dict[str, tuple[str, str]] = {}
        for gpu in inventory.gpus:
            self._uuid_of |= dict.fromkeys(filter(None, (gpu.index, gpu.device)), gpu.uuid)
            self._instance_of |= {mig.uuid: (gpu.uuid, mig.instance_id) for mig in gpu.mig}

    def of(self, ref: DeviceRef) -> tuple[str, str]:
        """The GPU and its instance: equal for two references to one device, if the inventory knows it."""
        uuid, instance = self._gpu_of(ref)
        return bare(uuid), instance

    def text(self, ref: DeviceRef) -> str:
        """The device as people read it."""
        uuid, instance = self._gpu_of(ref)
        return f"{uuid}, instance {instance}" if instance else uuid

    def _gpu_of(self, ref: DeviceRef) -> tuple[str, str]:
        uuid, instance = self._instance_of.get(ref.mig, (ref.uuid, ref.instance))
        minor = f"nvidia{ref.minor}" if ref.minor else ""
        name = ref.device or minor or ref.index
        return uuid or self._uuid_of.get(name, "") or ref.mig or name, instance
