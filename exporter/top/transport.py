"""Questions to an exporter, over HTTP or another transport. The answer is shown, or one line says why there is none."""

import http.client
import json
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, ClassVar, Protocol, Self
from urllib.parse import quote, urlsplit

from exporter.config.http_file import HttpConfig, authorization
from exporter.config.parsers import Address, without_secrets
from exporter.config.tls import client_context
from exporter.errors import ExporterError
from exporter.lenient import AnyObject, mapping, text
from exporter.model.device_row import DeviceRow, from_objects
from exporter.top.shown_devices import MOST_DEVICES, Role, ShownExporter, processes_of, shown_of
from exporter.top.state import View
from exporter.wording import one_line

FLAG = "--http-config"
TIMEOUT_SECONDS = 10.0
MOST_BYTES = 128 * 1024 * 1024  # 50,000 rows of /container/metrics take 60 MB
_ABOUT: Mapping[Role, str] = {"node": "/debug/mapping", "cluster": "/debug/nodes"}
_PIECE_BYTES = 256 * 1024
_MOST_TOLD_CHARS = 300
_ANY = {"": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - the address that reaches "any address"


class Gone(ExporterError):
    """The exporter does not answer, or not in a form that this program can read. The text is one line."""


class Transport(Protocol):
    """A way to an exporter. `url` names the exporter in messages."""

    url: str
    way_to_node: ClassVar[str]  # in words: how a user of this way asks the exporter of a single node

    def get(self, path: str) -> tuple[int, bytes]:
        """The status and the body of an answer. Raises Gone if there is none."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer: what `top` shows, and the rows of /container/metrics of which that is made."""

    shown: ShownExporter
    rows: Sequence[DeviceRow]


class TopReader(Protocol):
    """A reader of one exporter, or of several that are shown as one."""

    def ask(self, view: View) -> Answered:
        """Ask for the present state.

        Raises:
            Gone: no exporter tells it.
            ConfigError: a file that a flag names cannot be used.
        """


class ShownReader:
    """A reader of one exporter of either role. Requests are independent, so one lost request costs only its answer."""

    def __init__(self, transports: Sequence[Transport]) -> None:
        """Make a reader. It uses the first of the transports whose protocol the exporter speaks."""
        self._transports = transports
        self._transport = transports[0]
        self._role: Role | None = None

    def ask(self, view: View) -> Answered:
        """See TopReader."""
        about = self.about()
        status, answer = self._json("/container/metrics")
        rows = from_objects(answer, MOST_DEVICES)
        trouble = "" if status == HTTPStatus.OK else _why_none("/container/metrics", status, answer)
        shown = shown_of(self._role or "node", self._transport.url, about, rows, trouble)
        return Answered(shown if view == "devices" else self._with_processes(shown), rows)

    def _with_processes(self, shown: ShownExporter) -> ShownExporter:
        status, answer = self._json("/processes")
        if status == HTTPStatus.OK and isinstance(answer, list):
            return replace(shown, processes=processes_of(answer))
        elsewhere = processes_are_elsewhere(self._transport.way_to_node)
        why = elsewhere if status == HTTPStatus.NOT_FOUND else _why_none("/processes", status, answer)
        return replace(shown, processes_trouble=why)

    def about(self) -> AnyObject:
        """The node's /debug/mapping or the cluster role's /debug/nodes, with the health of sources. Raises as `ask`."""
        *others, last = self._transports
        for self._transport in others:
            with suppress(OtherProtocol):
                return self._tried()
        self._transport = last
        return self._tried()

    def _tried(self) -> AnyObject:
        """The answer of an exporter, asked as each role in turn. Raises Gone: none answers, or it needs a password."""
        roles: tuple[Role, ...] = (self._role,) if self._role else ("node", "cluster")
        for role in roles:
            status, answer = self._json(_ABOUT[role])
            # if another program answers at this path, its answer has no settings
            if status == HTTPStatus.OK and isinstance(answer, dict) and "settings" in answer:
                self._role = role
                # this protocol works, so no other one is tried from now on, even after a broken connection
                self._transports = (self._transport,)
                return answer
        self._role = None
        url = self._transport.url
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Gone(f"the exporter at {url} asks for a password: give it with {FLAG}")
        raise Gone(f"what answers at {url} is not this exporter (HTTP status {status})")

    def _json(self, path: str) -> tuple[int, Any]:
        """An answer's status, and its body as JSON; None if it is no JSON."""
        status, body = self._transport.get(path)
        try:
            return status, json.loads(body)
        except (ValueError, RecursionError):
            return status, None


def processes_are_elsewhere(way_to_node: str) -> str:
    """The words in the place of processes, if the devices of a cluster are shown."""
    return f"the processes are on the exporter of their node: {way_to_node}"


def _why_none(path: str, status: int, answer: object) -> str:
    return text(mapping(answer), "error") or f"{path} answers with HTTP status {status}"


@dataclass
class HttpTransport:
    """HTTP or HTTPS, as the URL says, with a connection for each request.

    Unless it `verifies`, any certificate is accepted.
    """

    way_to_node: ClassVar[str] = "ask it with pod-gpu-metrics-exporter top --url"

    url: str
    config: HttpConfig
    timeout_seconds: float = TIMEOUT_SECONDS
    verifies: bool = True

    @classmethod
    def here(cls, address: Address, config: HttpConfig, timeout_seconds: float = TIMEOUT_SECONDS) -> Sequence[Self]:
        """The ways over HTTP and HTTPS to an exporter on this machine. The name in its certificate does not matter."""
        at = Address(host=_ANY.get(address.host, address.host), port=address.port)
        return [cls(f"{scheme}://{at}", config, timeout_seconds, verifies=False) for scheme in ("http", "https")]

    def get(self, path: str) -> tuple[int, bytes]:
        """See Transport. Also raises ConfigError if a file of --http-config cannot be used."""
        url = self.url
        config = self.config
        until = time.monotonic() + self.timeout_seconds
        connection = self._connection(url)
        try:
            below = quote(urlsplit(url).path.rstrip("/"), safe="/%")
            headers = {"Accept": "application/json", **dict(config.headers), **authorization(config, FLAG)}
            # as bytes: http.client refuses texts that are not Latin-1
            encoded = {name: value.encode() for name, value in headers.items()}
            connection.request("GET", below + path, headers=encoded)
            answer = connection.getresponse()
            if answer.status == HTTPStatus.BAD_REQUEST and url.startswith("http:"):
                raise OtherProtocol(f"{url} answers with HTTP status 400: does it speak HTTPS?")
            return answer.status, _body(answer, until, url)
        except TimeoutError as error:
            raise Gone(f"{url} does not answer within {self.timeout_seconds:g} s") from error
        except (ConnectionRefusedError, socket.gaierror) as error:
            raise Gone(f"no exporter answers at {url}: {error.strerror}") from error
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or error.reason or "the connection broke"
            raise OtherProtocol(
                f"no TLS with {url}: {str(why).replace('_', ' ').lower()} (see tls_config of {FLAG})"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            # a text that is cut first may have half of a password, which nothing tells from other text
            message = one_line(without_secrets(one_line(error)), _MOST_TOLD_CHARS)
            raise OtherProtocol(f"{url} does not answer in HTTP: {message or type(error).__name__}") from error
        finally:
            connection.close()

    def _connection(self, url: str) -> http.client.HTTPConnection:
        parts = urlsplit(url)
        host = parts.hostname or "localhost"
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port or 80, timeout=self.timeout_seconds)
        tls = self.config.tls
        context = client_context(tls, FLAG)
        if not self.verifies and not tls.ca_file:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return _Https(host, parts.port or 443, context, tls.server_name or host, self.timeout_seconds)


class OtherProtocol(Gone):
    """The exporter does not speak the protocol of the URL."""


class _Https(http.client.HTTPSConnection):
    """HTTPS that expects `name` in the certificate."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, name: str, timeout_seconds: float) -> None:
        super().__init__(host, port, timeout=timeout_seconds, context=context)
        self._tls = context
        self._name = name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def _body(answer: http.client.HTTPResponse, until: float, url: str) -> bytes:
    """The whole body. Raises Gone if it is too large.

    The socket limits the time for each piece, `until` the time for all of them.
    """
    body = bytearray()
    while piece := answer.read1(_PIECE_BYTES):
        body += piece
        if len(body) > MOST_BYTES:
            raise Gone(f"{url} answers more than {MOST_BYTES} bytes")
        if time.monotonic() > until:
            raise TimeoutError
    return bytes(body)
