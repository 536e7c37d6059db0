"""dcgm-exporter's page over HTTP: bytes in, a whole page with at least one valid sample out, or a clear failure."""

import asyncio
import time
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from http import HTTPStatus
from types import MappingProxyType
from typing import ClassVar
from urllib.parse import urlsplit

import aiohttp

from exporter.config.http_file import HttpConfig, authorization
from exporter.errors import ConfigError, Malformed, SourceError, TimedOut, Unavailable
from exporter.exposition.check import has_sample, why_too_large
from exporter.model.pages import Page
from exporter.model.snapshot import Health
from exporter.sources.http import Client, ConnectRemedies, one_line, why_late, why_no_connection
from exporter.sources.single_flight import SingleFlight
from exporter.sources.slices import in_slices
from exporter.sources.source import Attempts, Bound, OnHealth
from exporter.sources.unpack import Body

FLAG = "--dcgm.http-config"
ACCEPT = "text/plain;version=0.0.4"
# Scrapes come every 15 to 60 s; aiohttp's own 15 s would mean a new connection each time.
KEEP_ALIVE_SECONDS = 120.0


_NO_HTTP_CONFIG = HttpConfig()

_SLOW = "dcgm-exporter is slow: raise --dcgm.timeout, or have it collect less"
_COLLECT_LESS = "have dcgm-exporter collect less, or is this another page than its own?"
_LOOK_THERE = "look at dcgm-exporter's log, and at what the URL answers to curl"
_IS_THIS_THE_PATH = "is this dcgm-exporter's metrics path? Its default is /metrics"
_REMEDIES = ConnectRemedies(
    refused="is dcgm-exporter running, and on this port? Its default is 9400, which is this program's too: one of the"
    " two must move (dcgm-exporter's flag -a, --web.listen-address), and --dcgm.url name dcgm-exporter's",
    unreachable="can this container reach that address? dcgm-exporter's pod has one of its own unless it uses"
    " hostNetwork",
    tls="is it HTTPS that is spoken there? Name its authority (ca_file), its name (server_name) and this program's"
    " certificate in --dcgm.http-config, under tls_config",
)


class DcgmSource:
    """One URL, fetched anew for everyone who asks while no fetch is in flight."""

    is_kept = False
    patience_seconds = None
    bounds: Mapping[str, Bound] = MappingProxyType({})
    if_slow: ClassVar[str] = _SLOW

    def __init__(
        self,
        *,
        name: str,
        url: str,
        timeout_seconds: float,
        max_bytes: int,
        on_health: OnHealth,
        headers: Sequence[tuple[str, str]] = (),
        http: HttpConfig = _NO_HTTP_CONFIG,
        places: asyncio.Semaphore | None = None,
        admit: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """`name` is how the source is called in labels and logs; `max_bytes` counts after decompression.

        `places` limits how many of several sources are read at a time; waiting for one counts towards the timeout.
        `admit` takes off a page what is not to come from this source.
        """
        self.name = name
        self._newest: weakref.ref[Page] | None = None
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes
        self._attempts = Attempts(name, on_health)
        self._http = http
        self._places: AbstractAsyncContextManager[None] = places or nullcontext()
        self._admit = admit
        # identity: on a node's own network compression costs more than it saves
        self._client = Client(
            flag=FLAG,
            tls=http.tls,
            headers=(("Accept", ACCEPT), ("Accept-Encoding", "identity"), *headers, *http.headers),
            most_connections=1,
            keepalive_seconds=KEEP_ALIVE_SECONDS,
        )
        self._flight = SingleFlight(self._read, timeout_seconds)

    @property
    def health(self) -> Health:
        """How the last read went."""
        return self._attempts.health

    @property
    def page(self) -> Page | None:
        """The newest one, as long as somebody uses it: nobody comes back to a page, and some have megabytes."""
        return self._newest() if self._newest else None

    async def close(self) -> None:
        """End the read in flight and the connections."""
        await self._flight.close()
        await self._client.close()

    def begin(self) -> asyncio.Task[Page]:
        """The read in flight, or a new one. Its result is the page, whole.

        The task raises:
            Unavailable: nobody answers, or with a status other than 200.
            TimedOut: not within the timeout.
            Malformed: cut off, larger than the limit, in an unknown encoding, or without one valid sample.

        A file of --dcgm.http-config that cannot be read is Unavailable, too.
        """
        return self._flight.begin()

    def wait(self, seconds: float | None) -> Coroutine[None, None, None]:
        """Until the read in flight has ended, no longer than `seconds`."""
        return self._flight.wait(seconds)

    async def _read(self) -> Page:
        started = time.monotonic()
        if self._client.connector is not None:
            self._client.connector.connecting = False  # of the read before
        try:
            async with self._places:
                body = await self._fetch()
            too_large = why_too_large(body)
            if too_large:
                raise Malformed("oversize", too_large, remedy=_COLLECT_LESS)
            if self._admit:
                body = self._admit(body)
            if not await in_slices(has_sample(body)):
                raise Malformed(
                    "no_samples",
                    f"the answer has not one valid sample: {_beginning(body)}",
                    remedy=_IS_THIS_THE_PATH,
                )
        except asyncio.CancelledError as error:
            if not self._flight.timed_out:
                raise
            failure = self._late()
            self._note(started, failure, time.time())
            raise failure from error
        except SourceError as error:
            self._note(started, error, time.time())
            raise
        now = time.time()
        self._note(started, None, now)
        page = Page(source=self.name, body=body, read_at_seconds=now, moment=time.monotonic())
        self._newest = weakref.ref(page)
        return page

    def _note(self, started: float, error: SourceError | None, now: float) -> None:
        self._attempts.note(error, took_seconds=time.monotonic() - started, now_seconds=now)

    async def _fetch(self) -> bytes:
        try:
            async with self._client.get(self._url, headers=authorization(self._http, FLAG)) as response:
                self._check(response.status)
                return await self._body(response)
        except ConfigError as error:
            raise Unavailable(
                "permission", str(error), remedy=f"mend that file, or name another one in {FLAG}; it is read again"
            ) from error
        except aiohttp.ClientPayloadError as error:
            raise Malformed("truncated", f"the answer was cut off: {one_line(error)}", remedy=_LOOK_THERE) from error
        except aiohttp.ClientConnectionError as error:
            raise why_no_connection(error, _REMEDIES) from error
        except aiohttp.ClientError as error:
            raise Malformed("garbage", f"no answer in HTTP: {one_line(error)}", remedy=_LOOK_THERE) from error

    def _check(self, status: int) -> None:
        if status == HTTPStatus.OK:
            return
        path = urlsplit(self._url).path  # what follows a question mark may be a token
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Unavailable(
                "permission",
                f"it refuses {path} with HTTP status {status}",
                remedy="give it a password, a token or a client certificate that it accepts, with --dcgm.http-config",
            )
        if status == HTTPStatus.NOT_FOUND:
            raise Unavailable(
                "http_status",
                f"HTTP status 404: there is no {path}",
                remedy=_IS_THIS_THE_PATH,
            )
        raise Unavailable("http_status", f"HTTP status {status} for {path}", remedy=_LOOK_THERE)

    def _late(self) -> TimedOut:
        """Nothing, or not all, came within the timeout: what was waited for?"""
        connector, seconds = self._client.connector, self._timeout_seconds
        connecting = connector is not None and connector.connecting
        before_it = why_late(connector, seconds, connecting=connecting)
        return before_it or TimedOut("deadline", f"no whole answer within {seconds:g} s", remedy=_SLOW)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        coming = Body(response.headers.get("Content-Encoding", ""), self._max_bytes)
        while chunk := await response.content.readany():
            if not coming.add(chunk):
                response.close()
                raise Malformed(
                    "oversize",
                    f"more than --dcgm.max-bytes {self._max_bytes}",
                    remedy=f"raise --dcgm.max-bytes, or {_COLLECT_LESS}",
                )
        if not coming.is_whole:
            raise Malformed("truncated", "the compressed answer was cut off", remedy=_LOOK_THERE)
        body = bytes(coming)
        if body and not coming.is_packed and _ends_with_connection(response) and not body.endswith(b"\n"):
            # as of a file that is being written: the last value may have more digits
            raise Malformed(
                "truncated",
                "the answer ends with its connection, and not with a line's end: it was cut off",
                remedy=_LOOK_THERE,
            )
        return body


def _ends_with_connection(response: aiohttp.ClientResponse) -> bool:
    """Whether nothing but the connection's end says where the body ends: then one that was cut looks whole."""
    is_chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
    return not is_chunked and "Content-Length" not in response.headers


def _beginning(body: bytes) -> str:
    """The start of an answer, for a message: printable and short."""
    return repr(body[:60].decode("ascii", "replace")) if body else "it is empty"
