"""Exact amounts, held to Python's decimals."""

import subprocess
import sys
from decimal import ROUND_DOWN, Context, Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.dcgm.fields import Field
from exporter.dividing.decimals import (
    Amount,
    divisible,
    growth,
    in_parts,
    is_amount,
    is_printable,
    minus,
    number,
    plus,
    read_amount,
    write_amount,
)

EXACT = Context(prec=20_000, rounding=ROUND_DOWN)
DIGITS = st.text("0123456789", max_size=30)
# either half of a number may be missing
TEXTS = st.builds(
    lambda sign, whole, fraction, exponent: f"{sign}{whole or '0' * (not fraction)}.{fraction}{exponent}",
    st.sampled_from(("", "-", "+")),
    DIGITS,
    DIGITS,
    st.one_of(st.just(""), st.integers(-40, 40).map(lambda power: f"e{power}"), st.sampled_from(("E+05", "e-1000"))),
).filter(lambda text: is_amount(text.encode()))
NUMBERS = st.one_of(
    TEXTS,
    st.integers(-(10**40), 10**40).map(str).filter(lambda text: is_amount(text.encode())),
    st.floats(allow_nan=False, allow_infinity=False).map(repr).filter(lambda text: is_amount(text.encode())),
    st.floats(0, 1e9).map(lambda value: f"{value:.6f}"),
)


def as_decimal(text: str) -> Decimal:
    """The value with its places, as a sample of them shows it."""
    value = EXACT.create_decimal(text)
    places = max(0, -int(value.as_tuple().exponent))
    return EXACT.quantize(value, Decimal((0, (1,), -places)))


def as_text(value: Decimal) -> str:
    """Written out; there is no -0."""
    return f"{value or abs(value):f}"


@given(text=NUMBERS)
def test_what_is_read_is_written_as_decimals_are(text: str) -> None:
    assert write_amount(read_amount(text.encode())).decode() == as_text(as_decimal(text))


@given(one=NUMBERS, other=NUMBERS)
def test_sums_and_differences_are_those_of_decimals(one: str, other: str) -> None:
    a, b = read_amount(one.encode()), read_amount(other.encode())
    x, y = as_decimal(one), as_decimal(other)
    assert write_amount(plus(a, b)).decode() == as_text(EXACT.add(x, y))
    assert write_amount(minus(a, b)).decode() == as_text(EXACT.subtract(x, y))


@given(text=NUMBERS, parts=st.integers(1, 48))
def test_parts_are_those_of_decimals(text: str, parts: int) -> None:
    value = as_decimal(text)
    exponent = int(value.as_tuple().exponent)
    each, left = EXACT.divmod(EXACT.scaleb(value, -exponent), Decimal(parts))
    step = Decimal(1).copy_sign(left)
    expected = [
        as_text(EXACT.scaleb(EXACT.add(each, step if index < abs(int(left)) else Decimal(0)), exponent))
        for index in range(parts)
    ]
    assert [write_amount(part).decode() for part in in_parts(read_amount(text.encode()), parts)] == expected


@example(before="8", now="4", may_lag=True)
@example(before="8", now="3.9", may_lag=True)
@example(before="8", now="8", may_lag=True)
@example(before="8", now="1", may_lag=False)
@example(before="8", now="-1", may_lag=False)
@example(before="8", now="9", may_lag=True)
@given(before=NUMBERS, now=NUMBERS, may_lag=st.booleans())
def test_the_growth_of_a_counter(before: str, now: str, may_lag: bool) -> None:
    x, y = as_decimal(before), as_decimal(now)
    grown = growth(read_amount(before.encode()), read_amount(now.encode()), may_lag=may_lag)
    if y >= x:
        expected: Decimal | None = EXACT.subtract(y, x)
    elif may_lag and EXACT.multiply(2, y) >= x:
        expected = None
    else:
        expected = max(y, Decimal(0))
    assert (None if grown is None else Decimal(write_amount(grown).decode())) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("-0", "0"),
        ("-0.00", "0.00"),
        ("-.5", "-0.5"),
        ("+5.", "5"),
        ("1e3", "1000"),
        ("1.5E-3", "0.0015"),
        ("-1e-2", "-0.01"),
    ],
)
def test_unusual_forms(text: str, shown: str) -> None:
    assert write_amount(read_amount(text.encode())).decode() == shown


# DCGM's values for "not supported" are 2**31 - 16, 2**47 and 2**63 - 16, each with the next fifteen
@pytest.mark.parametrize("first", [2**31 - 16, 2**47])
def test_values_of_what_is_not_supported_are_no_amounts(first: int) -> None:
    around = [is_amount(b"%d" % value) for value in (first - 1, first, first + 15, first + 16)]
    assert around == [True, False, False, True]
    assert (number(b"%d" % first, Field("x")), number(b"%d" % (first - 1), Field("x"))) == (None, first - 1)


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "9223372036854775792", "9.223372036854776e+18"])
def test_values_that_nothing_can_divide_are_no_amounts(text: str) -> None:
    assert is_amount(text.encode()) is False
    assert number(text.encode(), Field("x")) is None
    assert number(text.encode(), Field("x", times=100)) is None


def test_a_number_that_is_negative_or_large_is_an_amount() -> None:
    for text in ("-2147483632", "-9223372036854775808", "1e300", "9223372036854773760"):
        assert is_amount(text.encode()) is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1e1000", True), ("1e-1001", False), ("1E1001", False), ("1" * 1000, True), ("1" * 1001, False)],
)
def test_what_can_be_written_out(text: str, expected: bool) -> None:
    assert is_printable(text.encode()) is expected


UNITS = st.sampled_from(
    (Field("x", times=100), Field("x", times=10**9), Field("x", per=1024 * 1024), Field("x", per=10**6))
)


@given(text=NUMBERS, field=UNITS)
def test_a_value_in_another_unit_is_rounded_once(text: str, field: Field) -> None:
    value = Context(prec=4_000, Emin=-99_999, Emax=99_999).divide(
        EXACT.multiply(EXACT.create_decimal(text), field.times), Decimal(field.per)
    )
    expected = float(value)
    found = number(text.encode(), field)
    assert found == (None if abs(expected) == float("inf") else 0 if float(text) == 0 else expected)


@pytest.mark.parametrize(
    ("field", "expected"), [(Field("x", times=100), 55.56), (Field("x", per=4), 0.1389), (Field("x"), 0.5556)]
)
def test_a_number_too_long_for_that_is_about_right(field: Field, expected: float) -> None:
    assert number(b"0." + b"5" * 1_500, field) == pytest.approx(expected, rel=0.001)


def test_a_number_that_is_too_large_in_another_unit_is_none() -> None:
    assert number(b"1e308", Field("x", times=100)) is None
    assert number(b"9" * 305 + b"." + b"9" * 1_000, Field("x", times=10**9)) is None
    assert number(b"1e308", Field("x")) == 1e308


def test_serving_needs_no_decimals() -> None:
    """They would be 344 KiB on every node."""
    program = (
        "import sys, exporter.cli.serve; print(sorted({'decimal', '_decimal', 'importlib.resources'} & {*sys.modules}))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_large_amount_keeps_every_digit() -> None:
    assert plus(Amount(1, 300), Amount(10**300)) == Amount(10**600 + 1, 300)


@pytest.mark.parametrize("sign", ["", "-"])
def test_whole_numbers_are_written_so_as_far_as_every_reader_has_them(sign: str) -> None:
    largest, next_one = (
        number(f"{sign}9007199254740991".encode(), Field("x")),
        number(f"{sign}9007199254740992".encode(), Field("x")),
    )
    assert (type(largest), type(next_one)) == (int, float)
    assert number(f"{sign}1.0".encode(), Field("x")) == int(f"{sign}1")


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1", "1.000000"), ("0.5", "0.500000"), ("-1.00", "-1.000000"), ("1.05", "1.05"), ("0", "0"), ("2", "2")],
)
def test_a_ratio_has_six_places_to_be_divided(text: str, shown: str) -> None:
    assert write_amount(divisible(read_amount(text.encode()))).decode() == shown
