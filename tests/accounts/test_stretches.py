"""The stretches between two reads of a GPU: what grew in them, and to which of them it goes."""

import pytest

from exporter.accounts.holders import HeldGpu
from exporter.accounts.holdings import Device
from exporter.accounts.stretches import MOST_STRETCHES, MOST_UNREAD_NS, CountersAtLook, Stretch
from exporter.model.devices import DeviceKey

KEY = DeviceKey(uuid="GPU-1")


def held() -> HeldGpu:
    """A GPU that nobody holds, as another object each time."""
    return HeldGpu(KEY, 1, (Device(KEY, 1, is_sampled=True, holders=(), part=1),))


def counters(*stretches: Stretch, **values: int) -> CountersAtLook:
    of_gpu = CountersAtLook(held(), 0, 0, values)
    for stretch in stretches:
        of_gpu.add(stretch)
    return of_gpu


@pytest.mark.parametrize(
    ("ns", "parts"),
    [
        ([30], [8]),
        ([30, 10], [6, 2]),
        ([0, 5], [0, 8]),
        ([0, 0, 0], [0, 0, 8]),  # all looks at one moment: the last one saw it
    ],
)
def test_growth_is_divided_among_the_stretches_by_time(ns: list[int], parts: list[int]) -> None:
    of_gpu = counters(*(Stretch(held(), time) for time in ns))
    assert [amounts["energy"] for _, amounts in of_gpu.divide({"energy": 8})] == parts
    assert [stretch.ns for stretch, _ in of_gpu.divide({"energy": 8})] == ns


@pytest.mark.parametrize(
    ("now", "grown", "kept", "has_moved"),
    [
        (11, 1, 11, True),
        (10, 0, 10, False),
        (9, 0, 10, False),  # one of two pages is late
        (5, 0, 10, False),
        (4, 4, 4, True),  # less than half: a restart from 0
        (0, 0, 0, True),
    ],
)
def test_a_fall_to_less_than_half_is_a_restart(now: int, grown: int, kept: int, has_moved: bool) -> None:
    of_gpu = counters(energy=10)
    assert of_gpu.grow_to("energy", now) == grown
    assert (of_gpu.values, of_gpu.has_moved) == ({"energy": kept}, has_moved)
    assert of_gpu.grow_to("new", now) == 0


def test_a_page_is_old_after_two_minutes_with_the_same_values() -> None:
    assert not counters(Stretch(held(), MOST_UNREAD_NS - 2), Stretch(held(), 1)).is_old
    assert counters(Stretch(held(), MOST_UNREAD_NS - 1), Stretch(held(), 1)).is_old


def test_a_page_describes_the_stretches_after_the_last_unseen_one() -> None:
    seen, gap, blind = Stretch(held(), 1), Stretch(held(), 2, is_gap=True), Stretch(held(), 3, is_blind=True)
    after = Stretch(held(), 4)
    assert counters(seen, after).described == [seen, after]
    assert counters(seen, gap, after).described == [after]
    assert counters(gap, blind, seen, after).described == [seen, after]
    assert counters(seen, blind).described == []


def test_stretches_of_the_same_holders_are_one() -> None:
    one = held()
    first = Stretch(one, 3, kernels={"": [1, 2], "7": [5]})
    merged = first.and_then(Stretch(one, 4, kernels={"": [10, 20]}))
    assert merged is not None
    assert (merged.held, merged.ns, merged.kernels) == (one, 7, {"": [11, 22], "7": [5]})
    assert first.and_then(Stretch(one, 4)) is not None
    later = Stretch(one, 4).and_then(first)
    assert later is not None
    assert (later.kernels, later.is_blind) == (first.kernels, False)
    blind = Stretch(one, 4, is_blind=True).and_then(Stretch(one, 5, is_blind=True))
    assert blind is not None
    assert (blind.ns, blind.is_blind, blind.is_seen) == (9, True, False)
    assert Stretch(one, 4, is_gap=True).and_then(Stretch(one, 4, is_gap=True)) is None
    assert first.and_then(Stretch(held(), 4)) is None
    assert first.and_then(Stretch(one, 4, is_gap=True)) is None
    assert first.and_then(Stretch(one, 4, is_blind=True)) is None
    assert Stretch(one, 4, is_gap=True).and_then(first) is None


def test_the_oldest_of_too_many_stretches_become_a_gap() -> None:
    of_gpu = counters(*(Stretch(held(), 1) for _ in range(MOST_STRETCHES)))
    assert not of_gpu.stretches[0].is_gap
    of_gpu.add(Stretch(held(), 1))
    assert len(of_gpu.stretches) == MOST_STRETCHES
    assert (of_gpu.stretches[0].is_gap, of_gpu.stretches[0].ns) == (True, 2)
    assert [entry.is_dropped for _, entry in of_gpu.stretches[0].held.holders] == [True]
    of_gpu.grow_to("energy", 0)
    of_gpu.grow_to("energy", 1)
    of_gpu.renew()
    assert (of_gpu.stretches, of_gpu.has_moved) == ([], False)
