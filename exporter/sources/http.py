"""Asking an upstream over HTTP: a dead peer is noticed, files of TLS may change, and errors are in plain words.

aiohttp's own texts show what only its authors can read (`ssl:<ssl.SSLContext object at 0x…>`), and its timeouts do not
say whether a name, a connection or an answer was waited for. Here each becomes a SourceError with what to do.
"""

import asyncio
import errno
import json
import os
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from http import HTTPStatus
from math import inf
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import ResolveResult

from exporter.config.files import identity_of
from exporter.config.http_file import HttpConfig, authorization
from exporter.config.parsers import without_secrets
from exporter.config.tls import client_context
from exporter.errors import (
    ConfigError,
    HttpRefusal,
    Malformed,
    SlowAnswer,
    SourceError,
    TimedOut,
    Unavailable,
    UnavailableReason,
)
from exporter.sources.unpack import Body
from exporter.wording import one_line

# A peer that vanished (a node without power, a firewall that forgot the connection) is noticed after 30 s: the kernel
# probes an idle connection from the 15th second on, and gives up bytes that the peer has not acknowledged. Otherwise it
# would send them again for a quarter of an hour (tcp(7)).
_NOTICED_SECONDS = 30
_SOCKET_OPTIONS = tuple(
    (level, getattr(socket, name), value)
    for level, name, value in (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 15),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", _NOTICED_SECONDS * 1000),
    )
    if hasattr(socket, name)  # Linux has all of them; a Mac, where the demo runs too, has not
)


_NO_DEADLINE = nullcontext()
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_MOST_REFUSAL_BYTES = 16 * 1024
_MOST_TEXT_CHARS = 200
_LACKS_RIGHT = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_MOST_DIGITS = 6  # of seconds: eleven days


def watched_socket(address: Any) -> socket.socket:  # noqa: ANN401 - getaddrinfo's tuple, as aiohttp passes it on
    """A socket whose peer's silent death is noticed within 30 s."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    for level, option, value in _SOCKET_OPTIONS:
        made.setsockopt(level, option, value)
    return made


class _Resolver(aiohttp.ThreadedResolver):
    """Names by way of the system, and which of them are still being asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.add(host)
        try:
            return await super().resolve(host, port, family)
        finally:
            self.asked.discard(host)


class Connector(aiohttp.TCPConnector):
    """Connections to one upstream, which know what is being waited for."""

    def __init__(self, *, limit: int = 100, keepalive_seconds: float = 15.0) -> None:
        """At most `limit` connections; one that is not used for `keepalive_seconds` is closed."""
        self.names = _Resolver()
        # whether the request that came last has no connection yet
        self.connecting = False
        super().__init__(
            limit=limit, keepalive_timeout=keepalive_seconds, resolver=self.names, socket_factory=watched_socket
        )

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: "list[aiohttp.tracing.Trace]",
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own signature
    ) -> "aiohttp.connector.Connection":
        """A connection for a request."""
        self.connecting = True
        made = await super().connect(req, traces, timeout)
        self.connecting = False
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The upstream of a client, as errors and remedies name it.

    `flag` names the file of TLS and secrets, `most` the setting that says how much is read. `where` comes first in
    messages. The other texts are remedies: `refused`, `unreachable`, `tls` where there is no connection, `silent` where
    nothing comes back, `slow` where an answer is late, and so on. With `busy` statuses the peer wants to be left alone.
    `explains`: it says in a JSON field `error` why it refuses, or in a form that `explain` makes such an object of.
    `has_lines`: a whole answer ends with a line's end.
    """

    flag: str
    refused: str
    unreachable: str
    tls: str
    look_there: str = ""
    silent: str = "is the address right, and does a firewall or a NetworkPolicy let this container reach it?"
    slow: str = ""
    no_right: str = ""
    no_path: str = ""
    elsewhere: str = "give the address that answers itself (https in place of http?)"
    too_often: str = ""
    too_much: str = ""
    most: str = ""
    where: str = ""
    bad_file: UnavailableReason = "permission"
    busy: frozenset[int] = frozenset()
    explains: bool = True
    explain: Callable[[bytes], object] = json.loads
    names_path: bool = False
    has_lines: bool = False


@dataclass(slots=True, eq=False)
class Client:
    """The connections to one upstream, which begin with the first request. No redirect is followed, no cookie kept.

    `headers` go with every request. `ask` takes at most `timeout_seconds`, and answers of `max_bytes` unpacked.
    Without `has_deadline` the caller of `ask` ends it. With `may_lack_authority` the system's authorities count
    while there is no `ca_file`. `unpacks` takes an answer's Content-Encoding off, with no limit on what comes out.
    """

    peer: Peer
    _: KW_ONLY
    http: HttpConfig
    headers: Iterable[tuple[str, str]]
    timeout_seconds: float = inf
    connect_seconds: float | None = None
    has_deadline: bool = True
    max_bytes: int = 0
    may_lack_authority: bool = False
    unpacks: bool = False
    most_connections: int = 100
    keepalive_seconds: float = 15.0
    connector: Connector | None = field(default=None, init=False)
    _timeout: aiohttp.ClientTimeout = field(init=False)
    _session: aiohttp.ClientSession | None = field(default=None, init=False)
    _context: ssl.SSLContext | None = field(default=None, init=False)
    _context_made_of: object = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._timeout = aiohttp.ClientTimeout(total=None, connect=self.connect_seconds)

    async def ask(
        self,
        url: str,
        path: str = "",
        *,
        parameters: Mapping[str, str] | None = None,
        posted: bytes | Mapping[str, str] | None = None,
        on_headers: Callable[[Mapping[str, str]], None] = lambda _: None,
        on_more: Callable[[Body], None] = lambda _: None,
    ) -> bytes:
        """The body of a whole answer with status 200, at a `path` below the URL or at the URL itself.

        What is `posted` is a form, for questions that are too long for a URL, or a body as it is. `on_headers` and
        `on_more` see what came so far, and may raise a SourceError. Raises HttpRefusal: another status. Unavailable:
        nobody answers, or a file of TLS or a secret cannot be used. TimedOut: not in time; SlowAnswer where there was a
        connection. Malformed: cut off, larger than `max_bytes`, in an unknown encoding, or not HTTP.
        """
        if self.connector is not None:
            self.connector.connecting = False  # of the request before
        try:
            async with (
                asyncio.timeout(self.timeout_seconds) if self.has_deadline else _NO_DEADLINE,
                self.request(
                    "GET" if posted is None else "POST", url + path, parameters=parameters, body=posted
                ) as response,
            ):
                if response.status != HTTPStatus.OK:
                    raise await self._refusal(response, path or response.url.path)
                try:
                    on_headers(response.headers)
                    return await self._body(response, on_more)
                except SourceError:
                    response.close()
                    raise
        except (TimeoutError, ConfigError, aiohttp.ClientError) as error:
            raise self.why_failed(error, url) from error

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        parameters: Mapping[str, str] | None = None,
        body: bytes | Mapping[str, str] | None = None,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> "aiohttp.client._RequestContextManager":
        """A request: await it, or enter it. Without `timeout` the caller ends it.

        Raises ConfigError: a file of TLS, or a secret, cannot be used.
        """
        if self._session is None:
            self.connector = Connector(limit=self.most_connections, keepalive_seconds=self.keepalive_seconds)
            self._session = aiohttp.ClientSession(
                connector=self.connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=(*self.headers, *self.http.headers),
                auto_decompress=self.unpacks,
            )
        return self._session.request(
            method,
            url,
            params=parameters,
            data=body,
            headers={**authorization(self.http, self.peer.flag), **headers},
            timeout=timeout or self._timeout,
            allow_redirects=False,
            ssl=self._context_now() if url.startswith("https:") else True,
            server_hostname=self.http.tls.server_name or None,
        )

    async def close(self) -> None:
        """End the connections."""
        if self._session is not None:
            await self._session.close()

    def why_failed(self, error: Exception, url: str) -> SourceError:
        """What a failed request means."""
        peer = self.peer
        match error:
            case TimeoutError():
                return self.why_late(url, is_connecting=isinstance(error, aiohttp.ConnectionTimeoutError))
            case ConfigError():
                remedy = f"mend that file, or name another one with {peer.flag}; it is read again"
                return Unavailable(peer.bad_file, str(error), remedy=remedy)
            case aiohttp.ClientPayloadError():
                return Malformed("truncated", f"{peer.where}{why_broken(error)}", remedy=peer.look_there)
            case aiohttp.ClientConnectionError():
                return _why_no_connection(error, peer)
        message = f"{peer.where}it does not answer in HTTP: {_text_of(error)[:300]}"
        return Malformed("garbage", message, remedy=peer.look_there)

    def why_late(self, url: str, *, is_connecting: bool | None = None) -> TimedOut:
        """What was waited for in vain. `is_connecting` None: whether the last request has no connection yet."""
        peer, connector = self.peer, self.connector
        if is_connecting is None:
            is_connecting = connector is not None and connector.connecting
        host = urlsplit(url).hostname or ""
        connect_seconds = self.timeout_seconds if self.connect_seconds is None else self.connect_seconds
        if connector is not None and host in connector.names.asked:
            return TimedOut(
                f"{peer.where}the name {host} could not be resolved within {connect_seconds:g} s: no name server"
                " answered",
                remedy="look at the name server that this container is told in /etc/resolv.conf (a pod with hostNetwork"
                " needs dnsPolicy: ClusterFirstWithHostNet for names of Services), or give an address in place of the"
                " name",
            )
        if is_connecting:
            message = f"{peer.where}no connection within {connect_seconds:g} s: nothing comes back from there"
            return TimedOut(message, remedy=peer.silent)
        message = f"{peer.where}no whole answer within {self.timeout_seconds:g} s"
        return SlowAnswer(message, remedy=peer.slow)

    async def _body(self, response: aiohttp.ClientResponse, on_more: Callable[[Body], None]) -> bytes:
        peer = self.peer
        coming = Body(response.headers.get("Content-Encoding", ""), self.max_bytes)
        while chunk := await response.content.readany():
            if not coming.add(chunk):
                most = f"{peer.most} {self.max_bytes}" if peer.most else f"{self.max_bytes} bytes"
                raise Malformed("oversize", f"{peer.where}it answers more than {most}", remedy=peer.too_much)
            on_more(coming)
        if not coming.is_whole:
            raise Malformed("truncated", f"{peer.where}the packed answer was cut off", remedy=peer.look_there)
        body = bytes(coming)
        is_chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
        ends_with_connection = not coming.is_packed and not is_chunked and "Content-Length" not in response.headers
        if peer.has_lines and ends_with_connection and body and not body.endswith(b"\n"):
            # one that was cut looks whole, but its last value may have more digits
            message = f"{peer.where}the answer ends with its connection, and not with a line's end: it was cut off"
            raise Malformed("truncated", message, remedy=peer.look_there)
        return body

    async def _refusal(self, response: aiohttp.ClientResponse, path: str) -> HttpRefusal:
        peer = self.peer
        status = response.status
        content = await _explanation(response, peer.explain) if peer.explains else {}
        # what is left of it is not waited for
        response.close()
        text = one_line(content.get("error") or "", _MOST_TEXT_CHARS)
        message, remedy = self._words_of_refusal(response, path, f": {text}" if text else "")
        is_busy = status in peer.busy
        reason: UnavailableReason = "http_status"
        if status in _LACKS_RIGHT:
            reason = "permission"
        elif is_busy:
            reason = "rate_limited"
        refusal = HttpRefusal(
            reason,
            f"{peer.where}{message}",
            remedy=remedy,
            retry_after_seconds=retry_after_seconds(response.headers) if is_busy else None,
        )
        refusal.status = status
        refusal.content = content
        return refusal

    def _words_of_refusal(self, response: aiohttp.ClientResponse, path: str, why: str) -> tuple[str, str]:
        """What the peer did, and the remedy. `why` is what it says itself, behind a colon."""
        peer = self.peer
        status = response.status
        message = f"HTTP status {status}{f' for {path}' if peer.names_path else ''}{why}"
        if status in _LACKS_RIGHT:
            return f"it refuses {path} with HTTP status {status}{why}", peer.no_right
        if status == HTTPStatus.TOO_MANY_REQUESTS and peer.too_often:
            return f"it is asked too often or for too much: {message}", peer.too_often
        is_get = response.method == "GET"
        if status == HTTPStatus.NOT_FOUND or (status == HTTPStatus.METHOD_NOT_ALLOWED and not is_get):
            asked = path if is_get else f"{response.method} {path}"
            return f"HTTP status {status}: there is no {asked}{why}", peer.no_path
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            return f"HTTP status {status}: it wants to be asked elsewhere, which is not done", peer.elsewhere
        return message, peer.look_there

    def _context_now(self) -> ssl.SSLContext:
        """A new context if one of its files has changed; a new context means a new connection."""
        tls = self.http.tls
        made_of = [identity_of(path) for path in tls.files]
        if self._context is None or made_of != self._context_made_of:
            lacks_authority = self.may_lack_authority and identity_of(tls.ca_file) is None
            self._context = client_context(replace(tls, ca_file="") if lacks_authority else tls, self.peer.flag)
            self._context_made_of = made_of
        return self._context


async def _explanation(response: aiohttp.ClientResponse, explain: Callable[[bytes], object]) -> Mapping[str, Any]:
    """The object in which the peer says why it refuses; {} where it says nothing of the kind."""
    try:
        body = Body(response.headers.get("Content-Encoding", ""), _MOST_REFUSAL_BYTES)
        body.add(await response.content.read(_MOST_REFUSAL_BYTES))
        content = explain(bytes(body))
    except (Malformed, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How long the peer asks to be left alone; None where it does not say, or names a date."""
    later = headers.get("Retry-After", "")
    return float(later) if later.isascii() and later.isdigit() and len(later) <= _MOST_DIGITS else None


def _why_no_connection(error: aiohttp.ClientConnectionError, peer: Peer) -> Unavailable:
    where = peer.where
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "raise its limit of open files (ulimit -n): each peer needs one"
        return Unavailable("unreachable", f"{where}this program may open no more connections", remedy=remedy)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        message = f"{where}the name {error.host} has no address: {_words(error.os_error)}"
        remedy = "is the name right, and can this container's name server resolve it?"
        return Unavailable("unreachable", message, remedy=remedy)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        # OpenSSL's reason without what only its authors can read
        cause = error.certificate_error
        why = cause.verify_message if isinstance(cause, ssl.SSLCertVerificationError) else ""
        message = f"no TLS with it: its certificate is not accepted: {why or _text_of(cause)}"
        return Unavailable("tls", f"{where}{message}", remedy=peer.tls)
    if isinstance(error, aiohttp.ClientConnectorError):
        os_error = error.os_error
        if isinstance(os_error, ssl.SSLError):
            return Unavailable("tls", f"{where}no TLS with it: {_words(os_error)}", remedy=peer.tls)
        if isinstance(os_error, ConnectionRefusedError):
            return Unavailable("refused", f"{where}nobody listens there", remedy=peer.refused)
        return Unavailable("unreachable", f"{where}{_words(os_error)}", remedy=peer.unreachable)
    return Unavailable("unreachable", f"{where}{_words(error)}", remedy=peer.unreachable)


def why_broken(error: BaseException) -> str:
    """Why an answer that had begun did not go on."""
    # of what the system said of the connection, aiohttp keeps the text alone
    if os.strerror(errno.ETIMEDOUT) in str(error):
        return f"the connection is dead: nothing has come back for {_NOTICED_SECONDS} s"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer was cut off"
    return f"the connection broke: {_words(error)}"


def _words(error: BaseException) -> str:
    """An error of the system by its own text, without the number, or the address that stands in the message anyway."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return (isinstance(error, OSError) and error.strerror) or _text_of(error)


def _text_of(error: BaseException) -> str:
    """An error's text on one line; its kind where it has none. What aiohttp says names the URL: its secrets go."""
    return without_secrets(one_line(error)) or type(error).__name__
