"""What Volcano, gpushare, Ascend's plugin, GPU Aware Scheduling and Koordinator write, by their own sources."""

import json
import re

import pytest

from exporter.model.grants import Grant
from exporter.ownership.allocators.allocator_table import ALLOCATORS, ANNOTATIONS, marked
from exporter.ownership.allocators.said import Unreadable
from tests.ownership.allocators.spelling import A, B, given, names

NUMBER = "volcano.sh/vgpu-number"
IDS = "volcano.sh/vgpu-ids-new"
MEM = "aliyun.com/gpu-mem"
INDEX = "ALIYUN_COM_GPU_MEM_IDX"
ALLOCATION = "scheduler.framework.gpushare.allocation"
CORES = "gpushare.alibabacloud.com/core-percentage"
REAL, PICKED = "huawei.com/AscendReal", "huawei.com/kltDev"
CARDS, TILES = "gas-container-cards", "gas-container-tiles"
I915 = "gpu.intel.com/i915"
DEVICES = "scheduling.koordinator.sh/device-allocated"
CORE = "koordinator.sh/gpu-core"
ASCEND = "huawei.com/Ascend910"
VOLCANO = [
    # pkg/scheduler/api/devices/nvidia/vgpu/utils.go of Volcano: places for containers that ask for a vGPU, joined by ;
    (f"{A},NVIDIA,2000,30:", "M", {"M": [A]}),
    (f"{A},NVIDIA,2000,30:{B},NVIDIA,2000,30:", "M", {"M": [A, B]}),
    (f"{A},NVIDIA,1,2:;{B},NVIDIA,1,2:", "MN", {"M": [A], "N": [B]}),
    (f"{A},NVIDIA,1,2:", "sM", {"M": [A]}),
    (f"{A},NVIDIA,1,2:;{B},NVIDIA,1,2:", "MsN", {"M": [A], "N": [B]}),
    (f"{A},NVIDIA,1,2:", "i|M", {"M": [A]}),
    # as HAMi counts, and as HAMi ends containers
    (f";{A},NVIDIA,1,2:", "sM", {"M": [A]}),
    (f";{A},NVIDIA,1,2:;", "sM", {"M": [A]}),
    (f"{A},NVIDIA,1,2:;", "i|M", {"M": [A]}),
]


@pytest.mark.parametrize(("text", "spelt", "expected"), VOLCANO)
@pytest.mark.parametrize("resource", [NUMBER, "volcano.sh/vgpu-memory"])
def test_volcano(text: str, spelt: str, expected: dict[str, list[str]], resource: str) -> None:
    assert names(given("Volcano", resource, {IDS: text}, spelt)) == expected


@pytest.mark.parametrize(
    ("text", "spelt"), [(f"{A}[group1-0],NVIDIA,1,2:", "M"), (f"{A},NVIDIA,1,2:", "MN"), (f"{A},NVIDIA,1,2:", "I|M")]
)
def test_volcanos_word_that_fits_no_container(text: str, spelt: str) -> None:
    with pytest.raises(Unreadable):
        given("Volcano", NUMBER, {IDS: text}, spelt)


# pkg/gpu/nvidia/podutils.go of gpushare-device-plugin reads one number; -1 is its sign of a failure
@pytest.mark.parametrize(("spelt", "expected"), [("M", {"M": ["3"]}), ("sMN", {"M": ["3"], "N": ["3"]})])
def test_gpushares_index_is_the_gpu_of_all_containers(spelt: str, expected: dict[str, list[str]]) -> None:
    assert names(given("gpushare", MEM, {INDEX: "3"}, spelt)) == expected


@pytest.mark.parametrize("text", ["-1", "", "x", "0,1", "1.5", "99999"])
def test_an_index_that_is_none(text: str) -> None:
    with pytest.raises(Unreadable):
        given("gpushare", MEM, {INDEX: text}, "M")


def test_acks_allocation_has_amounts_by_container_and_gpu() -> None:
    """Koordinator's tests have this text (pkg/scheduler/plugins/ack: "ACK v2 GPU Pod")."""
    annotations = {ALLOCATION: '{"0":{"1":1},"1":{"1":7}}', INDEX: "0"}
    devices = given("gpushare", MEM, annotations, "MN")
    assert names(devices) == {"M": ["1"], "N": ["1"]}
    assert [device.memory_units for place in devices.values() for device in place] == [1, 7]
    cores = given("gpushare", MEM, {**annotations, CORES: '{"0":{"1":50},"1":{"1":40}}'}, "MN")
    assert [device.grant.cores_percent for place in cores.values() for device in place] == [50, 40]
    assert {ALLOCATION, INDEX, CORES} <= ANNOTATIONS


@pytest.mark.parametrize(
    ("text", "spelt", "expected"),
    [
        ('{"1":{"0":4}}', "sM", {"M": ["0"]}),
        ('{"0":{"0":4}}', "Ms", {"M": ["0"]}),
        ('{"0":{"0":4,"2":4}}', "M", {"M": ["0", "2"]}),
        ('{"0":{"0":4}}', "i|M", {"M": ["0"]}),
        ('{"0":{"0":4},"1":{}}', "Ms", {"M": ["0"]}),
    ],
)
def test_acks_allocation_leaves_out_containers(text: str, spelt: str, expected: dict[str, list[str]]) -> None:
    assert names(given("gpushare", MEM, {ALLOCATION: text}, spelt)) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "5", '{"0":5}', '{"x":{"0":4}}', '{"0":{"x":4}}', '{"0":{"0":"x"}}', '{"0":{"0":-4}}'),
        *('{"0":{"0":NaN}}', '{"0":{"0":1e999}}', '{"0":{"0":true}}', '{"5":{"0":4}}', '{"99999":{"0":4}}'),
        *('{"0":{"0":[]}}', '{"0":{}}', '{"0":{"0":0}}', "[" * 30000, '{"0":' * 6000, f'{{"0":{{"0":{"9" * 5000}}}}}'),
        f'{{"0":{{"0":{"9" * 400}}}}}',
    ],
)
def test_an_allocation_that_is_none(text: str) -> None:
    with pytest.raises(Unreadable) as raised:
        given("gpushare", MEM, {ALLOCATION: text}, "M")
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize(
    ("text", "spelt", "expected"),
    [
        ("Ascend910-4,Ascend910-5", "M", {"M": ["4", "5"]}),
        ("Ascend310P-0", "sM", {"M": ["0"]}),
        ("Ascend-12", "M", {"M": ["12"]}),
        ("npu-3", "M", {"M": ["3"]}),
    ],
)
def test_ascends_real_devices(text: str, spelt: str, expected: dict[str, list[str]]) -> None:
    annotations = {REAL: text, PICKED: "Ascend910-0,Ascend910-1"}
    devices = given("Ascend", ASCEND, annotations, spelt)
    assert names(devices) == expected
    assert not any(device.ref.shared for place in devices.values() for device in place)
    assert marked(ASCEND, annotations, ALLOCATORS.values()) == ALLOCATORS["Ascend"]
    assert marked(ASCEND, {REAL: text}, ALLOCATORS.values()) is None, "without kltDev the id is true"
    assert annotations.keys() <= ANNOTATIONS


def test_an_ascend_vnpu_is_a_share_of_its_chip() -> None:
    """pkg/common/device.go of Ascend's device plugin: davinci-coreNum-vid-devID, like Ascend910-2c-111-0."""
    for text in ("Ascend910-2c-111-6", "Ascend310P-4c.3cpu.ndvpp-100-6"):
        (device,) = given("Ascend", "huawei.com/npu-core", {REAL: text, PICKED: "npu-core-1"}, "M")["M"]
        assert (device.ref.index, device.ref.shared) == ("6", True)


@pytest.mark.parametrize(("text", "spelt"), [("Ascend910-4,Ascend910-5", "MN"), ("Ascend910", "M"), ("4", "M")])
def test_ascends_word_that_names_no_container(text: str, spelt: str) -> None:
    with pytest.raises(Unreadable):
        given("Ascend", ASCEND, {REAL: text, PICKED: ""}, spelt)


# the documentation of intel-device-plugins-for-kubernetes and of GPU Aware Scheduling has these texts
@pytest.mark.parametrize(
    ("key", "text", "spelt", "expected"),
    [
        (CARDS, "card0,card1|card2,card3", "MN", {"M": ["card0", "card1"], "N": ["card2", "card3"]}),
        (CARDS, "|card1", "sM", {"M": ["card1"]}),
        (CARDS, "card1|", "Ms", {"M": ["card1"]}),
        (CARDS, "card1", "i|M", {"M": ["card1"]}),
        (TILES, "card0:gt0+gt1|card1:gt1,card2:gt0", "MN", {"M": ["card0"], "N": ["card1", "card2"]}),
    ],
)
def test_gpu_aware_scheduling(key: str, text: str, spelt: str, expected: dict[str, list[str]]) -> None:
    name = "GPU Aware Scheduling"
    assert names(given(name, I915, {key: text}, spelt)) == expected
    assert marked(I915, {key: text}, ALLOCATORS.values()) == ALLOCATORS[name]
    assert marked("gpu.intel.com/i915_monitoring", {key: text}, ALLOCATORS.values()) is None


def test_the_cards_count_where_tiles_are_written_too() -> None:
    annotations = {TILES: "card1:gt0", CARDS: "card1"}
    assert names(given("GPU Aware Scheduling", I915, annotations, "M")) == {"M": ["card1"]}


def test_koordinator() -> None:
    """The text is that of Koordinator's documentation of fine-grained device scheduling."""
    part = {CORE: "50", "koordinator.sh/gpu-memory": "11520Mi", "koordinator.sh/gpu-memory-ratio": "50"}
    text = json.dumps({"gpu": [{"minor": 1, "resources": part}], "rdma": [{"minor": 0, "resources": {}}]})
    devices = given("Koordinator", CORE, {DEVICES: text}, "sM")
    assert names(devices) == {"M": ["1"]}
    device = devices["M"][0]
    assert (device.ref.minor, device.ref.shared, device.ref.index) == ("1", True, "")
    assert (device.grant.memory_mib, device.grant.cores_percent, device.grant.fraction) == (11520, 50, None)
    # the parts are those of the pod, so that two containers do not have them twice
    both = given("Koordinator", CORE, {DEVICES: text}, "sMN")
    assert names(both) == {"M": ["1"], "N": ["1"]}
    assert {device.grant for devices in both.values() for device in devices} == {Grant(allocator="Koordinator")}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({CORE: 100, "koordinator.sh/gpu-memory-ratio": 100, "koordinator.sh/gpu-memory": "16Gi"}, (16384, 100, None)),
        ({CORE: "0", "koordinator.sh/gpu-memory-ratio": "25"}, (None, None, 0.25)),
        ({"koordinator.sh/gpu-memory": "1e9"}, (1e9 / 2**20, None, None)),
        ({"koordinator.sh/gpu-memory": 2**30}, (1024, None, None)),
        ({"koordinator.sh/gpu-memory": "8G"}, (8e9 / 2**20, None, None)),
        ({CORE: "50000m"}, (None, 50, None)),
        ({}, (None, None, None)),
    ],
)
def test_koordinators_quantities(resources: dict[str, object], expected: tuple[object, ...]) -> None:
    text = json.dumps({"gpu": [{"minor": 0, "resources": resources}]})
    (device,) = given("Koordinator", CORE, {DEVICES: text}, "M")["M"]
    grant = device.grant
    assert (grant.memory_mib, grant.cores_percent, grant.fraction) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "it names no device"),
        ('{"gpu":{}}', "it names no device"),
        ('{"gpu":5}', "gpu is no list"),
        ('{"gpu":[5]}', "gpu[0] is no object of JSON"),
        ('{"gpu":[{}]}', "gpu[0].minor: 'None' is no whole number"),
        ('{"gpu":[{"minor":true}]}', "gpu[0].minor: 'True' is no whole number"),
        ('{"gpu":[{"minor":-1}]}', "gpu[0].minor: '-1' is no whole number"),
        ('{"gpu":[{"minor":1,"resources":[1]}]}', "gpu[0].resources is no object of JSON"),
        (f'{{"gpu":[{{"minor":1,"resources":{{"{CORE}":"many"}}}}]}}', "'many' is no quantity"),
        (f'{{"gpu":[{{"minor":1,"resources":{{"{CORE}":"9e99"}}}}]}}', "it must be from 0 to"),
    ],
)
def test_koordinators_word_that_is_none(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=re.escape(why)):
        given("Koordinator", CORE, {DEVICES: text}, "M")


def test_a_word_for_the_pod_needs_a_container_that_asks() -> None:
    with pytest.raises(Unreadable, match=r"no container of the pod asks for aliyun\.com/gpu-mem"):
        given("gpushare", MEM, {INDEX: "0"}, "m")


def test_which_ids_count_units() -> None:
    counting = {
        (name, resource): ALLOCATORS[name].counts_units(resource)
        for name, resource in [
            ("gpushare", MEM),
            ("Volcano", NUMBER),
            ("Volcano", "volcano.sh/vgpu-memory"),
            ("HAMi", "nvidia.com/gpu"),
            ("Ascend", ASCEND),
            ("Ascend", "huawei.com/npu-core"),
            ("Koordinator", CORE),
        ]
    }
    assert [use for use, counts in counting.items() if counts] == [
        ("gpushare", MEM),
        ("Volcano", "volcano.sh/vgpu-memory"),
        ("Ascend", "huawei.com/npu-core"),
        ("Koordinator", CORE),
    ]
