"""The beginning of a connection on a port that speaks TLS: the handshake, or why there was none.

A connection is looked at before TLS is: who speaks plain HTTP is told so, as by Go's servers. That costs a connection a
round of the event loop, and a scrape on a connection that is kept open nothing.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

# Requests that come with a certificate are long; whatever is left unread makes closing a reset.
_MOST_PLAIN_BYTES = 64 * 1024
_SPEAK_TLS = b"this port speaks HTTPS, and a request in plain HTTP came: ask it by https://\n"
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_SPEAK_TLS), _SPEAK_TLS)
)
# What OpenSSL says where a client shows no certificate though it must (SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE).
_NO_CERTIFICATE = "PEER_DID_NOT_RETURN_A_CERTIFICATE"


class Refusal(Exception):
    """There will be no TLS with this peer. `reason` is one of telemetry.REFUSALS."""

    def __init__(self, reason: str, why: str) -> None:
        super().__init__(why)
        self.reason = reason


async def shake_hands(
    connection: socket.socket, tls: ssl.SSLContext, make: Callable[[], asyncio.BaseProtocol], seconds: float
) -> None:
    """Have `make`'s protocol talk with the peer once TLS stands, within so many seconds.

    Who connects and leaves without a word (a check whether the port is open) is not refused: nothing comes of it.
    The caller closes what came to nothing.

    Raises:
        Refusal: it came to nothing else.
    """
    try:
        async with asyncio.timeout(seconds):
            first = await _first_byte(connection)
            if b"A" <= first <= b"Z":  # no record of TLS begins with a letter, every request in HTTP does
                _answer_in_plain(connection)
                raise Refusal("tls", "a request in plain HTTP came")
            if first:
                loop = asyncio.get_running_loop()
                await loop.connect_accepted_socket(make, connection, ssl=tls)
    except TimeoutError:
        raise Refusal("tls", f"no handshake within {seconds:g} s") from None
    except ssl.SSLError as error:
        # its reasons are upper-case names: TLSV1_ALERT_UNKNOWN_CA, UNSUPPORTED_PROTOCOL
        why = (error.reason or str(error)).replace("_", " ").lower()
        if isinstance(error, ssl.SSLCertVerificationError):
            raise Refusal("certificate", f"{why}: {error.verify_message}") from error
        raise Refusal("certificate" if error.reason == _NO_CERTIFICATE else "tls", why) from error
    except OSError as error:
        raise Refusal("tls", "the peer hung up during the handshake") from error


async def _first_byte(connection: socket.socket) -> bytes:
    """It stays unread. b"": the peer has left."""
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
    if not readable.done():
        readable.set_result(None)


def _answer_in_plain(connection: socket.socket) -> None:
    with suppress(OSError):  # who does not read it does without
        connection.recv(_MOST_PLAIN_BYTES)
        connection.send(_BAD_REQUEST)
        connection.shutdown(socket.SHUT_WR)
