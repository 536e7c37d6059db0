"""The activity of a GPU's devices in each stretch of a page's time, by tables."""

from collections.abc import Mapping, Sequence

import pytest

from exporter.accounts.entries import Entry
from exporter.accounts.holders import HeldGpu
from exporter.accounts.holdings import Device
from exporter.accounts.loads import Loads, spread
from exporter.accounts.observation import GpuSamples
from exporter.accounts.stretches import Stretch
from exporter.model.devices import DeviceKey
from tests.support.looks import owner

KEY = DeviceKey(uuid="GPU-1")
ENTRIES = {pod: Entry(owner(pod), "", KEY) for pod in "abc"}


def held(is_sampled: bool = True, **devices: str) -> HeldGpu:
    """A GPU whose devices these pods hold. `i3` is an instance of three slices, `gpu` is a GPU that is not cut."""
    made = [
        Device(
            key=KEY if name == "gpu" else DeviceKey(uuid=KEY.uuid, instance=name[1:]),
            slices=1 if name == "gpu" else int(name[1:]),
            is_sampled=is_sampled,
            holders=tuple((ENTRIES[pod], 1) for pod in pods),
            part=1,
        )
        for name, pods in devices.items()
    ]
    return HeldGpu(KEY, 1, made)


def samples(**activity: int) -> GpuSamples:
    return GpuSamples({"activity": {name.removeprefix("gpu").removeprefix("i"): of for name, of in activity.items()}})


def proportion(loads: Sequence[int]) -> list[float]:
    """Loads as multiples of the least one above 0."""
    least = min((load for load in loads if load), default=1)
    return [load / least for load in loads]


@pytest.mark.parametrize(
    ("active", "held_ns", "parts"),
    [
        (5, {2: 10}, {2: (5, 10)}),
        (15, {2: 10}, {2: (10, 10)}),
        (5, {1: 0}, {1: (0, 1)}),
        (6, {1: 10, 2: 10}, {1: (6, 30), 2: (12, 30)}),
        (15, {1: 10, 2: 10}, {1: (5, 10), 2: (1, 1)}),
        (18, {1: 10, 2: 10}, {1: (8, 10), 2: (1, 1)}),
        (20, {1: 10, 2: 10}, {1: (1, 1), 2: (1, 1)}),
        (25, {1: 10, 2: 10}, {1: (1, 1), 2: (1, 1)}),
        (12, {1: 20, 3: 4}, {1: (8, 20), 3: (1, 1)}),
        (4, {1: 10, 2: 0}, {1: (4, 10), 2: (8, 10)}),
        (4, {1: 0, 2: 0}, {1: (0, 1), 2: (0, 1)}),
        (4, {}, {}),
    ],
)
def test_a_device_is_more_active_while_more_containers_hold_it(
    active: int, held_ns: Mapping[int, int], parts: Mapping[int, tuple[int, int]]
) -> None:
    assert spread(active, held_ns) == parts


ALONE, BOTH, NOBODY = held(gpu="a"), held(gpu="ab"), held(gpu="")


@pytest.mark.parametrize(
    ("window", "activity", "edges", "loads"),
    [
        ([(ALONE, 10)], 500_000, (None, None), [1]),
        # nobody's time is not active
        ([(ALONE, 10), (NOBODY, 30)], 100_000, (None, None), [1, 0]),
        ([(NOBODY, 30), (held(gpu="b"), 20), (ALONE, 10)], 100_000, (None, None), [0, 2, 1]),
        # unless nobody held it in all of it
        ([(NOBODY, 10), (held(gpu=""), 30)], 500_000, (None, None), [1, 3]),
        ([(NOBODY, 10), (held(gpu=""), 30)], 0, (None, None), [0, 0]),
        # two holders are twice as active as one
        ([(ALONE, 10), (BOTH, 10)], 300_000, (None, None), [1, 2]),
        ([(ALONE, 10), (BOTH, 10)], 900_000, (None, None), [1, 1.25]),
        ([(ALONE, 10), (BOTH, 10)], 3_000_000, (None, None), [1, 1]),
        # active for longer than it was held: the rest may be of those before and after
        ([(ALONE, 10), (NOBODY, 10)], 750_000, (BOTH, None), [2, 0, 1]),
        ([(ALONE, 10), (NOBODY, 10)], 750_000, (None, BOTH), [2, 0, 1]),
        ([(ALONE, 10), (NOBODY, 10)], 750_000, (BOTH, held(gpu="c")), [4, 0, 1, 1]),
        ([(ALONE, 10), (NOBODY, 10)], 750_000, (NOBODY, None), [1, 0]),
        ([(ALONE, 10), (NOBODY, 10)], 500_000, (BOTH, None), [1, 0, 0]),
        ([(NOBODY, 10)], 500_000, (BOTH, None), [0, 1]),
    ],
)
def test_loads_of_a_gpu(
    window: list[tuple[HeldGpu, int]],
    activity: int,
    edges: tuple[HeldGpu | None, HeldGpu | None],
    loads: list[float],
) -> None:
    stretches = [Stretch(of, ns) for of, ns in window]
    assert proportion(Loads(stretches, samples(gpu=activity), edges).of_pieces()) == loads


@pytest.mark.parametrize("unseen", [Stretch(NOBODY, 10, is_gap=True), Stretch(BOTH, 10, is_blind=True)])
def test_with_a_stretch_that_nobody_saw_no_load_is_known(unseen: Stretch) -> None:
    loads = Loads([Stretch(ALONE, 10), unseen], samples(gpu=500_000), (BOTH, None))
    assert loads.of_pieces() == [0, 0]
    assert loads.of_devices(unseen, unseen.held.devices) == [1]


def test_loads_of_instances_are_their_time_times_their_slices() -> None:
    first, second = held(i1="a", i3="b"), held(i1="a", i3="")
    loads = Loads([Stretch(first, 10), Stretch(second, 10)], samples(i1=200_000, i3=300_000), (None, None))
    # in 20 s the first one was active for 4 s, in equal parts, and the second one for 6 s, while b held it
    assert proportion(loads.of_pieces()) == [(2 + 3 * 6) / 2, 1]
    assert proportion(loads.of_devices(loads.pieces[0], first.devices)) == [1, 9]
    assert proportion(loads.of_devices(loads.pieces[1], second.devices)) == [1, 0]


def test_an_instance_that_the_page_lacks_has_no_load_and_a_whole_gpu_has() -> None:
    of_gpu = [Stretch(held(is_sampled=False, gpu=pods), 10) for pods in ("a", "b")]
    assert proportion(Loads(of_gpu, samples(gpu=500_000), (None, None)).of_pieces()) == [1, 1]
    of_instance = [Stretch(held(is_sampled=False, i3=pods), 10) for pods in ("a", "b")]
    assert proportion(Loads(of_instance, samples(i3=500_000), (None, None)).of_pieces()) == [0, 0]


@pytest.mark.parametrize(("activity", "loads"), [(500_000, [500_000, 1_500_000]), (0, [1, 3])])
def test_of_one_stretch_devices_have_their_activity_or_their_slices(activity: int, loads: list[int]) -> None:
    one = held(i1="a", i3="b")
    of_one = Loads([Stretch(one, 10)], samples(i1=activity, i3=activity), (None, None))
    assert of_one.of_pieces() == [1]
    assert of_one.of_devices(of_one.pieces[0], one.devices) == loads


def test_a_time_of_no_length_has_no_load() -> None:
    window = [Stretch(held(gpu="a"), 10), Stretch(held(gpu="b"), 0), Stretch(held(gpu="c"), 10)]
    assert proportion(Loads(window, samples(gpu=1_000_000), (None, None)).of_pieces()) == [1, 0, 1]


def test_a_device_that_nobody_held_is_active_in_proportion_to_time() -> None:
    window = [Stretch(held(i3="a", i4=""), 10), Stretch(held(i3="ab", i4=""), 30)]
    loads = Loads(window, samples(i3=400_000, i4=500_000), (None, None))
    first, last = (loads.of_devices(stretch, stretch.held.devices) for stretch in window)
    # i3 was active for 16 s; 10 s with one holder and 30 s with two count as 10 and 60
    assert first[1] / first[0] == pytest.approx(4 * 5 / (3 * 16 / 7))
    assert last[1] / last[0] == pytest.approx(4 * 15 / (3 * 96 / 7))


def test_before_any_time_has_passed_nobody_has_a_load() -> None:
    loads = Loads([Stretch(held(i3="", i4=""), 0)], samples(i3=400_000, i4=0), (held(i4="a"), None))
    assert loads.of_pieces() == [0, 0]


def test_a_device_without_a_sample_has_no_load_beside_one_that_has() -> None:
    stretch = Stretch(held(i3="a", i4="b"), 10)
    assert Loads([stretch], samples(i3=5), (None, None)).of_devices(stretch, stretch.held.devices) == [15, 0]
