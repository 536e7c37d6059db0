"""The beginning of a connection on a port that speaks TLS: the handshake, or why it failed.

The first byte is looked at before TLS begins. A client that speaks plain HTTP is told so, as Go's servers do. That
costs a new connection one round of the event loop. A scrape over a connection that was kept open pays nothing.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

# As much of a plain request is read before the connection is closed: closing it with unread bytes would be a reset, and
# the client would lose the answer.
_MOST_PLAIN_BYTES = 64 * 1024
_SPEAK_TLS = b"this port speaks HTTPS, and a request in plain HTTP came: ask it by https://\n"
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_SPEAK_TLS), _SPEAK_TLS)
)
# OpenSSL's reason where a client shows no certificate although it must (SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE).
_NO_CERTIFICATE = "PEER_DID_NOT_RETURN_A_CERTIFICATE"


class Refusal(Exception):
    """The handshake failed. `reason` is one of telemetry.REFUSALS, and the text says why in a few words."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


async def shake_hands(
    connection: socket.socket, tls: ssl.SSLContext, make: Callable[[], asyncio.BaseProtocol], seconds: float
) -> None:
    """Do the handshake within `seconds`, and connect the protocol that `make` creates to the peer.

    A client that connects and leaves without a byte (it checks whether the port is open) is no refusal; `make` is not
    called for it. The caller closes the connection where no protocol was connected.

    Raises:
        Refusal: the handshake failed.
    """
    try:
        async with asyncio.timeout(seconds):
            first = await _first_byte(connection)
            if b"A" <= first <= b"Z":  # every HTTP request begins with a letter, and no TLS record does
                _answer_in_plain(connection)
                raise Refusal("tls", "a request in plain HTTP came")
            if first:
                loop = asyncio.get_running_loop()
                await loop.connect_accepted_socket(make, connection, ssl=tls)
    except TimeoutError:
        raise Refusal("tls", f"no handshake within {seconds:g} s") from None
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
        loop.add_reader(connection, _end, readable)
        try:
            await readable
        finally:
            loop.remove_reader(connection)


def _end(readable: "asyncio.Future[None]") -> None:
    """Resolve the future; the loop may call this again before the reader is removed."""
    if not readable.done():
        readable.set_result(None)


def _answer_in_plain(connection: socket.socket) -> None:
    with suppress(OSError):  # a client that does not read the answer goes without it
        connection.recv(_MOST_PLAIN_BYTES)
        connection.send(_BAD_REQUEST)
        connection.shutdown(socket.SHUT_WR)
