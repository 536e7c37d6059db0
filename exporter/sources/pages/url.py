"""The source of dcgm-exporter's page over HTTP: a whole page with at least one valid sample, or a failure in words."""

import asyncio
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import ClassVar, Protocol

from exporter.config.http_file import HttpConfig
from exporter.config.parsers import without_secrets
from exporter.errors import Malformed, TimedOut, Unavailable
from exporter.exposition.check import has_sample, why_too_large
from exporter.exposition.units import UtilizationUnit
from exporter.exposition.vendor_pages import Vendor, VendorPages
from exporter.model.pages import Page
from exporter.sources.hearing import LISTENER, heard
from exporter.sources.http import Client, Peer
from exporter.sources.long_work import in_slices
from exporter.sources.single_flight import SingleFlight
from exporter.sources.source import NO_BOUNDS, AskedSource, OnHealth, Source

ACCEPT = "text/plain;version=0.0.4"
# Scrapes come every 15 to 60 s; with aiohttp's own 15 s each would need a new connection.
KEEP_ALIVE_SECONDS = 120.0


_NO_HTTP_CONFIG = HttpConfig()

_PEER = Peer(
    flag="--dcgm.http-config",
    refused=(
        "is dcgm-exporter running, and on this port? Its default is 9400, which is this program's too: one of the two"
        " must move (dcgm-exporter's flag -a, --web.listen-address), and --dcgm.url name dcgm-exporter's"
    ),
    unreachable=(
        "can this container reach that address? dcgm-exporter's pod has one of its own unless it uses hostNetwork"
    ),
    tls=(
        "is it HTTPS that is spoken there? Name its authority (ca_file), its name (server_name) and this program's"
        " certificate in --dcgm.http-config, under tls_config"
    ),
    look_there="look at dcgm-exporter's log, and at what the URL answers to curl",
    slow="dcgm-exporter is slow: raise --dcgm.timeout, or have it collect less",
    no_right="give it a password, a token or a client certificate that it accepts, with --dcgm.http-config",
    no_path="is this dcgm-exporter's metrics path? Its default is /metrics",
    too_much="raise --dcgm.max-bytes, or have dcgm-exporter collect less, or is this another page than its own?",
    most="--dcgm.max-bytes",
    explains=False,
    names_path=True,
    has_lines=True,
)


def _client(http: HttpConfig, headers: Sequence[tuple[str, str]], timeout_seconds: float, max_bytes: int) -> Client:
    return Client(
        _PEER,
        http=http,
        # identity: on a node's own network compression costs more than it saves
        headers=(("Accept", ACCEPT), ("Accept-Encoding", "identity"), *headers),
        timeout_seconds=timeout_seconds,
        has_deadline=False,  # SingleFlight has the deadline: a timer for each read cost a steady scrape 6 us
        max_bytes=max_bytes,
        most_connections=1,
        keepalive_seconds=KEEP_ALIVE_SECONDS,
    )


class DcgmSource(AskedSource):
    """A URL. Each `begin` fetches its page, unless a fetch is in flight, which callers share.

    A read raises what `Client.ask` does, and Malformed if the page has no valid sample.

    Args:
        name: the source's name in labels and logs.
        url: the URL.
        timeout_seconds: the longest time of a read, with its wait for `places`.
        max_bytes: the largest size after decompression.
        on_health: see `Attempts`.
        headers: headers of each request.
        http: TLS and authorisation.
        places: limits how many of several sources are read at a time.
        vendor: another vendor, whose pages gain DCGM's families; None for NVIDIA.
        admit: removes from a page what must not come from this source.
        unnamed_file: a file that the remedy names if nobody named a source: it may be the page that was meant.
    """

    is_kept = False
    patience_seconds = None
    bounds = NO_BOUNDS
    if_slow: ClassVar[str] = _PEER.slow

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
        vendor: Vendor | None = None,
        admit: Callable[[bytes], bytes] | None = None,
        unnamed_file: str = "",
    ) -> None:
        super().__init__(name, on_health)
        self._newest: weakref.ref[Page] | None = None
        self._url = url
        self._places: AbstractAsyncContextManager[None] = places or nullcontext()
        self._vendor_pages = VendorPages(vendor) if vendor else None
        self._admit = admit
        self._unnamed_file = Path(unnamed_file) if unnamed_file else None
        self._unit = UtilizationUnit()
        self._client = _client(http, headers, timeout_seconds, max_bytes)
        self._listener = LISTENER.get()
        self._ask = self._client.ask if self._listener is None else self._ask_heard
        self._flight = SingleFlight(self._read, timeout_seconds)
        self.begin = self._flight.begin
        self.wait = self._flight.wait

    @property
    def page(self) -> Page | None:
        """The newest page, as long as somebody uses it: no page is served twice, and some have megabytes."""
        return self._newest() if self._newest else None

    async def close(self) -> None:
        """End the read in flight, and close the connections."""
        await self._flight.close()
        await self._client.close()

    async def _read(self) -> Page:
        """Fetch the page and give it DCGM's families. Raises SourceError: no page came, or no valid sample is in it."""
        with self._attempts.noted() as odd:
            try:
                async with self._places:
                    body = await self._ask(self._url)
                if too_large := why_too_large(body):
                    remedy = "have dcgm-exporter collect less, or is this another page than its own?"
                    raise Malformed("oversize", too_large, remedy=remedy)
                if self._vendor_pages:
                    body = await in_slices(self._vendor_pages.with_dcgm(body, odd))
                if self._admit:
                    body = self._admit(body)
                as_it_came = body
                body = self._unit.settle(as_it_came, odd)
                if not await in_slices(has_sample(body)):
                    beginning = repr(body[:60].decode("ascii", "replace")) if body else "it is empty"
                    raise Malformed(
                        "no_samples", f"the answer has not one valid sample: {beginning}", remedy=_PEER.no_path
                    )
            except Unavailable as error:
                if error.reason == "refused" and self._unnamed_file and self._unnamed_file.is_file():
                    raise Unavailable("refused", str(error), remedy=_remedy_of_file(self._unnamed_file)) from error
                raise
            except asyncio.CancelledError as error:
                if not self._flight.timed_out:
                    raise
                raise self._why_late() from error
        page = Page(
            source=self.name,
            body=body,
            read_at_seconds=time.time(),
            moment=time.monotonic(),
            as_it_came=as_it_came,
        )
        self._newest = weakref.ref(page)
        return page

    async def _ask_heard(self, url: str) -> bytes:
        """The body of the page, which the listener hears, too."""
        asked = self._client.ask(url)
        if self._listener is None:
            return await asked
        return await heard(self._listener, "page", self.name, without_secrets(url), asked)

    def _why_late(self) -> TimedOut:
        late = self._client.why_late(self._url)
        if self._listener is not None:
            self._listener.failed("page", self.name, without_secrets(self._url), late.trouble)
        return late


def _remedy_of_file(path: Path) -> str:
    return (
        f"{path} is there, as NVIDIA's older dcgm-exporter writes it: serve it with --dcgm.file {path} --labels.names"
        " legacy, or name dcgm-exporter's page with --dcgm.url"
    )


class PageSource(Source, Protocol):
    """A source of pages, as a look sees it. The result of its attempt is the page; a failure is a SourceError."""

    @property
    def page(self) -> Page | None:
        """The newest page, as long as somebody uses it."""

    @property
    def is_kept(self) -> bool:
        """Whether the next read may return the same page again, as that of an unchanged file."""

    @property
    def if_slow(self) -> str:
        """The remedy if it does not answer in time."""

    def begin(self) -> asyncio.Task[Page]:
        """The read in flight, or a new read. Its result is the whole page."""

    def wait(self, seconds: float | None) -> Coroutine[None, None, None]:
        """Wait until the read in flight has ended, no longer than `seconds`; None: as long as it takes."""
