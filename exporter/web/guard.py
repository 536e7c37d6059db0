"""The guard decides who gets an answer: passwords, client certificates, headers, and limits under load.

Waiting for sources and writing an answer may take long. Each has its own limit, so that neither holds up the other.
Requests that wait for sources share one read (sources/single_flight.py), and their number is limited: a further request
gets 503 at once. Answers to slow readers are limited in bytes and time: the guard cuts off the connection whose answer
began first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp.web_request import BaseRequest
from aiohttp.web_response import Response, StreamResponse

from exporter import log
from exporter.config.web_file import WebConfig
from exporter.telemetry import Telemetry
from exporter.web.endpoints import Endpoints
from exporter.web.passwords import MOST_UNCHECKED_PASSWORDS, MOST_WRONG_PASSWORDS, Passwords, TooMany

if TYPE_CHECKING:
    import ssl

MOST_REQUESTS = 256
# Above this sum of unread bytes, the guard cuts off readers that take longer than READING_TAKES_SECONDS, the oldest
# answers first.
MOST_WRITING_BYTES = 8 * 1024 * 1024
READING_TAKES_SECONDS = 1.0
WRITE_SECONDS = 30.0


_POLICY = "Content-Security-Policy"
# Texts in an answer come from pods. If a browser takes an answer for HTML, these headers keep it from running scripts
# in it. The page for people has its own policy, under which its own script alone runs.
_HEADERS = {
    "Server": "pod-gpu-metrics-exporter",
    "X-Content-Type-Options": "nosniff",
    _POLICY: "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


class _Writing(NamedTuple):
    """An answer that is being written: its size in bytes, and when it began (seconds of the event loop's clock)."""

    size: int
    began: float


class Guard:
    """Decides on every request before its endpoint does. `busy` are the connections with a request in progress."""

    def __init__(self, endpoints: Endpoints, config: WebConfig, telemetry: Telemetry) -> None:
        """`endpoints` answer the requests that are not refused."""
        self.busy: set[object] = set()
        self._handler = endpoints.answer
        # the kubelet knows no password, and must not restart the exporter because the node is busy
        self._probes = endpoints.probes
        self._telemetry = telemetry
        self._take(config)
        self._passwords = Passwords(config.users)
        self._requests = 0
        self._writing: OrderedDict[asyncio.Transport, _Writing] = OrderedDict()
        self._writing_bytes = 0
        self._next_look: asyncio.TimerHandle | None = None
        telemetry.bound("requests", MOST_REQUESTS, lambda: self._requests)
        telemetry.bound("writing_bytes", MOST_WRITING_BYTES, lambda: self._writing_bytes)
        telemetry.bound("unchecked_passwords", MOST_UNCHECKED_PASSWORDS, lambda: self._passwords.unchecked)
        telemetry.bound("wrong_passwords", MOST_WRONG_PASSWORDS, lambda: self._passwords.wrong)

    def use(self, config: WebConfig) -> None:
        """Use another web config from the next request on."""
        if config.users != self._config.users:
            self._passwords = Passwords(config.users)
        self._take(config)

    def _take(self, config: WebConfig) -> None:
        self._config = config
        self._headers = {**_HEADERS, **config.headers}
        self._may_refuse = bool(config.users or config.tls)

    async def answer(self, request: BaseRequest) -> StreamResponse:
        """Answer a request. Returns the answer once the peer has it. A fault of the exporter is logged and is a 500."""
        self.busy.add(request.protocol)
        try:
            response = (await self._why_refused(request) if self._may_refuse else None) or await self._answer(request)
            policy = response.headers.get(_POLICY)
            response.headers.update(self._headers)
            if policy is not None and _POLICY not in self._config.headers:
                response.headers[_POLICY] = policy
            await self._write(request, response)
        except Exception as error:  # noqa: BLE001 - one request's fault is not to end its connection without a word
            log.error("a request failed by a fault of the exporter", error, path=request.path)
            return Response(text="a fault of the exporter: its log has the trace\n", status=500, headers=self._headers)
        else:
            return response
        finally:
            self.busy.discard(request.protocol)

    async def _why_refused(self, request: BaseRequest) -> Response | None:
        """The refusal for a client without the right certificate or password; None for a client that may ask."""
        if request.path in self._probes:
            return None
        tls = self._config.tls
        if tls and tls.client_allowed_sans and not _is_allowed(request, tls.client_allowed_sans):
            return self._refuse("certificate", 403, "the client certificate is for none of the allowed names")
        if not self._config.users:
            return None
        try:
            is_right = await self._passwords.are_right(request.headers.get("Authorization", ""), request.remote or "")
        except TooMany:
            return self._refuse("busy", 503, "too many passwords to check", {"Retry-After": "1"})
        if not is_right:
            realm = {"WWW-Authenticate": 'Basic realm="pod-gpu-metrics-exporter", charset="UTF-8"'}
            return self._refuse("password", 401, "a user's name and password are needed", realm)
        return None

    async def _answer(self, request: BaseRequest) -> StreamResponse:
        if request.path in self._probes:
            return await self._handler(request)
        if self._requests >= MOST_REQUESTS:
            return self._refuse("busy", 503, f"{MOST_REQUESTS} requests are in progress already", {"Retry-After": "1"})
        self._requests += 1
        try:
            return await self._handler(request)
        finally:
            self._requests -= 1

    async def _write(self, request: BaseRequest, response: StreamResponse) -> None:
        """Write the answer. It ends when the peer has read all of it, or was cut off because it reads too slowly."""
        transport = request.transport
        if transport is None:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._writing_bytes > MOST_WRITING_BYTES:
            slow, writing = next(iter(self._writing.items()))
            if now - writing.began < READING_TAKES_SECONDS:
                break
            self._cut_off(slow)
        if self._next_look is None:
            # one timer for all answers, since one for each cost a steady scrape 2 %
            self._next_look = loop.call_later(WRITE_SECONDS, self._look_at_readers)
        size = response.content_length or 0
        self._writing[transport] = _Writing(size, now)
        self._writing_bytes += size
        try:
            await response.prepare(request)
            await response.write_eof()
            if isinstance(response, Response):
                # free the body now: aiohttp keeps an answer until the connection's next request
                response.body = None
        except ConnectionError:
            pass  # the peer has gone, or was cut off
        finally:
            self._forget(transport)

    def _look_at_readers(self) -> None:
        """Cut off readers that took longer than WRITE_SECONDS, and set the timer for the next reader's end."""
        loop = asyncio.get_running_loop()
        self._next_look = None
        for transport, writing in tuple(self._writing.items()):  # oldest first
            if loop.time() < writing.began + WRITE_SECONDS:
                self._next_look = loop.call_at(writing.began + WRITE_SECONDS, self._look_at_readers)
                break
            self._cut_off(transport)

    def _forget(self, transport: asyncio.Transport) -> None:
        writing = self._writing.pop(transport, None)
        self._writing_bytes -= writing.size if writing else 0

    def _cut_off(self, transport: asyncio.Transport) -> None:
        self._forget(transport)
        self._telemetry.refused["slow_reader"] += 1
        transport.abort()

    def _refuse(self, reason: str, status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
        self._telemetry.refused[reason] += 1
        return Response(text=text + "\n", status=status, headers=headers)


def _is_allowed(request: BaseRequest, allowed: tuple[str, ...]) -> bool:
    """Whether the client's certificate has one of these names in `subjectAltName` (ssl.SSLSocket.getpeercert)."""
    session: ssl.SSLObject | None = request.get_extra_info("ssl_object")
    certificate: Any = session.getpeercert() if session else None
    names = {value for _, value in (certificate or {}).get("subjectAltName", ())}
    return not names.isdisjoint(allowed)
