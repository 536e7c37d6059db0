"""GETs from an upstream: connections that notice a dead peer, TLS whose files may change, and errors in plain words.

aiohttp's own texts show what only its authors can read (`ssl:<ssl.SSLContext object at 0x…>`), and its timeouts do not
say whether a name, a connection or an answer was waited for. Here each becomes a SourceError with what to do.
"""

import errno
import os
import socket
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
from aiohttp.abc import ResolveResult

from exporter.config.files import identity_of
from exporter.config.parsers import without_secrets
from exporter.config.tls import ClientTls, client_context
from exporter.errors import TimedOut, Unavailable

# A peer that is gone without a word (a node that lost its power, a firewall that forgot the connection) is noticed
# after 30 s: an idle connection is asked from the 15th second on whether it lives, and bytes that nobody acknowledged
# are waited for no longer. Without the latter the kernel sends them again for a quarter of an hour (tcp(7)).
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


_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
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
        self._names = _Resolver()
        # whether the request that came last has no connection yet
        self.connecting = False
        super().__init__(
            limit=limit, keepalive_timeout=keepalive_seconds, resolver=self._names, socket_factory=watched_socket
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

    @property
    def unresolved(self) -> str:
        """A name whose addresses are being asked for; "" where none is."""
        return next(iter(self._names.asked), "")


class Client:
    """The connections to one upstream, which begin with the first request. No redirect is followed, no cookie kept."""

    def __init__(
        self,
        *,
        flag: str,
        tls: ClientTls,
        headers: Iterable[tuple[str, str]] = (),
        may_lack_authority: bool = False,
        unpacks: bool = False,
        most_connections: int = 100,
        keepalive_seconds: float = 15.0,
    ) -> None:
        """`headers` go with every request; `flag` is what errors about the files of `tls` name.

        With `may_lack_authority` the system's authorities are trusted while there is no `tls.ca_file`. `unpacks` takes
        an answer's Content-Encoding off, with no limit on what comes out.
        """
        self._flag = flag
        self._tls = tls
        self._headers = tuple(headers)
        self._may_lack_authority = may_lack_authority
        self._unpacks = unpacks
        self._most_connections = most_connections
        self._keepalive_seconds = keepalive_seconds
        self._session: aiohttp.ClientSession | None = None
        self._context: ssl.SSLContext | None = None
        self._context_made_of: object = None
        self.connector: Connector | None = None

    def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        parameters: Mapping[str, str] | None = None,
        timeout: aiohttp.ClientTimeout = _NO_TIMEOUT,
    ) -> "aiohttp.client._RequestContextManager":
        """A request: await it, or enter it. Without `timeout` it ends with whoever waits for it.

        Raises:
            ConfigError: a file of TLS cannot be used.
        """
        return self._begun().get(
            url,
            params=parameters,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            ssl=self._context_now() if url.startswith("https:") else True,
            server_hostname=self._tls.server_name or None,
        )

    def post(
        self, url: str, *, form: Mapping[str, str], headers: Mapping[str, str], timeout: aiohttp.ClientTimeout
    ) -> "aiohttp.client._RequestContextManager":
        """The same with a form as its body, for questions that are too long for a URL. It is to change nothing.

        Raises:
            ConfigError: a file of TLS cannot be used.
        """
        return self._begun().post(
            url,
            data=form,
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            ssl=self._context_now() if url.startswith("https:") else True,
            server_hostname=self._tls.server_name or None,
        )

    async def close(self) -> None:
        """End the connections."""
        if self._session is not None:
            await self._session.close()

    def _begun(self) -> aiohttp.ClientSession:
        if self._session is None:
            self.connector = Connector(limit=self._most_connections, keepalive_seconds=self._keepalive_seconds)
            self._session = aiohttp.ClientSession(
                connector=self.connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                auto_decompress=self._unpacks,
            )
        return self._session

    def _context_now(self) -> ssl.SSLContext:
        """Made anew when one of its files has changed; a new context is a new connection."""
        made_of = [identity_of(path) for path in self._tls.files]
        if self._context is None or made_of != self._context_made_of:
            context = context_of(self._tls, self._flag, may_lack_authority=self._may_lack_authority)
            self._context, self._context_made_of = context, made_of
        return self._context


def context_of(tls: ClientTls, flag: str, *, may_lack_authority: bool) -> ssl.SSLContext:
    """What connections are made with. With `may_lack_authority` the system's stands in for a file that is not there.

    Raises:
        ConfigError: a file cannot be used; it names `flag`.
    """
    lacks_authority = may_lack_authority and identity_of(tls.ca_file) is None
    return client_context(replace(tls, ca_file="") if lacks_authority else tls, flag)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How long the peer asks to be left alone; None where it does not say, or names a date."""
    later = headers.get("Retry-After", "")
    return float(later) if later.isascii() and later.isdigit() and len(later) <= _MOST_DIGITS else None


def why_late(connector: Connector | None, seconds: float, *, connecting: bool, where: str = "") -> TimedOut | None:
    """What was waited for in vain, `where` first; None where it was the answer itself."""
    if connector and connector.unresolved:
        return TimedOut(
            "deadline",
            f"{where}the name {connector.unresolved} could not be resolved within {seconds:g} s: no name server"
            " answered",
            remedy="look at the name server that this container is told in /etc/resolv.conf (a pod with hostNetwork"
            " needs dnsPolicy: ClusterFirstWithHostNet for names of Services), or give an address in place of the name",
        )
    if connecting:
        return TimedOut(
            "deadline",
            f"{where}no connection within {seconds:g} s: nothing comes back from there",
            remedy="is the address right, and does a firewall or a NetworkPolicy let this container reach it?",
        )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectRemedies:
    """What to do where a peer cannot be reached, for one kind of peer."""

    refused: str
    unreachable: str
    tls: str


def why_no_connection(
    error: aiohttp.ClientConnectionError, remedies: ConnectRemedies, *, where: str = ""
) -> Unavailable:
    """A failure to connect, or a connection that broke; `where` comes first in its message."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unavailable(
            "unreachable",
            f"{where}the name {error.host} has no address: {_words(error.os_error)}",
            remedy="is the name right, and can this container's name server resolve it?",
        )
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return Unavailable("tls", f"{where}{_why_distrusted(error.certificate_error)}", remedy=remedies.tls)
    if isinstance(error, aiohttp.ClientConnectorError):
        os_error = error.os_error
        if isinstance(os_error, ssl.SSLError):
            return Unavailable("tls", f"{where}no TLS with it: {_words(os_error)}", remedy=remedies.tls)
        if isinstance(os_error, ConnectionRefusedError):
            return Unavailable("refused", f"{where}nobody listens there", remedy=remedies.refused)
        return Unavailable("unreachable", f"{where}{_words(os_error)}", remedy=remedies.unreachable)
    return Unavailable("unreachable", f"{where}{_words(error)}", remedy=remedies.unreachable)


def why_broken(error: BaseException) -> str:
    """Why an answer that had begun did not go on."""
    # of what the system said of the connection, aiohttp keeps the text alone
    if os.strerror(errno.ETIMEDOUT) in str(error):
        return f"the connection is dead: nothing has come back for {_NOTICED_SECONDS} s"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer was cut off"
    return f"the connection broke: {_words(error)}"


def _why_distrusted(error: Exception) -> str:
    """OpenSSL's reason without what only its authors can read."""
    why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else ""
    return f"no TLS with it: its certificate is not accepted: {why or one_line(error)}"


def _words(error: BaseException) -> str:
    """An error of the system by its own text, without the number, or the address that stands in the message anyway."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return (isinstance(error, OSError) and error.strerror) or one_line(error)


def one_line(error: BaseException) -> str:
    """An error's text on one line; its kind where it has none. What aiohttp says names the URL: its secrets go."""
    return without_secrets(" ".join(str(error).split())) or type(error).__name__
