"""Quantities, in the form in which the API server gives them back."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.operator.objects.quantities import in_thousandths, plain, read, written

# CanonicalizeBytes of k8s.io/apimachinery/pkg/api/resource: no point, and the largest suffix that leaves a whole number
FORMS = [
    ("70", "70"),
    ("0.7", "700m"),
    ("1.5", "1500m"),
    ("0", "0"),
    ("0.001", "1m"),
    ("0.0000015", "1500n"),
    ("2000", "2k"),
    ("2500", "2500"),
    ("1000000", "1M"),
    # rounded up, as there
    ("0.0000000001", "1n"),
]


@pytest.mark.parametrize(("amount", "text"), FORMS)
def test_the_form_is_the_api_servers(amount: str, text: str) -> None:
    assert written(Decimal(amount)) == text


@pytest.mark.parametrize(
    ("text", "amount"),
    [("100m", "0.1"), ("0.5", "0.5"), (".5", "0.5"), ("2", "2"), ("1Ki", "1024"), ("1e-1", "0.1"), ("3k", "3000")],
)
def test_all_forms_are_read(text: str, amount: str) -> None:
    assert read(text) == Decimal(amount)


@pytest.mark.parametrize("text", ["", "x", "-1", "1EE", "1e99999", "1 m", "1" * 41, "٣"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        read(text)


@given(st.decimals(0, 10**15, places=3))
def test_nothing_is_lost_on_the_way(amount: Decimal) -> None:
    assert read(written(amount)) == amount
    assert Decimal(plain(amount)) == amount


@given(st.floats(0.001, 1e15))
def test_thousandths_are_near(number: float) -> None:
    assert abs(float(in_thousandths(number)) - number) <= max(0.0005001, number * 1e-12)
