"""What simulated allocators write, give and keep to themselves, held against the forms of their own sources."""

import base64
import json
import re
from collections import Counter, defaultdict

import pytest

from exporter.simulator import kubernetes
from exporter.simulator.allocators import (
    AckGpushare,
    Ascend,
    Gpushare,
    Hami,
    Kai,
    Koordinator,
    OlderHami,
    RunAi,
    SimulatedAllocator,
    Unkindness,
    Volcano,
    given,
)
from exporter.simulator.parts import GPU_RESOURCE, H100, Container, Part, Pod
from exporter.simulator.pods_api import pod_message
from exporter.sources.kubelet.kubelet_pods import parse_pod
from exporter.sources.kubernetes.node_objects import read_pod
from tests.simulator.test_node import Time
from tests.support.allocators import allocated_node
from tests.support.simulated import World

ALL = (AckGpushare, Ascend, Gpushare, Hami, Kai, Koordinator, OlderHami, RunAi, Volcano)
SECOND = 1_000_000_000
UUID = r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture
def time() -> Time:
    return Time()


def lived(allocator: SimulatedAllocator, time: Time, *, steps: int = 50, gpus: int = 8) -> list[Pod]:
    """All pods that an allocator has bound on a node while pods came and went, as the API server showed them."""
    world = World(gpus=gpus, allocator=allocator, clock=time, seed=3)
    pods: dict[str, Pod] = {}
    for _ in range(steps):
        time.sleep(5)
        world.live()
        pods |= {pod.uid: pod for pod in world.seen if any(container.parts for container in pod.containers)}
    assert len(pods) > 20
    return list(pods.values())


def annotation(pod: Pod, name: str) -> str:
    return dict(pod.annotations)[name]


@pytest.mark.parametrize("kind", ALL)
def test_nothing_is_promised_twice_and_the_kubelet_gives_no_id_twice(
    kind: type[SimulatedAllocator], time: Time
) -> None:
    world = World(gpus=8, allocator=kind(), clock=time, seed=5)
    for _ in range(40):
        time.sleep(5)
        world.live()
        memory: defaultdict[str, float] = defaultdict(float)
        cores: Counter[str] = Counter()
        for parts in given(world.pods).values():
            assert len({part.uuid for part in parts}) == len(parts)
            for part in parts:
                memory[part.uuid] += part.of_memory
                cores[part.uuid] += part.cores_percent or 0
        assert memory, "the node is never empty"
        assert max(memory.values()) <= 1
        assert max(cores.values()) <= 100
        held = Counter(device for pod in world.listed for container in pod.containers for device in container.devices)
        assert max(held.values(), default=1) == 1
        assert held.keys() <= {offer for gpu in world.gpus for offer in gpu.offers}


@pytest.mark.parametrize("kind", [Hami, Volcano, Gpushare, Ascend])
def test_the_kubelet_picks_ids_of_any_gpu(kind: type[SimulatedAllocator], time: Time) -> None:
    allocator = kind()
    world = World(gpus=8, allocator=allocator, clock=time, seed=5)
    gpu_of = {token: gpu.uuid for gpu in world.gpus for token in gpu.tokens}
    hits = []
    for _ in range(40):
        time.sleep(5)
        world.live()
        hits += [
            {gpu_of[token] for token in container.devices} == {part.uuid for part in container.parts}
            for pod in world.pods
            for container in pod.containers
            if container.parts
        ]
    assert sum(hits) < len(hits) / 3


@pytest.mark.parametrize("scaling", [1.0, 2.5])
def test_an_allocator_promises_more_than_there_is_only_if_it_is_told_to(scaling: float, time: Time) -> None:
    world = World(gpus=2, allocator=Hami(scaling=scaling), clock=time, seed=5)
    most = 0.0
    for _ in range(100):
        time.sleep(5)
        world.live()
        memory: defaultdict[str, float] = defaultdict(float)
        for parts in given(world.pods).values():
            for part in parts:
                memory[part.uuid] += part.of_memory
        most = max(most, *memory.values())
    assert 0.7 * scaling < most <= scaling


# HAMi, pkg/device/devices.go: EncodePodSingleDevice; volcano, .../nvidia/vgpu/utils.go: encodePodDevices, resourcereqs
@pytest.mark.parametrize(
    ("allocator", "name", "shapes"),
    [
        (Hami(), "hami.io/vgpu-devices-allocated", {"x;;", ";x;", "xx;;", ";x;;", ";;x;x;"}),
        (Hami(counts_init_containers=False), "hami.io/vgpu-devices-allocated", {"x;;", ";x;", "xx;;", "x;x;", "x;"}),
        (OlderHami(), "4pd.io/vgpu-ids-new", {"x;", ";x", "xx;", "x;x", "x"}),
        (Volcano(), "volcano.sh/vgpu-ids-new", {"x", "xx", "x;x"}),
    ],
)
def test_hamis_annotation_has_a_place_for_each_container(
    allocator: Hami, name: str, shapes: set[str], time: Time
) -> None:
    written = set()
    for pod in lived(allocator, time):
        text = annotation(pod, name)
        places = text.split(";")[:-1] if type(allocator) is Hami else text.split(";")
        init_containers, containers = pod.in_spec
        counted = (*init_containers, *containers) if allocator.counts_init_containers else containers
        if isinstance(allocator, Volcano):
            counted = tuple(container for container in counted if container.parts)
        for place, container in zip(places, counted, strict=True):
            assert place == "".join(
                f"{part.uuid},NVIDIA,{part.memory_mib},{part.cores_percent or 0}:" for part in container.parts
            )
        written.add(re.sub(rf"{UUID},NVIDIA,\d+,\d+:", "x", text))
    assert shapes <= written, written


# HAMi and volcano-vgpu-device-plugin, server.go: Allocate
def test_hamis_variables_say_what_the_container_has(time: Time) -> None:
    for pod in lived(Hami(), time):
        for container in pod.containers:
            assert bool(container.environment) is bool(container.parts)
            if not container.parts:
                continue
            variables = dict(container.environment)
            assert variables["NVIDIA_VISIBLE_DEVICES"] == ",".join(part.uuid for part in container.parts)
            assert variables["CUDA_DEVICE_SM_LIMIT"] == str(container.parts[0].cores_percent or 0)
            for number, part in enumerate(container.parts):
                assert variables[f"CUDA_DEVICE_MEMORY_LIMIT_{number}"] == f"{part.memory_mib}m"
            assert container.limits[GPU_RESOURCE] == len(container.parts) == len(container.devices)
            assert container.limits["nvidia.com/gpumem"] == container.parts[0].memory_mib


def test_hami_offers_ten_shares_of_a_gpu() -> None:
    world = World(gpus=2, allocator=Hami())
    offers = [offer for gpu in world.gpus for offer in gpu.offers]
    assert offers == [(GPU_RESOURCE, f"{gpu.uuid}-{number}") for gpu in world.gpus for number in range(10)]


def test_hami_that_aligns_ids_gives_what_the_ids_say(time: Time) -> None:
    is_wrong = set()
    for pod in lived(Hami(is_aligned=True, unkindness=Unkindness(wrong=4)), time):
        for container in pod.containers:
            assert [token.rpartition("-")[0] for _, token in container.devices] == [
                part.uuid for part in container.parts
            ]
            is_wrong |= {part.uuid in annotation(pod, "hami.io/vgpu-devices-allocated") for part in container.parts}
    assert is_wrong == {False, True}


# volcano-vgpu-device-plugin, pkg/plugin/server.go: <uuid>-memory-<n>, <uuid>-core-<n>
def test_volcanos_ids_of_memory_count(time: Time) -> None:
    allocator = Volcano(memory_unit_mib=256)
    for pod in lived(allocator, time, gpus=4):
        for container in (one for one in pod.containers if one.parts):
            count = Counter(resource for resource, _ in container.devices)
            part = container.parts[0]
            assert part.memory_mib is not None
            assert count["volcano.sh/vgpu-memory"] == part.memory_mib / 256
            assert f",{part.memory_mib // 256}," in annotation(pod, "volcano.sh/vgpu-ids-new")
    offers = Counter(re.sub(UUID, "<uuid>", offer[1]).rpartition("-")[0] for offer in allocator.gpus[0].offers)
    assert offers == {"<uuid>": 10, "<uuid>-memory": H100.memory // 256, "<uuid>-core": 100}


# gpushare-scheduler-extender, pkg/utils/pod.go: GetUpdatedPodAnnotationSpec; gpushare-device-plugin, allocate.go
@pytest.mark.parametrize("unit_mib", [1024, 256])
def test_gpushare_writes_an_index_and_a_pod_has_one_gpu(unit_mib: int, time: Time) -> None:
    allocator = Gpushare(unit_mib=unit_mib)
    for pod in lived(allocator, time):
        parts = [part for container in pod.containers for part in container.parts]
        (gpu,) = {part.uuid for part in parts}
        assert annotation(pod, "ALIYUN_COM_GPU_MEM_IDX") == str(allocator.index(gpu))
        assert annotation(pod, "ALIYUN_COM_GPU_MEM_POD") == str(sum(part.memory_mib or 0 for part in parts) // unit_mib)
        for container in (one for one in pod.containers if one.parts):
            assert len(container.devices) * unit_mib == container.parts[0].memory_mib
            assert dict(container.environment)["NVIDIA_VISIBLE_DEVICES"] == str(allocator.index(gpu))
    assert len(allocator.gpus[0].offers) == H100.memory // unit_mib
    assert allocator.gpus[0].offers[7] == ("aliyun.com/gpu-mem", f"{allocator.gpus[0].uuid}-_-7")


def test_acks_json_has_the_position_of_the_container(time: Time) -> None:
    allocator = AckGpushare()
    positions = set()
    for pod in lived(allocator, time):
        allocation = json.loads(annotation(pod, "scheduler.framework.gpushare.allocation"))
        positions.add(tuple(allocation))
        assert allocation == {
            str(position): {str(allocator.index(part.uuid)): (part.memory_mib or 0) // 1024 for part in container.parts}
            for position, container in enumerate(pod.in_spec[1])
            if container.parts
        }
    assert positions == {("0",), ("1",), ("0", "1")}


# ascend-device-plugin: AscendReal is what it gave, kltDev what the kubelet had picked
def test_ascend_writes_what_it_gave_and_what_the_kubelet_picked(time: Time) -> None:
    allocator = Ascend()
    for pod in lived(allocator, time):
        (container,) = (one for one in pod.containers if one.parts)
        real = ",".join(f"Ascend910-{allocator.index(part.uuid)}" for part in container.parts)
        assert annotation(pod, "huawei.com/AscendReal") == annotation(pod, "huawei.com/Ascend910") == real
        assert annotation(pod, "huawei.com/kltDev") == ",".join(token for _, token in container.devices)
        assert dict(container.environment)["ASCEND_VISIBLE_DEVICES"] == real.replace("Ascend910-", "")


# KAI-Scheduler, pkg/binder/binding/resourcereservation/resource_reservation.go
@pytest.mark.parametrize(
    ("kind", "namespace"), [(Kai, "kai-resource-reservation"), (RunAi, "runai-reservation")], ids=["KAI", "Run:ai"]
)
def test_a_reservation_pod_holds_a_gpu_as_long_as_others_have_parts_of_it(
    kind: type[SimulatedAllocator], namespace: str, time: Time
) -> None:
    world = World(gpus=4, allocator=kind(), clock=time, seed=5)
    groups: defaultdict[str, set[str]] = defaultdict(set)  # by GPU
    sizes = set()
    for _ in range(100):
        time.sleep(5)
        world.live()
        reserved: dict[str, str] = {}  # groups, and their GPUs
        for pod in world.listed:
            if pod.namespace == namespace:
                (container,) = pod.containers
                ((resource, gpu),) = container.devices
                assert (container.name, resource) == ("resource-reservation", GPU_RESOURCE)
                assert annotation(pod, "run.ai/reserve_for_gpu_index") == gpu
                reserved[dict(pod.labels)["runai-gpu-group"]] = gpu
        assert len(set(reserved.values())) == len(reserved)
        had = {part.uuid for parts in given(world.pods).values() for part in parts}
        assert set(reserved.values()) == had
        for pod in world.listed:
            parts = [part for container in pod.containers for part in container.parts]
            of_pod = [group for name, group in pod.labels if name.startswith("runai-gpu-group")]
            if pod.namespace != namespace:
                assert [reserved[group] for group in of_pod] == [part.uuid for part in parts]
                assert not any(container.devices for container in pod.containers)
                sizes |= {name for name, _ in pod.annotations if name.startswith("gpu-")}
        for group, gpu in reserved.items():
            groups[gpu].add(group)
    assert max(map(len, groups.values())) > 1, "a group ends with its last pod"
    assert sizes == {"gpu-fraction", "gpu-memory", "gpu-fraction-container-name", "gpu-fraction-num-devices"}


def test_koordinators_annotation_is_of_the_pod(time: Time) -> None:
    allocator = Koordinator()
    for pod in lived(allocator, time):
        (container,) = (one for one in pod.containers if one.parts)
        devices = json.loads(annotation(pod, "scheduling.koordinator.sh/device-allocated"))["gpu"]
        assert [device["minor"] for device in devices] == [allocator.index(part.uuid) for part in container.parts]
        for device, part in zip(devices, container.parts, strict=True):
            assert device["resources"]["koordinator.sh/gpu-memory"] == f"{part.memory_mib}Mi"
            assert device["resources"]["koordinator.sh/gpu-core"] == str(part.cores_percent)


@pytest.mark.parametrize("kind", ALL)
def test_a_word_comes_late(kind: type[SimulatedAllocator], time: Time) -> None:
    world = World(gpus=8, allocator=kind(unkindness=Unkindness(late_seconds=5)), clock=time, seed=5)
    shown = {pod.uid: (pod.annotations, pod.labels) for pod in world.seen if pod.note is None}
    time.sleep(5)
    later = {pod.uid: (pod.annotations, pod.labels) for pod in world.seen}
    assert shown.keys() == later.keys()
    changed = {uid for uid in shown if later[uid] != shown[uid]}
    assert changed == {pod.uid for pod in world.pods if pod.note}
    assert all(pod.seen_at(pod.note.at_ns - 1).annotations == pod.annotations for pod in world.pods if pod.note)


@pytest.mark.parametrize("kind", ALL)
def test_some_words_are_faulty_and_each_says_so(kind: type[SimulatedAllocator], time: Time) -> None:
    kind_of_faults = Unkindness(broken=4, foreign=4, wrong=4)
    world = World(gpus=8, allocator=kind(unkindness=kind_of_faults), clock=time, seed=5)
    good = kind()
    good.begin(world.gpus, tuple, time)
    faults: Counter[str] = Counter()
    uids = set()
    for _ in range(75):
        time.sleep(5)
        world.live()
        for pod in world.pods:
            if pod.uid in uids or pod.note is None or not any(container.parts for container in pod.containers):
                continue
            uids.add(pod.uid)
            faults[pod.note.fault] += 1
            if isinstance(good, Kai):
                continue  # its groups have no names of their own
            named = {container.name: container.parts for group in pod.in_spec for container in group}
            true = dict(good.words(pod, named).annotations)
            stamps = {name for name in true if "time" in name.lower()}
            differs = any(true[name] != text for name, text in pod.note.annotations if name not in stamps)
            assert differs is bool(pod.note.fault), (pod.note, true)
    assert faults.keys() == {"", "broken", "foreign", "wrong"}


def test_processes_run_where_the_allocator_put_them(time: Time) -> None:
    world = World(gpus=8, allocator=Hami(), clock=time, seed=5)
    time.sleep(600)
    world.machine.advance()
    used = {(work.namespace, work.pod, work.container): set[str]() for work in world.machine.running()}
    for work in world.machine.running():
        used[work.namespace, work.pod, work.container].add(work.device_id)
    assert used == {container: {part.uuid for part in parts} for container, parts in given(world.pods).items()}


def test_a_part_of_a_gpu_is_of_its_memory() -> None:
    assert Part(uuid="a").of_memory == 1
    assert Part(uuid="a", fraction=0.25).of_memory == 0.25
    assert Part(uuid="a", memory_mib=H100.memory // 2).of_memory == pytest.approx(0.5, abs=0.001)


def test_what_an_allocator_leaves_goes_out_as_ever() -> None:
    world = World(gpus=6, shared=1, mig=1, whole=2, allocator=Hami())
    resources = [{resource for resource, _ in gpu.offers} for gpu in world.gpus]
    assert resources == [
        {GPU_RESOURCE},
        {GPU_RESOURCE},
        {GPU_RESOURCE},
        {GPU_RESOURCE},
        {"nvidia.com/gpu.shared"},
        {"nvidia.com/mig-1g.10gb"},
    ]
    assert [len(gpu.seats) for gpu in world.gpus] == [0, 0, 4, 4, 0, 0]
    assert Container(name="main").limits == {}


@pytest.mark.parametrize("kind", ALL)
def test_both_apis_have_specs_and_annotations(kind: type[SimulatedAllocator], time: Time) -> None:
    resources = set()
    for pod in lived(kind(), time, gpus=4):
        names = frozenset(name for name, _ in pod.annotations)
        of_kubelet = parse_pod(pod_message(pod), names)
        of_api = read_pod(json.loads(json.dumps(kubernetes.pod_object(pod, "gpu-node-1"))), names)
        assert of_kubelet == of_api
        assert dict(of_api.annotations) == dict(pod.annotations)
        assert [container.name for container in of_api.containers if container.is_init] == [
            container.name for container in pod.in_spec[0]
        ]
        resources |= {resource for container in of_api.containers for resource in container.resources}
    if kind.resource:
        assert resources >= {kind.resource}


# kubernetes, pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go; device plugin API v1beta1
async def test_the_kubelet_keeps_what_plugins_answered() -> None:
    node = allocated_node(Hami(), gpus=4, whole=1)
    node.has_device_checkpoint = True
    path = node.socket.parent / "device-plugins" / "kubelet_internal_checkpoint"
    await node.start()
    node.world.pods = tuple(node.world.pods)
    node.listed()
    data = json.loads(path.read_text())["Data"]
    assert {resource: len(ids) for resource, ids in data["RegisteredDevices"].items()} == {GPU_RESOURCE: 31}
    entries = {(entry["PodUID"], entry["ContainerName"]): entry for entry in data["PodDeviceEntries"]}
    for pod in node.world.pods:
        for container in (*pod.init_containers, *pod.containers):
            entry = entries.pop((pod.uid, container.name), None)
            assert bool(entry) is bool(container.devices)
            if entry is None:
                continue
            assert entry["DeviceIDs"] == {"-1": [token for _, token in container.devices]}
            given_devices = ",".join(part.uuid for part in container.parts) or container.devices[0][1]
            answer = base64.b64decode(entry["AllocResp"])
            visible = b"NVIDIA_VISIBLE_DEVICES"
            length = len(given_devices)
            inner = bytes([0x0A, len(visible)]) + visible + bytes([0x12, length]) + given_devices.encode()
            assert bytes([0x0A, len(inner)]) + inner in answer or len(inner) > 127
    assert not entries
    await node.stop()


def test_a_pod_is_made_anew_under_its_name(time: Time) -> None:
    world = World(gpus=8, allocator=Hami(), clock=time, seed=5)
    for _ in range(30):
        old = next(pod for pod in world.pods if pod.note)
        new = world.remake(old)
        assert (new.namespace, new.name) == (old.namespace, old.name)
        assert new.uid != old.uid
        assert old not in world.pods
        assert new in world.pods
        assert new.note
