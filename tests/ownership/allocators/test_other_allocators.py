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
CORE, RATIO, MEMORY = (f"koordinator.sh/gpu-{name}" for name in ("core", "memory-ratio", "memory"))
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
    assert [(device.memory_units, device.ref.shared) for place in devices.values() for device in place] == [
        (1, True),
        (7, True),
    ]
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
    ("text", "why"),
    [
        (json.dumps({"0": {str(gpu): 1 for gpu in range(128)}}), "it names more than 128 devices"),
        ('{"256":{"0":1}}', "container '256' is beyond what a pod has"),
        ('{"0":{"0":4},"1":{"0":4}}', "it has 2 places, 2 of them with devices; the pod has 1 container and 0 init"),
        (" " * 32769, "it has more than 32768 characters, which are not read"),
        ('{"0":{"0":10485761}}', "container '0', amount is 1.04858e+07; it must be from 0 to 1.04858e+07"),
        ('{"0":{"x":1}}', "container '0', GPU: 'x' is no whole number"),
        ('{"01":{"0":1}}', "container '01': '01' is no whole number"),
    ],
)
def test_why_an_allocation_is_none(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=f"^{re.escape(why)}"):
        given("gpushare", MEM, {ALLOCATION: text}, "M")


def test_the_largest_allocation_that_is_read() -> None:
    gpus = {str(gpu): 10485760 for gpu in range(127)}
    devices = given("gpushare", MEM, {ALLOCATION: json.dumps({"255": gpus})}, f"{'s' * 255}M")
    assert [(device.ref.index, device.memory_units) for device in devices["M"]] == [*gpus.items()]


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        ('{"0":{"1":1000}}', [1000, None, None]),
        # 0 is no limit
        ('{"0":{"1":0,"2":30},"1":{"2":40}}', [None, 30, None]),
        ('{"1":{"1":20}}', [None, None, 20]),
        ("{}", [None, None, None]),
    ],
)
def test_acks_percents_of_cores_are_those_of_a_containers_gpu(cores: str, expected: list[float | None]) -> None:
    devices = given("gpushare", MEM, {ALLOCATION: '{"0":{"1":4,"2":4},"1":{"1":4}}', CORES: cores}, "MN")
    assert [device.grant.cores_percent for place in devices.values() for device in place] == expected
    assert [device.memory_units for place in devices.values() for device in place] == [4, 4, 4]


def test_a_percent_of_cores_that_no_gpu_has() -> None:
    with pytest.raises(Unreadable, match=r"^the percent of cores is 1001; it must be from 0 to 1000$"):
        given("gpushare", MEM, {ALLOCATION: '{"0":{"1":4}}', CORES: '{"0":{"1":1001}}'}, "M")


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


def test_many_devices_of_a_pod_are_read() -> None:
    numbers = [str(number) for number in range(100)]
    text = ",".join(f"Ascend910-{number}" for number in numbers)
    assert names(given("Ascend", ASCEND, {REAL: text, PICKED: ""}, "M")) == {"M": numbers}


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
        ({CORE: 1000, RATIO: 200}, (None, 1000, None)),
        ({RATIO: 100}, (None, None, 1)),
        ({RATIO: 101}, (None, None, None)),
        ({MEMORY: 0, RATIO: 50}, (None, None, 0.5)),
        ({MEMORY: "10Ti"}, (10485760, None, None)),
        # every unit of Kubernetes
        *(
            ({MEMORY: text}, (mib, None, None))
            for text, mib in {
                "1048576000000000n": 1,
                "1048576000000u": 1,
                "1048576000m": 1,
                "2097152": 2,
                "1048.576k": 1,
                "1.048576M": 1,
                "1.073741824G": 1024,
                "1.099511627776T": 2**20,
                "0.001099511627776P": 2**20,
                "0.000001099511627776E": 2**20,
                "1024Ki": 1,
                "1.5Mi": 1.5,
                "3Gi": 3072,
                "2Ti": 2**21,
                "0.0009765625Pi": 2**20,
                "0.00000095367431640625Ei": 2**20,
                "1048576e0": 1,
                "1.048576E6": 1,
            }.items()
        ),
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
        ('{"gpu":null}', "it names no device"),
        ('{"gpu":[{"minor":100000}]}', "gpu[0].minor: '100000' is no whole number"),
        ('{"gpu":[{"minor":1.0}]}', "gpu[0].minor: '1.0' is no whole number"),
        (json.dumps({"gpu": [5] * 128}), "gpu[0] is no object of JSON"),
        (json.dumps({"gpu": [5] * 129}), "it names more than 128 devices"),
        *(
            (
                json.dumps({"gpu": [{"minor": 1, "resources": {key: more}}]}),
                f"gpu[0].{key} is {shown}; it must",
            )
            for key, more, shown in ((CORE, 1001, "1001"), (RATIO, "1001", "1001"), (MEMORY, "11Ti", "1.20946e+13"))
        ),
    ],
)
def test_koordinators_word_that_is_none(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=re.escape(why)):
        given("Koordinator", CORE, {DEVICES: text}, "M")


@pytest.mark.parametrize(
    ("resources", "is_shared"),
    [
        # nothing says that it is the whole GPU
        ({}, True),
        (None, True),
        ({MEMORY: "80Gi"}, True),
        ({CORE: 100}, False),
        ({CORE: 99}, True),
        ({RATIO: 200}, False),
        ({CORE: 100, RATIO: 100}, False),
        ({CORE: 100, RATIO: 50}, True),
    ],
)
def test_koordinators_part_of_100_percent_is_the_whole_gpu(resources: object, *, is_shared: bool) -> None:
    text = json.dumps({"gpu": [{"minor": "0", "resources": resources}]})
    (device,) = given("Koordinator", CORE, {DEVICES: text}, "M")["M"]
    assert device.ref.shared is is_shared


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
