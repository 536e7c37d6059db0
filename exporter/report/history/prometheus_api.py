"""The client of a Prometheus server: an expression and a moment → series, or a SourceError that says why not.

It asks at most two queries at once, and waits for a busy server. After `TooMuch` its caller asks for less.
https://prometheus.io/docs/prometheus/latest/querying/api/ describes the answers. They are read strictly, since any
program may answer.

Tests: tests/report/history/test_prometheus_api.py, tests/report/history/test_asking.py,
tests/report/history/test_answers.py.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple, Protocol

from exporter.errors import HttpRefusal, Malformed, SlowAnswer, SourceError
from exporter.sources.pause import Pause
from exporter.wording import one_line

FLAG = "--prometheus.http-config"
QUERIES_AT_ONCE = 2
TRIES = 3
PAUSE = Pause(1.0, 30.0, factor=5.0)
_WORDS_OF_TOO_MUCH = ("too many samples", "timed out", "exceeds the limit", "limit exceeded", "too many")

Sleep = Callable[[float], Awaitable[None]]
MOST_SERIES = 500_000
# the most of seconds, joules or GPUs: the joules of a megawatt for thirty years
MOST_AMOUNT = 1e15
MOST_WARNINGS = 10
MOST_TOLD_CHARS = 300
_NOT_PROMETHEUS = (
    "is this the address of a Prometheus server, with the path that its API stands below, if there is one?"
)


class AnsweredSeries(NamedTuple):
    """A series: its labels, and its points as seconds of Unix time and a value that is a number from 0 to 1e15."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        """The newest value."""
        return self.points[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeAnswer:
    """The answer to a query.

    `odd` counts points whose value is no number from 0 to 1e15; `warnings` are the server's own words.
    """

    series: Sequence[AnsweredSeries]
    odd: int = 0
    warnings: Sequence[str] = field(default=())


def read_answer(body: bytes) -> RangeAnswer:
    """Read the answer to a query, whose result is a vector or a matrix.

    Raises:
        Malformed: it is no such answer.
    """
    content = _object(body)
    data = content.get("data")
    if content.get("status") != "success" or not isinstance(data, dict):
        raise _garbage("it does not say success, or has no data")
    result = data.get("result")
    kind = data.get("resultType")
    if not isinstance(result, list) or kind not in ("vector", "matrix"):
        raise _garbage(f"its result is a {str(kind)[:20]!r}, and not a vector or a matrix")
    if len(result) > MOST_SERIES:
        raise Malformed("oversize", f"it answers {len(result)} series; at most {MOST_SERIES} are read", remedy=_LESS)
    series = []
    odd = 0
    for row in result:
        row_series, bad = _series(row, "value" if kind == "vector" else "values")
        odd += bad
        if row_series.points:
            series.append(row_series)
    texts = content.get("warnings")
    warnings = texts[:MOST_WARNINGS] if isinstance(texts, list) else ()
    return RangeAnswer(series=series, odd=odd, warnings=tuple(one_line(text, MOST_TOLD_CHARS) for text in warnings))


def read_retention(body: bytes) -> str:
    """The time that a server keeps samples, in its own words at /api/v1/status/runtimeinfo; "" if it does not say."""
    try:
        data = _object(body).get("data")
    except Malformed:
        return ""
    retention = data.get("storageRetention") if isinstance(data, dict) else None
    return retention[:40] if isinstance(retention, str) else ""


_TEXT = frozenset({str})
_LESS = "ask for less at a time with --match, such as --match cluster=a, or a part of the span"


def _object(body: bytes) -> dict[str, object]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _garbage("it is no JSON") from error
    if not isinstance(content, dict):
        raise _garbage("it is no object")
    return content


def _garbage(why: str) -> Malformed:
    return Malformed("garbage", f"it does not answer as Prometheus does: {why}", remedy=_NOT_PROMETHEUS)


def _series(row: object, key: str) -> tuple[AnsweredSeries, int]:
    """A series, and the number of its points whose value is no number from 0 to 1e15."""
    if not isinstance(row, dict) or not isinstance(labels := row.get("metric"), dict):
        raise _garbage("a series has no labels")
    if not _TEXT.issuperset(map(type, labels.values())):
        raise _garbage("a label is no text")
    if key not in row:
        # a native histogram has its points under another key, and no family of ours is one
        return AnsweredSeries(labels, ()), 1
    pairs = [row[key]] if key == "value" else row[key]
    if not isinstance(pairs, list):
        raise _garbage("a series has no list of points")
    points = [_point(pair) for pair in pairs]
    good = tuple(point for point in points if point is not None)
    return AnsweredSeries(labels, good), len(points) - len(good)


def _point(pair: object) -> tuple[float, float] | None:
    if not isinstance(pair, list) or len(pair) != len(("time", "value")):
        raise _garbage("a point is not a time and a value")
    at, text = pair
    if isinstance(at, bool) or not isinstance(at, int | float) or not isinstance(text, str):
        raise _garbage("a point is not a time and a value")
    try:
        seconds = float(at)
        value = float(text)
    except (ValueError, OverflowError) as error:
        raise _garbage("a value is no number") from error
    return (seconds, value) if math.isfinite(seconds) and 0 <= value <= MOST_AMOUNT else None


class TooMuch(Exception):
    """The server cannot answer a query, but perhaps one about less time. The text has the server's words."""


class Connection(Protocol):
    """A way to one server's API. `query` and `get` raise SourceError if it does not answer with status 200."""

    async def query(self, expression: str, *, at_seconds: float | None) -> bytes:
        """The body of the answer to an instant query about a moment since 1970."""

    async def get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        """The body of the server's answer at a path."""

    async def close(self) -> None:
        """End the connection."""


@dataclass(eq=False)
class PrometheusApi:
    """The client of one server. `on_wait` is called with the reason before it is asked again."""

    connection: Connection
    on_wait: Callable[[str], None] = lambda _: None
    pause: Sleep = asyncio.sleep
    queries: int = field(default=0, init=False)
    _has_answered: bool = field(default=False, init=False)
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(QUERIES_AT_ONCE), init=False)

    async def close(self) -> None:
        """End the connection."""
        await self.connection.close()

    async def query(self, expression: str, at_ms: int) -> RangeAnswer:
        """The answer to an instant query about a moment.

        Raises:
            TooMuch: the query asks for too much at a time.
            SourceError: the server does not answer, or answers unlike Prometheus.
        """
        async with self._places:
            for failures in range(1, TRIES):
                try:
                    return await self._ask(expression, at_ms)
                except SourceError as error:
                    # a server that never answered will not do so soon
                    is_back_soon = error.reason in ("refused", "unreachable", "truncated") and self._has_answered
                    if not is_back_soon and error.reason != "rate_limited":
                        raise
                    seconds = min(error.retry_after_seconds or PAUSE.after(failures), PAUSE.longest_seconds)
                    self.on_wait(f"{error}; asked again in {seconds:g} s")
                    await self.pause(seconds)
            return await self._ask(expression, at_ms)

    async def retention(self) -> str:
        """The time that the server keeps samples, in its own words; "" if it does not say, as Thanos and Mimir."""
        try:
            return read_retention(await self.connection.get("/api/v1/status/runtimeinfo", {}))
        except SourceError:
            return ""

    async def _ask(self, expression: str, at_ms: int) -> RangeAnswer:
        self.queries += 1
        try:
            body = await self.connection.query(expression, at_seconds=at_ms / 1000)
        except SourceError as error:
            if isinstance(error, SlowAnswer) or error.reason == "oversize" or _asks_too_much(error):
                raise TooMuch(str(error)) from error
            raise
        self._has_answered = True
        return read_answer(body)


def _asks_too_much(error: SourceError) -> bool:
    """Whether the server refuses a query for its size, or has given it up."""
    # 429 means "too many requests", whatever its text says: smaller queries would only be more requests
    if not isinstance(error, HttpRefusal) or error.status == HTTPStatus.TOO_MANY_REQUESTS:
        return False
    text = str(error.content.get("error", ""))
    return error.content.get("errorType") == "timeout" or any(words in text for words in _WORDS_OF_TOO_MUCH)
