"""What a Prometheus server answers, and what is no such answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import Malformed
from exporter.report.history import prometheus_api
from exporter.report.history.prometheus_api import AnsweredSeries, RangeAnswer, read_answer, read_retention


def answer(result: object, kind: str = "vector", **more: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, **more}).encode()


def test_a_vector_and_a_matrix() -> None:
    assert read_answer(answer([{"metric": {"a": "b"}, "value": [1.5, "2"]}])) == RangeAnswer(
        series=[AnsweredSeries({"a": "b"}, ((1.5, 2.0),))]
    )
    found = read_answer(answer([{"metric": {}, "values": [[1, "2"], [2, "3e2"]]}], "matrix", warnings=["a\nb"]))
    assert found == RangeAnswer(series=[AnsweredSeries({}, ((1.0, 2.0), (2.0, 300.0)))], warnings=("a b",))


# issue 15, line 10: 1e308 ended the report with a traceback
@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e308"])
def test_what_is_no_amount_is_counted_and_left_out(value: str) -> None:
    rows = [{"metric": {}, "value": [1, value]}, {"metric": {"a": "b"}, "value": [1, "7"]}]
    found = read_answer(answer(rows))
    assert (found.odd, [one.points for one in found.series]) == (1, [((1.0, 7.0),)])


def test_a_native_histogram_is_none_of_ours() -> None:
    found = read_answer(answer([{"metric": {}, "histogram": [1, {"count": "1"}]}]))
    assert (found.odd, found.series) == (1, [])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"null",
        b'{"status":"success"}',
        b'{"status":"error","data":{"resultType":"vector","result":[]}}',
        b"[" * 100_000,
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":['
        + b"9" * 5000
        + b',"1"]}]}}',
        answer({}),
        answer([], "scalar"),
        answer([], "matrix2"),
        answer([1]),
        answer([{"value": [1, "2"]}]),
        answer([{"metric": {"a": 1}, "value": [1, "2"]}]),
        answer([{"metric": {}, "value": [1]}]),
        answer([{"metric": {}, "value": [1, 2]}]),
        answer([{"metric": {}, "value": ["1", "2"]}]),
        answer([{"metric": {}, "value": [True, "2"]}]),
        answer([{"metric": {}, "value": [1, "two"]}]),
        answer([{"metric": {}, "values": "no list"}], "matrix"),
        answer([{"metric": {}, "values": 5}], "matrix"),
    ],
    ids=range(21),
)
def test_what_is_no_answer_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(Malformed, match="does not answer as Prometheus does"):
        read_answer(body)


def test_more_series_than_are_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "MOST_SERIES", 1)
    with pytest.raises(Malformed, match="answers 2 series; at most 1 are read"):
        read_answer(answer([{"metric": {}, "value": [1, "2"]}] * 2))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
ROWS = st.lists(st.fixed_dictionaries({}, optional={"metric": JSON, "value": JSON, "values": JSON}), max_size=3)


@given(JSON | ROWS, st.sampled_from(["vector", "matrix"]), JSON)
def test_any_result_is_read_or_refused(result: object, kind: str, warnings: object) -> None:
    try:
        found = read_answer(answer(result, kind, warnings=warnings))
    except Malformed:
        return
    assert all(value >= 0 for one in found.series for _, value in one.points)
    assert all(isinstance(text, str) for text in found.warnings)


@given(st.binary() | JSON.map(lambda content: json.dumps(content).encode()))
def test_any_body_tells_something_or_nothing(body: bytes) -> None:
    assert isinstance(read_retention(body), str)


def test_retention_is_read() -> None:
    assert read_retention(b'{"status":"success","data":{"storageRetention":"15d or 1GB"}}') == "15d or 1GB"
