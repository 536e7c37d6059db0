"""The devices of each container, as CUDA would list them."""

from collections.abc import Mapping

from exporter.model.devices import Assignment, DeviceKey, Holder, Inventory, InventoryGpu, MigInstance, Owners
from exporter.model.pods import Owner
from exporter.probe.cuda_owners import HeldDevices, VisibleDevice

A, B = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
GPU = "GPU-{:08d}-1111-2222-3333-444455556666".format
MIG = "MIG-{:08d}-1111-2222-3333-444455556666".format


def holder(owner: Owner, *, shared: bool = False) -> Holder:
    return Holder(owner=owner, resource="nvidia.com/gpu", shared=shared)


def gpu(number: int, index: str | None = None, mig: tuple[int, ...] = ()) -> InventoryGpu:
    return InventoryGpu(
        uuid=GPU(number),
        index=str(number) if index is None else index,
        device=f"nvidia{number}",
        mig=tuple(MigInstance(uuid=MIG(10 * number + each), instance_id=str(each)) for each in mig),
    )


def held(holders: Mapping[DeviceKey, tuple[Owner, ...]], *gpus: InventoryGpu) -> HeldDevices:
    return HeldDevices(
        Owners(holders={key: tuple(holder(owner) for owner in owners) for key, owners in holders.items()}),
        Inventory(gpus=gpus),
    )


def key(uuid: str, instance: str = "") -> DeviceKey:
    return DeviceKey(uuid=uuid, instance=instance)


def test_devices_are_in_the_order_of_their_indices() -> None:
    holders = {key("nvidia10"): (A,), key(GPU(2)): (A, B), key(GPU(1).removeprefix("GPU-")): (A,), key("0"): (B,)}
    devices = held(holders, gpu(10), gpu(2), gpu(1), gpu(0))
    assert devices.of(A) == (
        (
            VisibleDevice(key(GPU(1).removeprefix("GPU-")), GPU(1)),
            VisibleDevice(key(GPU(2)), GPU(2)),
            VisibleDevice(key("nvidia10"), GPU(10)),
        ),
        True,
    )
    assert devices.of(B) == ((VisibleDevice(key("0"), GPU(0)), VisibleDevice(key(GPU(2)), GPU(2))), True)


def test_without_indices_the_inventory_has_them_in_the_order_of_the_bus() -> None:
    devices = held({key(GPU(number)): (A,) for number in (1, 7, 3)}, gpu(7, ""), gpu(3, "9"), gpu(1, "x"))
    found, are_in_order = devices.of(A)
    assert ([device.gpu for device in found], are_in_order) == ([GPU(7), GPU(3), GPU(1)], True)


def test_the_order_of_gpus_that_no_inventory_has_is_not_known() -> None:
    devices = held({key(GPU(1)): (A,), key(GPU(2)): (A, B)}, gpu(2))
    assert devices.of(A)[1] is False
    assert {device.gpu for device in devices.of(A)[0]} == {GPU(1), GPU(2)}
    assert devices.of(B) == ((VisibleDevice(key(GPU(2)), GPU(2)),), True)
    assert held({key(GPU(1)): (A,)}).of(A) == ((VisibleDevice(key(GPU(1)), GPU(1)),), True)
    assert held({key(MIG(1)): (A,)}).of(A) == ((VisibleDevice(key(MIG(1)), "", MIG(1)),), True)


def test_instances() -> None:
    holders = {key(GPU(1), "11"): (A,), key(GPU(1), "2"): (A,), key(MIG(3)): (B,)}
    devices = held(holders, gpu(0, mig=(3,)), gpu(1, mig=(2, 11)))
    assert devices.of(A)[0] == (
        VisibleDevice(key(GPU(1), "2"), GPU(1), MIG(12), "2"),
        VisibleDevice(key(GPU(1), "11"), GPU(1), MIG(21), "11"),
    )
    assert devices.of(B)[0] == (VisibleDevice(key(MIG(3)), GPU(0), MIG(3), "3"),)
    # an instance that the inventory does not know, of a GPU that it does
    assert held({key(GPU(1), "5"): (A,)}, gpu(1)).of(A)[0] == (VisibleDevice(key(GPU(1), "5"), GPU(1), "", "5"),)


def test_the_instances_of_a_gpu_that_is_held_as_a_whole_have_its_key() -> None:
    devices = held({key(GPU(0)): (A,)}, gpu(0, mig=(1, 2)))
    of_whole = tuple(VisibleDevice(key(GPU(0)), GPU(0), MIG(each), str(each)) for each in (1, 2))
    assert devices.of(A) == devices.of(None) == (of_whole, True)


def test_a_process_in_no_container_sees_all_by_the_names_that_owners_have() -> None:
    devices = held({key("nvidia1"): (A,), key(MIG(22)): (B,)}, gpu(2, mig=(1, 2)), gpu(1), gpu(0))
    assert [device.key for device in devices.of(None)[0]] == [
        key(GPU(0)),
        key("nvidia1"),
        key(GPU(2), "1"),
        key(MIG(22)),
    ]


def test_whoever_has_units_is_on_some_gpu_that_nobody_names() -> None:
    units = Assignment(owner=A, resource="tencent.com/vcuda-core", device_id="x", units=10)
    owners = Owners(holders={key(GPU(0)): (holder(A), holder(B))}, units=(units,))
    devices = HeldDevices(owners, Inventory(gpus=(gpu(0),)))
    assert devices.of(A) == ((), True)
    assert devices.of(B)[0]
    assert devices.of(Owner(namespace="", pod="", container="")) == ((), True)
