"""A dcgm-exporter that misbehaves on the wire: plain sockets, so that any byte can be sent or held back."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Upstream:
    """Answers with `page()`, or as `respond` does. `stop` and `start` keep the port."""

    def __init__(self, page: Callable[[], bytes]) -> None:
        self.page = page
        self.respond: Respond | None = None
        self.reads = 0
        self.reading = 0
        self.most_reading = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/metrics"

    def requests(self) -> int:
        """How often somebody asked."""
        return self.reads

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in tuple(self._connections):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.reads += 1
                self.reading += 1
                self.most_reading = max(self.most_reading, self.reading)
                try:
                    if self.respond is not None:
                        await self.respond(writer)
                        break
                    writer.write(whole(self.page()))
                    await writer.drain()
                finally:
                    self.reading -= 1
        self._connections.discard(writer)
        writer.close()


def whole(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    """An answer of HTTP; `length` is what it claims to be long."""
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*head, "", ""]).encode() + body


def answer(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> Respond:
    """The same bytes for everyone."""

    async def respond(writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(whole(body, *headers, status=status, length=length))
            await writer.drain()

    return respond


def raw(text: bytes) -> Respond:
    """Just these bytes."""

    async def respond(writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(text)
            await writer.drain()

    return respond


async def hang(_: asyncio.StreamWriter) -> None:
    """Take the request and say nothing."""
    await asyncio.sleep(3600)


async def hang_after_headers(writer: asyncio.StreamWriter) -> None:
    """Promise a page and send none of it."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    await asyncio.sleep(3600)


def drip(body: bytes) -> Respond:
    """A byte a second."""

    async def respond(writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            for byte in whole(body):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(1)

    return respond


def flood(megabytes: int, piece: bytes) -> Respond:
    """So many megabytes, in chunks, without saying how many they are."""

    async def respond(writer: asyncio.StreamWriter) -> None:
        block = piece * (1024 * 1024 // len(piece))
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(megabytes):
                writer.write(b"%x\r\n%b\r\n" % (len(block), block))
                await writer.drain()
            writer.write(b"0\r\n\r\n")

    return respond
