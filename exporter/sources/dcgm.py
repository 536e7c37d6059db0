"""dcgm-exporter's page over HTTP: bytes in, a whole page with at least one valid sample out, or a clear failure."""

import asyncio
import base64
import ssl
import time
import weakref
import zlib
from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus

import aiohttp

from exporter.errors import ConfigError, Malformed, SourceError, TimedOut, Unavailable
from exporter.exposition.check import has_sample, why_too_large
from exporter.files import identity_of
from exporter.http_config import HttpConfig, read_secret
from exporter.model import Health, Page
from exporter.sources.attempt import health_after
from exporter.sources.single_flight import SingleFlight
from exporter.sources.slices import in_slices
from exporter.tls import client_context

FLAG = "--dcgm.http-config"
ACCEPT = "text/plain;version=0.0.4"
# Scrapes come every 15 to 60 s; aiohttp's own 15 s would mean a new connection each time.
KEEP_ALIVE_SECONDS = 120.0


_NO_HTTP_CONFIG = HttpConfig()


class DcgmSource:
    """One URL, fetched anew for everyone who asks while no fetch is in flight."""

    def __init__(
        self,
        *,
        name: str,
        url: str,
        timeout_seconds: float,
        max_bytes: int,
        on_health: Callable[[str, Health], None],
        headers: Sequence[tuple[str, str]] = (),
        http: HttpConfig = _NO_HTTP_CONFIG,
        places: asyncio.Semaphore | None = None,
    ) -> None:
        """`name` is how the source is called in labels and logs; `max_bytes` counts after decompression.

        `places` limits how many of several sources are read at a time; waiting for one counts towards the timeout.
        """
        self.name = name
        self.health = Health()
        self._newest: weakref.ref[Page] | None = None
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes
        self._on_health = on_health
        self._http = http
        self._places = places or asyncio.Semaphore()
        # identity: on a node's own network compression costs more than it saves
        self._headers = (("Accept", ACCEPT), ("Accept-Encoding", "identity"), *headers, *http.headers)
        self._tls: ssl.SSLContext | None = None
        self._tls_made_of: object = None
        self._flight = SingleFlight(self._read, timeout_seconds)
        self._session: aiohttp.ClientSession | None = None

    @property
    def page(self) -> Page | None:
        """The newest one, as long as somebody uses it: nobody comes back to a page, and some have megabytes."""
        return self._newest() if self._newest else None

    async def close(self) -> None:
        """End the read in flight and the connections."""
        await self._flight.close()
        if self._session is not None:
            await self._session.close()

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
        try:
            async with self._places:
                body = await self._fetch()
            too_large = why_too_large(body)
            if too_large:
                raise Malformed("oversize", too_large)
            if not await in_slices(has_sample(body)):
                raise Malformed("no_samples", f"the answer has not one valid sample: {_beginning(body)}")
        except asyncio.CancelledError as error:
            if not self._flight.timed_out:
                raise
            failure = TimedOut("deadline", f"no whole answer within {self._timeout_seconds:g} s")
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
        self.health = health_after(self.health, error, took_seconds=time.monotonic() - started, now_seconds=now)
        self._on_health(self.name, self.health)

    async def _fetch(self) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=1, keepalive_timeout=KEEP_ALIVE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        try:
            # No redirects: the upstream is the one that was configured.
            async with self._session.get(
                self._url,
                allow_redirects=False,
                headers=self._authorization(),
                ssl=self._context(),
                server_hostname=self._http.tls.server_name or None,
            ) as response:
                if response.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                    raise Unavailable(
                        "permission", f"it refuses with HTTP status {response.status}: see --dcgm.http-config"
                    )
                if response.status != HTTPStatus.OK:
                    raise Unavailable("http_status", f"HTTP status {response.status}")
                return await self._body(response)
        except ConfigError as error:
            raise Unavailable("permission", str(error)) from error
        except aiohttp.ClientPayloadError as error:
            raise Malformed("truncated", f"the answer was cut off: {error}") from error
        except aiohttp.ClientSSLError as error:
            raise Unavailable("tls", f"no TLS with it: {_why_no_tls(error)}; see --dcgm.http-config") from error
        except aiohttp.ClientConnectorError as error:
            refused = isinstance(error.os_error, ConnectionRefusedError)
            raise Unavailable(
                "refused" if refused else "unreachable",
                "nobody listens there; is dcgm-exporter running, and on this address?"
                if refused
                else str(error.os_error),
            ) from error
        except aiohttp.ClientConnectionError as error:
            raise Unavailable("unreachable", _one_line(error)) from error
        except aiohttp.ClientError as error:
            raise Malformed("garbage", f"no answer in HTTP: {_one_line(error)}") from error

    def _authorization(self) -> dict[str, str]:
        """Read anew for every request: a secret is replaced while the program runs."""
        http = self._http
        if not http.scheme:
            return {}
        credentials = read_secret(http.credentials, FLAG)
        if http.scheme == "Basic":
            user = read_secret(http.username, FLAG)
            credentials = base64.b64encode(f"{user}:{credentials}".encode()).decode()
        return {"Authorization": f"{http.scheme} {credentials}"}

    def _context(self) -> ssl.SSLContext | bool:
        """Made anew when one of its files has changed; a new context is a new connection."""
        if not self._url.startswith("https:"):
            return True
        made_of = [identity_of(path) for path in self._http.tls.files]
        if self._tls is None or made_of != self._tls_made_of:
            self._tls, self._tls_made_of = client_context(self._http.tls, FLAG), made_of
        return self._tls

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        unpack = _unpacker(response.headers.get("Content-Encoding", ""))
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            # one byte more than allowed is enough to know, and a bomb is not unpacked further
            data = unpack.decompress(chunk, self._max_bytes - size + 1) if unpack else chunk
            size += len(data)
            if size > self._max_bytes:
                response.close()
                raise Malformed("oversize", f"more than --dcgm.max-bytes {self._max_bytes}")
            chunks.append(data)
        if unpack and not unpack.eof:
            raise Malformed("truncated", "the compressed answer was cut off")
        return b"".join(chunks)


class _Unpacker:
    """gzip, with a limit on what comes out. A broken stream is a failure of the source."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    def decompress(self, data: bytes, most: int) -> bytes:
        try:
            return self._stream.decompress(data, most)
        except zlib.error as error:
            raise Malformed("encoding", f"not gzip, though it says so: {error}") from error


def _unpacker(encoding: str) -> _Unpacker | None:
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return _Unpacker()
        case other:
            raise Malformed("encoding", f"Content-Encoding {other[:20]!r} was not asked for")


def _beginning(body: bytes) -> str:
    """The start of an answer, for a message: printable and short."""
    return repr(body[:60].decode("ascii", "replace")) if body else "it is empty"


def _why_no_tls(error: aiohttp.ClientSSLError) -> str:
    """OpenSSL's reason without what only its authors can read."""
    certificate = error.certificate_error if isinstance(error, aiohttp.ClientConnectorCertificateError) else error
    reason = certificate.verify_message if isinstance(certificate, ssl.SSLCertVerificationError) else ""
    return reason or _one_line(error)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
