"""A sample's value in another unit: exact, and printed as dcgm-exporter prints values since 4.8.3."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dividing.decimals import in_unit
from exporter.simulator.dcgm_pages import go_g

MIB = 2**20
TEXTS = st.one_of(
    st.integers(-(10**15), 10**15).map(float),
    st.floats(-1e12, 1e12, allow_subnormal=False).filter(lambda value: not 0 < abs(value) < 1e-6),
).map(lambda value: go_g(value or 0.0).encode())
ODD_TEXTS = st.from_regex(rb"[+-]?[0-9]{1,18}(\.[0-9]{0,12})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
BLANKS = ("2147483632", "2147483647", "9223372036854775794", "9.223372036854776e+18", "140737488355328")
# the same in Go's short form
SHORT_BLANKS = ("2.147483632e+09", "1.40737488355328e+14")


@pytest.mark.parametrize(
    ("value", "times", "per", "expected"),
    [
        ("1980", 10**6, 1, "1.98e+09"),
        ("1.98e+09", 1, 10**6, "1980"),
        ("57", 1, 100, "0.57"),
        ("0.57", 100, 1, "57"),
        ("100", 1, 100, "1"),
        ("123456789012", 1, 1000, "1.23456789012e+08"),
        ("1.23456789012e+11", 1, 1000, "1.23456789012e+08"),
        ("1.2345e+06", 1, 1000, "1234.5"),
        ("81559", MIB, 1, "8.5520809984e+10"),
        ("8.5520809984e+10", 1, MIB, "81559"),
        ("1", 1, MIB, "1e-06"),
        ("524288", 1, MIB, "0.5"),
        # just between two last digits, the even one
        ("8192", 1, MIB, "0.007812"),
        ("24576", 1, MIB, "0.023438"),
        ("40960", 1, MIB, "0.039062"),
        # as many places as the value has, if these are more than six
        ("0.5", 1, MIB, "0"),
        ("0.1234567", 1, MIB, "1e-07"),
        ("0.500000000", 1, MIB, "4.77e-07"),
        ("1", 1, 10**9, "1e-09"),
        ("0.000100", 1, 1, "0.0001"),
        ("57.000000", 1, 100, "0.57"),
        ("007", 1, 100, "0.07"),
        ("007", 10**6, 1, "7e+06"),
        ("-5", 1, 1000, "-0.005"),
        (".5", 10**6, 1, "500000"),
        ("0", 10**6, 1, "0"),
        ("-0", 10**6, 1, "0"),
        ("0e99", 10**6, 1, "0"),
        # a value that is none
        *((text, 1, 1000, text) for text in ("NaN", "+Inf", "-inf", *BLANKS, *SHORT_BLANKS)),
        # numbers that only begin as these do
        ("2147", 1, 1000, "2.147"),
        ("2.14e+09", 1, 1000, "2.14e+06"),
        ("1.4e+98", 10**6, 1, "1.4e+104"),
        ("123456", 1, 1, "123456"),
        ("999999", 10, 1, "9.99999e+06"),
        ("0.5", 1, 10**4, "5e-05"),
    ],
)
def test_a_value_in_another_unit(value: str, times: int, per: int, expected: str) -> None:
    assert in_unit(times, per)(value.encode()).decode() == expected


@given(TEXTS, st.sampled_from([10, 100, 1000, 10**6, 10**9]))
def test_there_and_back_by_a_power_of_ten_are_the_same_bytes(text: bytes, factor: int) -> None:
    for there, back in (((factor, 1), (1, factor)), ((1, factor), (factor, 1))):
        out = in_unit(*there)(text)
        assert in_unit(*back)(out) == text or out == text  # a not-supported value stays


@given(st.integers(0, 10**8))  # 2**27 MiB are one of DCGM's values for "not supported"
def test_mebibytes_there_and_back_are_the_same_bytes(mebibytes: int) -> None:
    text = go_g(float(mebibytes)).encode()
    assert in_unit(1, MIB)(in_unit(MIB, 1)(text)) == text


@given(ODD_TEXTS, st.sampled_from([(10**6, 1), (1, 1000), (1, 100), (MIB, 1)]))
def test_whatever_form_a_value_has_the_other_is_exact(text: bytes, unit: tuple[int, int]) -> None:
    out = in_unit(*unit)(text)
    if out != text:
        assert Fraction(out.decode()) == Fraction(text.decode()) * unit[0] / unit[1]


@given(st.integers(0, 10**13))
def test_bytes_as_mebibytes_are_off_by_half_a_millionth_at_most(size: int) -> None:
    text = go_g(float(size)).encode()
    there = in_unit(1, MIB)(text)
    if there != text:
        assert abs(Fraction(there.decode()) * MIB - size) <= Fraction(MIB, 2 * 10**6)
        assert abs(Fraction(in_unit(MIB, 1)(there).decode()) - size) < 1  # bytes are printed as whole numbers
