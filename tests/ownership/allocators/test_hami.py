"""HAMi's annotation and its ancestor's: the texts are those of HAMi's encoder (pkg/device/devices.go) and its tests."""

import json
import re

import pytest

from exporter.model.grants import Grant
from exporter.ownership.allocators.allocator_table import ALLOCATORS, ANNOTATIONS, marked
from exporter.ownership.allocators.said import LONGEST, Unreadable
from tests.ownership.allocators import spelling
from tests.ownership.allocators.spelling import A, B

GPU = "nvidia.com/gpu"
MIG = "MIG-4cf18df2-0d7e-5f3c-9d8e-3b2d6a1f0c7e"
HAMI = "hami.io/vgpu-devices-allocated"
ANCESTOR = "4pd.io/vgpu-ids-new"
OF_HAMI = ALLOCATORS["HAMi"]


def given(text: str, spelt: str, key: str = HAMI) -> dict[str, list[tuple[str, float | None, float | None]]]:
    of_containers = spelling.given("HAMi", GPU, {key: text}, spelt)
    return {
        name: [
            (device.ref.uuid or device.ref.mig, device.grant.memory_mib, device.grant.cores_percent) for device in those
        ]
        for name, those in of_containers.items()
    }


@pytest.mark.parametrize(
    ("text", "spelt", "expected"),
    [
        (f"{A},NVIDIA,10240,45:;", "M", {"M": [(A, 10240, 45)]}),
        # 0 is no limit
        (f"{A},NVIDIA,0,0:;", "M", {"M": [(A, None, None)]}),
        (f"{A},NVIDIA,10240,45:{B},NVIDIA,10240,45:;", "M", {"M": [(A, 10240, 45), (B, 10240, 45)]}),
        (f"{A},NVIDIA,1,2:;{B},NVIDIA,3,4:;", "MN", {"M": [(A, 1, 2)], "N": [(B, 3, 4)]}),
        # an empty entry keeps the position
        (f";{A},NVIDIA,1,2:;", "mN", {"N": [(A, 1, 2)]}),
        (f"{A},NVIDIA,1,2:;;", "Mn", {"M": [(A, 1, 2)]}),
        # so did HAMi 2.4 and 2.5 write an empty entry (pkg/scheduler/score.go)
        (f"{A},NVIDIA,1,2:;,,0,0:;", "Mn", {"M": [(A, 1, 2)]}),
        # init containers count since PR 1650, and before they did not
        (f";{A},NVIDIA,1,2:;", "i|M", {"M": [(A, 1, 2)]}),
        (f"{A},NVIDIA,1,2:;", "i|M", {"M": [(A, 1, 2)]}),
        (f"{A},NVIDIA,1,2:;{B},NVIDIA,3,4:;", "I|M", {"I": [(A, 1, 2)], "M": [(B, 3, 4)]}),
        (f"{A},NVIDIA,1,2:;{B},NVIDIA,3,4:;", "i|MN", {"M": [(A, 1, 2)], "N": [(B, 3, 4)]}),
        (f"{A},NVIDIA,10485760,1000:;", "M", {"M": [(A, 10485760, 1000)]}),
        (f"{A},NVIDIA,{'1'.zfill(20)},2:;", "M", {"M": [(A, 1, 2)]}),
        (f"{'x' * 245},NVIDIA,1,2", "M", {"M": [("x" * 245, 1, 2)]}),
        (f" {A},NVIDIA,1,2 :;", "M", {"M": [(A, 1, 2)]}),
        # a field that a later version may add
        (f"{A},NVIDIA,1,2,more:;", "M", {"M": [(A, 1, 2)]}),
        # a whole MIG instance
        (f"{MIG},NVIDIA,9856,0:;", "M", {"M": [(MIG, 9856, None)]}),
        # a UUID without its prefix
        (f"{A.removeprefix('GPU-')},NVIDIA,1,2:;", "M", {"M": [(A, 1, 2)]}),
    ],
)
def test_what_hami_writes(text: str, spelt: str, expected: dict[str, object]) -> None:
    assert given(text, spelt) == expected


@pytest.mark.parametrize(
    ("text", "spelt", "expected"),
    [
        (f"{A},NVIDIA,10240,45:", "M", {"M": [(A, 10240, 45)]}),
        (f"{A},NVIDIA,1,2:;{B},NVIDIA,3,4:", "MN", {"M": [(A, 1, 2)], "N": [(B, 3, 4)]}),
        (f";{B},NVIDIA,3,4:", "mN", {"N": [(B, 3, 4)]}),
        # the ancestor separates containers: behind the last separator is a container
        (f"{A},NVIDIA,1,2:;", "Mn", {"M": [(A, 1, 2)]}),
        # a text that ends each container is read, too
        (f"{A},NVIDIA,1,2:;", "M", {"M": [(A, 1, 2)]}),
    ],
)
def test_what_its_ancestor_writes(text: str, spelt: str, expected: dict[str, object]) -> None:
    assert given(text, spelt, ANCESTOR) == expected


@pytest.mark.parametrize(
    ("text", "spelt", "why"),
    [
        ("", "M", "it names no device"),
        (";", "M", "it names no device"),
        ("none", "M", "place 1, device 1: 'none' is not <uuid>,<type>,<MiB>,<percent of cores>"),
        (f"{A},NVIDIA,10240", "M", "place 1, device 1: 'GPU-9567"),
        (f"{A},NVIDIA,x,45:;", "M", "is not <uuid>"),
        ("GPU-,NVIDIA,1,45:;", "M", "is not <uuid>"),
        (f"{A},NVIDIA,-1,45:;", "M", "place 1, device 1: memory_mib is -1; it must be from 0 to"),
        (f"{A},NVIDIA,99999999,45:;", "M", "memory_mib is 1e+08"),
        (f"{A},NVIDIA,1,1001:;", "M", "cores_percent is 1001"),
        (f"{A},NVIDIA,{'9' * 99},1:;", "M", "is no number"),
        (f"{'x' * 300},NVIDIA,1,1:;", "M", "is not <uuid>"),
        ("GPU-é,NVIDIA,1,1:;", "M", "characters that no device's name has"),
        # HAMi's mode mig, up to 2.9: the place tells no instance
        (f"{A}[0-1],NVIDIA,9856,0:;", "M", "names a place on a GPU that is cut for it"),
        # too many places, too few, or at containers that hold nothing
        (f"{A},NVIDIA,1,2:;{A},NVIDIA,1,2:;", "M", "it has 2 places, 2 of them with devices; the pod has 1 container"),
        (f"{A},NVIDIA,1,2:;;", "M", "it has 2 places, 1 of them with devices"),
        (f"{A},NVIDIA,1,2:;", "MN", "it has 1 place"),
        (f"{A},NVIDIA,1,2:;;", "mN", "do not stand at these places"),
        (f"{A},NVIDIA,1,2:;{B},NVIDIA,1,2:;", "Mn", "do not stand at these places"),
        (
            f"{B},NVIDIA,1,2:;{A},NVIDIA,1,2:;",
            "i|M",
            "2 of them with devices; the pod has 1 container and 1 init container,",
        ),
        (";" * 257, "M", "it names more than 256 containers"),
        (";" * 256, "M", "it names no device"),
        (":" * 129, "M", "it names more than 128 devices"),
        (":" * 128, "M", "it names no device"),
        (f"{'x' * 246},NVIDIA,x,1", "M", f"place 1, device 1: '{'x' * 77}"),
        (f"{A},NVIDIA,1,2:x:;", "M", "place 1, device 2: 'x' is not"),
        (f"{A},NVIDIA,1,2:;x;", "MN", "place 2, device 1: 'x' is not"),
        (f"{A},NVIDIA,10485761,2:;", "M", "memory_mib is 1.04858e+07; it must be from 0 to 1.04858e+07"),
        (f"{A},NVIDIA,1,1001:;", "M", "cores_percent is 1001; it must be from 0 to 1000"),
        (f"{A}\x7f,NVIDIA,1,2:;", "M", "characters that no device's name has"),
        (f"{A},NVIDIA,1,2:;" * 1000, "M", "more than 32768 characters, which are not read"),
    ],
)
def test_what_is_no_word(text: str, spelt: str, why: str) -> None:
    with pytest.raises(Unreadable) as raised:
        given(text, spelt)
    assert why in str(raised.value)
    assert len(str(raised.value)) < 250
    assert str(raised.value).isprintable()


def test_a_whole_mig_instance_goes_by_its_own_uuid() -> None:
    (device,) = spelling.given("HAMi", GPU, {HAMI: f"{MIG},NVIDIA,9856,0:;"}, "M")["M"]
    assert (device.ref.mig, device.ref.uuid) == (MIG, "")


def test_where_no_container_asks_the_places_alone_tell() -> None:
    """What a pod's containers ask for may be written in a way that is not known."""
    assert given(f"{A},NVIDIA,1,2:;", "m") == {"m": [(A, 1, 2)]}
    with pytest.raises(Unreadable, match="its places fit the pod's containers in more than one way"):
        given(f"{A},NVIDIA,1,2:;", "i|m", ANCESTOR)


def test_a_last_place_with_devices_is_a_containers() -> None:
    with pytest.raises(Unreadable, match="it has 2 places"):
        given(f"{A},NVIDIA,1,2:;{B},NVIDIA,1,2:", "M", ANCESTOR)


def test_an_allocators_word_is_a_share_with_a_grant() -> None:
    written = OF_HAMI.said_in(GPU, {HAMI: f"{A},NVIDIA,10240,45:;"})
    assert written is not None
    (entry,) = written[1].containers[0]
    assert entry.grant == Grant(allocator="HAMi", memory_mib=10240, cores_percent=45)
    assert (entry.ref.shared, entry.ref.allocator) == (True, "")


def mig_allocations(**changed: object) -> str:
    """As pkg/device/nvidia/mig_allocations.go of HAMi 2.10 encodes a MIG instance that its plugin has cut."""
    instance: dict[str, object] = {
        "containerIndex": 0,
        "deviceIndex": 0,
        "gpuUUID": A,
        "profile": "1g.10gb",
        "placement": {"start": 0, "size": 1},
        "migUUID": MIG,
        "gpuInstanceID": 7,
        "computeInstanceID": 0,
    }
    return json.dumps([{key: value for key, value in (instance | changed).items() if value is not None}])


def test_each_mig_instance_is_at_its_containers_place() -> None:
    instances = [
        *json.loads(mig_allocations(containerIndex=1, gpuInstanceID=9)),
        *json.loads(mig_allocations(deviceIndex=1, gpuUUID=B, gpuInstanceID="2")),
    ]
    annotations = {
        HAMI: f"{A},NVIDIA,1,2:{B},NVIDIA,1,2:;{A},NVIDIA,1,2:;",
        "hami.io/vgpu-mig-allocations": json.dumps(instances),
    }
    devices = spelling.given("HAMi", GPU, annotations, "MN")
    assert {
        name: [(device.ref.uuid, device.ref.instance, device.ref.shared) for device in place]
        for name, place in devices.items()
    } == {"M": [(A, "", True), (B, "2", False)], "N": [(A, "9", False)]}


def test_a_second_annotation_names_the_mig_instances_that_hami_cuts() -> None:
    annotations = {HAMI: f"{A},NVIDIA,9856,0:{B},NVIDIA,1,2:;", "hami.io/vgpu-mig-allocations": mig_allocations()}
    instance, share = spelling.given("HAMi", GPU, annotations, "M")["M"]
    assert (instance.ref.uuid, instance.ref.instance, instance.ref.shared) == (A, "7", False)
    assert instance.grant.memory_mib == 9856
    assert (share.ref.uuid, share.ref.instance, share.ref.shared) == (B, "", True)
    assert annotations.keys() <= ANNOTATIONS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (mig_allocations(gpuInstanceID=None), "MIG instance 0 is not cut yet"),
        (mig_allocations(gpuUUID=B), f"MIG instance 0 is on '{B}', and the allocation has no such device at its place"),
        (mig_allocations(containerIndex=1), "no such device at its place"),
        (mig_allocations(deviceIndex=1), "no such device at its place"),
        (mig_allocations(gpuUUID=5), "MIG instance 0 is on '5', and the allocation has no such device at its place"),
        (json.dumps([5] * 128), "MIG instance 0 is no object of JSON"),
        (json.dumps([5] * 129), "it names more than 128 devices"),
        (json.dumps([*json.loads(mig_allocations()), 5]), "MIG instance 1 is no object of JSON"),
        (mig_allocations(containerIndex="x"), "MIG instance 0, containerIndex: 'x' is no whole number"),
        (mig_allocations(deviceIndex=-1), "deviceIndex: '-1' is no whole number"),
        (mig_allocations(gpuInstanceID="x"), "gpuInstanceID: 'x' is no whole number"),
        ("{}", "it is no list of MIG instances"),
        ("[1]", "MIG instance 0 is no object of JSON"),
        ("x", "'x' is no JSON"),
    ],
)
def test_mig_instances_that_are_no_word(text: str, why: str) -> None:
    annotations = {HAMI: f"{A},NVIDIA,9856,0:;", "hami.io/vgpu-mig-allocations": text}
    with pytest.raises(Unreadable, match=re.escape(why)):
        spelling.given("HAMi", GPU, annotations, "M")


# charts/hami/templates/scheduler/device-configmap.yaml
@pytest.mark.parametrize(
    ("resource", "annotation"),
    [
        ("hygon.com/dcunum", "hami.io/dcu-devices-allocated"),
        ("cambricon.com/vmlu", "hami.io/cambricon-mlu-devices-allocated"),
        ("iluvatar.ai/MR-V100-vgpu", "hami.io/MR-V100-devices-allocated"),
        ("mthreads.com/vgpu", "hami.io/mthreads-vgpu-devices-allocated"),
        ("metax-tech.com/sgpu", "hami.io/metax-sgpu-devices-allocated"),
        ("enflame.com/drs-gcu", "hami.io/enflame-vgpu-devices-allocated"),
        ("kunlunxin.com/vxpu", "hami.io/xpu-devices-allocated"),
        ("huawei.com/Ascend910B3", "hami.io/Ascend910B3-devices-allocated"),
    ],
)
def test_ids_of_other_vendors_are_tokens_on_pods_with_hamis_annotation(resource: str, annotation: str) -> None:
    annotations = {annotation: "a-device,TYPE,10,20:;"}
    assert marked(resource, annotations, ALLOCATORS.values()) == OF_HAMI
    assert marked(resource, {HAMI: "x"}, ALLOCATORS.values()) is None
    (device,) = spelling.given("HAMi", resource, annotations, "M")["M"]
    assert device.ref.uuid == "a-device"


def test_the_newer_annotation_counts_and_a_pod_without_any_has_no_word() -> None:
    both = {ANCESTOR: f"{B},NVIDIA,1,2:", HAMI: f"{A},NVIDIA,1,2:;"}
    written = OF_HAMI.said_in(GPU, both)
    assert written is not None
    assert written[0].key == HAMI
    assert OF_HAMI.said_in(GPU, {"other": "x"}) is None
    assert both.keys() <= ANNOTATIONS


def test_a_text_of_the_greatest_length_is_read() -> None:
    text = f"{A},NVIDIA,1,2:;"
    assert given(text.ljust(LONGEST), "M") == given(text, "M")
    with pytest.raises(Unreadable, match="more than 32768 characters"):
        given(text.ljust(LONGEST + 1), "M")


def test_the_length_that_is_read_is_enough() -> None:
    text = ":".join([f"{A},NVIDIA,10240,45"] * 16) + ":;"
    assert len(text * 20) < LONGEST
