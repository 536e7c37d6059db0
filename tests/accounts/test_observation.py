from decimal import ROUND_FLOOR, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.accounts.observation import units


@pytest.mark.parametrize(
    ("text", "power", "amount"),
    [
        (b"112.670000", 6, 112_670_000),
        (b"1.2345678e+06", 6, 1_234_567_800_000),
        (b"4.3e+09", 3, 4_300_000_000_000),
        (b"5E-07", 6, 0),
        (b"5e-06", 6, 5),
        (b"+7", 0, 7),
        (b".5", 3, 500),
        (b"7.", 3, 7_000),
        (b"0", 6, 0),
        (b"-0.0", 6, 0),
        (b"0e999", 6, 0),
        (b"2147483631", 3, 2_147_483_631_000),
        (b"2147483648", 3, 2_147_483_648_000),
        (b"-1", 0, None),
        (b"NaN", 0, None),
        (b"+Inf", 0, None),
        (b"1e999", 0, None),
        (b"2147483632", 3, None),
        (b"140737488355328", 3, None),
        (b"9223372036854775794", 0, None),
        (b"9.223372036854776e+18", 0, None),
        (b"", 0, None),
        (b".", 0, None),
        (b"0x1p-2", 0, None),
        (b"1_0", 0, None),
        (b"1" * 41, 0, None),
        (b"+" + b"1" * 21, 0, None),
    ],
)
def test_units(text: bytes, power: int, amount: int | None) -> None:
    assert units(text, power) == amount


@given(
    st.one_of(
        st.integers(0, 2**31 - 20).map(str),
        st.floats(0, 2**31 - 20).map(repr),
        st.floats(0, 2**31 - 20).map("{:g}".format),
        st.floats(0, 2**31 - 20).map("{:.6f}".format),
    ),
    st.integers(0, 9),
)
def test_the_amount_is_exact_and_rounded_down(text: str, power: int) -> None:
    found = units(text.encode(), power)
    if found is None:
        assert "e-" in text
    else:
        assert found == int((Decimal(text) * 10**power).to_integral_value(ROUND_FLOOR))
