"""What several sources know of a node's GPUs, put together."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import Trouble
from exporter.model.devices import CdiPlace, Inventory, InventoryDoubt, InventoryGpu, MigInstance
from exporter.ownership.inventories import SourceInventory, put_together

MIG = st.sampled_from([f"MIG-{number}" for number in range(4)])
UUID = st.sampled_from(["GPU-a", "GPU-b", "GPU-c"])
DEVICE = st.sampled_from(["nvidia0", "nvidia1", "nvidia2"])
GPUS = st.lists(
    st.builds(
        InventoryGpu,
        uuid=UUID | st.just(""),
        device=DEVICE | st.just(""),
        index=st.sampled_from(["", "0", "1"]),
        mig=st.lists(st.builds(MigInstance, uuid=MIG, instance_id=st.sampled_from("789")), max_size=3).map(tuple),
    ),
    max_size=4,
).map(tuple)
PARTS = st.lists(GPUS, min_size=1, max_size=3).map(
    lambda of: [SourceInventory(name=f"p{number}", inventory=Inventory(gpus=gpus)) for number, gpus in enumerate(of)]
)


def part(name: str, *gpus: InventoryGpu, wins: bool = False) -> SourceInventory:
    return SourceInventory(name=name, inventory=Inventory(gpus=gpus), wins=wins)


def gpu(uuid: str, device: str = "", **mig: str) -> InventoryGpu:
    return InventoryGpu(
        uuid=uuid, device=device, mig=tuple(MigInstance(uuid=name, instance_id=text) for name, text in mig.items())
    )


def places(inventory: Inventory) -> dict[str, tuple[str, str]]:
    return {mig.uuid: (gpu.uuid, mig.instance_id) for gpu in inventory.gpus for mig in gpu.mig}


def left_out(inventory: Inventory) -> set[str]:
    return {uuid for doubt in inventory.doubts for uuid in doubt.leaves_out}


DRIVER = part("driver", gpu("GPU-a", "nvidia0"), gpu("GPU-b", "nvidia1"))
CDI = part("cdi", gpu("", "nvidia0", x="7", y="8"), gpu("GPU-b", "nvidia1"))


def test_the_driver_says_which_gpu_a_specs_device_is() -> None:
    assert put_together([DRIVER, CDI]) == Inventory(
        gpus=(
            InventoryGpu(
                uuid="GPU-a",
                device="nvidia0",
                sources=("driver",),
                mig=(
                    MigInstance(uuid="x", instance_id="7", sources=("cdi",)),
                    MigInstance(uuid="y", instance_id="8", sources=("cdi",)),
                ),
            ),
            InventoryGpu(uuid="GPU-b", device="nvidia1", sources=("driver", "cdi")),
        )
    )


@pytest.mark.parametrize(
    ("parts", "expected", "doubts", "out"),
    [
        pytest.param([DRIVER, CDI], {"x": ("GPU-a", "7"), "y": ("GPU-a", "8")}, [], "", id="all agree"),
        pytest.param([CDI], {}, ["which GPU nvidia0 is"], "xy", id="no driver"),
        pytest.param([CDI, part("nvml", gpu("GPU-a", x="7"))], {"x": ("GPU-a", "7")}, ["which GPU"], "y", id="a part"),
        pytest.param(
            [DRIVER, CDI, part("nvml", gpu("GPU-a", x="9", y="8"))],
            {"y": ("GPU-a", "8")},
            ["x: cdi says GPU instance 7 of GPU-a, nvml says GPU instance 9 of GPU-a"],
            "x",
            id="another instance",
        ),
        pytest.param(
            [DRIVER, CDI, part("nvml", gpu("GPU-b", x="7"))],
            {"y": ("GPU-a", "8")},
            ["x: cdi says GPU instance 7 of GPU-a, nvml says GPU instance 7 of GPU-b"],
            "x",
            id="another GPU",
        ),
        pytest.param(
            [part("driver", gpu("GPU-a", "nvidia0")), part("cdi", gpu("GPU-c", "nvidia0"), gpu("", "nvidia0", x="7"))],
            {},
            ["nvidia0: driver says GPU-a, cdi says GPU-c", "which GPU nvidia0 is"],
            "x",
            id="two GPUs of one minor",
        ),
        pytest.param(
            [part("driver", gpu("GPU-a", "nvidia1")), part("cdi", gpu("GPU-a", "nvidia0"), gpu("", "nvidia0", x="7"))],
            {},
            ["GPU-a: driver says nvidia1, cdi says nvidia0", "which GPU nvidia0 is"],
            "x",
            id="two minors of one GPU",
        ),
        pytest.param(
            [part("file", gpu("GPU-b", x="3"), wins=True), DRIVER, CDI],
            {"x": ("GPU-b", "3"), "y": ("GPU-a", "8")},
            ["x: file says GPU instance 3 of GPU-b, cdi says GPU instance 7 of GPU-a; GPU instance 3 of GPU-b counts"],
            "",
            id="the file wins where it speaks",
        ),
        pytest.param(
            [part("file", gpu("GPU-c", "nvidia0"), wins=True), DRIVER, CDI],
            {"x": ("GPU-c", "7"), "y": ("GPU-c", "8")},
            ["nvidia0: file says GPU-c, driver says GPU-a; GPU-c counts"],
            "",
            id="the file wins of a minor",
        ),
    ],
)
def test_parts(parts: list[SourceInventory], expected: dict[str, tuple[str, str]], doubts: list[str], out: str) -> None:
    inventory = put_together(parts)
    assert places(inventory) == expected
    assert len(inventory.doubts) == len(doubts)
    for doubt, says in zip(inventory.doubts, doubts, strict=True):
        assert doubt.trouble.message.startswith(says)
    assert left_out(inventory) == set(out)
    missing = [doubt.trouble.message for doubt in inventory.doubts if not doubt.is_contradiction]
    assert bool(missing) == (parts[0] is not DRIVER and "driver" not in [part.name for part in parts])


def test_numbers_and_profiles_come_from_the_best_part_that_has_them() -> None:
    first = part("a", gpu("GPU-a", x="7"))
    second = part(
        "b",
        InventoryGpu(
            uuid="GPU-a",
            index="4",
            mig=(MigInstance(uuid="x", instance_id="7", profile="1g.10gb"),),
            slices=4,
            serial="s",
        ),
    )
    (found,) = put_together([first, second]).gpus
    assert (found.index, found.mig[0].profile, found.mig[0].sources) == ("4", "1g.10gb", ("a", "b"))
    assert (found.slices, found.serial) == (4, "s")
    third = part(
        "c",
        InventoryGpu(
            uuid="GPU-a",
            index="5",
            address="0000:65:00.0",
            mig=(MigInstance(uuid="x", instance_id="7", profile="other"),),
        ),
        InventoryGpu(uuid="GPU-b"),
    )
    best, bare = put_together([first, second, third]).gpus
    assert (best.index, best.mig[0].profile, best.address) == ("4", "1g.10gb", "0000:65:00.0")
    assert bare == InventoryGpu(uuid="GPU-b", sources=("c",))
    # what is said of a GPU without a UUID is nobody's
    nameless = part("d", InventoryGpu(uuid="", device="nvidia5", index="9"))
    assert put_together([nameless, third]).gpus == put_together([third]).gpus


def test_places_of_names_are_those_of_the_source_that_has_some() -> None:
    by_specs = {"k=x": CdiPlace(minor="3")}
    sources = [SourceInventory(name=f"{places}", inventory=Inventory(places=places)) for places in ({}, by_specs)]
    assert put_together(sources).places == by_specs
    assert put_together(sources[:1]).places == {}


def test_the_first_that_wins_counts() -> None:
    parts = [part(name, gpu(uuid, "nvidia0", x="7"), wins=True) for name, uuid in (("one", "GPU-a"), ("two", "GPU-b"))]
    inventory = put_together(parts)
    assert places(inventory) == {"x": ("GPU-a", "7")}
    assert [(one.uuid, one.device) for one in inventory.gpus] == [("GPU-a", "nvidia0"), ("GPU-b", "")]


def test_what_is_left_out_is_told_with_its_number_and_why() -> None:
    (doubt,) = put_together([part("cdi", gpu("", "nvidia0", x="7", y="8"), gpu("", "nvidia1"))]).doubts
    assert doubt.trouble.message == ("which GPU nvidia0 is, is not known for sure: 2 MIG instances of it are left out")
    assert "does the driver list its GPUs?" in doubt.trouble.remedy
    assert not doubt.is_contradiction
    (nameless,) = put_together([part("cdi", gpu("", x="7"))]).doubts
    assert nameless.trouble.message.startswith("which GPU their GPU is")
    # the driver knows it, and a spec says something else of it
    parts = [part("driver", gpu("GPU-a", "nvidia0")), part("cdi", gpu("GPU-c", "nvidia0"), gpu("", "nvidia0", x="7"))]
    assert [one.is_contradiction for one in put_together(parts).doubts] == [True, True]
    # another part knows the place of all
    assert put_together([part("cdi", gpu("", "nvidia0", x="7")), part("nvml", gpu("GPU-a", x="7"))]).doubts == ()


def test_a_parts_own_doubts_are_among_those_of_all() -> None:
    doubt = InventoryDoubt(trouble=Trouble("", "x", "y"), leaves_out=frozenset({"z"}))
    assert put_together([SourceInventory(name="a", inventory=Inventory(doubts=(doubt,)))]).doubts == (doubt,)


def test_two_gpus_of_one_name_both_keep_it_so_that_it_leads_to_neither() -> None:
    said = [DRIVER, part("cdi", gpu("GPU-c", "nvidia0"))]
    assert [gpu.device for gpu in put_together(said).gpus] == ["nvidia0", "nvidia1", "nvidia0"]
    won = [part("file", gpu("GPU-c", "nvidia0"), wins=True), DRIVER]
    assert [(gpu.uuid, gpu.device) for gpu in put_together(won).gpus][:2] == [("GPU-c", "nvidia0"), ("GPU-a", "")]


@given(PARTS)
def test_an_instance_is_in_one_place_which_a_part_of_the_inventory_names(
    parts: list[SourceInventory],
) -> None:
    inventory = put_together(parts)
    uuids = {(one.device, one.uuid) for each in parts for one in each.inventory.gpus if one.uuid and one.device}
    said = {
        (mig.uuid, parent, mig.instance_id)
        for each in parts
        for one in each.inventory.gpus
        for parent in ({one.uuid} if one.uuid else {uuid for device, uuid in uuids if device == one.device})
        for mig in one.mig
    }
    found = places(inventory)
    assert {(uuid, *place) for uuid, place in found.items()} <= said
    assert sum(len(one.mig) for one in inventory.gpus) == len(found), "one place each"
    named = {mig.uuid for each in parts for one in each.inventory.gpus for mig in one.mig}
    assert found.keys() | left_out(inventory) == named
    assert not found.keys() & left_out(inventory)
    # without a winner whoever disagrees is left out
    by_uuid = {uuid: {(one, at) for other, one, at in said if other == uuid} for uuid in found}
    known = {
        (mig.uuid, one.uuid, mig.instance_id) for each in parts for one in each.inventory.gpus if one.uuid
        for mig in one.mig
    }  # fmt: skip
    for uuid, of in by_uuid.items():
        assert len({place for place in of if (uuid, *place) in known}) <= 1


@given(PARTS, GPUS)
def test_the_winners_word_always_counts(parts: list[SourceInventory], own: tuple[InventoryGpu, ...]) -> None:
    winner = SourceInventory(name="file", inventory=Inventory(gpus=own), wins=True)
    inventory = put_together([winner, *parts])
    first: dict[str, tuple[str, str]] = {}
    for one in own:
        for mig in one.mig if one.uuid else ():
            first.setdefault(mig.uuid, (one.uuid, mig.instance_id))
    found = places(inventory)
    if not any(not one.uuid for one in own):
        assert {uuid: found.get(uuid) for uuid in first} == first


@given(st.lists(st.sampled_from(["driver", "cdi", "nvml"]), min_size=6, max_size=6))
def test_however_a_node_is_divided_among_its_sources_it_is_whole_again(who: list[str]) -> None:
    """Each instance is told by one source; the driver tells of all GPUs."""
    whole = {f"MIG-{number}": (f"GPU-{number % 2}", str(7 + number // 2)) for number in range(6)}
    parts = [part("driver", gpu("GPU-0", "nvidia0"), gpu("GPU-1", "nvidia1"))]
    for (uuid, (parent, instance)), name in zip(whole.items(), who, strict=True):
        by_device = gpu("", f"nvidia{parent[-1]}", **{uuid: instance})
        parts.append(part(name, by_device if name == "cdi" else replace(by_device, uuid=parent, device="")))
    inventory = put_together(parts)
    assert places(inventory) == whole
    assert inventory.doubts == ()
