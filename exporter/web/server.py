"""The listening sockets and their connections: a limit on connections, and TLS that a reload can exchange.

This module accepts connections itself, since asyncio's servers cannot do three things: count a connection from its
first moment (the TLS handshake included), make room as soon as there is none, and say why a handshake failed. Besides,
asyncio's server logs a hundred errors a second once file descriptors run out.

Tests: tests/web/test_connections.py.
"""

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse
from aiohttp.web_server import Server as WebServer

from exporter import log
from exporter.config.parsers import Address
from exporter.errors import PortTaken
from exporter.pulse import end_tasks
from exporter.sources.single_flight import wake
from exporter.telemetry import Telemetry
from exporter.web.guard import Guard

# The bytes of a request in plain HTTP that are read before its connection is closed. With unread bytes the close would
# be a reset, and the client would lose the answer.
_MOST_PLAIN_BYTES = 64 * 1024
_SPEAK_TLS = b"this port speaks HTTPS, and a request in plain HTTP came: ask it by https://\n"
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_SPEAK_TLS), _SPEAK_TLS)
)
# OpenSSL's reason if a client shows no certificate although it must (SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE).
_NO_CERTIFICATE = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
# A scrape waits for its sources no longer than their timeouts (5 s), so scrapes in flight can end in this time.
DRAIN_SECONDS = 10.0
# A connection without a whole request in this time is closed. It is longer than the usual pause between two scrapes.
IDLE_SECONDS = 150.0
HANDSHAKE_SECONDS = 10.0
MOST_CONNECTIONS = 512
# File descriptors for other uses: 64 dcgm-exporters, the kubelet, the Kubernetes API, files. Connections that were
# closed to make room count here, too, since their descriptors are freed only in the next round of the event loop.
RESERVED_DESCRIPTORS = 160
FEWEST_CONNECTIONS = 16
ACCEPTED_AT_ONCE = 32
BACKLOG = 128
# The pause before the next connection is accepted, after an error that closing one of our connections does not mend.
PAUSE_SECONDS = 1.0
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


# aiohttp writes a trace for every malformed request, so any client could fill the log. guard.py logs our own faults.
_SILENT = logging.getLogger("pod_gpu_exporter.http")
_SILENT.disabled = True

Handler = Callable[[BaseRequest], Awaitable[StreamResponse]]


class Refusal(Exception):
    """The handshake failed. `reason` is one of telemetry.REFUSALS; the text says the cause in a few words."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


async def shake_hands(connection: socket.socket, tls: ssl.SSLContext, make: Callable[[], asyncio.BaseProtocol]) -> None:
    """Do the handshake within HANDSHAKE_SECONDS, and connect the protocol that `make` creates to the peer.

    A client that connects and leaves without a byte (it checks whether the port is open) is no refusal, and `make` is
    not called for it. If no protocol was connected, the caller closes the connection. Raises Refusal: the handshake
    failed.
    """
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            first = await _first_byte(connection)
            if b"A" <= first <= b"Z":  # every HTTP request begins with a letter, and no TLS record does
                _answer_in_plain(connection)
                raise Refusal("tls", "a request in plain HTTP came")
            if first:
                await asyncio.get_running_loop().connect_accepted_socket(make, connection, ssl=tls)
    except TimeoutError:
        raise Refusal("tls", f"no handshake within {HANDSHAKE_SECONDS:g} s") from None
    except ssl.SSLError as error:
        # OpenSSL's reasons are upper-case names: TLSV1_ALERT_UNKNOWN_CA, UNSUPPORTED_PROTOCOL
        why = (error.reason or str(error)).replace("_", " ").lower()
        if isinstance(error, ssl.SSLCertVerificationError):
            raise Refusal("certificate", f"{why}: {error.verify_message}") from error
        raise Refusal("certificate" if error.reason == _NO_CERTIFICATE else "tls", why) from error
    except OSError as error:
        raise Refusal("tls", "the peer hung up during the handshake") from error


async def _first_byte(connection: socket.socket) -> bytes:
    """The first byte of the peer, which stays unread; b"" if the peer has left."""
    loop = asyncio.get_running_loop()
    while True:
        with suppress(BlockingIOError, InterruptedError):
            try:
                return connection.recv(1, socket.MSG_PEEK)
            except ConnectionError:
                return b""
        readable = loop.create_future()
        # the loop may call this again before the reader is removed
        loop.add_reader(connection, wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(connection)


def _answer_in_plain(connection: socket.socket) -> None:
    with suppress(OSError):  # a client that does not read the answer goes without it
        connection.recv(_MOST_PLAIN_BYTES)
        connection.send(_BAD_REQUEST)
        connection.shutdown(socket.SHUT_WR)


class _WatchedServer(WebServer):
    """aiohttp's server, which also calls `on_lost` with the handler of each connection that has ended."""

    def __init__(self, answer: Handler, on_lost: Callable[[object], None]) -> None:
        super().__init__(answer, access_log=None, logger=_SILENT, keepalive_timeout=IDLE_SECONDS)
        self._on_lost = on_lost

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:  # noqa: ANN401 - aiohttp's own
        super().connection_made(handler, transport)
        # an answer is written when the kernel has all of it, not when little of it is left in our buffer (guard.py)
        transport.set_write_buffer_limits(0)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:  # noqa: ANN401 - aiohttp's own
        super().connection_lost(handler, exc)
        self._on_lost(handler)


class Server:
    """The listening sockets, and all connections that came in through them."""

    def __init__(self, guard: Guard, telemetry: Telemetry) -> None:
        self._guard = guard
        self._telemetry = telemetry
        # not an Application, whose router, signals and middlewares cost a tenth of a scrape
        self._web = _WatchedServer(guard.answer, self._forget)
        self._listening: list[socket.socket] = []
        self._tls: ssl.SSLContext | None = None
        # all connections by handler, oldest first, each with the task that begins it (and may still do the handshake)
        self._open: dict[Any, asyncio.Task[None]] = {}
        self._most = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._seldom = log.RareLog()
        telemetry.bound("connections", self._most, lambda: len(self._open))

    async def start(self, addresses: Sequence[Address], tls: ssl.SSLContext | None = None) -> tuple[Address, ...]:
        """Listen on all addresses. Returns them with real numbers for port 0. Raises PortTaken: it listens on none."""
        self._tls = tls
        loop = asyncio.get_running_loop()
        for address in addresses:
            try:
                await self._listen(address)
            except OSError as error:
                await self.close()
                raise PortTaken(
                    f"--web.listen-address: cannot listen on {address}: {error.strerror or error}; if another program"
                    " has the port (dcgm-exporter's default is 9400 too), one of the two must move"
                ) from error
        for listening in self._listening:
            loop.add_reader(listening, self._accept, listening)
        names = (listening.getsockname() for listening in self._listening)
        return tuple(Address(host=name[0], port=name[1]) for name in names)

    def use(self, tls: ssl.SSLContext | None) -> None:
        """Use other TLS for new connections. The sockets go on listening, so no client is refused meanwhile."""
        self._tls = tls

    async def close(self) -> None:
        """Stop listening, let scrapes in flight end (for at most DRAIN_SECONDS), and close all connections."""
        loop = asyncio.get_running_loop()
        for listening in self._listening:
            loop.remove_reader(listening)
            listening.close()
        self._listening.clear()
        await end_tasks(*self._open.values())
        # requests that have come already begin before idle connections are closed
        await asyncio.sleep(0)
        self._web.pre_shutdown()
        await self._web.shutdown(DRAIN_SECONDS)

    async def _listen(self, address: Address) -> None:
        """Bind every socket that an address means. An empty host means a socket for IPv4 and a socket for IPv6."""
        loop = asyncio.get_running_loop()
        bound = await loop.create_server(asyncio.Protocol, address.host or None, address.port, start_serving=False)
        try:
            for original in bound.sockets:
                listening = original.dup()
                self._listening.append(listening)
                listening.setblocking(False)
                listening.listen(BACKLOG)
        finally:
            bound.close()

    def _accept(self, listening: socket.socket) -> None:
        """Accept up to ACCEPTED_AT_ONCE connections. Pause after an error that closing a connection does not mend."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._seldom.warn("accept", "a connection could not be accepted", error=error.strerror or str(error))
                if error.errno not in _OUT_OF_RESOURCES or not self._make_room():
                    loop = asyncio.get_running_loop()
                    loop.remove_reader(listening)
                    loop.call_later(PAUSE_SECONDS, self._go_on, listening)
                return
            connection.setblocking(False)
            self._welcome(connection, str(peer[0]))

    def _go_on(self, listening: socket.socket) -> None:
        if listening in self._listening:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _welcome(self, connection: socket.socket, peer: str) -> None:
        """Begin a connection, or close it if all connections are busy."""
        if len(self._open) >= self._most and not self._make_room():
            self._telemetry.refused["connections"] += 1
            connection.close()
            return
        handler = self._web()
        beginning = self._open[handler] = asyncio.create_task(self._begin(handler, connection, peer))
        beginning.add_done_callback(partial(self._begun, handler, connection))

    def _make_room(self) -> bool:
        """Close the oldest connection without a request in progress. Returns whether there was one.

        The closed connection no longer counts, so that several newcomers in one round of the event loop close one
        connection each.
        """
        oldest = next((handler for handler in self._open if handler not in self._guard.busy), None)
        if oldest is None:
            return False
        beginning = self._open.pop(oldest)
        self._telemetry.refused["connections"] += 1
        self._seldom.warn("connections", "too many connections, the oldest silent one is closed", most=self._most)
        if oldest.transport is None:
            beginning.cancel()
        else:
            oldest.transport.abort()
        return True

    async def _begin(self, handler: Any, connection: socket.socket, peer: str) -> None:  # noqa: ANN401 - aiohttp's own
        """Connect `handler` to the peer, with TLS after the handshake. A failed handshake is logged and counted."""
        if self._tls is None:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: handler, connection)
            return
        try:
            await shake_hands(connection, self._tls, lambda: handler)
        except Refusal as refusal:
            self._telemetry.refused[refusal.reason] += 1
            self._seldom.warn(f"tls {refusal.reason}", "no TLS with a peer", peer=peer, error=str(refusal))

    def _begun(self, handler: Any, connection: socket.socket, beginning: "asyncio.Task[None]") -> None:  # noqa: ANN401 - see _begin
        """Close a connection that has no handler: it was refused, or made room for another before it began."""
        if not beginning.cancelled() and (error := beginning.exception()) is not None:
            # usually the peer has left
            self._seldom.warn("begin", "a connection could not begin", error=str(error) or type(error).__name__)
        if handler.transport is None:
            self._forget(handler)
            connection.close()

    def _forget(self, handler: object) -> None:
        self._open.pop(handler, None)


def most_connections(descriptors: int) -> int:
    """The limit on connections of a process with this limit on file descriptors (RLIMIT_NOFILE, soft)."""
    if descriptors == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return min(MOST_CONNECTIONS, max(FEWEST_CONNECTIONS, descriptors - RESERVED_DESCRIPTORS))
