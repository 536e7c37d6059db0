"""What the table of allocators says of each one: whose ids are tokens, and what people are told."""

import pytest

from exporter.ownership.allocators.allocator_table import ALLOCATORS, Allocator, may_be_marked, named, usual
from exporter.ownership.allocators.users import read_allocators

I915, ASCEND = "gpu.intel.com/i915", "huawei.com/Ascend910"


def test_only_koordinator_gives_devices_without_the_kubelet() -> None:
    assert [name for name, by in ALLOCATORS.items() if by.gives_without_kubelet] == ["Koordinator"]
    # nor does one of which nothing but the name is known
    assert not Allocator(name="x").gives_without_kubelet


@pytest.mark.parametrize(
    ("name", "resource", "annotations", "expected"),
    [
        ("gpushare", "aliyun.com/gpu-mem", {}, True),
        ("Volcano", "volcano.sh/vgpu-number", {}, True),
        # a resource that no annotation is about
        ("Volcano", "nvidia.com/gpu", {}, True),
        ("HAMi", "nvidia.com/gpu", {}, True),
        ("Ascend", ASCEND, {}, False),
        ("Ascend", ASCEND, {"huawei.com/kltDev": ""}, True),
        ("GPU Aware Scheduling", I915, {}, False),
        ("GPU Aware Scheduling", I915, {"gas-container-cards": ""}, True),
        ("GPU Aware Scheduling", I915, {"gas-container-tiles": ""}, True),
    ],
)
def test_whose_ids_are_tokens(name: str, resource: str, annotations: dict[str, str], *, expected: bool) -> None:
    assert ALLOCATORS[name].gives_tokens(resource, annotations) is expected


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("gpushare", "scheduler.framework.gpushare.allocation or ALIYUN_COM_GPU_MEM_IDX"),
        # without those for devices of other vendors
        ("HAMi", "hami.io/vgpu-devices-allocated or 4pd.io/vgpu-ids-new"),
        # one that is about several resources is there once
        ("Volcano", "volcano.sh/vgpu-ids-new"),
        ("GPU Aware Scheduling", "gas-container-cards or gas-container-tiles"),
    ],
)
def test_the_annotations_that_people_are_told(name: str, keys: str) -> None:
    by = ALLOCATORS[name]
    assert by.not_written.message.endswith(f"has not written on the pod yet which one ({keys})")
    assert by.trouble.message.startswith(
        f"{name}'s scheduler chose the GPU and wrote it on the pod (the annotation {keys}); the kubelet's id does not"
    )
    assert by.trouble.remedy.startswith("give the exporter one of: " if name != "HAMi" else "where HAMi aligns ids")


def test_of_a_users_allocator_only_its_name_is_known_by_its_name() -> None:
    assert named("HAMi") is ALLOCATORS["HAMi"]
    assert named("Ours") == Allocator(name="Ours")
    assert named("Ours").trouble.message == (
        "Ours's scheduler chose the GPU and wrote it on the pod; the kubelet's id does not say which"
    )


@pytest.mark.parametrize(
    ("resource", "marked_by", "usually_by"),
    [
        ("nvidia.com/gpu", "", None),
        (I915, "GPU Aware Scheduling", None),
        (ASCEND, "Ascend", "Ascend"),
        ("huawei.com/Ascend910A", "HAMi", "Ascend"),
        ("hygon.com/dcunum", "HAMi", None),
    ],
)
def test_ids_that_only_a_mark_on_the_pod_makes_tokens(resource: str, marked_by: str, usually_by: str | None) -> None:
    assert may_be_marked(resource) == marked_by
    by = usual(resource, ALLOCATORS.values())
    assert (by and by.name) == usually_by


def test_a_users_allocator_with_as_little_and_as_much_as_may_be() -> None:
    least = {"name": "Ours", "resource": "x/gpu", "annotation": "x/gpus", "device": "(?P<uuid>.+)"}
    (ours,) = read_allocators([least])
    assert ours.tokens == (("x/gpu", r"[\s\S]*"),)
    parts = ["uuid", "mig", "device", "index", "instance", "share"]
    amounts = ["minor", "memory_mib", "cores_percent", "fraction"]
    device = ",".join(f"(?P<{part}>.*)" for part in (*parts, *amounts))
    of_id = ",".join(f"(?P<{part}>.*)" for part in parts)
    (most,) = read_allocators([{**least, "device": device, "id": of_id}])
    assert most.tokens == (("x/gpu", of_id),)
