"""References to one device have one name, as far as the inventory knows the device."""

import pytest

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Inventory, InventoryGpu, MigInstance
from exporter.ownership.names_of_gpus import NamesOfGpus

A, B, C = (f"GPU-{number}567a9e7-341e-bb7e-fcf5-788d8caa50f9" for number in range(3))
# the driver counts minor numbers in another order than NVML counts GPUs
NAMES = NamesOfGpus(
    Inventory(
        gpus=(
            InventoryGpu(uuid=A, index="0", device="nvidia1", mig=(MigInstance(uuid="MIG-x", instance_id="7"),)),
            InventoryGpu(uuid=B, index="1", device="nvidia0"),
            InventoryGpu(uuid=C),
        )
    )
)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"uuid": A}, A),
        ({"index": "0"}, A),
        ({"device": "nvidia1"}, A),
        ({"minor": "1"}, A),
        ({"index": "1"}, B),
        # a name says more than a number, and a UUID more than both
        ({"device": "nvidia0", "index": "0"}, B),
        ({"minor": "0", "index": "0"}, B),
        ({"device": "nvidia0", "minor": "1"}, B),
        ({"uuid": A, "index": "1"}, A),
        ({"mig": "MIG-x"}, f"{A}, instance 7"),
        ({"uuid": A, "instance": "7"}, f"{A}, instance 7"),
        ({"minor": "1", "instance": "7"}, f"{A}, instance 7"),
        # what the inventory does not know
        ({"uuid": "GPU-9"}, "GPU-9"),
        ({"mig": "MIG-y"}, "MIG-y"),
        ({"index": "9"}, "9"),
        ({"device": "card9", "index": "9"}, "card9"),
        ({"minor": "9"}, "nvidia9"),
        ({}, ""),
    ],
)
def test_the_name_of_a_device(parts: dict[str, str], text: str) -> None:
    ref = DeviceRef(form="", **parts)  # type: ignore[arg-type]  # texts only
    assert NAMES.text(ref) == text
    uuid, _, instance = text.partition(", instance ")
    assert NAMES.of(ref) == NAMES.of(DeviceRef(form="x", uuid=uuid, instance=instance))
    assert NAMES.of(ref) == (uuid.removeprefix("GPU-"), instance)
