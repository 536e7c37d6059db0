"""What owners are measured to use, as texts that add up."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dividing.measured_values import (
    MEMORY,
    UTILIZATION,
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
