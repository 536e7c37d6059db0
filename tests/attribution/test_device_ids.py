"""What the kubelet's device ids refer to."""

import pytest

from exporter.attribution.device_ids import DeviceRef, read_device_id
from exporter.model import DeviceKey

UUID = "9567a9e7-341e-bb7e-fcf5-788d8caa50f9"


@pytest.mark.parametrize(
    ("device_id", "uuid", "shared"),
    [
        (f"GPU-{UUID}", f"GPU-{UUID}", False),
        (UUID, f"GPU-{UUID}", False),
        (f"GPU-{UUID}::0", f"GPU-{UUID}", True),
        (f"GPU-{UUID}::13", f"GPU-{UUID}", True),
        (f"GPU-{UUID}::", f"GPU-{UUID}", True),
        (f"MIG-{UUID}", f"MIG-{UUID}", False),
        (f"MIG-{UUID}::2", f"MIG-{UUID}", True),
    ],
)
def test_an_id_that_is_understood(device_id: str, uuid: str, shared: bool) -> None:
    assert read_device_id(device_id) == DeviceRef(DeviceKey(uuid=uuid), shared=shared)


@pytest.mark.parametrize(
    "device_id", ["", "GPU-", "nvidia0", "0", "tpu-1", f"X{UUID}", f"GPU-{UUID}:0", "GPU-a b", "::1"]
)
def test_an_id_that_says_nothing(device_id: str) -> None:
    assert read_device_id(device_id) is None
