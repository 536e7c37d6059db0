"""Which device of the node a reference means, name by name."""

import pytest

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import DeviceKey, Inventory, InventoryGpu, MigInstance
from exporter.model.pages import Subject
from exporter.ownership.device_names import NodeDevices, rivals_among

X, Y = (f"GPU-{number}567a9e7-341e-bb7e-fcf5-788d8caa50f9" for number in range(2))
MIG = tuple(MigInstance(uuid=f"MIG-{number}", instance_id=number, profile="1g.10gb") for number in "78")
# the driver counts minor numbers in another order than NVML counts GPUs
INVENTORY = Inventory(
    gpus=(InventoryGpu(uuid=X, index="0", device="nvidia1", mig=MIG), InventoryGpu(uuid=Y, index="1", device="nvidia0"))
)
PAGE = {Subject(uuid=X, index="0"): 3, Subject(uuid=Y, index="1"): 3}


def ref(**parts: object) -> DeviceRef:
    return DeviceRef(form="x", **parts)  # type: ignore[arg-type]  # parts of a reference, by name


def key(uuid: str, instance: str = "") -> DeviceKey:
    return DeviceKey(uuid=uuid, instance=instance)


@pytest.mark.parametrize(
    ("meant", "expected"),
    [
        (ref(minor="1"), key(X)),
        (ref(minor="0"), key(Y)),
        (ref(minor="1", instance="7"), key(X, "7")),
        # a device node and a UUID that agree, and that do not
        (ref(minor="1", uuid=X), key(X)),
        (ref(minor="1", uuid=X.removeprefix("GPU-")), key(X)),
        (ref(minor="1", uuid=Y), None),
        (ref(minor="1", mig="MIG-7", instance="7"), key(X, "7")),
        (ref(minor="1", mig="MIG-8", instance="7"), None),
        (ref(minor="1", mig="MIG-9", instance="7"), key(X, "7")),
        (ref(minor="1", mig="MIG-9", parent=Y, instance="7"), None),
        # a device node that nobody knows
        (ref(minor="5"), None),
        (ref(minor="5", uuid=X), key(X)),
        (ref(minor="5", mig="MIG-7"), key(X, "7")),
        # a virtual machine's GPU is none of the node's
        (ref(device="gpu-0", is_vfio=True), key("gpu-0")),
        (ref(device="gpu-0", minor="1", is_vfio=True), None),
        (ref(uuid=X.removeprefix("GPU-")), key(X.removeprefix("GPU-"))),
        (ref(mig="MIG-8"), key(X, "8")),
        (ref(device="nvidia1", index="1"), key(X)),
        (ref(index="1", instance="3"), key(Y, "3")),
        (ref(device="card5", index="9"), key("card5")),
        (ref(index="9"), key("9")),
        (ref(), None),
        (ref(allocator="HAMi"), None),
    ],
)
def test_the_device_that_a_reference_means(meant: DeviceRef, expected: DeviceKey | None) -> None:
    assert NodeDevices(PAGE, INVENTORY).key_of(meant, {}) == expected


def test_a_page_without_the_prefix_of_uuids_has_its_devices_by_bare_ones() -> None:
    page = {Subject(uuid=X.removeprefix("GPU-"), has_gpu_label=True): 3}
    devices = NodeDevices(page, Inventory())
    assert devices.key_of(ref(uuid=X), {}) == key(X.removeprefix("GPU-"))
    assert devices.key_of(ref(uuid=Y), {}) == key(Y)


def test_a_token_without_a_name_means_the_only_gpu_of_a_page() -> None:
    token = ref(allocator="HAMi")
    assert NodeDevices({Subject(uuid=X): 3, Subject(uuid=X, instance="7"): 3}, Inventory()).key_of(token, {}) == key(X)
    assert NodeDevices({}, INVENTORY).key_of(token, {}) is None


def test_an_instance_whose_uuid_is_known_is_no_other_ids_by_its_profile() -> None:
    wanted = ref(mig="MIG-9", profile="1g.10gb", parent=X)
    one = Inventory(gpus=(InventoryGpu(uuid=X, mig=MIG[:1]),))
    # the inventory has the instance's own UUID, and it is not this one
    assert NodeDevices({}, one).key_of(wanted, rivals_among([wanted])) == key("MIG-9")


def test_devices_are_made_anew_for_another_page_or_inventory() -> None:
    devices = NodeDevices(PAGE, INVENTORY)
    assert devices.are_of(PAGE, INVENTORY)
    assert devices.are_of(PAGE, Inventory(gpus=(*INVENTORY.gpus,)))
    assert not devices.are_of(dict(PAGE), INVENTORY)
    assert not devices.are_of(PAGE, Inventory(gpus=INVENTORY.gpus[:1]))


@pytest.mark.parametrize(
    ("page", "inventory", "refs", "before", "expected"),
    [
        ({Subject(uuid=X): 1}, Inventory(), [], (), (True, True)),
        ({Subject(uuid=X): 1}, Inventory(), [ref(uuid=X), ref(index="3")], (X.removeprefix("GPU-"),), (True, True)),
        ({Subject(uuid=X): 1}, Inventory(), [ref(uuid=Y)], (), (False, False)),
        ({Subject(uuid=X): 1}, Inventory(), [], ("another",), (False, False)),
        ({Subject(uuid=X, index="1"): 1}, Inventory(), [], (), (False, False)),
        ({Subject(uuid=X, index="0"): 1}, Inventory(), [], (), (True, True)),
        ({}, Inventory(), [ref(uuid=X)], (), (False, False)),
        # a GPU that is cut, once and twice
        ({Subject(uuid=X): 1}, Inventory(gpus=(InventoryGpu(uuid=X, mig=MIG[:1]),)), [], (), (False, True)),
        ({Subject(uuid=X): 1}, Inventory(gpus=(InventoryGpu(uuid=X, mig=MIG),)), [], (), (False, False)),
        ({Subject(uuid=X, instance="7"): 1}, Inventory(), [], (), (False, True)),
        ({Subject(uuid=X): 1}, Inventory(), [ref(mig="MIG-7"), ref(mig="MIG-7")], (), (True, True)),
        ({Subject(uuid=X): 1}, Inventory(), [ref(mig="MIG-7"), ref(mig="MIG-8")], (), (True, False)),
    ],
)
def test_of_what_a_node_has_only_one(
    page: dict[Subject, int],
    inventory: Inventory,
    refs: list[DeviceRef],
    before: tuple[str, ...],
    expected: tuple[bool, bool],
) -> None:
    sole = NodeDevices(page, inventory).sole(refs, frozenset(before))
    assert (sole.gpu, sole.instance) == expected
    assert sole.names(ref(uuid=X)), "an id that is no token names its device"
    assert (sole.names(ref(uuid=X, allocator="HAMi")), sole.names(ref(mig="MIG-7", allocator="HAMi"))) == expected


def test_the_samples_of_a_gpu_have_those_of_instances_that_nobody_holds() -> None:
    devices = NodeDevices({Subject(uuid=X): 1, Subject(uuid=X, instance="7"): 10, Subject(uuid=Y): 100}, Inventory())
    assert devices.samples_of(()) == {key(X): 11, key(X, "7"): 10, key(Y): 100}
    assert devices.samples_of([key(X, "7")]) == {key(X): 1, key(X, "7"): 10, key(Y): 100}
