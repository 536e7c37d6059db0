"""Answers of Prometheus' HTTP API, from whoever answers there."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.cluster.prometheus.query_answer import MOST_LABELS, MOST_TEXT_CHARS, VectorSeries, read_vector
from exporter.errors import Malformed
from exporter.model.slices import at_once
from tests.support.canned import NOW, body

ROW = {"metric": {"__name__": "up", "node": "n1"}, "value": [NOW, "1"]}


def read(text: bytes) -> list[VectorSeries]:
    found: list[VectorSeries] = []
    assert at_once(read_vector(text, found.append)) == len(found)
    return found


def with_row(row: Any) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": [ROW, row]}}).encode()


def test_an_answer() -> None:
    rows = [({"a": "é", "b": ""}, "1"), ({}, "NaN"), ({"x": "y"}, "+Inf"), ({"x": "z"}, "-Inf"), ({"e": "1"}, "1e-7")]
    assert read(body(rows)) == [VectorSeries(labels, NOW, value) for labels, value in rows]
    assert read(body([])) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"data":{"result":[%s],"resultType":"vector"},"status":"success"}',
        ' {\n"status" : "success" ,\t"data": { "resultType":"vector", "analysis":{}, "result" : [ %s ] } }\n',
        '{"status":"success","isPartial":false,"data":{"resultType":"vector","result":[%s]},"stats":{"seriesFetched":"1"}}',
        '{"status":"success","data":{"resultType":"vector","result":[%s]},"infos":["a metric may be no counter"]}',
        '{"status":"success","data":{"resultType":"vector","result":[%s]},"warnings":[]}',
    ],
)
def test_what_other_servers_put_around_it(text: str) -> None:
    assert read((text % json.dumps(ROW)).encode()) == [VectorSeries(ROW["metric"], NOW, "1")]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not a JSON object"),
        (b"<!doctype html><title>Log in</title>", "not a JSON object"),
        (b"[]", "not a JSON object"),
        (b"{", "not JSON"),
        (b"{}", "status is not success"),
        (b"\xff", "not UTF-8"),
        (b'{"status":"error","errorType":"bad_data","error":"parse\\nerror"}', "parse error"),
        (b'{"status":"success"}', "not an instant vector"),
        (b'{"status":"success","data":null}', "not an instant vector"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "not an instant vector"),
        (b'{"status":"success","data":{"resultType":"vector","result":{}}}', "not an instant vector"),
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}}', "more after its end"),
        (b'{"status":"success","status":"success"}', "is there twice"),
        (b'{"data":{"result":[],"result":[]}}', "two results"),
        (b'{"a":1 "b":2}', "does not end"),
        (b'{"a" 1}', "has no value"),
        (b"{1:1}", "not text"),
        (b'{"data":{"result":[1', "not a JSON object"),
        (b'{"data":{"result":[{}', "no labels"),
        (b'{"a":' + b"[" * 60_000, "nested too deeply"),
        (body([({"x": "y" * (MOST_TEXT_CHARS + 1)}, "1")]), "more than 1024 characters"),
        (body([({f"x{number}": "" for number in range(MOST_LABELS + 1)}, "1")]), "more than 128"),
        (body([({f"x{number}": "y" * 1000 for number in range(20)}, "1")]), "more than 8192 characters"),
        (body([({"x": "\ud800"}, "1")]), "half a character"),
        (body([], warnings=["store 10.0.0.1 did not answer"]), "store 10.0.0.1 did not answer"),
        (body([], isPartial=True), "the answer is partial"),
        (body([], warnings={"a": 1}), "may be incomplete"),
    ],
)
def test_what_is_no_answer(text: bytes, says: str) -> None:
    with pytest.raises(Malformed) as error:
        read(text)
    assert says in error.value.trouble.message
    assert error.value.trouble.remedy


@pytest.mark.parametrize(
    "row",
    [
        None,
        [],
        {"value": [NOW, "1"]},
        {"metric": {}},
        {"metric": [], "value": [NOW, "1"]},
        {"metric": {"a": 1}, "value": [NOW, "1"]},
        {"metric": {"a": None}, "value": [NOW, "1"]},
        *(
            {"metric": {}, "value": value}
            for value in (
                "1",
                [NOW],
                [NOW, 1],
                [NOW, "1", "2"],
                ["1", "1"],
                [True, "1"],
                [-1, "1"],
                [1e99, "1"],
                [NOW, ""],
                [NOW, "1_0"],
                [NOW, " 1"],
                [NOW, "0x1"],
                [NOW, "nan"],
                [NOW, "infinity"],
                [NOW, "\u0661"],
            )
        ),
        {"metric": {}, "histogram": [NOW, {"count": "1"}]},
    ],
)
def test_what_is_no_row(row: Any) -> None:
    with pytest.raises(Malformed, match="row 1 "):
        read(with_row(row))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("status", "data", "result", "resultType", "metric", "value", "x")), inner, max_size=4
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_an_answer_or_malformed(value: object) -> None:
    with suppress(Malformed):
        read(json.dumps(value).encode())


@given(st.data())
def test_any_damage_is_an_answer_or_malformed(data: st.DataObject) -> None:
    whole = body([({"__name__": "up", "node": "n1"}, "1"), ({"x": "é"}, "NaN")])
    at = data.draw(st.integers(0, len(whole)))
    damage = data.draw(st.binary(max_size=3))
    with suppress(Malformed):
        read(whole[:at] + damage + whole[at + data.draw(st.integers(0, 9)) :])


@given(st.lists(st.tuples(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=4), st.floats())))
def test_whatever_a_server_says_is_read_as_it_is(rows: list[tuple[dict[str, str], float]]) -> None:
    def written(value: float) -> str:
        return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(value), repr(value))

    assert [
        (dict(row.labels), row.value) for row in read(body([(labels, written(value)) for labels, value in rows]))
    ] == [(labels, written(value)) for labels, value in rows]
