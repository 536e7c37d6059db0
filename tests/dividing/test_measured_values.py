"""What owners are measured to use, as texts that add up."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dividing.measured_values import (
    FREE,
    MEMORY,
    UTILIZATION,
    WORK,
    MeasuredShares,
    memory_texts,
    scale_down,
    utilization_texts,
    work_texts,
)
from exporter.model.devices import DeviceKey
from exporter.model.measured import Measured, Use
from exporter.model.pods import Owner

MIB = 2**20


def test_the_families_and_their_units() -> None:
    assert MEMORY == {
        b"DCGM_FI_DEV_FB_USED": MIB,
        b"DCGM_FI_DEV_FB_USED_BYTES": 1,
        b"dcgm_fb_used": MIB,
    }
    assert UTILIZATION == {
        b"DCGM_FI_DEV_GPU_UTIL": 100,
        b"DCGM_FI_DEV_GPU_UTIL_RATIO": 1,
        b"dcgm_gpu_utilization": 100,
    }
    assert {b"DCGM_FI_DEV_FB_FREE", b"DCGM_FI_DEV_FB_FREE_BYTES", b"dcgm_fb_free"} == FREE


@pytest.mark.parametrize(
    ("family", "is_work"),
    [
        (b"DCGM_FI_DEV_POWER_USAGE", True),
        (b"DCGM_FI_PROF_GR_ENGINE_ACTIVE", True),
        (b"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", True),
        (b"DCGM_FI_PROF_NVLINK_TX_BYTES", True),
        # a counter, memory, what owners are measured to use, and what no work changes
        (b"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", False),
        (b"DCGM_FI_DEV_FB_USED", False),
        (b"DCGM_FI_DEV_GPU_UTIL", False),
        (b"DCGM_FI_DEV_GPU_TEMP", False),
    ],
)
def test_which_families_are_a_devices_work(family: bytes, *, is_work: bool) -> None:
    assert (family in WORK) is is_work


@pytest.mark.parametrize(
    ("value", "used", "unit", "texts"),
    [
        (b"1000", [300 * MIB, 200 * MIB], MIB, [b"300", b"200", b"500"]),
        (b"1000", [300 * MIB + 1, 0], MIB, [b"300", b"0", b"700"]),
        (b"1000.00", [300 * MIB + MIB // 2], MIB, [b"300.50", b"699.50"]),
        (b"1048576000", [300 * MIB], 1, [b"314572800", b"734003200"]),
        (b"1.048576e+09", [300 * MIB], 1, [b"314572800", b"734003200"]),
        # the page is of a moment at which less was used
        (b"100", [300 * MIB, 100 * MIB], MIB, [b"75", b"25", b"0"]),
        (b"0", [300 * MIB, 100 * MIB], MIB, [b"0", b"0", b"0"]),
        (b"-3", [MIB], MIB, [b"0", b"-3"]),
        (b"NaN", [MIB], MIB, [b"NaN", b"NaN"]),
        (b"9223372036854775792", [1, 2], 1, [b"9223372036854775792"] * 3),
    ],
)
def test_memory(value: bytes, used: list[int], unit: int, texts: list[bytes]) -> None:
    assert memory_texts(value, used, unit) == texts


@pytest.mark.parametrize(
    ("value", "ratios", "full", "texts"),
    [
        (b"93", [0.62, 0.0], 100, [b"62", b"0"]),
        (b"0", [0.256], 100, [b"26"]),
        (b"0.930000", [0.62, 1.0], 1, [b"0.620000", b"1.000000"]),
        (b"NaN", [0.62, 0.3], 100, [b"NaN", b"NaN"]),
    ],
)
def test_utilization(value: bytes, ratios: list[float], full: int, texts: list[bytes]) -> None:
    assert utilization_texts(value, ratios, full) == texts


# issue 10, "Must show" 3
@given(
    whole=st.integers(0, 2**45),
    places=st.integers(0, 6),
    used=st.lists(st.integers(0, 2**45), min_size=1, max_size=8),
    unit=st.sampled_from((1, MIB)),
)
def test_memory_adds_up_to_the_last_printed_digit(whole: int, places: int, used: list[int], unit: int) -> None:
    value = f"{Decimal(whole).scaleb(-places):f}".encode()
    texts = memory_texts(value, used, unit)
    assert sum(Decimal(text.decode()) for text in texts) == Decimal(value.decode())
    assert all(Decimal(text.decode()) >= 0 for text in texts)
    assert all(
        Decimal(text.decode()) <= Decimal(of_owner) / unit for text, of_owner in zip(texts[:-1], used, strict=True)
    )


@given(st.lists(st.integers(0, 2**45), max_size=20), st.none() | st.integers(0, 2**45))
def test_what_exceeds_the_total_adds_up_to_it(parts: list[int], total: int | None) -> None:
    scaled = scale_down(parts, total)
    assert all(0 <= after <= before for before, after in zip(parts, scaled, strict=True))
    if total is None or sum(parts) <= total:
        assert scaled == parts
    else:
        assert sum(scaled) == total


def test_of_parts_that_do_not_fit_the_last_ones_get_what_is_left_over() -> None:
    assert scale_down([1, 1], 1) == [0, 1]
    assert scale_down([2, 2, 2], 4) == [1, 1, 2]
    assert scale_down([3, 1], 0) == [0, 0]


def test_a_ratio_that_is_printed_as_1_is_divided_all_the_same() -> None:
    assert work_texts(b"1", (0.75, 0.25), 0.0) == [b"0.750000", b"0.250000", b"0.000000"]
    assert utilization_texts(b"1", (0.754, 0.25), 1) == [b"0.75", b"0.25"]
    assert utilization_texts(b"97", (0.754, 0.25), 100) == [b"75", b"25"]


def test_work_that_is_no_amount_is_copied_to_each_owner_and_to_nobody() -> None:
    assert work_texts(b"NaN", (0.75, 0.25), 0.0) == [b"NaN"] * 3


A, B = (Owner(namespace="ns", pod=pod, container="c") for pod in "ab")
GPU = DeviceKey(uuid="GPU-0")


def test_rows_keep_their_shares_while_the_owners_are_the_same() -> None:
    def measured(*owners: Owner, memory_bytes: int | None = 1) -> Measured:
        return Measured(
            uses={(GPU, owner): Use(memory_bytes=memory_bytes, sm_ratio=0.5, processes=1) for owner in owners}
        )

    shares = MeasuredShares(measured(A, memory_bytes=1))
    assert shares.followed_by(measured(A, memory_bytes=2)) is shares
    assert shares.memory_bytes == {(GPU, A): 2}
    assert shares.followed_by(measured(A, B)) is not shares
    without_memory = shares.followed_by(measured(A, memory_bytes=None))
    assert (without_memory is shares, without_memory.memory_bytes) == (False, {})
    assert not shares.followed_by(None)


# issue 24, part 5
def test_what_an_idle_device_does_is_divided_by_what_was_granted() -> None:
    assert work_texts(b"60", (0.0, 0.0), 0.0, (3, 1)) == [b"45", b"15", b"0"]
    assert work_texts(b"60", (0.5, 0.5), 0.0, (3, 1)) == [b"30", b"30", b"0"]
    assert work_texts(b"61", (0.0, 0.0), 0.0) == [b"31", b"30", b"0"]
    assert work_texts(b"60.50", (0.0,), 0.0) == [b"60.50", b"0.00"]


def test_kernels_of_nobody_have_their_part_of_the_work() -> None:
    assert work_texts(b"100", (0.25, 0.25), 0.5) == [b"25", b"25", b"50"]
    assert work_texts(b"100", (0.0, 0.0), 0.5, (3, 1)) == [b"0", b"0", b"100"]


def test_a_ratio_is_shown_with_two_places_or_more() -> None:
    assert utilization_texts(b"0.5", (0.256,), 1) == [b"0.26"]
    assert utilization_texts(b"0.500", (0.2564,), 1) == [b"0.256"]


def test_what_is_not_known_of_an_owner_is_no_share() -> None:
    use = Use(memory_bytes=None, sm_ratio=None, processes=1)
    assert not MeasuredShares(Measured(uses={(GPU, A): use}))
    with_memory = MeasuredShares(Measured(uses={(GPU, A): replace(use, memory_bytes=0), (GPU, B): use}))
    assert with_memory
    assert (with_memory.memory_bytes, with_memory.sm_ratios) == ({(GPU, A): 0}, {})
    with_kernels = MeasuredShares(Measured(uses={(GPU, A): replace(use, sm_ratio=0.5), (GPU, B): use}))
    assert with_kernels
    assert (with_kernels.memory_bytes, with_kernels.sm_ratios) == ({}, {(GPU, A): 0.5})


def nobodys(ratio: float | None) -> Use:
    return Use(memory_bytes=1, sm_ratio=ratio, processes=1)


@pytest.mark.parametrize(
    ("of_nobody", "ratios"),
    [
        pytest.param({}, {GPU: 0.0}, id="no process is nobody's"),
        ({GPU: nobodys(0.25)}, {GPU: 0.25}),
        pytest.param({GPU: nobodys(None)}, {}, id="nobody can tell"),
        pytest.param({DeviceKey(uuid="GPU-1"): nobodys(0.25)}, {GPU: 0.0}, id="on a device without measured owners"),
    ],
)
def test_the_part_of_the_time_with_kernels_of_nobody(
    of_nobody: dict[DeviceKey, Use], ratios: dict[DeviceKey, float]
) -> None:
    times = {GPU: {A: 7, None: 1}}
    shares = MeasuredShares(Measured(uses={(GPU, A): nobodys(0.5)}, nobodys=of_nobody, sm_ns=times))
    assert (shares.nobodys_sm_ratios, shares.sm_ns) == (ratios, times)
    assert MeasuredShares().nobodys_sm_ratios == {}


def test_rows_are_made_anew_if_other_values_are_measured() -> None:
    uses = {(GPU, A): Use(memory_bytes=1, sm_ratio=0.5, processes=1)}
    shares = MeasuredShares(Measured(uses=uses, nobodys={GPU: nobodys(0.25)}))
    same = shares.followed_by(Measured(uses=uses, nobodys={GPU: nobodys(0.75)}, sm_ns={GPU: {None: 5}}))
    assert same is shares
    assert (shares.nobodys_sm_ratios, shares.sm_ns) == ({GPU: 0.75}, {GPU: {None: 5}})
    unknown = shares.followed_by(Measured(uses=uses, nobodys={GPU: nobodys(None)}))
    assert (unknown is shares, unknown.nobodys_sm_ratios) == (False, {})
    without_ratio = shares.followed_by(Measured(uses={(GPU, A): Use(memory_bytes=1, sm_ratio=None, processes=1)}))
    assert (without_ratio is shares, without_ratio.sm_ratios) == (False, {})
