"""CDI specs, as NVIDIA's tools write them, and the driver's list of MIG capabilities."""

from typing import Any

import pytest

from exporter.model.devices import CdiPlace, InventoryGpu, MigInstance
from exporter.ownership.inventories import (
    CdiDevice,
    CutPlace,
    inventory_of,
    read_mig_minors,
    read_spec,
)

GPU = "GPU-82523fd8-3897-f599-d088-ccd04ae45ec1"
OTHER = "GPU-92523fd8-3897-f599-d088-ccd04ae45ec1"
MIG = "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"
SECOND = "MIG-d7384736-a75d-5afc-978f-d2f1294409fd"
CAPS = "/dev/nvidia-caps/nvidia-cap"
# of an 8-GPU node: the numbers go on from GPU to GPU, 135 each
MINORS = """config 1
monitor 2
gpu0/gi7/access 66
gpu0/gi7/ci0/access 67
gpu0/gi7/ci1/access 68
gpu0/gi8/access 75
gpu0/gi8/ci0/access 76
gpu1/gi7/access 201
gpu1/gi7/ci0/access 202
"""
PLACES = read_mig_minors(MINORS, set(range(1000)))


def device(name: object, *paths: object, **more: object) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": path, **more} for path in paths]}}


def spec(*devices: object, kind: str = "nvidia.com/gpu") -> dict[str, Any]:
    common = {"deviceNodes": [{"path": "/dev/nvidiactl"}], "env": ["NVIDIA_VISIBLE_DEVICES=void"]}
    return {"cdiVersion": "0.5.0", "kind": kind, "devices": list(devices), "containerEdits": common}


def of(uuid: str, minors: set[int], caps: set[int] | None = None) -> CdiDevice:
    return CdiDevice(uuid=uuid, minors=frozenset(minors), caps=frozenset(caps or ()))


@pytest.mark.parametrize(
    ("content", "devices"),
    [
        pytest.param(
            spec(device("0", "/dev/nvidia0"), device(GPU, "/dev/nvidia0"), device("all", "/dev/nvidia0")),
            [of(GPU, {0})],
            id="the toolkit: by index, by UUID, and all",
        ),
        pytest.param(
            spec(device("0:0", "/dev/nvidia0", f"{CAPS}66"), device(MIG, "/dev/nvidia0", f"{CAPS}66", f"{CAPS}67")),
            [of(MIG, {0}, {66, 67})],
            id="the toolkit: a MIG instance",
        ),
        pytest.param(
            spec(device(GPU, "/dev/dri/card1", "/dev/nvidia3", "/dev/dri/renderD129")), [of(GPU, {3})], id="DRM nodes"
        ),
        pytest.param(
            spec(device(GPU, "/dev/nvidia0", hostPath="/run/nvidia/driver/dev/nvidia0")),
            [of(GPU, {0})],
            id="a driver in a container",
        ),
        pytest.param(
            spec(device(MIG, "/run/nvidia/driver/dev/nvidia1", f"/run/nvidia/driver{CAPS}201")),
            [of(MIG, {1}, {201})],
            id="a root before the path itself",
        ),
        pytest.param(
            spec(device(GPU, "/x", hostPath="/run/nvidia/driver/dev/nvidia5")), [of(GPU, {5})], id="another path inside"
        ),
        pytest.param(
            spec(device(GPU, "/dev/nvidia0"), kind="k8s.device-plugin.nvidia.com/gpu"),
            [of(GPU, {0})],
            id="the device plugin",
        ),
        pytest.param(
            spec(
                device("c8593c85-440d-4156-b199-aea592ff83df-gpu-0-mig-1g18gb-19-0", f"{CAPS}66"),
                kind="k8s.gpu.nvidia.com/claim",
            ),
            [],
            id="the DRA driver names a device by its claim: test_claims_by_spec.py",
        ),
        pytest.param(spec(device(MIG, "/dev/nvidiactl", "/dev/nvidia-uvm", f"{CAPS}x")), [], id="no node of a GPU"),
        pytest.param(spec(device(MIG, "/dev/nvidia0/../1", "/dev/nvidia12345678")), [], id="odd paths"),
        pytest.param(spec({"name": MIG}, {"name": [MIG]}, [], "x", device(None, "/dev/nvidia0")), [], id="odd devices"),
        pytest.param(spec(device(MIG, 5, None, {"a": 1}, [])), [], id="paths that are no texts"),
        pytest.param(
            spec({"name": MIG, "containerEdits": {"deviceNodes": {"path": "/dev/nvidia0"}}}), [], id="no list"
        ),
        pytest.param(spec({"name": MIG, "containerEdits": []}), [], id="odd edits"),
        pytest.param(spec(device("GPU-1; rm", "/dev/nvidia0")), [], id="a name that is no UUID"),
        pytest.param(spec(device(GPU, *["/dev/x"] * 63, "/dev/nvidia0")), [of(GPU, {0})], id="many nodes"),
        pytest.param(spec(device(GPU, *["/dev/x"] * 64, "/dev/nvidia0")), [], id="too many nodes"),
        pytest.param(spec(device(MIG, f"{CAPS}66")), [of(MIG, set(), {66})], id="capabilities alone"),
        pytest.param(
            spec({"name": GPU, "containerEdits": {"deviceNodes": [{"path": 5, "hostPath": "/dev/nvidia4"}]}}),
            [of(GPU, {4})],
            id="a path on the host alone",
        ),
        pytest.param(spec(), [], id="no device"),
    ],
)
def test_a_spec(content: object, devices: list[CdiDevice]) -> None:
    assert [device for device in read_spec(content) if not device.name] == devices


@pytest.mark.parametrize("content", [None, [], "x", {}, {"devices": {}}, {"devices": "x"}, {"cdiDevices": []}])
def test_what_is_no_spec(content: object) -> None:
    with pytest.raises(ValueError, match="no list `devices`"):
        read_spec(content)


def test_a_spec_with_too_many_devices() -> None:
    with pytest.raises(ValueError, match="4097 devices; 4096 are read"):
        read_spec(spec(*[device("0", "/dev/nvidia0")] * 4097))
    assert len(read_spec(spec(*[device("0", "/dev/nvidia0")] * 4096))) == 4096
    two = spec(device(GPU, "/dev/nvidia0"), device(OTHER, "/dev/nvidia1"))
    with pytest.raises(ValueError, match="too many devices"):
        read_spec(two, 1)
    assert len(read_spec(two, 2)) == 2


@pytest.mark.parametrize(("kind", "name", "qualified"), [("a.b/c", "x", "a.b/c=x"), ("", "x", ""), ("a.b/c", "", "")])
def test_a_device_by_another_name_than_a_uuid_has_a_qualified_one(kind: str, name: str, qualified: str) -> None:
    devices = read_spec(spec(device(name, "/dev/nvidia3", f"{CAPS}66"), kind=kind))
    expected = CdiDevice(uuid="", minors=frozenset({3}), caps=frozenset({66}), name=qualified)
    assert devices == ((expected,) if qualified else ())


def test_the_list_of_capabilities() -> None:
    assert PLACES[66] == PLACES[67] == PLACES[68] == CutPlace(0, 7)
    assert PLACES[202] == CutPlace(1, 7)
    assert not {1, 2} & PLACES.keys()
    assert read_mig_minors(MINORS, {75}) == {75: CutPlace(0, 8)}
    hostile = (
        "gpu0/gi7/access 66 \n gpu0/gi7/access 67\ngpu0/gi7/ci0/ci1/access 68\ngpu-1/gi7/access 69\ngpu0/gi7/access\n"
    )
    assert read_mig_minors(hostile + "gpu0/gi99999999/access 70", set(range(100))) == {}


def found(**specs: list[CdiDevice]) -> tuple[dict[str, dict[str, str]], list[str], set[str]]:
    """By device name or UUID the instances, each with its id; then what is in doubt, and what is left out."""
    inventory = inventory_of(specs, PLACES)
    doubts = inventory.doubts
    return (
        {gpu.uuid or gpu.device: {mig.uuid: mig.instance_id for mig in gpu.mig} for gpu in inventory.gpus},
        [doubt.trouble.message for doubt in doubts],
        {uuid for doubt in doubts for uuid in doubt.leaves_out},
    )


def test_an_instance_is_known_by_its_parents_device_and_a_gpu_by_its_uuid() -> None:
    inventory = inventory_of({"a": (of(GPU, {1}), of(MIG, {0}, {66, 67}), of(SECOND, {0}, {75, 76}))}, PLACES)
    assert inventory.gpus == (
        InventoryGpu(uuid=GPU, device="nvidia1"),
        InventoryGpu(
            uuid="",
            device="nvidia0",
            mig=(MigInstance(uuid=MIG, instance_id="7"), MigInstance(uuid=SECOND, instance_id="8")),
        ),
    )
    assert inventory.doubts == ()


@pytest.mark.parametrize("nodes", [{66, 67}, {66}, {67}, {66, 68}, {67, 999}])
def test_one_of_an_instances_two_capabilities_is_enough(nodes: set[int]) -> None:
    assert found(a=[of(MIG, {0}, nodes)]) == ({"nvidia0": {MIG: "7"}}, [], set())
    assert found(a=[of(MIG, set(), nodes)]) == ({"nvidia0": {MIG: "7"}}, [], set())
    assert found(a=[of(MIG, {0}, {998, 999})]) == ({}, [], set())


@pytest.mark.parametrize("minors", [{0}, {1}, {0, 1}])
def test_nodes_of_two_gpus_or_instances_are_in_doubt(minors: set[int]) -> None:
    instances, (says,), left_out = found(a=[of(MIG, minors, {66, 202})], b=[of(MIG, {0}, {66})])
    assert (instances, left_out) == ({}, {MIG})
    assert says.startswith(f"{MIG}: a gives it device nodes of several")


def test_nodes_of_another_gpu_than_the_capability_are_in_doubt() -> None:
    assert found(a=[of(MIG, {1}, {66, 67})])[2] == {MIG}


def test_specs_that_contradict_each_other() -> None:
    same = of(SECOND, {0}, {75, 76})
    instances, (says,), left_out = found(a=[of(MIG, {0}, {66, 67}), same], b=[of(MIG, {1}, {201, 202}), same])
    assert (instances, left_out) == ({"nvidia0": {SECOND: "8"}}, {MIG})
    assert says == f"{MIG}: a says it is GPU instance 7 of nvidia0, b says it is GPU instance 7 of nvidia1"
    gpus = inventory_of({"a": (of(GPU, {0}),), "b": (of(GPU, {1}),)}, PLACES)
    assert gpus.gpus == (InventoryGpu(uuid=GPU),)
    assert [doubt.trouble.message for doubt in gpus.doubts] == [f"{GPU}: a says it is nvidia0, b says it is nvidia1"]
    assert gpus.doubts[0].leaves_out == frozenset()
    both = inventory_of({"a": (of(GPU, {0}),), "b": (of(GPU, {0}),)}, PLACES)
    assert (both.gpus, both.doubts) == ((InventoryGpu(uuid=GPU, device="nvidia0"),), ())


def by_name(minors: set[int], caps: set[int] | None = None) -> CdiDevice:
    return of("", minors, caps)._replace(name="k=x")


@pytest.mark.parametrize(
    ("devices", "place"),
    [
        ([by_name({3})], CdiPlace(minor="3")),
        ([by_name(set())], CdiPlace(minor="")),
        ([by_name({0}, {66, 67})], CdiPlace(minor="0", instance="7")),
        ([by_name(set(), {201})], CdiPlace(minor="1", instance="7")),
        # nodes of two GPUs, of two instances, of an instance that nobody knows
        ([by_name({0, 1})], None),
        ([by_name({1}, {66})], None),
        ([by_name({0}, {66, 75})], None),
        ([by_name({0}, {999})], None),
        # files that agree, that disagree, and of which one says nothing clear
        ([by_name({3}), by_name({3})], CdiPlace(minor="3")),
        ([by_name({3}), by_name({4})], None),
        ([by_name({3}), by_name({0, 1})], None),
    ],
)
def test_a_qualified_name_leads_to_one_place_or_to_none(devices: list[CdiDevice], place: CdiPlace | None) -> None:
    inventory = inventory_of({f"f{number}": (device,) for number, device in enumerate(devices)}, PLACES)
    assert inventory.places == {"k=x": place}
    assert inventory.gpus == ()
    is_contradiction = devices == [by_name({3}), by_name({4})]
    assert [doubt.leaves_out for doubt in inventory.doubts] == [frozenset()] * is_contradiction
