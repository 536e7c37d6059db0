"""Fields of JSON that may be anything: what has another type counts as absent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.lenient import each_mapping, finite, mapping, mappings, number, text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("value", "as_text", "as_number", "as_finite"),
    [
        ("x", "x", None, None),
        (None, "", None, None),
        (True, "", None, None),
        (7, "", 7, 7.0),
        (-1, "", None, -1.0),
        (2**31, "", None, float(2**31)),
        (10**400, "", None, None),
        (0.5, "", None, 0.5),
        (float("nan"), "", None, None),
        ([], "", None, None),
    ],
)
def test_a_value_is_of_its_type_or_absent(
    value: object, as_text: str, as_number: int | None, as_finite: float | None
) -> None:
    item = {"a": value}
    assert (text(item, "a"), number(item, "a"), finite(item, "a")) == (as_text, as_number, as_finite)


def test_mappings_are_found_by_their_path() -> None:
    item = {"a": {"b": {"c": 1}, "list": [{"x": 1}, "no", {"y": 2}, {"z": 3}]}}
    assert mapping(item, "a", "b") == {"c": 1}
    assert mapping(item, "a", "b", "c", "d") == {}
    assert mappings(item["a"], "list", 3) == [{"x": 1}, {"y": 2}]


@given(JSON)
def test_whatever_comes_nothing_breaks(value: Any) -> None:
    for item in (mapping(value), mapping(value, "a"), *each_mapping(value), *mappings(value, "a")):
        assert isinstance(text(item, "a"), str)
        assert number(item, "a") is None or finite(item, "a") is not None
