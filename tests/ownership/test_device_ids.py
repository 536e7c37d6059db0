"""What the kubelet's device ids refer to: every form of SPEC's table, and its neighbours that mean nothing."""

import pytest

from exporter.model.device_ref import DeviceRef
from exporter.ownership.device_ids import DeviceRules, read_device_id, read_rules

UUID = "9567a9e7-341e-bb7e-fcf5-788d8caa50f9"
GPU = f"GPU-{UUID}"
MIG = f"MIG-{UUID}"


def parts_of(ref: DeviceRef) -> dict[str, object]:
    names = ("uuid", "mig", "device", "index", "instance", "shared", "allocator")
    return {name: value for name in names if (value := getattr(ref, name))}


@pytest.mark.parametrize(
    ("device_id", "parts"),
    [
        (GPU, {"uuid": GPU}),
        (UUID, {"uuid": GPU}),
        ("GPU-1", {"uuid": "GPU-1"}),
        # a share by time slicing or MPS, with a number and without
        (f"{GPU}::0", {"uuid": GPU, "shared": True}),
        (f"{GPU}::13", {"uuid": GPU, "shared": True}),
        (f"{GPU}::", {"uuid": GPU, "shared": True}),
        (f"{UUID}::2", {"uuid": GPU, "shared": True}),
        (MIG, {"mig": MIG}),
        (f"{MIG}::2", {"mig": MIG, "shared": True}),
        (f"{MIG}::", {"mig": MIG, "shared": True}),
        # before R470
        (f"MIG-{GPU}/7/0", {"uuid": GPU, "instance": "7"}),
        (f"MIG-{GPU}/13/1", {"uuid": GPU, "instance": "13"}),
        # GKE
        ("nvidia0", {"device": "nvidia0", "index": "0"}),
        ("nvidia12", {"device": "nvidia12", "index": "12"}),
        ("nvidia0/gi3", {"device": "nvidia0", "index": "0", "instance": "3"}),
        ("nvidia0/vgpu1", {"device": "nvidia0", "index": "0", "shared": True}),
        ("nvidia0/gi3/vgpu1", {"device": "nvidia0", "index": "0", "instance": "3", "shared": True}),
        ("0/vgpu", {"index": "0", "shared": True}),
        # HAMi and gpushare: what a token's text names may be another device than the one that was given
        (f"{GPU}-0", {"uuid": GPU, "shared": True, "allocator": "HAMi"}),
        (f"{UUID}-3", {"uuid": GPU, "shared": True, "allocator": "HAMi"}),
        (f"{MIG}-1", {"mig": MIG, "shared": True, "allocator": "HAMi"}),
        (f"{GPU}-_-0", {"uuid": GPU, "shared": True, "allocator": "gpushare"}),
        (f"{UUID}-_-11", {"uuid": GPU, "shared": True, "allocator": "gpushare"}),
    ],
)
def test_an_id_that_is_understood(device_id: str, parts: dict[str, object]) -> None:
    ref = read_device_id("nvidia.com/gpu", device_id)
    assert ref is not None
    assert parts_of(ref) == parts


@pytest.mark.parametrize(
    "device_id",
    [
        "", "GPU-", "0", "tpu-1", f"X{UUID}", f"{GPU}:0", "GPU-a b", "::1", "MIG-", "MIG-a b",
        # neighbours of MIG-GPU-<uuid>/<gi>/<ci>
        "MIG-GPU-x/xx/0", f"MIG-{GPU}/7", f"MIG-{GPU}/7/", f"MIG-{GPU}//0", f"MIG-{GPU}/7/0/1", f"MIG-{GPU}",
        "MIG-GPU-/7/0", "MIG-GPU-", f"MIG-{UUID}/7/0",
        # neighbours of GKE's
        "nvidia", "nvidiaX", "nvidia0/", "nvidia0/gi", "nvidia0/giX", "nvidia0/vgpu", "nvidia0/vgpu1/gi3",
        "/vgpu", "x/vgpu", "0/vgpu1",
        # neighbours of HAMi's and gpushare's
        f"{UUID}-", f"{UUID}-x", f"{UUID}-_-", f"{UUID}-_-x", f"{UUID}--0",
    ],
)  # fmt: skip
def test_an_id_that_says_nothing(device_id: str) -> None:
    assert read_device_id("nvidia.com/gpu", device_id) is None


@pytest.mark.parametrize(
    ("resource", "device_id", "device"),
    [
        ("nvidia.com/GH100_H100_PCIE", "42", "vfio/42"),
        ("nvidia.com/GA102GL_A10", "7", "vfio/7"),
        ("nvidia.com/GA100_A100_NVSWITCH", "42", ""),
        ("nvidia.com/gpu", "42", None),
        ("example.com/GH100_H100_PCIE", "42", None),
        ("nvidia.com/GH100_H100_PCIE", "4a", None),
    ],
)
def test_an_iommu_group_of_the_plugin_for_kubevirt(resource: str, device_id: str, device: str | None) -> None:
    ref = read_device_id(resource, device_id)
    assert (ref and ref.device) == device
    assert ref is None or (ref.is_vfio, ref.is_no_gpu) == (bool(device), not device)


def test_a_file_may_have_every_section_and_each_may_be_empty() -> None:
    sections = ("devices", "samples", "families", "looks", "allocators")
    assert read_rules(dict.fromkeys(sections)) == DeviceRules()
