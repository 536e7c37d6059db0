"""The listening sockets: TLS that can be exchanged while they listen, and a limit on connections."""

import asyncio
import logging
import ssl
from collections.abc import Sequence

from aiohttp import web

from exporter.errors import ExporterError
from exporter.guard import Guard
from exporter.parsers import Address
from exporter.telemetry import Telemetry

# A scrape waits for its sources no longer than their timeouts (5 s): in-flight scrapes get to end.
DRAIN_SECONDS = 10.0
# Longer than the usual pause between two scrapes; a connection without a whole request in this time is closed.
IDLE_SECONDS = 150.0
HANDSHAKE_SECONDS = 10.0
MOST_CONNECTIONS = 512


# It writes a trace for every malformed request, which is how anybody could fill the log. Faults of our own are logged
# where they are met (guard.py).
_SILENT = logging.getLogger("pod_gpu_exporter.http")
_SILENT.disabled = True


class PortTaken(ExporterError):
    """An address to listen on cannot be had."""


class Server:
    """The listening sockets, and who answers behind them."""

    def __init__(self, guard: Guard, telemetry: Telemetry) -> None:
        self._guard = guard
        self._telemetry = telemetry
        # not an Application: its router, signals and middlewares cost a tenth of what a scrape costs here
        self._runner = web.ServerRunner(
            web.Server(guard.answer, access_log=None, logger=_SILENT, keepalive_timeout=IDLE_SECONDS),
            handle_signals=False,
            shutdown_timeout=DRAIN_SECONDS,
        )
        self._listening: list[asyncio.Server] = []
        self._tls: ssl.SSLContext | None = None
        telemetry.bound("connections", MOST_CONNECTIONS, lambda: len(self._connections()))

    async def start(self, addresses: Sequence[Address], tls: ssl.SSLContext | None = None) -> tuple[Address, ...]:
        """Listen; the addresses that came of it (port 0 has become a number).

        Raises:
            PortTaken: with one line that says which address and what to do.
        """
        await self._runner.setup()
        self._tls = tls
        loop = asyncio.get_running_loop()
        for address in addresses:
            try:
                listening = await loop.create_server(
                    self._connect,
                    address.host or None,
                    address.port,
                    ssl=tls,
                    ssl_handshake_timeout=_handshake_seconds(tls),
                )
            except OSError as error:
                await self.close()
                raise PortTaken(
                    f"--web.listen-address: cannot listen on {address}: {error.strerror or error}; if another program"
                    " has the port (dcgm-exporter's default is 9400 too), one of the two must move"
                ) from error
            self._listening.append(listening)
        names = (socket.getsockname() for listening in self._listening for socket in listening.sockets)
        return tuple(Address(host=name[0], port=name[1]) for name in names)

    async def use(self, tls: ssl.SSLContext | None) -> None:
        """Other TLS for connections from now on. The sockets go on listening: nobody is refused meanwhile."""
        if tls is self._tls:
            return
        self._tls = tls
        loop = asyncio.get_running_loop()
        before, self._listening = self._listening, []
        for listening in before:
            for socket in listening.sockets:
                same = socket.dup()
                self._listening.append(
                    await loop.create_server(
                        self._connect, sock=same, ssl=tls, ssl_handshake_timeout=_handshake_seconds(tls)
                    )
                )
            listening.close()

    async def close(self) -> None:
        """Stop listening, let the scrapes in flight end, close."""
        for listening in self._listening:
            listening.close()
        await self._runner.cleanup()

    def _connections(self) -> Sequence[asyncio.BaseProtocol]:
        """Oldest first."""
        return self._runner.server.connections if self._runner.server else ()

    def _connect(self) -> asyncio.BaseProtocol:
        """For a new connection, who talks with it."""
        server = self._runner.server
        if server is None:
            return _Refusal()
        connections = self._connections()
        if len(connections) >= MOST_CONNECTIONS:
            self._telemetry.count_refused("connections")
            idle = next((found for found in server.connections if found not in self._guard.busy), None)
            if idle is None:
                return _Refusal()
            # the one that has been silent for longest makes room: half-open connections cannot fill the house
            if idle.transport is not None:
                idle.transport.abort()
        return server()


class _Refusal(asyncio.Protocol):
    """Closes a connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()


def _handshake_seconds(tls: ssl.SSLContext | None) -> float | None:
    return HANDSHAKE_SECONDS if tls else None
