"""Dashboards drawn from their JSON and from answers: each panel is there, and nothing in a label becomes markup."""

import json
from collections.abc import Iterator
from xml.dom import minidom

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.generator.grafana_picture import Answers, Model, Series, picture
from docs.generator.grafana_units import shown
from tests.support.places import ROOT

FILES = sorted((ROOT / "deploy" / "grafana").glob("*.json"))
MODELS: dict[str, Model] = {path.stem: json.loads(path.read_text()) for path in FILES}


@pytest.mark.parametrize(
    ("value", "unit", "decimals", "text"),
    [
        (0.8437, "percentunit", None, "84.4%"),
        (1.0, "percentunit", None, "100%"),
        (2310.0, "watt", None, "2.31 kW"),
        (231.4, "watt", 0, "231 W"),
        (12.3456, "suffix: GPUs", None, "12.3 GPUs"),
        (12.0, "suffix: GPU-h", None, "12 GPU-h"),
        (1234.5, "currencyUSD", None, "$1.23K"),
        (21.2, "currencyUSD", None, "$21.2"),
        (0.21, "kwatth", None, "210 Wh"),
        (3.2, "kwatth", None, "3.20 kWh"),
        (56.0, "celsius", 0, "56 °C"),
        (1.41e9, "hertz", None, "1.41 GHz"),
        (2.5e9, "Bps", None, "2.50 GB/s"),
        (3 * 2**30, "bytes", None, "3 GiB"),
        (7200.0, "s", None, "2 hours"),
        (1500.0, "joule", None, "1.50 kJ"),
        (8.0, "short", None, "8"),
        (float("nan"), "short", None, "No data"),
    ],
)
def test_a_value_is_written_as_grafana_writes_it(value: float, unit: str, decimals: int | None, text: str) -> None:
    assert shown(value, unit, decimals) == text


def units(model: object) -> Iterator[str]:
    if isinstance(model, dict):
        if isinstance(model.get("unit"), str):
            yield model["unit"]
        if model.get("id") == "unit":
            yield model["value"]
        model = [*model.values()]
    if isinstance(model, list):
        for each in model:
            yield from units(each)


def test_each_unit_of_the_dashboards_can_be_written() -> None:
    every = {unit for model in MODELS.values() for unit in units(model)}
    assert len(every) > 8
    assert all(shown(1.0, unit) for unit in every)


def texts(svg: str) -> list[str]:
    """The texts of a picture, which is well-formed."""
    elements = minidom.parseString(svg).getElementsByTagName("text")  # noqa: S318 - made by us
    return ["".join(child.nodeValue or "" for child in element.childNodes) for element in elements]


def answered(model: Model, label: str, values: tuple[float, ...]) -> Answers:
    points = tuple((60.0 * number, value) for number, value in enumerate(values, 1))
    labels = ("namespace", "pod", "node", "cluster", "model", "UUID", "xid")
    series = Series(labels=dict.fromkeys(labels, label), points=points)
    panels = [panel for panel in model["panels"] if "targets" in panel]
    return {(panel["id"], target["refId"]): (series,) for panel in panels for target in panel["targets"]}


NUMBERS = st.floats(-1e15, 1e15) | st.sampled_from((float("nan"), float("inf"), float("-inf")))


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=10)
@given(
    label=st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=40)
    | st.just("</text><script>"),
    values=st.lists(NUMBERS, min_size=1, max_size=5).map(tuple),
)
def test_whatever_is_answered_each_panel_is_drawn(name: str, label: str, values: tuple[float, ...]) -> None:
    model = MODELS[name]
    svg = picture(model, answered(model, label, values), caption="not Grafana", choices={"Node": label})
    assert "<script" not in svg
    drawn = texts(svg)
    assert "not Grafana" in drawn
    for panel in model["panels"]:
        assert any(panel["title"][:12] in text for text in drawn), panel["title"]


@pytest.mark.parametrize("name", MODELS)
def test_a_panel_that_nobody_answered_says_so(name: str) -> None:
    model = MODELS[name]
    with_queries = sum("targets" in panel for panel in model["panels"])
    assert texts(picture(model, {}, caption="", choices={})).count("No data") == with_queries


def test_panels_below_a_row_are_left_out() -> None:
    svg = picture(MODELS["cluster"], {}, caption="", choices={}, cells=4)
    assert "Held but idle" in texts(svg)
    assert "Held by namespace" not in texts(svg)
