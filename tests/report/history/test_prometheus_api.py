"""Asking a Prometheus server that is busy, slow, elsewhere, or none."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from exporter.config.http_file import HttpConfig, Secret
from exporter.errors import Malformed, SourceError, TimedOut, Unavailable
from exporter.report.history.over_http import over_http
from exporter.report.history.prometheus_api import PrometheusApi, TooMuch
from tests.support.components import free_port

GOOD: dict[str, object] = {
    "status": "success",
    "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [1, "2"]}]},
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    api: PrometheusApi
    waits: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    requests: list[web.Request] = field(default_factory=list)


@asynccontextmanager
async def server(handler: Handler, **options: object) -> AsyncIterator[Asked]:
    asked: list[web.Request] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request)
        return await handler(request)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    waits: list[float] = []
    said: list[str] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    settings = {"url": f"http://127.0.0.1:{port}/prom/", "timeout_seconds": 5.0, "http": HttpConfig(), **options}
    api = PrometheusApi(over_http(**settings), on_wait=said.append, pause=pause)  # type: ignore[arg-type]
    try:
        yield Asked(api, waits, said, asked)
    finally:
        await api.close()
        await runner.cleanup()


def answers(*responses: Callable[[], web.Response] | dict[str, object] | int) -> Handler:
    """One after the other; the last one again and again."""
    left = list(responses)

    async def handle(_: web.Request) -> web.StreamResponse:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, int):
            return web.Response(status=found)
        return web.json_response(found) if isinstance(found, dict) else found()

    return handle


def error(status: int, kind: str, text: str) -> Callable[[], web.Response]:
    return lambda: web.json_response({"status": "error", "errorType": kind, "error": text}, status=status)


def later(seconds: str) -> Callable[[], web.Response]:
    return lambda: web.Response(status=429, headers={"Retry-After": seconds})


async def test_a_query_is_about_a_moment_and_may_take_so_long() -> None:
    async with server(answers(GOOD), http=HttpConfig(scheme="Bearer", credentials=Secret(value="s3cret"))) as asked:
        found = await asked.api.query('up{a="b"}', 1_793_000_000_123)
    assert [dict(one.labels) for one in found.series] == [{"a": "b"}]
    (request,) = asked.requests
    assert request.path == "/prom/api/v1/query"
    assert dict(request.query) == {"query": 'up{a="b"}', "time": "1793000000.123", "timeout": "5s"}
    assert request.headers["Authorization"] == "Bearer s3cret"


async def test_a_packed_answer_is_unpacked() -> None:
    async def handle(_: web.Request) -> web.StreamResponse:
        return web.Response(body=gzip.compress(json.dumps(GOOD).encode()), headers={"Content-Encoding": "gzip"})

    async with server(handle) as asked:
        assert len((await asked.api.query("up", 0)).series) == 1


async def test_a_busy_server_is_asked_again_after_a_pause_and_says_for_how_long() -> None:
    async with server(answers(later("7"), 503, GOOD)) as asked:
        assert len((await asked.api.query("up", 0)).series) == 1
    assert asked.waits == [7.0, 5.0]
    assert "asked again in 7 s" in asked.said[0]
    async with server(answers(503)) as asked:
        with pytest.raises(Unavailable, match="HTTP status 503"):
            await asked.api.query("up", 0)
    assert len(asked.requests) == 3


async def test_a_server_with_too_many_requests_is_not_asked_for_more_of_them() -> None:
    busy = error(429, "too_many_requests", "too many outstanding requests")  # Mimir's words, and Thanos'
    async with server(answers(busy, GOOD)) as asked:
        assert len((await asked.api.query("up", 0)).series) == 1
    assert asked.waits == [1.0]


@pytest.mark.parametrize(("told", "waits"), [("99999", 30.0), ("9999999", 1.0), ("²", 1.0), ("soon", 1.0)])
async def test_whatever_a_server_says_it_is_not_waited_for_long(told: str, waits: float) -> None:
    async with server(answers(later(told), GOOD)) as asked:
        await asked.api.query("up", 0)
    assert asked.waits == [waits]


@pytest.mark.parametrize(
    "refusal",
    [
        error(503, "timeout", "query timed out in expression evaluation"),
        error(422, "execution", "query processing would load too many samples into memory in query execution"),
        error(422, "execution", "expanding series: the query exceeds the limit of chunks"),
    ],
)
async def test_what_is_too_much_for_the_server_is_told_from_what_fails(refusal: Callable[[], web.Response]) -> None:
    async with server(answers(refusal)) as asked:
        with pytest.raises(TooMuch):
            await asked.api.query("up", 0)
    assert asked.waits == []


@pytest.mark.parametrize(
    ("response", "says"),
    [
        (401, "refuses /api/v1/query with HTTP status 401"),
        (404, "there is no /api/v1/query"),
        (302, "wants to be asked elsewhere"),
        (error(400, "bad_data", "parse error: \x1b[2J unexpected"), "HTTP status 400 for /api/v1/query: parse error"),
        (500, "HTTP status 500"),
        (lambda: web.Response(text="<html>login</html>"), "it is no JSON"),
    ],
)
async def test_what_is_wrong_is_said_in_words(response: Callable[[], web.Response] | int, says: str) -> None:
    async with server(answers(response)) as asked:
        with pytest.raises(SourceError, match=says) as refused:
            await asked.api.query("up", 0)
        assert refused.value.trouble.remedy
        assert await asked.api.retention() == ""


async def test_more_than_is_read_is_not_read() -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)

    async with server(endless, max_bytes=200_000) as asked:
        with pytest.raises(TooMuch, match="more than 200000 bytes"):
            await asked.api.query("up", 0)


async def test_a_bomb_is_not_unpacked() -> None:
    body = gzip.compress(b" " * 10_000_000)

    async def bomb(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async with server(bomb, max_bytes=200_000) as asked:
        with pytest.raises(TooMuch, match="more than"):
            await asked.api.query("up", 0)


async def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.report.history.over_http._GRACE_SECONDS", 0.0)

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError

    async with server(silent, timeout_seconds=0.1) as asked:
        with pytest.raises((TooMuch, TimedOut)):
            await asked.api.query("up", 0)


async def test_a_server_that_is_not_there_is_not_waited_for_and_one_that_goes_is() -> None:
    async with server(answers(GOOD), url=f"http://127.0.0.1:{free_port()}") as asked:
        with pytest.raises(Unavailable, match="nobody listens there"):
            await asked.api.query("up", 0)
        assert asked.waits == []

    async def breaks(request: web.Request) -> web.StreamResponse:
        if len(asked.requests) in (2, 3):  # aiohttp itself asks once more over another connection
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(GOOD)

    async with server(breaks) as asked:
        for _ in range(2):
            assert len((await asked.api.query("up", 0)).series) == 1
    assert asked.waits == [1.0]


async def test_an_unknown_encoding_is_refused() -> None:
    async def other(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x", headers={"Content-Encoding": "zstd"})

    async with server(other) as asked:
        with pytest.raises(Malformed, match="zstd"):
            await asked.api.query("up", 0)


async def test_no_more_than_two_queries_run_at_once() -> None:
    running, most = 0, 0

    async def count(_: web.Request) -> web.StreamResponse:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return web.json_response(GOOD)

    async with server(count) as asked:
        await asyncio.gather(*(asked.api.query("up", 0) for _ in range(10)))
    assert most == 2
