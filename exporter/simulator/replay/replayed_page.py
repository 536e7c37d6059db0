"""A page of GPU samples on a loopback port, as dcgm-exporter answered: whole, refused, late or cut off.

Tests: tests/simulator/replay/test_replay_node.py.
"""

import asyncio
from http import HTTPStatus

from exporter.bundle.recording import PeerAnswer
from exporter.errors import Trouble
from exporter.simulator.replay.replayed_trouble import DEADLINE, NO_CONNECTION, UNREACHABLE, http_status

_HOST = "127.0.0.1"
_MOST_HEAD = 64 * 1024
_FOR_EVER_SECONDS = 1e6
_CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n# cut"
_UNKNOWN_ENCODING = b"HTTP/1.1 200 OK\r\nContent-Encoding: unknown\r\nContent-Length: 1\r\n\r\n?"
_NO_HTTP = b"this is no HTTP\r\n\r\n"
_RAW = {"truncated": _CUT, "encoding": _UNKNOWN_ENCODING, "garbage": _NO_HTTP}


class ReplayedPage:
    """A server of one page, at any path, on a port of its own that it keeps while nobody listens there.

    `most_bytes` is the largest page that the exporter takes: one that was too large is larger than that again.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._answer: PeerAnswer | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self) -> None:
        """Take a free port."""
        await self._listen()

    async def show(self, answer: PeerAnswer | None) -> None:
        """Answer like this from now on. None: nobody listens."""
        self._answer = answer
        trouble = answer.trouble if answer else None
        is_away = answer is None or (trouble is not None and trouble.reason in NO_CONNECTION)
        if is_away:
            await self.stop()
        elif self._server is None:
            await self._listen()

    async def stop(self) -> None:
        """Stop listening, and end all connections. The port stays this page's."""
        server = self._server
        self._server = None
        if server is not None:
            server.close()
        connections = tuple(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._begin, _HOST, self.port, limit=_MOST_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, until either side ends it."""
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                body = await self._response()
                writer.write(body)
                await writer.drain()
                if not body.startswith(b"HTTP/1.1 ") or body == _CUT:
                    break
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the exporter has ended the connection
        finally:
            writer.close()

    async def _response(self) -> bytes:
        """The whole response to a request; b"" if the connection ends without one."""
        answer = self._answer
        trouble = answer.trouble if answer else None
        if answer is not None and trouble is None:
            return _http(HTTPStatus.OK, answer.body)
        if trouble is None or trouble.reason in UNREACHABLE:
            return b""
        if trouble.reason == DEADLINE:
            await asyncio.sleep(_FOR_EVER_SECONDS)
        return _RAW.get(trouble.reason) or self._refusal(trouble)

    def _refusal(self, trouble: Trouble) -> bytes:
        """A status, or a page that cannot be used."""
        status = http_status(trouble)
        if status:
            return _http(status, b"")
        if trouble.reason == "oversize":
            return _http(HTTPStatus.OK, b"#" * (self._most_bytes + 1))
        return _http(HTTPStatus.OK, b"")


def _http(status: int, body: bytes) -> bytes:
    kind = "text/plain; version=0.0.4; charset=utf-8"
    head = f"HTTP/1.1 {int(status)} replayed\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
