"""The part of a device that a grant gives, and the proportions in which holders share what the device does."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dividing.granted_parts import devices_with_memory, part_of, weights_of
from exporter.model.devices import DeviceKey, Holder
from exporter.model.grants import Grant
from exporter.model.pods import Owner

WHOLE = 81_559  # MiB of an H100
AMOUNTS = st.none() | st.floats(0, 1e7)
GRANTS = st.builds(
    Grant, allocator=st.just("HAMi"), memory_mib=AMOUNTS, cores_percent=st.none() | st.floats(0, 100), fraction=AMOUNTS
)


def grant(memory: float | None = None, cores: float | None = None, fraction: float | None = None) -> Grant:
    return Grant(allocator="HAMi", memory_mib=memory, cores_percent=cores, fraction=fraction)


# issue 24, part 5
@pytest.mark.parametrize(
    ("granted", "memory", "part"),
    [
        (None, WHOLE, None),
        (grant(), WHOLE, None),
        (grant(fraction=0.1), None, Fraction(1, 10)),
        (grant(fraction=0.5, memory=10_240, cores=20), WHOLE, Fraction(1, 2)),
        (grant(memory=10_240), WHOLE, Fraction(10_240, WHOLE)),
        (grant(memory=10_240, cores=45), WHOLE, Fraction(10_240, WHOLE)),
        (grant(memory=10_240, cores=100), WHOLE, 1),  # HAMi leaves nobody else a part
        (grant(memory=10_240, cores=45), None, Fraction(45, 100)),
        (grant(memory=10_240, cores=45), 0.0, Fraction(45, 100)),
        (grant(memory=10_240, cores=0), None, None),  # no limit of cores, and the device's memory is not known
        (grant(memory=10_240, cores=0), WHOLE, Fraction(10_240, WHOLE)),
        (grant(memory=0, cores=30), WHOLE, Fraction(30, 100)),
        (grant(memory=WHOLE), 81_007, 1),  # a page without the reserved memory
        (grant(memory=2 * WHOLE), WHOLE, 2),  # deviceMemoryScaling
        # numbers of a page are rounded down: 5 % more than the device has is the device
        (grant(memory=105), 100, 1),
        (grant(memory=106), 100, Fraction(106, 100)),
        (grant(memory=99), 100, Fraction(99, 100)),
        (grant(memory=10_240), 40_960.5, Fraction(20_480, 81_921)),
        (grant(memory=0.5), 2.5, Fraction(1, 5)),
        (grant(cores=100), None, 1),
        (grant(cores=99.5), None, Fraction(995, 1000)),
        # what is no sensible amount is not known
        (grant(fraction=1e-9), None, Fraction(1, 10**9)),
        (grant(fraction=1e-10, cores=50), None, Fraction(1, 2)),
        (grant(fraction=1e12), None, 10**12),
        (grant(fraction=1.5e12), None, None),
        (grant(fraction=0.9e-9), None, None),
        (grant(memory=float("inf"), cores=float("nan")), WHOLE, None),
    ],
)
def test_the_part_of_a_device_that_a_grant_gives(
    granted: Grant | None, memory: float | None, part: Fraction | int | None
) -> None:
    found = part_of(granted, memory)
    assert (found and found[0] / found[1]) == (None if part is None else float(part))


@pytest.mark.parametrize(
    ("grants", "weights"),
    [
        ([grant(fraction=0.5), grant(fraction=0.25)], [2, 1]),
        ([grant(memory=10_240, cores=45), grant(memory=30_720)], [10_240, 30_720]),
        ([grant(cores=30), grant(cores=60)], [30, 60]),
        # the first measure that all have: fractions, then memory, then cores
        ([grant(fraction=0.5, memory=1, cores=1), grant(fraction=0.5, memory=3, cores=3)], [1, 1]),
        ([grant(memory=1, cores=10), grant(memory=3, cores=10)], [1, 3]),
        ([grant(fraction=0.5, cores=10), grant(cores=20)], [10, 20]),
        ([grant(fraction=0.75), grant(fraction=0.5), grant(fraction=0.125)], [6, 4, 1]),
        ([grant(memory=10_240), None], None),
        ([grant(memory=10_240), grant(fraction=0.5)], None),
        ([grant(memory=10_240), grant(cores=50)], None),
        ([grant()], None),
        ([], None),
    ],
)
def test_what_adds_up_is_divided_by_grants_of_one_measure(
    grants: list[Grant | None], weights: list[int] | None
) -> None:
    assert weights_of(grants) == weights


@given(st.lists(GRANTS | st.none(), max_size=4), AMOUNTS)
def test_parts_and_weights_are_above_0_or_not_known(grants: list[Grant | None], memory: float | None) -> None:
    for each in grants:
        part = part_of(each, memory)
        assert part is None or min(part) > 0
    assert all(weight > 0 for weight in weights_of(grants) or ())


def test_only_devices_of_which_memory_was_granted_need_their_memory() -> None:
    holders = {
        DeviceKey(uuid=uuid): (
            Holder(
                owner=Owner(namespace="n", pod="p", container="c"), resource="nvidia.com/gpu", shared=True, grant=of
            ),
        )
        for uuid, of in {"a": grant(memory=1), "b": grant(fraction=0.5), "c": grant(memory=0), "d": None}.items()
    }
    assert devices_with_memory(holders) == {DeviceKey(uuid="a")}


def test_one_holder_with_memory_is_enough_for_a_device_to_need_its_own() -> None:
    grants = grant(memory=1), None, grant(cores=50)
    holders = [
        Holder(owner=Owner(namespace="n", pod=str(number), container="c"), resource="x", shared=True, grant=of)
        for number, of in enumerate(grants)
    ]
    key = DeviceKey(uuid="a")
    assert devices_with_memory({key: holders}) == {key}
    assert devices_with_memory({key: holders[1:]}) == frozenset()
