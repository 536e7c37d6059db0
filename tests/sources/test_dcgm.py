"""The dcgm source against a server on a loopback port that does what servers do on bad days."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from exporter.errors import SourceError, TimedOut
from exporter.sources.dcgm import DcgmSource

PAGE = b'# TYPE a gauge\na{UUID="GPU-1"} 1\n'
Respond = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Upstream:
    """Answers every request with the same bytes, or as `respond` says; keeps the requests it saw."""

    def __init__(self) -> None:
        self.answer = ok(PAGE)
        self.respond: Respond | None = None
        self.requests: list[str] = []
        self.connections = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
                if self.respond:
                    await self.respond(reader, writer)
                else:
                    writer.write(self.answer)
                    await writer.drain()
                if b"Connection: close" in self.answer:
                    break
        writer.close()


def ok(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    state = Upstream()
    server = await asyncio.start_server(state.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    state.url = f"http://{host}:{port}/metrics"
    yield state
    server.close()
    server.close_clients() if hasattr(server, "close_clients") else None


@pytest.fixture
async def make(upstream: Upstream) -> AsyncIterator[Callable[..., DcgmSource]]:
    sources: list[DcgmSource] = []

    def build(**settings: Any) -> DcgmSource:
        defaults: dict[str, Any] = {
            "name": "dcgm:x",
            "url": upstream.url,
            "timeout_seconds": 2.0,
            "max_bytes": 10_000,
            "on_health": lambda _name, _health: None,
        }
        source = DcgmSource(**{**defaults, **settings})
        sources.append(source)
        return source

    yield build
    for source in sources:
        await source.close()


Make = Callable[..., DcgmSource]


async def test_a_page(upstream: Upstream, make: Make) -> None:
    source = make(headers=(("Via", "1.1 me"),))
    page = await source.begin()
    assert (page.source, page.body) == ("dcgm:x", PAGE)
    assert source.health.up is True
    assert source.health.last_success_at_seconds == page.read_at_seconds
    assert "Accept: text/plain;version=0.0.4" in upstream.requests[0]
    assert "Via: 1.1 me" in upstream.requests[0]


async def test_the_connection_is_kept(upstream: Upstream, make: Make) -> None:
    source = make()
    for _ in range(3):
        await source.begin()
    assert (len(upstream.requests), upstream.connections) == (3, 1)


# issue 7, line 41: cookies are ignored
async def test_a_cookie_is_not_sent_back(upstream: Upstream, make: Make) -> None:
    upstream.answer = ok(PAGE, "Set-Cookie: session=1; Path=/")
    # by name: a cookie that an address sets is ignored by aiohttp anyway
    source = make(url=upstream.url.replace("127.0.0.1", "localhost"))
    for _ in range(2):
        await source.begin()
    assert len(upstream.requests) == 2
    assert "cookie" not in "".join(upstream.requests).lower()


async def test_a_connection_that_the_server_closed_meanwhile_is_opened_anew(upstream: Upstream, make: Make) -> None:
    source = make()
    upstream.answer = ok(PAGE, "Connection: close")
    for _ in range(2):
        assert (await source.begin()).body == PAGE
    assert upstream.connections == 2


async def test_concurrent_reads_share_a_request(upstream: Upstream, make: Make) -> None:
    source = make()
    pages = await asyncio.gather(*(source.begin() for _ in range(50)))
    assert len(upstream.requests) == 1
    assert all(page is pages[0] for page in pages)


def chunked(body: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(body), body) + end


@pytest.mark.parametrize(
    "answer",
    [
        ok(gzip.compress(PAGE), "Content-Encoding: gzip"),
        chunked(PAGE),
        b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n" + PAGE,
        ok(PAGE, "Content-Type: application/openmetrics-text; version=1.0.0"),
    ],
    ids=["gzip", "chunked", "until-close", "openmetrics"],
)
async def test_pages_in_other_wrappings(upstream: Upstream, make: Make, answer: bytes) -> None:
    upstream.answer = answer
    assert (await make().begin()).body == PAGE


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "http_status"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "http_status"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "http_status"),
        (ok(b""), "no_samples"),
        (ok(b"# TYPE a gauge\n"), "no_samples"),
        (ok(b"<html><body>It works!</body></html>\n"), "no_samples"),
        (ok(b"\x00\xff" * 100), "no_samples"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9999\r\n\r\n" + PAGE, "truncated"),
        (chunked(PAGE, end=b"").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1), "truncated"),
        (ok(gzip.compress(PAGE)[:-9], "Content-Encoding: gzip"), "truncated"),
        (ok(PAGE, "Content-Encoding: gzip"), "encoding"),
        (ok(PAGE, "Content-Encoding: br"), "encoding"),
        (ok(PAGE + b"b 1\n" * 3000), "oversize"),
        (ok(gzip.compress(b"a 1\n" * 10_000_000), "Content-Encoding: gzip"), "oversize"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\nConnection: close", "garbage"),
    ],
)
async def test_answers_that_are_failures(upstream: Upstream, make: Make, answer: bytes, reason: str) -> None:
    upstream.answer = answer
    source = make()
    with pytest.raises(SourceError) as raised:
        await source.begin()
    assert raised.value.reason == reason, raised.value
    assert (source.health.up, source.health.reason) == (False, reason)
    assert "\n" not in str(raised.value)
    # and it is over with the next good one
    upstream.answer = ok(PAGE)
    assert (await source.begin()).body == PAGE
    assert source.health.up is True


async def test_nobody_there(make: Make) -> None:
    source = make(url="http://127.0.0.1:1/metrics")
    with pytest.raises(SourceError) as raised:
        await source.begin()
    assert raised.value.reason == "refused"
    assert "is dcgm-exporter running" in str(raised.value)


async def test_a_server_that_hangs_up_without_a_word(upstream: Upstream, make: Make) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        raise ConnectionError

    upstream.respond = hang_up
    with pytest.raises(SourceError) as raised:
        await make().begin()
    assert raised.value.reason == "unreachable"


@pytest.mark.parametrize("start", [b"", ok(PAGE)[:20], ok(PAGE)[:-5]], ids=["silence", "in-headers", "in-body"])
async def test_a_server_that_stalls(upstream: Upstream, make: Make, start: bytes) -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        await writer.drain()
        await reader.read(1)

    upstream.respond = stall
    source = make(timeout_seconds=0.2)
    with pytest.raises(TimedOut):
        await source.begin()
    assert source.health.reason == "deadline"


async def test_a_reader_who_cannot_wait_leaves_the_read_running(upstream: Upstream, make: Make) -> None:
    go_on = asyncio.Event()

    async def slow(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(ok(PAGE))

    upstream.respond = slow
    source = make()
    read = source.begin()
    await asyncio.wait((read,), timeout=0.05)
    assert not read.done()
    assert source.health.up is None
    go_on.set()
    assert (await source.begin()).body == PAGE
    assert len(upstream.requests) == 1
