"""Node exporters on loopback ports that say what a test has them say, and the source that asks them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from exporter.cluster.exporters.exporters_source import Exporters
from exporter.config.http_file import HttpConfig
from exporter.sources.exporters.asking import GivenPlaces
from tests.cluster.exporters.test_node_answer import row
from tests.support.cluster_settings import cluster_settings
from tests.support.waiting import until

Make = Callable[..., Exporters]
# Writes an answer to a request, whose head is given.
Respond = Callable[[asyncio.StreamWriter, str], Awaitable[None]]
Serve = Callable[[Respond], Awaitable[str]]


def head(*headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", *headers, "", "")).encode()


def whole(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return head(f"Content-Length: {len(body)}", *headers, status=status) + body


def says(answer: bytes) -> Respond:
    async def respond(writer: asyncio.StreamWriter, _: str) -> None:
        writer.write(answer)

    return respond


def good(node: str, **fields: Any) -> Respond:
    """A node with two devices, whose values change."""
    asked = 0

    async def respond(writer: asyncio.StreamWriter, _: str) -> None:
        nonlocal asked
        asked += 1
        rows = [row(number, node_name=node, gpu_utilization=asked, **fields) for number in range(2)]
        writer.write(whole(json.dumps(rows).encode()))

    return respond


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    attending: set[asyncio.Task[None]] = set()
    async with AsyncExitStack() as stack:

        async def build(respond: Respond) -> str:
            async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None
                attending.add(task)
                try:
                    while True:
                        request = (await reader.readuntil(b"\r\n\r\n")).decode()
                        await respond(writer, request)
                        await writer.drain()
                except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                    pass
                finally:
                    attending.discard(task)
                    writer.transport.abort()

            server = await asyncio.start_server(attend, "127.0.0.1", 0)
            stack.callback(server.close)
            return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

        yield build
        for task in tuple(attending):
            task.cancel()
        await asyncio.gather(*attending)


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    made: list[Exporters] = []

    def build(*nodes: tuple[str, str], **settings: Any) -> Exporters:
        given: dict[str, Any] = {"http": HttpConfig(), "on_health": lambda _name, _health: None}
        given |= {name: settings.pop(name) for name in ("places", "http", "on_health", "clock") if name in settings}
        cluster = cluster_settings(**{"timeout_seconds": 2.0, "max_bytes": 1_000_000, **settings})
        made.append(Exporters(**{"places": GivenPlaces(nodes), **given}, cluster=cluster))
        return made[-1]

    yield build
    for source in made:
        await source.close()


async def round_of(source: Exporters) -> None:
    """Ask all, and wait until the last has answered or failed: a busy machine answers later than a look waits."""
    await source.begin()
    await until(lambda: not source._asks)
