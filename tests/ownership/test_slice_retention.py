"""Keeping what ResourceSlices said of devices while no slice says it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model.devices import Assignment, Claim, ResourceSlice, SliceDevice
from exporter.model.pods import Owner
from exporter.ownership.retention import KnownDevices, described, named

# as users know them
UNNAMED_SECONDS = 120.0

DRIVER, POOL = "gpu.nvidia.com", "node-1"
STEP = UNNAMED_SECONDS


def slice_of(*devices: str, generation: int = 1, count: int = 1, pool: str = POOL, uuid: str = "") -> ResourceSlice:
    return ResourceSlice(
        driver=DRIVER,
        pool=pool,
        generation=generation,
        slice_count=count,
        devices={name: SliceDevice(uuid=f"GPU-{uuid or name}") for name in devices},
    )


def held(*devices: str, pool: str = POOL) -> frozenset[Assignment]:
    claims = (Claim(namespace="ml", name="c", driver=DRIVER, pool=pool, device=device) for device in devices)
    owner = Owner(namespace="ml", pod="train", container="main")
    return frozenset(
        Assignment(owner=owner, resource=DRIVER, device_id=claim.device_id, claim=claim) for claim in claims
    )


def after(*steps: list[ResourceSlice], holds: frozenset[Assignment] = held("a", "b")) -> dict[str, str]:
    """What is known of the pool's devices after these sets of slices, with a look after each."""
    known = KnownDevices()
    for number, slices in enumerate(steps):
        known = named(described(known, slices, now=STEP * number), holds, now=STEP * number)
    known = named(known, holds, now=STEP * len(steps))
    return {name[2]: device.uuid for name, device in known.devices.items()}


# issue 7, line 1
@pytest.mark.parametrize(
    ("steps", "found"),
    [
        pytest.param([[slice_of("a", "b")], []], {"a": "GPU-a", "b": "GPU-b"}, id="wiped"),
        pytest.param([[slice_of("a", "x")], []], {"a": "GPU-a"}, id="wiped: x is nobody's"),
        pytest.param([[slice_of("a", "b")], [], [], []], {"a": "GPU-a", "b": "GPU-b"}, id="for as long as it takes"),
        pytest.param(
            [[slice_of("a", count=2), slice_of("b", count=2)], [slice_of("b", count=2)]],
            {"a": "GPU-a", "b": "GPU-b"},
            id="one of two is deleted",
        ),
        pytest.param(
            [[slice_of("a", "b")], [], [slice_of("a", count=2)]],
            {"a": "GPU-a", "b": "GPU-b"},
            id="published again, not whole yet",
        ),
        pytest.param(
            [[slice_of("a", "b")], [], [slice_of("a", count=2, uuid="new")]],
            {"b": "GPU-b"},
            id="described anew before the pool is whole: nobody's rather than wrong",
        ),
        pytest.param([[slice_of("a", "b")], [], [slice_of("a", uuid="new")]], {"a": "GPU-new"}, id="published anew"),
        pytest.param(
            [[slice_of("a", "b")], [slice_of("a", generation=2)]], {"a": "GPU-a"}, id="a newer generation lacks it"
        ),
        pytest.param(
            [
                [slice_of("a", count=2), slice_of("b", count=2)],
                [slice_of("a", generation=2, count=2), slice_of("b", count=2)],
            ],
            {"a": "GPU-a", "b": "GPU-b"},
            id="a pool that is renewed in place, slice by slice",
        ),
        pytest.param([[slice_of("a", "b")], [slice_of()]], {}, id="the pool is there and empty"),
        pytest.param(
            [[slice_of("a", "b")], [slice_of("c", pool="other")]],
            {"a": "GPU-a", "b": "GPU-b", "c": "GPU-c"},
            id="another pool says nothing of this one",
        ),
    ],
)
def test_what_is_known(steps: list[list[ResourceSlice]], found: dict[str, str]) -> None:
    assert after(*steps) == found


# issue 7, line 1
def test_nothing_is_let_go_of_before_somebody_has_looked() -> None:
    """A pod may have been given its claim since the last look."""
    known = described(described(KnownDevices(), [slice_of("a", "b")], now=0), [], now=0)
    assert set(known.kept) == {(DRIVER, POOL, "a"), (DRIVER, POOL, "b")}
    assert set(named(known, held("b"), now=STEP).devices) == {(DRIVER, POOL, "b")}
    assert named(known, held("a", "b"), now=STEP) is known


# issue 15, line 21
def test_a_wiped_pools_devices_are_kept_for_two_minutes_named_or_not() -> None:
    """A pod may get its claim between the wipe and the driver's next slices: 31 s of a kubelet's restart."""
    known = described(described(KnownDevices(), [slice_of("a", "b")], now=0), [], now=100)
    assert named(known, held("b"), now=219) is known
    assert named(known, held("b"), now=220) is not known
    again = described(known, [slice_of("c", pool="other")], now=150)
    assert set(named(again, held("b"), now=100 + STEP - 1).kept) == {(DRIVER, POOL, "a"), (DRIVER, POOL, "b")}
    assert set(named(again, held("b"), now=100 + STEP).kept) == {(DRIVER, POOL, "b")}, "from the wipe on"


# issue 7, line 1
def test_what_is_kept_is_bounded() -> None:
    known = named(described(described(KnownDevices(), [slice_of("a")], now=0), [], now=0), held("a"), now=STEP)
    many = slice_of(*(f"d{number}" for number in range(10_001)), pool="p")
    known = described(described(known, [many], now=STEP), [], now=STEP)
    assert len(known.kept) == 10_000
    assert (DRIVER, POOL, "a") in known.kept, "what was kept first is what somebody holds"


names = st.sampled_from("abcd")
pools = st.lists(
    st.builds(
        lambda devices, generation, count, uuid: slice_of(*devices, generation=generation, count=count, uuid=uuid),
        st.frozensets(names, max_size=3),
        st.integers(1, 2),
        st.integers(1, 3),
        st.sampled_from(("", "new")),
    ),
    max_size=4,
)


# issue 7, line 1
@pytest.mark.history
@given(steps=st.lists(st.tuples(pools, st.frozensets(names)), max_size=8))
def test_whatever_slices_come_and_go(steps: list[tuple[list[ResourceSlice], frozenset[str]]]) -> None:
    known, ever = KnownDevices(), set[tuple[str, str]]()
    for number, (slices, holds) in enumerate(steps):
        before = known
        known = named(described(known, slices, now=STEP * number), held(*holds), now=STEP * (number + 1))
        plain = described(KnownDevices(), slices, now=0).devices
        ever |= {(name[2], device.uuid) for name, device in plain.items()}
        assert dict(plain).items() <= dict(known.devices).items(), "what the slices say holds"
        assert {(name[2], device.uuid) for name, device in known.devices.items()} <= ever, "nothing is made up"
        assert {name[2] for name in known.kept} <= holds, "kept for owners alone"
        assert known.kept.keys() == known.devices.keys() - plain.keys()
        if not slices:
            assert {name for name in before.devices if name[2] in holds} == set(known.devices)
