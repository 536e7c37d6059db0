"""A server that stops closes every connection, also one that it has just accepted."""

import asyncio
import gc
import socket
from contextlib import suppress

import pytest
from aiohttp import web

from exporter.simulator.serving import Serving


# What nobody closes warns when it is collected, and warnings are errors here.
@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_is_closed_in_whichever_turn_its_server_stops(turns: int) -> None:
    serving = Serving(web.Application(), drain_seconds=0.1)
    await serving.start("127.0.0.1", 0)
    with socket.create_connection(serving.address, timeout=30) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await serving.stop()
        gc.collect()
        with suppress(ConnectionResetError):  # which says that it was not accepted at all
            assert client.recv(1) == b""


async def test_it_starts_again_at_its_address() -> None:
    serving = Serving(web.Application(), drain_seconds=0.1)
    await serving.start("127.0.0.1", 0)
    await serving.stop()
    again = Serving(web.Application(), drain_seconds=0.1)
    await again.start(*serving.address)
    assert again.address == serving.address
    await again.stop()


async def test_it_listens_on_ipv6() -> None:
    serving = Serving(web.Application(), drain_seconds=0.1)
    await serving.start("::1", 0)
    assert serving.address[0] == "::1"
    await serving.stop()
