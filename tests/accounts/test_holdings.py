"""The GPUs of a look: their models, and the parts that containers hold, where sources tell little of them."""

from dataclasses import replace

import pytest

from exporter.model.devices import DeviceKey, Holder, Inventory, InventoryGpu, Owners
from tests.support.looks import GPU, SECOND, Held, Looks, energy, owner, row, whole

POWER, H100 = "DCGM_FI_DEV_POWER_USAGE", "NVIDIA H100 80GB HBM3"
SHARED = "nvidia.com/gpu.shared"


def part(pod: str, looks: Looks, gpu: int = 0, instance: str = "") -> float | None:
    return looks.account(pod, gpu, instance).allocated_ratio


@pytest.mark.parametrize(
    ("resource", "slices"),
    [
        ("nvidia.com/mig-2c.3g.40gb", 2),
        ("nvidia.com/mig-3c.3g.40gb", 3),
        ("nvidia.com/mig-7c.3g.40gb", 3),  # no more than there is
        ("nvidia.com/mig-2c.0g.40gb", 3),  # of no slices it is no part
    ],
)
def test_a_compute_instance_is_its_part_of_an_instance(resource: str, slices: int) -> None:
    looks = Looks(mig={"MIG-1": (0, "1", "3g.40gb")})
    looks.at(0, energy("1", instance="1", profile="3g.40gb"), {"a": [(resource, "MIG-1")]})
    assert part("a", looks, instance="1") == pytest.approx(slices / 7)


def test_a_gpu_has_no_fewer_slices_than_containers_hold() -> None:
    looks = Looks(mig={f"MIG-{number}": (0, number, "4g.40gb") for number in "12"})
    page = "".join(energy("1", instance=number, profile="4g.40gb") for number in "12")
    held: Held = {pod: [("nvidia.com/mig-4g.40gb", f"MIG-{number}")] for pod, number in (("a", "1"), ("b", "2"))}
    looks.at(0, page, held)
    assert (part("a", looks, instance="1"), part("b", looks, instance="2")) == (0.5, 0.5)


@pytest.mark.parametrize("models", [(H100, ""), ("", H100), (H100, H100)])
def test_any_sample_may_name_the_model(models: tuple[str, str]) -> None:
    page = "".join(row(f"x{number}", "1", model=model) for number, model in enumerate(models))
    assert Looks().at(0, page).ledger.accounts.capacity == {H100: 1}


def test_a_model_is_known_while_later_pages_lack_it() -> None:
    looks = Looks().at(0, row(POWER, "1")).at(10, row(POWER, "1", model=""))
    assert looks.ledger.accounts.capacity == {H100: 1}
    looks.at(20, row(POWER, "1", model="A30"))
    assert looks.ledger.accounts.capacity == {"A30": 1}


@pytest.mark.parametrize("profiles", [("3g.40gb", ""), ("", "3g.40gb")])
def test_any_sample_may_name_the_profile(profiles: tuple[str, str]) -> None:
    page = "".join(row(f"x{number}", "1", instance="1", profile=profile) for number, profile in enumerate(profiles))
    assert part("a", Looks().at(0, page, {"a": whole(0)}), instance="1") == 1
    page += row("x", "1", instance="2", profile="4g.40gb")
    assert part("a", Looks().at(0, page, {"a": whole(0)}), instance="1") == pytest.approx(3 / 7)


def test_a_profile_that_samples_lack_is_that_of_the_inventory() -> None:
    looks = Looks(mig={"MIG-1": (0, "1", "3g.40gb")})
    looks.at(0, row(POWER, "1", instance="1"), {"a": [("nvidia.com/mig-3g.40gb", "MIG-1")]})
    assert part("a", looks, instance="1") == pytest.approx(3 / 7)


def test_a_gpu_whose_samples_have_no_uuid_is_not_counted_twice() -> None:
    looks = Looks()
    inventory = Inventory(gpus=tuple(InventoryGpu(uuid=GPU(gpu), index=str(gpu)) for gpu in (0, 1)))
    page = f'{POWER}{{gpu="0",modelName="{H100}"}} 1\n'
    looks.note(0, replace(looks.snapshot(page), inventory=inventory))
    assert looks.ledger.accounts.capacity == {H100: 1, "": 1}


def test_holders_without_ids_have_equal_parts() -> None:
    looks = Looks()
    holders = tuple(Holder(owner=owner(pod), resource="x/gpu", shared=True) for pod in "abc")
    owners = Owners(holders={DeviceKey(uuid=GPU(0)): holders})
    for seconds in (0, 9):
        looks.note(seconds, replace(looks.snapshot(energy("1")), owners=owners))
    assert [part(pod, looks) for pod in "abc"] == [1 / 3] * 3
    assert looks.account("a").amounts["allocated_ns"] == 3 * SECOND


def test_more_shares_than_are_on_offer_are_parts_of_all_shares() -> None:
    looks = Looks(offered={(SHARED, DeviceKey(uuid=GPU(0))): 2})
    looks.at(0, energy("1"), {"a": [(SHARED, f"{GPU(0)}::{number}") for number in range(3)], "b": [(SHARED, GPU(0))]})
    assert (part("a", looks), part("b", looks)) == (0.75, 0.25)


def test_instances_may_have_their_profiles_from_the_inventory() -> None:
    looks = Looks(mig={"MIG-1": (0, "1", "3g.40gb"), "MIG-2": (0, "2", "4g.40gb")})
    looks.at(0, row(POWER, "1", instance="1") + row(POWER, "1", instance="2"), {"a": whole(0)})
    assert part("a", looks, instance="1") == pytest.approx(3 / 7)
    assert part("a", looks, instance="2") == pytest.approx(4 / 7)


def test_the_rest_of_a_gpu_that_is_cut_counts_by_its_slices() -> None:
    looks = Looks(mig={f"MIG-{number}": (0, number, "1g.10gb") for number in "12"})
    page = "".join(energy("1", instance=number) for number in "12")
    looks.at(0, page, {"a": whole(0), "b": [("nvidia.com/mig-1g.10gb", "MIG-1")]})
    assert part("b", looks, instance="1") == pytest.approx(1 / 7)
    assert part("a", looks, instance="2") == pytest.approx(1 / 7)


def test_a_gpu_of_one_slice_is_held_by_who_holds_its_instance() -> None:
    looks = Looks(mig={"MIG-1": (0, "1", "1g.10gb")}, slices=1)
    looks.at(0, energy("1", instance="1"), {"a": [("nvidia.com/mig-1g.10gb", "MIG-1")]})
    assert part("a", looks, instance="1") == 1


@pytest.mark.parametrize(
    ("offered", "page", "capacity"),
    [
        (DeviceKey(uuid="gpu-7"), energy("1"), {H100: 1, "": 1}),
        (DeviceKey(uuid="gpu-7", instance="1"), energy("1"), {H100: 1}),
        (DeviceKey(uuid=GPU(7)), energy("1"), {H100: 1}),
        (DeviceKey(uuid="gpu-7"), None, {}),
    ],
)
def test_gpus_on_offer_by_other_names_than_samples_count(
    offered: DeviceKey, page: str | None, capacity: dict[str, int]
) -> None:
    looks = Looks(offered={("x/gpu", offered): 1}).at(0, page)
    assert looks.ledger.accounts.capacity == capacity
