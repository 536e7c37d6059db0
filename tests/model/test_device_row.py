"""The row of a device: what is read of an object of any version, and the object that is written of a row."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.dcgm.fields import METRICS
from exporter.model.device_row import ALWAYS, FIELD_NAMES, DeviceRow, DeviceUser, OwnUse, as_object, from_object
from exporter.model.device_row_json import as_json
from exporter.model.states import DeviceState
from tests.support.places import ROOT

NUMBERS = st.none() | st.integers(-(10**19), 10**19) | st.floats() | st.booleans() | st.text(max_size=3)
JUNK = NUMBERS | st.lists(NUMBERS, max_size=2) | st.dictionaries(st.text(max_size=3), NUMBERS, max_size=2)
USERS = st.lists(st.fixed_dictionaries({}, optional={"pod": JUNK, "namespace": JUNK, "processes": JUNK, "x": JUNK}))
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys((*METRICS, "node_name", "device_uuid", "pod", "gpu_shared", "timestamp"), JUNK),
        **dict.fromkeys(("last_xid", "pod_labels", "health_reasons", "cuda", "of_a_newer_exporter"), JUNK),
        "state": JUNK | st.sampled_from([*map(str, DeviceState)]),
        "entity": st.sampled_from(["gpu", "mig", "mig-parent", 7]),
        "measured": JUNK | st.fixed_dictionaries({}, optional={"utilization_ratio": JUNK, "processes": JUNK}),
        "whole_device": JUNK | st.fixed_dictionaries({}, optional={"power_usage": JUNK}),
        "used_by": JUNK | USERS,
    },
)


def test_it_has_each_measurement_of_the_table() -> None:
    assert [name for name in ALWAYS if name in METRICS] == [*METRICS]


def test_it_has_the_fields_that_docs_describe() -> None:
    openapi = json.loads((ROOT / "exporter/outputs/openapi.json").read_text())
    schemas = openapi["components"]["schemas"].values()
    described = next(each["properties"] for each in schemas if "holder_since" in each.get("properties", ()))
    assert {*FIELD_NAMES} <= {*described}


# whatever an exporter of another version writes
@given(OBJECTS)
def test_any_object_is_read(item: dict[str, Any]) -> None:
    row = from_object(item)
    written = as_object(row)
    assert from_object(written) == row
    assert {*ALWAYS} <= {*written}
    for name in METRICS:
        value = getattr(row, name)
        assert value is None or (type(value) in (int, float) and value == item[name])
    assert (
        written.get("of_a_newer_exporter") == item.get("of_a_newer_exporter")
        or item["of_a_newer_exporter"] != (item["of_a_newer_exporter"])
    )


@given(OBJECTS)
def test_both_ways_to_write_it_say_the_same(item: dict[str, Any]) -> None:
    row = from_object({name: value for name, value in item.items() if name != "of_a_newer_exporter"})
    row = row._replace(cuda={"calls": 3} if row.cuda else None)
    assert json.loads(as_json([row])) == [json.loads(json.dumps(as_object(row)))]


def test_a_name_with_half_a_character_costs_no_answer() -> None:
    assert json.loads(as_json([DeviceRow(pod="\udce9"), DeviceRow(pod="b")]))[0]["pod"] == "\udce9"


@pytest.mark.parametrize(
    ("item", "state"),
    [
        ({"pod": "a", "gpu_utilization": 90}, "used"),
        ({"pod": "a", "gpu_utilization": 90, "state": "of a newer exporter"}, "used"),
        ({"pod": "a", "gpu_utilization": 90, "state": "idle"}, "idle"),
        ({"pod": "a", "gpu_utilization": 90, "measured": {"utilization_ratio": "odd"}}, "used"),
        ({"pod": "a", "gpu_utilization": 90, "measured": {"utilization_ratio": 0}}, "idle"),
        ({"used_by": [{"memory_used_bytes": 2**30}, "odd"]}, "outside"),
    ],
)
def test_the_state_is_the_exporters_or_follows_from_the_rest(item: dict[str, Any], state: str) -> None:
    assert from_object(item).state == state


def test_what_is_empty_is_left_out() -> None:
    row = DeviceRow(measured=OwnUse(processes=2), used_by=(DeviceUser(engine="docker", id="0123"),))
    assert {*as_object(row)} == {*ALWAYS, "measured", "used_by"}
    assert as_object(row)["used_by"] == [{"engine": "docker", "id": "0123"}]
    assert as_object(row)["measured"] == {"processes": 2}
