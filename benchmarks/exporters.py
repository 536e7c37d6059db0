"""Many node exporters in one process, for measuring the cluster role, also if some of them stall.

python -m benchmarks.exporters COUNT [STALLED]
    listens for COUNT exporters of nodes node-0 and so on, each at a loopback address of its own with the same port,
    and prints the port. The last STALLED of them behave in one of three ways, in turn: they never answer, they answer
    a byte every 0.2 s, or they refuse connections. Each of the others answers like the real exporter of a node of 8
    GPUs, with values that change.

The answers are made beforehand, so that making them is not measured.
"""

import asyncio
import itertools
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal

from exporter.config.load import load
from exporter.node.role import NODE
from exporter.service import Service
from tests.support.simulated import SimulatedNode, World

Way = Literal["good", "silent", "drip", "refuse"]
STALLS: Sequence[Way] = ("silent", "drip", "refuse")
DRIP_SECONDS = 0.2
MOMENTS = 6
_TEMPLATE = "TEMPLATE"


def name_of(number: int) -> str:
    return f"node-{number}"


def host_of(number: int) -> str:
    """The loopback address of an exporter."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


class Exporters:
    """`count` node exporters; `ways` has the behaviour of some of them, by number."""

    def __init__(self, count: int, moments: Sequence[bytes], ways: Mapping[int, Way]) -> None:
        """`moments` are successive answers of a node."""
        self.asked = [0] * count
        self.connections = 0
        self.port = 0
        self._ways = ways
        self._moments = moments
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listen, except for exporters that refuse. A port that is free for the first is free for all."""
        loop = asyncio.get_running_loop()
        for number in range(len(self.asked)):
            if self._ways.get(number) != "refuse":
                server = await loop.create_server(
                    partial(_Connection, self, number), host_of(number), self.port, backlog=8
                )
                self.port = server.sockets[0].getsockname()[1]
                self._servers.append(server)

    async def stop(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()

    def url(self, number: int) -> str:
        return f"http://{host_of(number)}:{self.port}"

    def way(self, number: int) -> Way:
        return self._ways.get(number, "good")

    def answer(self, number: int) -> bytes:
        """A node's answer now, with its own name and devices, and with values of another moment than before."""
        self.asked[number] += 1
        moment = self._moments[(number + self.asked[number]) % len(self._moments)]
        body = moment.replace(_TEMPLATE.encode(), name_of(number).encode()).replace(b"GPU-", b"GPU-%04d" % number)
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


class _Connection(asyncio.Protocol):
    def __init__(self, exporters: Exporters, number: int) -> None:
        self._exporters, self._number = exporters, number
        self._transport: asyncio.Transport | None = None
        self._dripping: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._exporters.connections += 1
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, _: Exception | None) -> None:
        self._exporters.connections -= 1
        if self._dripping:
            self._dripping.cancel()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if not data.endswith(b"\r\n\r\n"):
            return
        match self._exporters.way(self._number):
            case "good":
                self._transport.write(self._exporters.answer(self._number))
            case "drip":
                self._transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                self._drip()

    def _drip(self) -> None:
        assert self._transport is not None
        self._transport.write(b"1\r\n[\r\n")
        self._dripping = asyncio.get_running_loop().call_later(DRIP_SECONDS, self._drip)


async def moments() -> Sequence[bytes]:
    """Answers of the real exporter in front of a simulated node, while its pods come and go."""
    simulated = SimulatedNode(World(gpus=8, seed=1))
    await simulated.start()
    given = {
        "kubelet.socket": [str(simulated.socket)],
        "dcgm.url": [simulated.url],
        "web.listen-address": ["127.0.0.1:0"],
        "nvml.mode": ["off"],
        "node-name": [_TEMPLATE],
        "kubelet.max-age": ["1ms"],
    }
    service = Service(load(given, {}, None, ""), NODE)
    found = []
    try:
        (address,) = await service.listen()
        for _ in range(MOMENTS):
            found.append(await _get(address.host, address.port))
            simulated.world.step()
            await asyncio.sleep(0.05)
    finally:
        await service.close()
        await simulated.stop()
    return found


async def _get(host: str, port: int) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /container/metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]


def ways_of(count: int, stalled: int) -> dict[int, Way]:
    """The behaviour of the last exporters, which stall in each of the ways in turn."""
    return dict(zip(range(count - stalled, count), itertools.cycle(STALLS), strict=False))


async def main(count: int, stalled: int) -> None:
    exporters = Exporters(count, await moments(), ways_of(count, stalled))
    await exporters.start()
    print(exporters.port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
