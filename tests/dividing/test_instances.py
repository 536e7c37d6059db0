import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dividing.instances import apportion, compute_slices, is_repeated, slices_of_model, weights


@pytest.mark.parametrize(
    ("profile", "slices"),
    [
        ("1g.10gb", 1),
        ("3g.40gb", 3),
        ("7g.80gb", 7),
        ("1g.10gb+me", 1),
        ("1c.3g.20gb", 3),
        ("1g.24gb.gfx", 1),
        ("0g.5gb", 1),
        ("", 1),
    ],
)
def test_compute_slices(profile: str, slices: int) -> None:
    assert compute_slices(profile) == slices


# issue 15, line 2
@pytest.mark.parametrize(
    ("model", "slices"),
    [
        ("NVIDIA H100 80GB HBM3", 7),
        ("NVIDIA A100-SXM4-40GB", 7),
        ("NVIDIA GH200 480GB", 7),
        ("NVIDIA H200", 7),
        ("NVIDIA B200", 7),
        ("NVIDIA GB200", 7),
        ("NVIDIA A30", 4),
        ("NVIDIA-A30-24GB", 4),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 4),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition", 4),
        ("NVIDIA RTX PRO 5000 Blackwell", 2),
        ("NVIDIA RTX PRO 4500 Blackwell", 2),
        ("NVIDIA Thor", 3),
        *((model, 7) for model in ("A100X", "A800", "H100", "H800", "H20", "B300", "GB300")),
        ("nvidia a30x", 4),
        ("NVIDIA A300", None),
        ("Quadro RTX 6000", None),
        ("", None),
    ],
)
def test_into_how_many_slices_a_model_is_cut(model: str, slices: int | None) -> None:
    assert slices_of_model(model) == slices


@pytest.mark.parametrize(
    ("values", "repeated"),
    [
        ([310.0] * 7, True),
        ([310.0, 307.0], True),
        ([310.0, 306.0], False),
        ([0.0, 0.0], True),
        ([0.0, 1.0], False),
        ([300.0, 297.0], True),
        ([-310.0, -307.0], True),
        ([-310.0, -306.0], False),
        ([-5.0, 5.0], False),
        ([], True),
    ],
)
def test_values_that_differ_by_more_than_1_percent_are_the_instances_own(values: list[float], repeated: bool) -> None:
    assert is_repeated(values) is repeated


def test_weights() -> None:
    assert weights([1, 3], [0.5, 0.25]) == [500_000, 750_000]
    assert weights([1, 3], [0.0, None]) == [1, 3]
    # no activity is above 1 or below 0
    assert weights([1, 3, 2], [1.5, -1.0, 0.000001]) == [1_000_000, 0, 2]


def test_the_first_parts_with_a_weight_get_the_remainder() -> None:
    assert apportion(8, [0, 1, 1, 0, 1]) == [0, 3, 3, 0, 2]
    assert apportion(2, [5, 0, 5, 5]) == [1, 0, 1, 0]


@given(st.integers(0, 10**20), st.lists(st.integers(0, 10**7), min_size=1, max_size=20).filter(any))
def test_parts_add_up_and_go_by_weight(amount: int, by: list[int]) -> None:
    parts = apportion(amount, by)
    assert sum(parts) == amount
    for part, weight in zip(parts, by, strict=True):
        assert abs(part - amount * weight / sum(by)) <= max(1, amount * 1e-12)
        assert weight or not part
