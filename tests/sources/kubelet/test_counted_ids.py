"""A container with as many ids as it has MiB costs as many objects as it has GPUs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter._gen import podresources_v1_pb2 as v1
from exporter.accounts.holdings import gpus_of
from exporter.errors import Malformed
from exporter.model.devices import Assignment, DeviceKey, Inventory
from exporter.model.pages import Subject
from exporter.model.slices import at_once
from exporter.ownership.counted_ids import counted
from exporter.ownership.device_health import GRACE_SECONDS, HealthWatch
from exporter.sources.kubelet.allocatable import parse as parse_offers
from exporter.sources.kubelet.pod_resources import MOST_ASSIGNMENTS, ListReader, parse
from tests.support.owners import build_owners

MEMORY = "aliyun.com/gpu-mem"
NUMBER = "volcano.sh/vgpu-number"
GLOBS = ("aliyun.com/*", "volcano.sh/*")
MIB = 80 * 1024
GPUS = [f"GPU-0000000{number}-0000-0000-0000-000000000000" for number in range(8)]
# a container's half of a GPU, and the ids of it
HALF = 40_960


def a_pod(name: str, *devices: tuple[str, list[str]], of_container: str = "main") -> v1.PodResources:
    of = [v1.ContainerDevices(resource_name=resource, device_ids=ids) for resource, ids in devices]
    return v1.PodResources(namespace="ml", name=name, containers=[v1.ContainerResources(name=of_container, devices=of)])


def answer(*pods: v1.PodResources) -> bytes:
    return v1.ListPodResourcesResponse(pod_resources=pods).SerializeToString()


def offering(resource: str, *entries: list[str]) -> bytes:
    devices = [v1.ContainerDevices(resource_name=resource, device_ids=ids) for ids in entries]
    return v1.AllocatableResourcesResponse(devices=devices).SerializeToString()


def ids_of(gpu: str, first: int, count: int) -> list[str]:
    return [f"{gpu}-_-{number}" for number in range(first, first + count)]


# issue 24, part 2
def test_sixteen_pods_with_half_a_gpu_each_are_sixteen_assignments() -> None:
    pods = [a_pod(f"p{number}", (MEMORY, ids_of(GPUS[number // 2], number % 2 * HALF, HALF))) for number in range(16)]
    found = parse(answer(*pods), resources=GLOBS)
    assert len(found.assignments) == 16
    assert {assignment.count for assignment in found.assignments} == {HALF}
    assert not any(assignment.units for assignment in found.assignments), "units name no GPU, these do"
    assert {assignment.device_id for assignment in found.assignments if assignment.owner.pod == "p1"} == {
        min(ids_of(GPUS[0], HALF, HALF))
    }


# issue 24, part 2
def test_ids_of_several_gpus_are_an_assignment_for_each() -> None:
    entries = [(MEMORY, [*ids_of(GPUS[0], 5, 3), *ids_of(GPUS[1], 0, 2)]), (MEMORY, ids_of(GPUS[0], 8, 4))]
    found = parse(answer(a_pod("p", *entries)), resources=GLOBS)
    assert {(assignment.device_id, assignment.count) for assignment in found.assignments} == {
        (f"{GPUS[0]}-_-10", 7),
        (f"{GPUS[1]}-_-0", 2),
    }


# issue 24, part 2
def test_what_only_counts_is_left_out_and_is_not_outside_either() -> None:
    memory = [f"{GPUS[0]}-memory-{number}" for number in range(HALF)]
    cores = [f"{GPUS[0]}-core-{number}" for number in range(100)]
    pod = a_pod("p", (NUMBER, [f"{GPUS[0]}-3"]), ("volcano.sh/vgpu-memory", memory), ("volcano.sh/vgpu-cores", cores))
    found = parse(answer(pod), resources=GLOBS)
    assert [assignment.device_id for assignment in found.assignments] == [f"{GPUS[0]}-3"]
    outside = parse(answer(pod), resources=("nvidia.com/*",))
    assert not outside.assignments
    assert [assignment.resource for assignment in outside.outside] == [NUMBER]
    assert parse_offers(offering("volcano.sh/vgpu-memory", memory), GLOBS) == {}


# issue 24, part 2
def test_counted_ids_that_resources_leave_out_are_explained_in_one_line() -> None:
    found = parse(answer(a_pod("p", (MEMORY, ids_of(GPUS[0], 0, HALF)))), resources=("nvidia.com/*",))
    assert [assignment.device_id for assignment in found.outside] == [f"{GPUS[0]}-_-0"]


# issue 24, part 2
def test_a_node_that_offers_every_mib_offers_eight_things() -> None:
    offers = parse_offers(offering(MEMORY, *(ids_of(gpu, 0, MIB) for gpu in GPUS)), GLOBS)
    assert dict(offers[MEMORY]) == {f"{gpu}-_-0": MIB for gpu in GPUS}


# issue 24, part 2
def test_ids_of_as_many_gpus_as_no_node_has_are_refused() -> None:
    many = [f"GPU-{number}-_-0" for number in range(MOST_ASSIGNMENTS + 1)]
    with pytest.raises(Malformed, match="at most"):
        parse(answer(a_pod("p", (MEMORY, many))), resources=GLOBS)
    with pytest.raises(Malformed, match="at most"):
        parse_offers(offering(MEMORY, many), GLOBS)


# issue 24, part 2
def test_a_part_of_the_only_gpu_is_the_part_of_its_ids() -> None:
    pods = [a_pod("a", (MEMORY, ids_of(GPUS[0], 0, HALF))), a_pod("b", (MEMORY, ids_of(GPUS[0], HALF, 10_240)))]
    offers = parse_offers(offering(MEMORY, ids_of(GPUS[0], 0, HALF), ids_of(GPUS[0], HALF, HALF)), GLOBS)
    subjects = {Subject(uuid=GPUS[0]): 1}
    owners = build_owners(parse(answer(*pods), resources=GLOBS).assignments, subjects, None, offers)
    assert owners.offered == {(MEMORY, DeviceKey(uuid=GPUS[0])): MIB}
    (gpu,) = at_once(gpus_of(owners, subjects, Inventory(), {}, {})).values()
    (device,) = gpu.devices
    assert {owner.pod: part / gpu.whole for owner, part in device.holders} == {"a": 0.5, "b": 0.125}
    # what is held is on offer, whichever id of the GPU a container has first
    watch = HealthWatch()
    watch.look(owners, {}, offers, 0.0)
    assert watch.look(owners, {}, offers, GRACE_SECONDS) == {}
    assert watch.doubted_at is None


# issue 24, part 2
def test_an_unchanged_pod_keeps_its_assignments_as_objects() -> None:
    reader = ListReader(GLOBS)
    pod = a_pod("p", (MEMORY, ids_of(GPUS[0], 0, HALF)))
    (before,) = reader.read(answer(pod)).assignments
    (after,) = (
        each for each in reader.read(answer(pod, a_pod("q", (MEMORY, ["x"])))).assignments if each.owner.pod == "p"
    )
    assert after is before
    assert isinstance(after, Assignment)


@given(st.lists(st.text(alphabet="a-_0", max_size=8), max_size=20))
def test_counts_add_up_to_the_ids_whatever_these_are(ids: list[str]) -> None:
    found = counted(set(ids))
    assert sum(found.values()) == len(set(ids))
    assert found.keys() <= set(ids)
    assert counted(set(found)).keys() == found.keys()
