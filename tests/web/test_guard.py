"""Answers on their way to readers that do not take them: what is kept of them, for how long, and whose room it is."""

import asyncio
import gc
import socket
from collections.abc import Awaitable, Callable, Iterator

import pytest
from aiohttp import web

from exporter.web import guard
from tests.support.exporter import Exporter, Start
from tests.support.simulated import SimulatedNode
from tests.support.waiting import until

REQUEST = b"GET /gpu/metrics HTTP/1.1\r\nHost: x\r\n\r\n"
KERNEL_BYTES = 4096

Reader = Callable[[Exporter], Awaitable[socket.socket]]


def serve(simulated: SimulatedNode, size: int) -> None:
    """A page of about this many bytes."""
    row = b'a{UUID="GPU-1",row="%d",text="' + b"x" * 1000 + b'"} 1\n'
    page = b"".join(row % number for number in range(size // 1000))
    simulated.dcgm.failure = lambda _: web.Response(body=page)


@pytest.fixture
def ask() -> Iterator[Reader]:
    """Send a request and take nothing of the answer; the kernels of both sides hold as little of it as they can."""
    opened: list[socket.socket] = []

    async def begin(exporter: Exporter) -> socket.socket:
        assert exporter.service._server is not None
        for listening in exporter.service._server._listening:  # who is accepted inherits it
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        host, port = exporter.base.removeprefix("http://").split(":")
        one = socket.socket()
        opened.append(one)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        one.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(one, (host, int(port)))
        await loop.sock_sendall(one, REQUEST)
        return one

    yield begin
    for one in opened:
        one.close()


# issue 7, line 41: the bound on bytes being written
async def test_answers_on_their_way_have_a_limit_in_bytes(
    start: Start, simulated: SimulatedNode, ask: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "MOST_WRITING_BYTES", 250_000)
    monkeypatch.setattr(guard, "READING_TAKES_SECONDS", 60.0)
    serve(simulated, 100_000)
    exporter = await start()
    refused = exporter.service.telemetry.refused
    stands_at = exporter.service.guard
    for number in range(1, 4):
        await ask(exporter)
        await until(lambda: len(stands_at._writing) == number)  # noqa: B023 - awaited here
    oldest = next(iter(stands_at._writing))
    assert 300_000 < stands_at._writing_bytes < 400_000
    assert refused["slow_reader"] == 0
    monkeypatch.setattr(guard, "READING_TAKES_SECONDS", 0.0)
    await exporter.get("/-/healthy")
    assert refused["slow_reader"] == 1
    assert oldest.is_closing()
    assert 200_000 < stands_at._writing_bytes < 250_000
    # who reads gives the room back
    await exporter.page()
    assert refused["slow_reader"] == 1
    await until(lambda: len(stands_at._writing) == 2)


# issue 7, line 41: the bound on bytes being written
async def test_who_has_just_begun_to_read_is_not_cut_off_for_others(
    start: Start, simulated: SimulatedNode, ask: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "MOST_WRITING_BYTES", 1000)
    serve(simulated, 100_000)
    exporter = await start()
    for _ in range(3):
        await ask(exporter)
    await until(lambda: len(exporter.service.guard._writing) == 3)
    assert exporter.service.telemetry.refused["slow_reader"] == 0


# issue 7, line 41: set_write_buffer_limits(0)
async def test_an_answer_is_on_its_way_until_the_kernel_has_all_of_it(
    start: Start, simulated: SimulatedNode, ask: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transport's usual limits call 64 KiB that wait in this process written."""
    monkeypatch.setattr(guard, "WRITE_SECONDS", 0.3)
    serve(simulated, 40_000)
    exporter = await start()
    await ask(exporter)
    refused = exporter.service.telemetry.refused
    await until(lambda: refused["slow_reader"] == 1)
    assert exporter.service.guard._writing_bytes == 0


# issue 7, line 41: letting go of a body
async def test_between_requests_no_answer_is_kept_for_an_open_connection(
    start: Start, simulated: SimulatedNode
) -> None:
    serve(simulated, 40_000)
    exporter = await start()
    assert len(await exporter.page()) > 40_000
    assert exporter.service._server is not None
    assert len(exporter.service._server._open) == 1  # the next request comes on it
    await until(lambda: not exporter.service.guard.busy)
    gc.collect()
    found = [found for found in gc.get_objects() if isinstance(found, web.Response)]
    # the simulated node answers by aiohttp, too
    answers = [answer for answer in found if answer.headers.get("Server") == guard._HEADERS["Server"]]
    assert answers  # aiohttp keeps the last one
    assert [answer.body for answer in answers] == [None] * len(answers)
