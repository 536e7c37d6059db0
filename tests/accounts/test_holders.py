"""The holders of a GPU: their parts of a time, who is left out, and what is remembered of GPUs."""

from dataclasses import replace

import pytest

from exporter.accounts.entries import Entries, Entry
from exporter.accounts.holders import MOST_GPUS, HeldGpu, Holders
from exporter.accounts.holdings import Device
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, DeviceKey, Match, Owners
from tests.support.looks import GPU, Looks, energy, owner, whole

KEY = DeviceKey(uuid="GPU-1")
ENTRIES = {pod: Entry(owner(pod), "", KEY) for pod in "abc"}


def held(whole_gpu: int, **parts: int) -> HeldGpu:
    holders = tuple((ENTRIES[pod], part) for pod, part in parts.items())
    return HeldGpu(KEY, whole_gpu, (Device(KEY, 1, is_sampled=True, holders=holders, part=whole_gpu),))


def test_each_holder_gets_its_part_of_a_time_and_nobody_the_rest() -> None:
    of_gpu = held(4, a=1, b=2)
    assert [*of_gpu.times(8)] == [2, 4, 2]
    assert [*of_gpu.times(4)] == [1, 2, 1]
    assert [*of_gpu.times(8)] == [2, 4, 2]
    assert [*held(4).times(8)] == [8]


def test_of_an_over_committed_gpu_each_holder_still_gets_its_part() -> None:
    assert [*held(2, a=1, b=2).times(8)] == [4, 8, 0]
    assert [*held(4, a=4).times(8)] == [8, 0]


def test_the_part_of_a_holder_who_is_left_out_is_nobodys() -> None:
    of_gpu = held(4, a=1, b=2)
    assert of_gpu.without(lambda entry: entry is ENTRIES["c"]) is of_gpu
    without = of_gpu.without(lambda entry: entry is ENTRIES["a"])
    assert [*without.times(8)] == [2, 4, 2]
    assert [entry.is_dropped for _, entry in without.holders] == [True, False]
    assert (without.key, without.whole, without.devices[0].part) == (KEY, 4, 4)


def test_an_unknown_container_holds_all_of_a_gpu() -> None:
    unknown = held(4, a=1).by_unknown()
    assert [*unknown.times(8)] == [8, 0]
    ((device, entry),) = unknown.holders
    assert (device.key, device.slices, device.part, device.is_sampled) == (KEY, 1, 1, True)
    assert entry.is_dropped


def test_nobodys_entry_of_a_device_that_is_not_there_is_gone_from_then_on() -> None:
    holders = Holders(Entries())
    entry = holders.nobody(KEY, 5)
    assert entry.gone_at_ns == 5
    assert holders.nobody(KEY, 7) is entry
    assert entry.gone_at_ns == 5
    looks = Looks().at(0, energy("0"))
    assert looks.ledger.holders.nobody(DeviceKey(uuid=GPU(0)), 5).gone_at_ns is None


def test_nobodys_entry_of_a_gpu_that_is_cut_stays_while_the_gpu_is_there() -> None:
    looks = Looks().at(0, energy("0", instance="1"))
    assert looks.ledger.holders.nobody(DeviceKey(uuid=GPU(0)), 5).gone_at_ns is None
    assert looks.ledger.holders.nobody(DeviceKey(uuid=GPU(0), instance="2"), 5).gone_at_ns == 5


def test_the_owners_of_each_device_are_those_who_hold_it() -> None:
    looks = Looks().at(0, energy("0") + energy("0", 1), {"a": whole(0), "b": whole(0)})
    assert looks.ledger.holders.owners == {
        DeviceKey(uuid=GPU(0)): (owner("a"), owner("b")),
        DeviceKey(uuid=GPU(1)): (),
    }


def test_while_nothing_changes_a_held_gpu_is_the_same_object() -> None:
    looks = Looks().at(0, energy("0") + energy("0", 1), {"a": whole(0)})
    before = {**looks.ledger.holders.held}
    looks.at(10, energy("1") + energy("1", 1), {"a": whole(0), "b": whole(1)})
    after = looks.ledger.holders.held
    assert after[GPU(0)] is before[GPU(0)]
    assert after[GPU(1)] is not before[GPU(1)]


def test_gpus_that_are_gone_make_room_for_new_ones() -> None:
    looks = Looks()
    looks.at(0, "".join(energy("0", gpu) for gpu in range(MOST_GPUS)))
    assert len(looks.ledger.holders.models) == 1024
    looks.at(10, energy("0", 5000))
    assert len(looks.ledger.holders.models) == 1024
    assert GPU(0) not in looks.ledger.holders.models
    assert GPU(5000) in looks.ledger.holders.models


def test_subjects_that_a_page_lacks_stay_only_while_a_source_is_away() -> None:
    both, first = energy("0") + energy("0", 1), energy("1")
    for is_away in (True, False):
        looks = Looks().at(0, both, {}).at(10, first, {}, one_page_fails=is_away)
        uuids = {subject.uuid for subject in looks.ledger.holders.subjects}
        assert uuids == ({GPU(0), GPU(1)} if is_away else {GPU(0)})


def test_what_no_page_and_no_inventory_has_named_is_not_known() -> None:
    looks = Looks()
    nothing = looks.snapshot(None)
    holders = Holders(Entries())
    assert not holders.knows_devices(nothing)
    assert holders.knows_devices(looks.snapshot(energy("0")))
    assert holders.knows_devices(replace(nothing, inventory=Looks(mig={"MIG-1": (0, "1", "1g.10gb")}).inventory()))
    assert looks.at(0, energy("0")).ledger.holders.knows_devices(nothing)


@pytest.mark.parametrize(
    ("refs", "is_known"),
    [
        ([], False),
        ([None], False),
        ([DeviceRef(form="x")], False),
        ([None, DeviceRef(form="x", is_vfio=True)], True),
    ],
)
def test_gpus_of_virtual_machines_no_page_ever_names(refs: list[DeviceRef | None], is_known: bool) -> None:
    matches = tuple(
        Match(assignment=Assignment(owner=owner("a"), resource="x/gpu", device_id=""), ref=ref, key=None)
        for ref in refs
    )
    snapshot = replace(Looks().snapshot(None), owners=Owners(matches=matches))
    assert Holders(Entries()).knows_devices(snapshot) == is_known
