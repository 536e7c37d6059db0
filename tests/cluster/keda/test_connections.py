"""Connections to KEDA's port: whoever opens many of them pushes out its own, and neither KEDA's nor a newcomer's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import grpc.aio
import pytest

from exporter.cluster.keda import grpc_server
from exporter.config.parsers import Address
from tests.cluster.keda.test_conversation import TRIGGER, config_of, talking
from tests.support.keda import Keda
from tests.support.waiting import until

# the preface of HTTP/2, and a frame of settings that are none
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Open = Callable[..., Awaitable[list[Opened]]]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Opens so many silent HTTP/2 connections from an address, each of which was answered or closed."""
    every = []

    async def opened(port: int, number: int, peer: str = "127.0.0.2") -> list[Opened]:
        found = []
        for _ in range(number):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(peer, 0))
            writer.write(HELLO)
            found.append((reader, writer))
        every.extend(found)
        for reader, _ in found:
            with suppress(ConnectionError):
                await reader.read(1)
        return found

    yield opened
    for _, writer in every:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def are_the_last(connections: Sequence[Opened], left: int) -> bool:
    """Whether the other end has closed all of them but so many, the last."""
    are_open = [not (writer.is_closing() or reader.exception() or reader._eof) for reader, writer in connections]  # type: ignore[attr-defined]
    return are_open == [False] * (len(connections) - left) + [True] * left


@asynccontextmanager
async def another_channel(port: int, host: str = "127.0.0.1") -> AsyncIterator[Keda]:
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(str(Address(host=host, port=port)), options) as channel:
        yield Keda(channel, TRIGGER)


# issue 15, line 22
async def test_silent_connections_of_others_do_not_lock_keda_out(opened: Open) -> None:
    async with talking() as talk:
        talk.sees(95.0)
        keda = talk.keda()
        await until(keda.is_active)
        silent = await opened(talk.port, 3 * grpc_server.MOST_CONNECTIONS)
        assert keda.channel.get_state() == grpc.ChannelConnectivity.READY
        assert await keda.is_active()
        async with another_channel(talk.port) as new:
            assert await new.is_active()
            # of those that are silent the oldest had to go
            await until(lambda: are_the_last(silent, grpc_server.MOST_CONNECTIONS - 2))


# issue 15, line 22
async def test_of_several_who_have_many_the_one_with_most_loses_its_oldest(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_server, "MOST_CONNECTIONS", 8)
    async with talking() as talk:
        one, two = await opened(talk.port, 5), await opened(talk.port, 3, "127.0.0.3")
        await opened(talk.port, 1, "127.0.0.4")
        await until(lambda: are_the_last(one, 4))
        two += await opened(talk.port, 2, "127.0.0.3")
        # with four each the oldest of all had to go, and then one of its own
        await until(lambda: are_the_last(one, 3))
        await until(lambda: are_the_last(two, 4))


@pytest.mark.parametrize(
    ("listens", "reached"), [(":0", ["127.0.0.1", "::1"]), ("127.0.0.1:0", ["127.0.0.1"]), ("[::1]:0", ["::1"])]
)
async def test_keda_reaches_the_port_by_each_address_that_it_has(listens: str, reached: list[str]) -> None:
    async with talking(config=config_of(keda__listen_address=listens)) as talk:
        talk.sees(95.0)
        for host in reached:
            async with another_channel(talk.port, host) as keda:
                await until(keda.is_active)
