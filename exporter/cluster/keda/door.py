"""KEDA's port as others see it: connections are accepted here, and handed on to gRPC, which listens inside alone.

gRPC refuses newcomers once it has as many connections as it may have: whoever holds them silently locks KEDA out, and
gRPC neither says whose a connection is nor closes one. Bytes go through as they are, so TLS stays gRPC's business.
"""

import asyncio
import logging
import socket
import time
from collections import Counter
from contextlib import suppress

from exporter.config.parsers import Address
from exporter.log import log

MOST_CONNECTIONS = 128
DRAIN_SECONDS = 1.0
_PIECE_BYTES = 64 * 1024
_SAID_EVERY_SECONDS = 60.0


class Door:
    """Listens from `start` to `close`. With too many connections, the peer that has most of them loses its oldest."""

    def __init__(self, inside: str) -> None:
        """`inside` is the name of the abstract unix socket on which gRPC listens."""
        self._inside = inside
        self._server: asyncio.Server | None = None
        self._peers: dict[asyncio.Task[None], str] = {}  # by the task of a connection, oldest first
        self._said_at = -_SAID_EVERY_SECONDS

    async def start(self, address: Address) -> int:
        """Listen; the port. Without a host, for IPv4 and IPv6.

        Raises:
            OSError: the address cannot be listened on.
        """
        is_dual = not address.host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if is_dual or ":" in address.host else socket.AF_INET
        listening = socket.create_server(
            (address.host, address.port), family=family, backlog=MOST_CONNECTIONS, dualstack_ipv6=is_dual
        )
        self._server = await asyncio.start_server(self._welcome, sock=listening)
        port: int = listening.getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop listening. What gRPC has said last is handed on for DRAIN_SECONDS at most."""
        if self._server is not None:
            self._server.close()
        if tasks := tuple(self._peers):
            await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername") or ("",)
        task = asyncio.create_task(self._serve(reader, writer))
        self._peers[task] = str(peer[0])
        task.add_done_callback(lambda ended: self._peers.pop(ended, None))
        if len(self._peers) > MOST_CONNECTIONS:
            self._make_room()

    def _make_room(self) -> None:
        """Close one connection. It counts no longer from here on, whenever its task ends."""
        counts = Counter(self._peers.values())
        most = max(counts.values())
        oldest = next(task for task, peer in self._peers.items() if counts[peer] == most)
        peer = self._peers.pop(oldest)
        oldest.cancel()
        if time.monotonic() - self._said_at >= _SAID_EVERY_SECONDS:
            self._said_at = time.monotonic()
            log(
                logging.WARNING,
                "too many connections to KEDA's port: the oldest of the peer with most of them is closed",
                peer=peer,
                connections=most,
                remedy="let a NetworkPolicy admit KEDA's operator alone",
            )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                from_inside, inside = await asyncio.open_unix_connection(f"\0{self._inside}")
                forward = asyncio.create_task(_hand_on(reader, inside))
                try:
                    await _hand_on(from_inside, writer)
                finally:
                    forward.cancel()
                    inside.close()
            writer.close()
        finally:
            # where it is to make room; what is closed already is not touched
            if not writer.is_closing():
                writer.transport.abort()


async def _hand_on(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(_PIECE_BYTES):
            to.write(piece)
            await to.drain()
        to.write_eof()
