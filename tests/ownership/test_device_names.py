"""Which device of the node a reference means, name by name."""

import pytest

from exporter.errors import Trouble
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import DeviceKey, Inventory, InventoryDoubt, InventoryGpu, MigInstance
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.ownership.device_names import NodeDevices, identity, rivals_among

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
    # a page that has both has the device by the UUID that the id gives
    both = NodeDevices({**page, Subject(uuid=X): 1}, Inventory())
    assert both.key_of(ref(uuid=X), {}) == key(X)
    assert both.key_of(ref(uuid=X.removeprefix("GPU-")), {}) == key(X.removeprefix("GPU-"))


def test_a_token_without_a_name_means_the_only_gpu_of_a_page() -> None:
    token = ref(allocator="HAMi")
    assert NodeDevices({Subject(uuid=X): 3, Subject(uuid=X, instance="7"): 3}, Inventory()).key_of(token, {}) == key(X)
    assert NodeDevices({}, INVENTORY).key_of(token, {}) is None


def test_an_instance_whose_uuid_is_known_is_no_other_ids_by_its_profile() -> None:
    wanted = ref(mig="MIG-9", profile="1g.10gb", parent=X)
    one = Inventory(gpus=(InventoryGpu(uuid=X, mig=MIG[:1]),))
    # the inventory has the instance's own UUID, and it is not this one
    assert NodeDevices({}, one).key_of(wanted, rivals_among([wanted])) == key("MIG-9")


@pytest.mark.parametrize("parent", ["", X])
def test_an_instance_of_the_inventory_is_one_of_its_profile_too(parent: str) -> None:
    one = Inventory(gpus=(InventoryGpu(uuid=X, mig=MIG[1:]),))
    devices = NodeDevices({Subject(uuid=X, instance="7", profile="1g.10gb"): 1}, one)
    wanted = ref(mig="MIG-9", profile="1g.10gb", parent=parent)
    assert devices.key_of(wanted, rivals_among([wanted])) == key("MIG-9")


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


ADDRESS = "0000:3b:00.0"


@pytest.mark.parametrize(
    ("page", "meant", "expected"),
    [
        # a PCI address, however the samples write it, in their label or as the device's name
        ({Subject(uuid=X, address="00000000:3B:00.0")}, ref(device=ADDRESS), key(X)),
        ({Subject(uuid=X, device="0000:3b:00")}, ref(device=ADDRESS), key(X)),
        ({Subject(index="4", address="0000:3b:00.0")}, ref(device=ADDRESS), key("4")),
        ({Subject(uuid=X, address=ADDRESS), Subject(uuid=Y, address=ADDRESS)}, ref(device=ADDRESS), None),
        ({Subject(uuid=X, address="0000:3c:00.0", index="0")}, ref(device=ADDRESS, index="0"), key(ADDRESS)),
        # a name that the page's samples lack is no number of theirs
        ({Subject(uuid=X, device="nvidia0", index="0")}, ref(device="nvidia5", index="0"), key("nvidia5")),
        ({Subject(uuid=X, device="nvidia0", index="0")}, ref(device="nvidia0", index="7"), key(X)),
        ({Subject(uuid=X, device="nvidia0", index="0")}, ref(index="0"), key(X)),
        ({Subject(uuid=X, index="0")}, ref(device="nvidia0", index="0"), key(X)),
        # a sample's UUID comes before another sample's number alone
        ({Subject(uuid=X, index="0"), Subject(index="0", device="card0")}, ref(index="0"), key(X)),
        ({Subject(index="0", device="card0")}, ref(index="0"), key("card0")),
        ({Subject(index="0"), Subject(index="0", device="card0")}, ref(index="0"), None),
        # a MIG instance that samples name by its own UUID
        ({Subject(uuid="MIG-7")}, ref(mig="MIG-7"), key("MIG-7")),
    ],
)
def test_the_device_of_a_page_that_a_reference_means(
    page: set[Subject], meant: DeviceRef, expected: DeviceKey | None
) -> None:
    assert NodeDevices(dict.fromkeys(page, 1), Inventory()).key_of(meant, {}) == expected


def test_a_device_node_that_two_gpus_have_means_neither() -> None:
    twins = Inventory(gpus=tuple(InventoryGpu(uuid=uuid, device="nvidia1") for uuid in (X, Y)))
    devices = NodeDevices({}, twins)
    assert devices.key_of(ref(minor="1"), {}) is None
    assert devices.key_of(ref(minor="1", uuid=Y), {}) == key(Y)
    assert devices.key_of(ref(device="nvidia1", index="1"), {}) is None


SMALL = "1g.10gb"
OF_X = ref(mig="MIG-a", profile=SMALL, parent=X)


@pytest.mark.parametrize(
    ("meant", "others", "expected"),
    [
        pytest.param(OF_X, [], key(X, "7"), id="the parent's only instance of the profile"),
        pytest.param(OF_X, [ref(mig="MIG-b", profile=SMALL, parent=Y)], key(X, "7"), id="an id of another parent"),
        pytest.param(OF_X, [ref(mig="MIG-b", profile=SMALL, parent=X)], key("MIG-a"), id="an id of this parent"),
        pytest.param(OF_X, [ref(mig="MIG-b", profile=SMALL)], key("MIG-a"), id="an id of some parent"),
        pytest.param(OF_X, [ref(mig="MIG-b", profile="2g.20gb")], key(X, "7"), id="an id of another profile"),
        pytest.param(OF_X, [ref(mig="MIG-b"), OF_X], key(X, "7"), id="an id without profile, and another share"),
        pytest.param(ref(mig="MIG-a", profile=SMALL), [], key("MIG-a"), id="two parents have such an instance"),
        pytest.param(ref(mig="MIG-a", profile="1g.10gb.me", parent=X), [], key(X, "9"), id="a dot stands for a plus"),
        pytest.param(ref(mig="MIG-a", profile="1g.10gb.me"), [], key(X, "9"), id="the node's only one"),
        pytest.param(ref(mig="MIG-a"), [], key("MIG-a"), id="no profile"),
    ],
)
def test_the_instance_that_a_profile_means(meant: DeviceRef, others: list[DeviceRef], expected: DeviceKey) -> None:
    page = {
        Subject(uuid=X, instance="7", profile=SMALL): 1,
        Subject(uuid=X, instance="9", profile="1g.10gb+me"): 1,
        Subject(uuid=X, instance="1"): 1,
        Subject(uuid=Y, instance="7", profile=SMALL): 1,
    }
    rivals = rivals_among([meant, None, *others])
    assert NodeDevices(page, Inventory()).key_of(meant, rivals) == expected


def test_only_shares_of_one_device_have_one_identity() -> None:
    parts = {"uuid": X, "device": "nvidia0", "index": "0", "minor": "0", "instance": "7"}
    assert identity(ref(**parts)) == identity(ref(**parts, shared=True, profile=SMALL, parent=Y))
    for name in parts:
        assert identity(ref(**parts)) != identity(ref(**{**parts, name: "other"}))
    assert identity(ref(mig="MIG-a", parent=X)) == identity(ref(mig="MIG-a", index="1")) != identity(ref(mig="MIG-b"))


@pytest.mark.parametrize(
    ("page", "meant", "expected"),
    [
        # samples with numbers alone, and an id with a UUID, a device node or a name
        ({Subject(index="0")}, ref(uuid=X), True),
        ({Subject(index="0")}, ref(mig="MIG-7"), True),
        ({Subject(index="0")}, ref(minor="3"), True),
        ({Subject(index="0")}, ref(device="nvidia3"), True),
        ({Subject(index="0")}, ref(device="nvidia3", index="3"), False),
        ({Subject(uuid=X)}, ref(index="3"), True),
        ({Subject(uuid=X, index="0")}, ref(index="3"), False),
        ({Subject(uuid=X)}, ref(uuid=Y), False),
        ({Subject(device="card0")}, ref(device="nvidia3"), False),
        ({Subject(device="card0")}, ref(uuid=X), True),
        # no samples of GPUs
        ({Subject(host="n")}, ref(uuid=X), False),
    ],
)
def test_whether_samples_have_no_name_of_an_ids_kind(page: set[Subject], meant: DeviceRef, *, expected: bool) -> None:
    assert NodeDevices(dict.fromkeys(page, 1), Inventory()).carry_no_name_like(meant) is expected


def test_which_ids_the_samples_cannot_name() -> None:
    devices = NodeDevices({Subject(uuid=X): 1}, Inventory())
    assert devices.is_unnamed(ref(index="3"), key("3"))
    assert devices.is_unnamed(ref(device="nvidia3"), key("nvidia3"))
    for meant, of_key in (
        (None, key("3")),
        (ref(index="3"), None),
        (ref(index="3"), key(X)),
        (ref(index="3"), key(Y)),
        (ref(device="gpu-0", is_vfio=True), key("gpu-0")),
        (ref(uuid=Y), key(Y)),
    ):
        assert not devices.is_unnamed(meant, of_key)


def test_the_gpus_of_a_page_and_the_owners_that_it_names() -> None:
    owner, other = (Owner(namespace="ml", pod=pod, container="c") for pod in "ab")
    page = (
        Subject(uuid=X),
        Subject(uuid=X, came_with=owner),
        Subject(uuid=X, came_with=other),
        Subject(uuid=X, vgpu="1", came_with=Owner(namespace="ml", pod="vm", container="c")),
        Subject(uuid=X, instance="7", came_with=Owner(namespace="ml", pod="mig", container="c")),
        Subject(index="4", has_gpu_label=True),
        Subject(uuid="6f1f2a5c-0000-4a5b-9c5d-3e8f1a2b3c4d"),
    )
    devices = NodeDevices(dict.fromkeys(page, 1), Inventory(gpus=(InventoryGpu(uuid=Y), InventoryGpu(uuid=""))))
    assert devices.owners_by_page == {key(X): {owner, other}, key("4"): set()}
    assert devices.gpus == {X.removeprefix("GPU-"), Y.removeprefix("GPU-")}
    assert devices.uuids == {X, "6f1f2a5c-0000-4a5b-9c5d-3e8f1a2b3c4d"}
    assert NodeDevices({Subject(uuid="MIG-7"): 1}, Inventory()).gpus == frozenset()


def test_devices_are_made_anew_if_sources_come_to_disagree() -> None:
    devices = NodeDevices(PAGE, INVENTORY)
    doubt = InventoryDoubt(trouble=Trouble("", ""), leaves_out=frozenset({"MIG-7"}))
    assert not devices.are_of(PAGE, Inventory(gpus=INVENTORY.gpus, doubts=(doubt,)))
