"""Asking a server that a connection stands for: what is asked again, after which pause, and what is too much."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from exporter.errors import HttpRefusal, Malformed, SlowAnswer, SourceError, TimedOut, Unavailable
from exporter.report.history.prometheus_api import PrometheusApi, TooMuch, read_answer, read_retention

EMPTY = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}}).encode()


@dataclass
class Connection:
    """It gives these answers, one after the other, the last one again and again."""

    answers: list[bytes | SourceError]
    asked: list[tuple[str, float | None]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    is_closed: bool = False

    async def query(self, expression: str, *, at_seconds: float | None) -> bytes:
        self.asked.append((expression, at_seconds))
        return self._answer()

    async def get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        assert not parameters
        self.paths.append(path)
        return self._answer()

    async def close(self) -> None:
        self.is_closed = True

    def _answer(self) -> bytes:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, SourceError):
            raise answer
        return answer


@dataclass
class Asked:
    api: PrometheusApi
    connection: Connection
    waits: list[float] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def asked_of(*answers: bytes | SourceError) -> Asked:
    connection = Connection([*answers])
    asked = Asked(PrometheusApi(connection), connection)

    async def pause(seconds: float) -> None:
        asked.waits.append(seconds)

    asked.api.pause = pause
    asked.api.on_wait = asked.words.append
    return asked


def busy(after_seconds: float | None = None) -> SourceError:
    return Unavailable("rate_limited", "busy", remedy="wait", retry_after_seconds=after_seconds)


def refusal(status: int, **content: object) -> HttpRefusal:
    made = HttpRefusal("http_status", f"HTTP status {status}", remedy="look")
    made.status, made.content = status, content
    return made


REFUSED = Unavailable("refused", "nobody listens there", remedy="start it")


async def test_a_query_is_about_a_moment_in_seconds() -> None:
    asked = asked_of(EMPTY)
    assert (await asked.api.query("up", 1500)).series == []
    assert (asked.connection.asked, asked.api.queries) == ([("up", 1.5)], 1)
    await asked.api.close()
    assert asked.connection.is_closed


async def test_a_busy_server_is_asked_three_times_with_growing_pauses() -> None:
    asked = asked_of(busy())
    with pytest.raises(Unavailable, match="busy"):
        await asked.api.query("up", 0)
    assert asked.waits == [1.0, 5.0]
    assert asked.words == ["busy; asked again in 1 s", "busy; asked again in 5 s"]
    assert asked.api.queries == 3


@pytest.mark.parametrize(("asks", "waits"), [(7.0, 7.0), (30.0, 30.0), (31.0, 30.0), (None, 1.0)])
async def test_a_server_says_how_long_to_wait_up_to_half_a_minute(asks: float | None, waits: float) -> None:
    asked = asked_of(busy(asks), EMPTY)
    await asked.api.query("up", 0)
    assert asked.waits == [waits]


@pytest.mark.parametrize(
    ("error", "is_asked_again"),
    [
        (REFUSED, True),
        (Unavailable("unreachable", "away", remedy="look"), True),
        (Malformed("truncated", "half of it", remedy="look"), True),
        (Malformed("garbage", "no JSON", remedy="look"), False),
        (TimedOut("silent", remedy="look"), False),
        (refusal(500), False),
    ],
)
async def test_a_server_that_has_answered_may_be_back_soon(error: SourceError, is_asked_again: bool) -> None:
    asked = asked_of(EMPTY, error, EMPTY)
    await asked.api.query("up", 0)
    if is_asked_again:
        await asked.api.query("up", 0)
        assert asked.waits == [1.0]
        return
    with pytest.raises(type(error), match=str(error)):
        await asked.api.query("up", 0)
    assert asked.waits == []


async def test_a_server_that_never_answered_is_not_asked_again() -> None:
    asked = asked_of(REFUSED)
    with pytest.raises(Unavailable, match="nobody listens there"):
        await asked.api.query("up", 0)
    assert (asked.waits, asked.api.queries) == ([], 1)


@pytest.mark.parametrize(
    ("error", "is_too_much"),
    [
        (SlowAnswer("too slow", remedy="look"), True),
        (Malformed("oversize", "too long", remedy="look"), True),
        (refusal(503, errorType="timeout", error="whatever"), True),
        (refusal(422, errorType="execution", error="query would load too many samples"), True),
        (refusal(422, error="the query timed out"), True),
        (refusal(422, error="it exceeds the limit"), True),
        (refusal(422, error="limit exceeded"), True),
        (refusal(422, error="too many chunks"), True),
        (refusal(422, error="parse error"), False),
        (refusal(422), False),
        (refusal(429, errorType="timeout", error="too many samples"), False),
        (Unavailable("http_status", "no words", remedy="look"), False),
    ],
)
async def test_what_less_time_may_help_is_too_much(error: SourceError, is_too_much: bool) -> None:
    with pytest.raises(TooMuch if is_too_much else type(error), match=str(error)):
        await asked_of(error).api.query("up", 0)


async def test_a_server_may_not_say_how_long_it_keeps_samples() -> None:
    keeps = asked_of(b'{"data": {"storageRetention": "15d"}}')
    assert await keeps.api.retention() == "15d"
    assert keeps.connection.paths == ["/api/v1/status/runtimeinfo"]
    assert await asked_of(REFUSED).api.retention() == ""


@pytest.mark.parametrize(
    ("body", "retention"),
    [
        (b"no JSON", ""),
        (b'{"data": "15d"}', ""),
        (b'{"data": {"storageRetention": 15}}', ""),
        (b'{"data": {"storageRetention": "' + b"x" * 50 + b'"}}', "x" * 40),
    ],
)
def test_a_retention_in_other_words_is_none_or_cut(body: bytes, retention: str) -> None:
    assert read_retention(body) == retention


def vector(*rows: object, **more: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}, **more}).encode()


def test_the_least_and_the_highest_amount_are_amounts() -> None:
    values = ["0", "1e15", "1.1e15", "-0.1"]
    answer = read_answer(vector(*({"metric": {}, "value": [1, value]} for value in values)))
    assert ([series.last for series in answer.series], answer.odd) == ([0.0, 1e15], 2)


def test_the_newest_value_of_a_series_is_its_last() -> None:
    rows = [{"metric": {}, "values": [[1, "2"], [2, "NaN"], [3, "4"]]}]
    body = {"status": "success", "data": {"resultType": "matrix", "result": rows}}
    answer = read_answer(json.dumps(body).encode())
    assert (answer.series[0].points, answer.series[0].last, answer.odd) == (((1.0, 2.0), (3.0, 4.0)), 4.0, 1)


def test_no_more_than_ten_warnings_are_kept_and_none_is_long() -> None:
    answer = read_answer(vector(warnings=["w" * 301] * 11))
    assert [len(warning) for warning in answer.warnings] == [300] * 10
    assert read_answer(vector(warnings="one")).warnings == ()


@pytest.mark.parametrize("body", [b"[]", b'{"status":"success"}', b'{"status":"error","data":{}}'])
def test_what_is_no_prometheus_has_a_question_as_its_remedy(body: bytes) -> None:
    with pytest.raises(Malformed) as refused:
        read_answer(body)
    assert refused.value.reason == "garbage"
    assert refused.value.trouble.remedy.startswith("is this the address of a Prometheus server")
