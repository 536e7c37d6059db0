"""Prices, and costs that add up to the last printed digit."""

import re
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ConfigError
from exporter.report.costs import Costs, Prices, apportioned, plain, quantity, read_price, read_prices
from exporter.report.rows import Amounts

COSTS = st.lists(st.none() | st.fractions(0, 1000, max_denominator=10**6), max_size=8)


@given(costs=COSTS, places=st.integers(0, 3))
def test_rounded_costs_add_up_and_the_largest_remainders_go_up(costs: list[Fraction | None], places: int) -> None:
    rounded = apportioned(costs, places)
    unit = Fraction(1, 10**places)
    known = [
        (cost, Fraction(part))
        for cost, part in zip(costs, rounded, strict=True)
        if cost is not None and part is not None
    ]
    assert [part is None for part in rounded] == [cost is None for cost in costs]
    assert sum(part for _, part in known) == round(sum(cost for cost, _ in known) / unit) * unit
    assert all(-unit < cost - part < unit for cost, part in known)
    down = [cost - part for cost, part in known if part <= cost]
    up = [cost - part + unit for cost, part in known if part > cost]
    assert max(down, default=Fraction(0)) <= min(up, default=unit)


def test_costs_are_rounded_in_order_where_remainders_are_alike() -> None:
    third = Fraction(1, 3)
    assert apportioned([third, None, third, third], 0) == [Decimal(1), None, Decimal(0), Decimal(0)]
    assert apportioned([Fraction(5, 2), Fraction(1, 2)], 0) == [Decimal(3), Decimal(0)]


def test_a_quantity_is_rounded_once_to_a_billionth() -> None:
    assert quantity(1.0, 3600.0) == Fraction(277_778, 10**9)
    assert plain(quantity(1.0, 3600.0) * Fraction(5, 2)) == "0.000694445"


@pytest.mark.parametrize(
    ("model", "price"),
    [("nvidia h100", "3"), ("NVIDIA H100 PCIe", "2"), ("NVIDIA A100", "1.5"), ("Tesla T4", "1"), ("", "1")],
)
def test_the_name_of_a_model_goes_before_the_longest_pattern(model: str, price: str) -> None:
    texts = ["NVIDIA*=1.5", "NVIDIA H100*=2", "NVIDIA H100=3", "1"]
    assert read_prices(texts, None).of_model(model) == Decimal(price)


def test_without_the_price_of_a_model_only_zero_hours_have_a_cost() -> None:
    prices = Prices(of_models={"h100": Decimal(2)}, of_kwh=Decimal("0.5"))
    amounts = Amounts(held=3600.0, idle=0.0, free=1800.0, joules=7.2e6)
    assert prices.of("A100", amounts) == Costs(None, Fraction(0), None)
    assert prices.of("H100", amounts) == Costs(Fraction(3), Fraction(0), Fraction(1))
    assert Prices(of_kwh=Decimal("0.5")).of("H100", amounts) == Costs(Fraction(1), None, None)
    assert Prices().of("H100", amounts) == Costs(None, None, None)
    assert Costs(Fraction(1), None, Fraction(2)).plus(Costs(Fraction(1), Fraction(1), None)) == Costs(
        Fraction(2), None, None
    )
    assert [Prices().are_given, Prices(of_kwh=Decimal(0)).are_given, prices.are_given, prices.are_of_gpus] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize("text", [".50", "2,5", "-1", "1e3", "1000000000000.1", "2.123456789012345678901", "NaN"])
def test_a_text_that_is_no_price_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        read_price(text)
    with pytest.raises(ConfigError):
        read_prices([text], None)


@pytest.mark.parametrize("texts", [["1", "2"], ["a=1", "a=2"], ["=1"]])
def test_two_prices_of_one_model_or_a_price_of_no_model_are_refused(texts: list[str]) -> None:
    with pytest.raises(ConfigError):
        read_prices(texts, None)


def test_the_highest_price_is_accepted() -> None:
    assert read_price("1000000000000") == 10**12
