"""The HTTP client for upstreams: it notices dead peers, follows changes of TLS files, and has errors in plain words.

aiohttp's own texts have parts that only its authors understand (`ssl:<ssl.SSLContext object at 0x…>`), and its timeouts
do not say whether a name, a connection or an answer was late. Here each becomes a SourceError with a remedy.

Tests: tests/sources/kubernetes/test_api.py, tests/sources/pages/test_url.py.
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
from exporter.model.nothing import NOTHING
from exporter.sources.unpack import Body
from exporter.wording import one_line

# The kernel notices after 30 s that a peer vanished (no power, a firewall that forgot it): it probes an idle one from
# the 15th second on, and gives up on bytes that nobody acknowledges. By default that takes 15 minutes (tcp(7)).
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
    if hasattr(socket, name)  # Linux has all of them, a Mac (where the demo runs, too) has not
)
_NO_DEADLINE = nullcontext()
_NO_HEADERS: Mapping[str, str] = NOTHING
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
    """The system's resolver of names, which knows the names that it is still resolving."""

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
    """Connections to an upstream. It knows whether the last request waits for a name, or for a connection."""

    def __init__(self, *, limit: int = 100, keepalive_seconds: float = 15.0) -> None:
        """Keep at most `limit` connections. A connection that is idle for `keepalive_seconds` is closed."""
        self.names = _Resolver()
        self.connecting = False  # whether the last request has no connection yet
        super().__init__(
            limit=limit, keepalive_timeout=keepalive_seconds, resolver=self.names, socket_factory=watched_socket
        )

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: "list[aiohttp.tracing.Trace]",
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own signature
    ) -> "aiohttp.connector.Connection":
        """Return a connection for a request."""
        self.connecting = True
        made = await super().connect(req, traces, timeout)
        self.connecting = False
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The upstream of a client, as errors and remedies name it.

    Attributes:
        flag: the setting that names the file of TLS and secrets.
        refused, unreachable, tls: the remedies without a connection: nobody listens, another reason, no TLS.
        silent, slow: the remedies if nothing comes back, or if the answer is late.
        no_right, no_path, elsewhere, too_often: the remedies for a refusal or a redirect.
        too_much, look_there: the remedies for an answer that is too large, or cannot be used.
        most: the setting that limits an answer's size; "" for none.
        where: the first words of messages.
        bad_file: the reason of a failure by a file of TLS or a secret.
        busy: the statuses by which the peer asks for a pause.
        explains: a refusal has its reason in a JSON field `error`, of an object that `explain` makes of the body.
        names_path, has_lines: messages name the path; a whole answer ends with a line's end.
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
    """The connections to an upstream, which begin with the first request. It follows no redirect and keeps no cookie.

    Attributes:
        peer: the upstream in words.
        http: TLS, authorisation and further headers.
        headers: headers of every request.
        timeout_seconds: the longest time of `ask`.
        connect_seconds: the longest time for a connection; None: `timeout_seconds`.
        has_deadline: whether `ask` ends itself after `timeout_seconds`; else its caller does.
        max_bytes: the largest answer of `ask`, unpacked.
        may_lack_authority: the system's authorities count while the file `ca_file` does not exist.
        unpacks: aiohttp removes an answer's Content-Encoding, without a limit on the result.
        most_connections: the most connections at a time; 0 for no limit.
        keepalive_seconds: an idle connection is closed after this time.
        connector: the connections; None before the first request.
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

        `posted` is a form, for a question that is too long for a URL, or a body. `on_headers` is called with the
        answer's headers, `on_more` with the body so far; both may raise a SourceError.

        Raises:
            HttpRefusal: the answer has another status.
            Unavailable: no answer came, or a file of TLS or a secret cannot be used.
            TimedOut: the answer was late; SlowAnswer if there was a connection.
            Malformed: the answer is cut off, larger than `max_bytes`, in an unknown encoding, or no HTTP.
        """
        if self.connector is not None:
            self.connector.connecting = False  # it may be left over from the last request
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
        """A request, which the caller awaits or enters. Without `timeout` the caller ends it.

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
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def why_failed(self, error: Exception, url: str) -> SourceError:
        """The SourceError for a failed request."""
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
        """The SourceError for a late answer: it says whether a name, a connection or the answer was late.

        `is_connecting`: the request has no connection yet; None: the connector knows.
        """
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
        """The unpacked body. `on_more` is called after each part. Raises Malformed: it is too large, or was cut off."""
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
            # a cut answer looks whole, but its last value may lack digits
            message = f"{peer.where}the answer ends with its connection, and not with a line's end: it was cut off"
            raise Malformed("truncated", message, remedy=peer.look_there)
        return body

    async def _refusal(self, response: aiohttp.ClientResponse, path: str) -> HttpRefusal:
        """The error for a status other than success, in the peer's own words if it has some. Closes the response."""
        peer = self.peer
        status = response.status
        content = await _explanation(response, peer.explain) if peer.explains else {}
        response.close()  # nobody waits for the rest of the answer
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
        """The message about a refusal, and its remedy. `why` is the peer's own reason after a colon, or ""."""
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
        """The TLS context; a new one if a file has changed, which means a new connection."""
        tls = self.http.tls
        made_of = [identity_of(path) for path in tls.files]
        if self._context is None or made_of != self._context_made_of:
            lacks_authority = self.may_lack_authority and identity_of(tls.ca_file) is None
            self._context = client_context(replace(tls, ca_file="") if lacks_authority else tls, self.peer.flag)
            self._context_made_of = made_of
        return self._context


async def _explanation(response: aiohttp.ClientResponse, explain: Callable[[bytes], object]) -> Mapping[str, Any]:
    """The object with the peer's reason for a refusal; {} if it gives none."""
    try:
        body = Body(response.headers.get("Content-Encoding", ""), _MOST_REFUSAL_BYTES)
        body.add(await response.content.read(_MOST_REFUSAL_BYTES))
        content = explain(bytes(body))
    except (Malformed, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The pause in seconds that the peer asks for; None if it asks for none, or names a date."""
    later = headers.get("Retry-After", "")
    return float(later) if later.isascii() and later.isdigit() and len(later) <= _MOST_DIGITS else None


def _why_no_connection(error: aiohttp.ClientConnectionError, peer: Peer) -> Unavailable:
    """The error for a connection that could not be made. Its reason is `tls`, `refused` or `unreachable`."""
    where = peer.where
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        remedy = "raise its limit of open files (ulimit -n): each peer needs one"
        return Unavailable("unreachable", f"{where}this program may open no more connections", remedy=remedy)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        message = f"{where}the name {error.host} has no address: {_words(error.os_error)}"
        remedy = "is the name right, and can this container's name server resolve it?"
        return Unavailable("unreachable", message, remedy=remedy)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        # OpenSSL's reason, without the parts that only its authors understand
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
    """The reason in words why an answer broke off."""
    # aiohttp keeps only the text of the system's error
    if os.strerror(errno.ETIMEDOUT) in str(error):
        return f"the connection is dead: nothing has come back for {_NOTICED_SECONDS} s"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer was cut off"
    return f"the connection broke: {_words(error)}"


def _words(error: BaseException) -> str:
    """The text of a system's error, without its number and without the address, which the message has anyway."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return (isinstance(error, OSError) and error.strerror) or _text_of(error)


def _text_of(error: BaseException) -> str:
    """An error's text on one line; the name of its class if it has no text. Secrets in URLs are removed."""
    return without_secrets(one_line(error)) or type(error).__name__
