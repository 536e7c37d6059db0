"""The dashboards of deploy/grafana: they are what the generator makes, and what Grafana 10 to 12 take.

That their queries return data is tests/end_to_end/test_dashboards_in_prometheus.py.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from itertools import combinations
from typing import Any

import pytest

from deploy.grafana.generator.everything import DASHBOARDS, FOLDER, texts
from exporter.outputs.families.catalogue import FAMILIES
from tests.rules.shipped import metrics, records
from tests.support import quick_yaml
from tests.support.exporter import Start
from tests.support.grafana import Model, dashboard, names_in, panels, variables
from tests.support.grafana_schema import troubles
from tests.support.names import names_on, simulated_names
from tests.support.places import ROOT

MODELS = {path.stem: dashboard(path) for path in sorted(FOLDER.glob("*.json"))}
EACH = pytest.mark.parametrize("name", MODELS)
# neither is deprecated, and each is in Grafana itself since 10
KINDS = {"bargauge", "row", "stat", "table", "timeseries"}
BUILTIN = {"__interval", "__range", "__rate_interval"}
OF_LINKS = {"__data", "__field", "__url_time_range"}


def test_the_files_are_what_the_generator_makes() -> None:
    """`make golden` writes them anew."""
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == texts()


# Grafana writes and reads these, though its schema does not have them: what a variable's query is called in lists of
# them, and what Prometheus' plugin says of an annotation.
BESIDE_THE_SCHEMA = re.compile(
    r"\$\.(?:templating\.list\[\d+\]\.definition|annotations\.list\[\d+\]\.(?:titleFormat|step)): "
    r"\w+ has no such field"
)


# issue 21
@EACH
def test_grafanas_own_schema_has_all_that_a_dashboard_says(name: str) -> None:
    assert [trouble for trouble in troubles(MODELS[name]) if not BESIDE_THE_SCHEMA.fullmatch(trouble)] == []


@pytest.mark.parametrize(
    ("path", "wrong", "trouble"),
    [
        (("panels", 0, "titel"), "GPUs", "$.panels[0].titel: Panel has no such field"),
        (("panels", 0, "options", "graphMode"), "areas", "$.panels[0].options.graphMode: 'areas' is none of"),
        (("panels", 0, "gridPos", "w"), "3", "$.panels[0].gridPos.w: '3' is no int"),
        (("panels", 0, "targets", 0, "format"), "list", "$.panels[0].targets[0].format: 'list' is none of"),
        (("graphTooltip",), 3, "$.graphTooltip: 3 is none of"),
        (("tags",), "gpu", "$.tags: 'gpu' is no list"),
    ],
)
def test_what_the_schema_does_not_have_is_noticed(path: tuple[str | int, ...], wrong: object, trouble: str) -> None:
    model: Any = deepcopy(MODELS["cluster"])
    *above, last = path
    place = model
    for each in above:
        place = place[each]
    place[last] = wrong
    assert any(text.startswith(trouble) for text in troubles(model)), troubles(model)


@EACH
def test_the_address_is_the_name_and_stays(name: str) -> None:
    model = MODELS[name]
    assert model["uid"] == f"pod-gpu-{name}"
    # an id would be that of a dashboard of somebody's own
    assert "id" not in model
    # Grafana 10.0 has 38; a later one migrates it
    assert model["schemaVersion"] == 38
    assert len({each["title"] for each in MODELS.values()}) == len(MODELS)


@EACH
def test_each_panel_has_a_number_and_a_place_of_its_own(name: str) -> None:
    found = list(panels(MODELS[name]))
    assert len({panel["id"] for panel in found}) == len(found)
    assert {panel["type"] for panel in found} <= KINDS
    for panel in found:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        assert place["w"] >= 3
    for first, second in combinations(MODELS[name]["panels"], 2):
        assert not overlap(first["gridPos"], second["gridPos"]), (first["title"], second["title"])
    for row in MODELS[name]["panels"]:
        for first, second in combinations(row.get("panels", []), 2):
            assert not overlap(first["gridPos"], second["gridPos"]), (first["title"], second["title"])


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    """Whether two places have a cell in common."""
    return (
        one["x"] < other["x"] + other["w"]
        and other["x"] < one["x"] + one["w"]
        and one["y"] < other["y"] + other["h"]
        and other["y"] < one["y"] + one["h"]
    )


def test_an_overlap_would_be_noticed() -> None:
    place = {"x": 0, "y": 0, "w": 12, "h": 8}
    assert overlap(place, {"x": 11, "y": 7, "w": 1, "h": 1})
    assert not overlap(place, {**place, "x": 12})
    assert not overlap(place, {**place, "y": 8})


@EACH
def test_lines_of_panels_are_as_wide_as_the_page(name: str) -> None:
    """No hole is left beside a panel."""
    rows: dict[int, int] = {}
    for panel in panels(MODELS[name]):
        if panel["type"] != "row":
            rows[panel["gridPos"]["y"]] = rows.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
    assert set(rows.values()) == {24}


@EACH
def test_each_panel_says_what_it_shows_in_which_unit(name: str) -> None:
    for panel in panels(MODELS[name]):
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith("."), panel["title"]
        if panel["type"] == "table":
            columns = [each for each in panel["fieldConfig"]["overrides"] if each["properties"][0]["id"] == "unit"]
            assert len(columns) == len(panel["targets"]), panel["title"]
        else:
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        if panel["type"] == "timeseries":
            assert all(target["legendFormat"] != "__auto" for target in panel["targets"]), panel["title"]


def datasources(value: Any) -> Iterator[Any]:
    """All that is named as a data source."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if key == "datasource":
                yield inside
            else:
                yield from datasources(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from datasources(inside)


@EACH
def test_the_data_source_is_the_readers_choice_everywhere(name: str) -> None:
    model = MODELS[name]
    found = list(datasources(model))
    assert all(each == {"type": "prometheus", "uid": "${datasource}"} for each in found)
    with_queries = [panel for panel in panels(model) if panel["type"] != "row"]
    asked = sum(1 + len(panel["targets"]) for panel in with_queries) + len(model["annotations"]["list"])
    assert len(found) == asked + sum(each["type"] == "query" for each in variables(model).values())


def expressions(model: Model) -> Iterator[str]:
    """Every PromQL expression of a dashboard."""
    for panel in panels(model):
        for target in panel.get("targets", []):
            yield target["expr"]
    for annotation in model["annotations"]["list"]:
        yield annotation["expr"]
    for variable in variables(model).values():
        if variable["type"] == "query":
            yield inside(variable["query"]["query"])


def inside(query: str) -> str:
    """The selector, or the query, of a variable's query."""
    found = re.fullmatch(r"label_values\((.+), \w+\)|query_result\((.+)\)", query)
    assert found
    return found[1] or found[2]


@EACH
def test_each_variable_is_used_and_each_name_is_one(name: str) -> None:
    model = MODELS[name]
    known = set(variables(model)) - {"datasource"}
    used = set().union(*(names_in(expression) for expression in expressions(model)))
    assert used - BUILTIN == known
    seen: set[str] = set()
    for variable in variables(model).values():
        if variable["type"] == "query":
            # a choice is made of those before it alone
            assert names_in(variable["query"]["query"]) <= seen
            assert variable["definition"] == variable["query"]["query"]
        seen.add(variable["name"])


async def test_each_metric_is_served_by_somebody(start: Start) -> None:
    exporter = await start()
    own = {family.name for family in FAMILIES} | names_on((await exporter.get("/metrics"))[1])
    served = own | simulated_names() | records().keys() | {"up"}
    for name, model in MODELS.items():
        for expression in expressions(model):
            assert metrics(re.sub(r"\$\w+", "0", expression)) <= served, (name, expression)


def links(value: Any) -> Iterator[str]:
    """The addresses of all links to a dashboard."""
    if isinstance(value, dict):
        if str(value.get("url", "")).startswith("/d/"):
            yield value["url"]
        for each in value.values():
            yield from links(each)
    elif isinstance(value, list):
        for each in value:
            yield from links(each)


@EACH
def test_links_lead_to_dashboards_with_choices_and_time(name: str) -> None:
    addresses = {f"pod-gpu-{each}": model for each, model in MODELS.items()}
    for link in links(MODELS[name]):
        uid, _, query = link.removeprefix("/d/").partition("?")
        given = query.split("&")
        assert given[-1] == "${__url_time_range}"
        assert names_in(query) <= set(variables(MODELS[name])) | OF_LINKS
        assert set(re.findall(r"var-(\w+)=", query)) <= set(variables(addresses[uid])), link
    (others,) = MODELS[name]["links"]
    assert others["keepTime"]
    assert others["includeVars"]
    assert set(others["tags"]) <= set(MODELS[name]["tags"])


def test_the_docs_have_each() -> None:
    page = (ROOT / "docs" / "dashboards.md").read_text()
    assert re.findall(r"^\| `(\w+)\.json` \|", page, re.MULTILINE) == [*(made.name for made in DASHBOARDS)]


def test_every_dashboard_is_linked_to() -> None:
    """By the menu each; the ones about a thing also where the thing is named."""
    linked = {link.removeprefix("/d/pod-gpu-").partition("?")[0] for model in MODELS.values() for link in links(model)}
    assert linked == {"namespace", "workload", "node", "gpu"}


@EACH
def test_colours_are_names_that_fit_light_and_dark(name: str) -> None:
    assert not re.search(r'"(#|rgb|super-)', (FOLDER / f"{name}.json").read_text())
    assert "style" not in MODELS[name]


def test_the_sidecars_config_maps_have_all_dashboards() -> None:
    made = quick_yaml.load((FOLDER / "kustomization.yaml").read_text())
    assert made["generatorOptions"]["labels"] == {"grafana_dashboard": "1"}
    assert {map_["name"]: map_["files"] for map_ in made["configMapGenerator"]} == {
        f"pod-gpu-dashboard-{name}": [f"{name}.json"] for name in MODELS
    }
    # what kubectl writes into an annotation has at most 256 KiB
    assert all(len((FOLDER / f"{name}.json").read_bytes()) < 250_000 for name in MODELS)
