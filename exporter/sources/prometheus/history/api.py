"""The HTTP client of a Prometheus server: an expression and a moment → series, or a SourceError that says why not.

A server is asked for little at a time, two queries at once, and waited for if it is busy. What is too much for it is
`TooMuch`: the caller asks for less.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NoReturn

import aiohttp

from exporter.config.http_file import HttpConfig, authorization
from exporter.errors import ConfigError, Malformed, SourceError, TimedOut, Unavailable
from exporter.sources.http import (
    Client,
    ConnectRemedies,
    one_line,
    retry_after_seconds,
    why_broken,
    why_no_connection,
)
from exporter.sources.prometheus.history.answers import Answer, read_answer, read_retention, told_by
from exporter.sources.unpack import Body

FLAG = "--prometheus.http-config"
QUERIES_AT_ONCE = 2
PAUSES_SECONDS = (1.0, 5.0)
LONGEST_PAUSE_SECONDS = 30.0
MAX_BYTES = 128 * 1024 * 1024
MAX_ERROR_BYTES = 16 * 1024
CONNECT_SECONDS = 10.0
_GRACE_SECONDS = 5.0
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE})
_WORDS_OF_TOO_MUCH = ("too many samples", "timed out", "exceeds the limit", "limit exceeded", "too many")

_REMEDIES = ConnectRemedies(
    refused="is Prometheus running, and on this port (usually 9090)? From outside a cluster: kubectl port-forward",
    unreachable="can this machine reach that address? From outside a cluster: kubectl port-forward",
    tls=f"name the server's authority (ca_file), its name (server_name) and a certificate in {FLAG}, under tls_config;"
    " or does it speak plain HTTP?",
)
_LOOK_THERE = "look at the server's log, and at what the address answers to curl"

Pause = Callable[[float], Awaitable[None]]


class TooMuch(Exception):
    """The server cannot answer this query as it is; one about less time it may. The text says what it said."""


class PrometheusApi:
    """One server, by the URL that `/api/v1` stands below."""

    def __init__(
        self,
        *,
        url: str,
        timeout_seconds: float,
        http: HttpConfig,
        on_wait: Callable[[str], None] = lambda _: None,
        pause: Pause = asyncio.sleep,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """A query takes at most `timeout_seconds`. `on_wait` hears, in words, why one is asked again."""
        self.queries = 0
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._http = http
        self._on_wait = on_wait
        self._pause = pause
        self._max_bytes = max_bytes
        self._has_answered = False
        self._places = asyncio.Semaphore(QUERIES_AT_ONCE)
        self._client = Client(
            flag=FLAG,
            tls=http.tls,
            headers=(
                ("Accept", "application/json"),
                ("Accept-Encoding", "gzip"),
                ("User-Agent", "pod-gpu-metrics-exporter"),
                *http.headers,
            ),
            most_connections=QUERIES_AT_ONCE,
        )

    async def close(self) -> None:
        """End the connections."""
        await self._client.close()

    async def query(self, expression: str, at_ms: int) -> Answer:
        """What an instant query about a moment answers.

        Raises:
            TooMuch: it asks for too much at a time.
            SourceError: nobody answers, or not with what Prometheus answers.
        """
        body = await self._patiently(
            "/api/v1/query",
            {"query": expression, "time": f"{at_ms / 1000:.3f}", "timeout": f"{self._timeout_seconds:g}s"},
        )
        return read_answer(body)

    async def retention(self) -> str:
        """How long the server keeps samples, in its own words; "" if it does not say, as Thanos and Mimir do not."""
        try:
            return read_retention(await self._get("/api/v1/status/runtimeinfo", {}))
        except (SourceError, TooMuch):
            return ""

    async def _patiently(self, path: str, parameters: Mapping[str, str]) -> bytes:
        async with self._places:
            for pause_seconds in PAUSES_SECONDS:
                try:
                    return await self._get(path, parameters)
                except Unavailable as error:
                    # one that never answered is not about to
                    is_back_soon = error.reason in ("refused", "unreachable") and self._has_answered
                    if not is_back_soon and error.reason != "rate_limited":
                        raise
                    seconds = min(error.retry_after_seconds or pause_seconds, LONGEST_PAUSE_SECONDS)
                    self._on_wait(f"{error}; asked again in {seconds:g} s")
                    await self._pause(seconds)
            return await self._get(path, parameters)

    async def _get(self, path: str, parameters: Mapping[str, str]) -> bytes:
        self.queries += 1
        try:
            async with asyncio.timeout(self._timeout_seconds + _GRACE_SECONDS):
                headers = authorization(self._http, FLAG)
                timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS)
                async with self._client.get(
                    self._url + path, parameters=parameters, headers=headers, timeout=timeout
                ) as response:
                    if response.status != HTTPStatus.OK:
                        await _refuse(response, path)
                    body = await self._body(response, self._max_bytes)
                    self._has_answered = True
                    return body
        except aiohttp.ConnectionTimeoutError as error:
            raise TimedOut(
                "deadline",
                f"no connection with {self._url} within {CONNECT_SECONDS:g} s: nothing comes back from there",
                remedy=_REMEDIES.unreachable,
            ) from error
        except TimeoutError as error:
            raise TooMuch(f"no whole answer within {self._timeout_seconds:g} s") from error
        except ConfigError as error:
            raise Unavailable(
                "permission", str(error), remedy=f"mend that file, or name another one in {FLAG}"
            ) from error
        except aiohttp.ClientConnectionError as error:
            raise why_no_connection(error, _REMEDIES, where=f"{self._url}: ") from error
        except aiohttp.ClientPayloadError as error:
            raise Unavailable("unreachable", f"{self._url}: {why_broken(error)}", remedy=_LOOK_THERE) from error
        except aiohttp.ClientError as error:
            raise Malformed(
                "garbage", f"{self._url} does not answer in HTTP: {one_line(error)[:300]}", remedy=_LOOK_THERE
            ) from error

    async def _body(self, response: aiohttp.ClientResponse, most: int) -> bytes:
        body = Body(response.headers.get("Content-Encoding", ""), most)
        async for chunk in response.content.iter_any():
            if not body.add(chunk):
                response.close()
                raise TooMuch(f"it answers more than {most} bytes")
        if not body.is_whole:
            raise Malformed("truncated", "its packed answer was cut off", remedy=_LOOK_THERE)
        return bytes(body)


async def _refuse(response: aiohttp.ClientResponse, path: str) -> NoReturn:
    status = response.status
    body = await response.content.read(MAX_ERROR_BYTES)
    if response.headers.get("Content-Encoding"):
        body = _unpacked(response.headers["Content-Encoding"], body)
    kind, text = told_by(body)
    # what is left of it is not waited for
    response.close()
    # 429 is "too many requests", whatever its words: smaller questions would only be more requests
    is_busy = status == HTTPStatus.TOO_MANY_REQUESTS
    if not is_busy and (kind == "timeout" or (text and any(words in text for words in _WORDS_OF_TOO_MUCH))):
        raise TooMuch(text or "the query took too long")
    told = f": {text}" if text else ""
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise Unavailable(
            "permission",
            f"the server refuses {path} with HTTP status {status}{told}",
            remedy=f"give it a password, a token or a client certificate that it accepts, with {FLAG}",
        )
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        raise Unavailable(
            "http_status",
            f"HTTP status {status} for {path}: it wants to be asked elsewhere, which is not done",
            remedy="give the address that answers itself (https in place of http? a login in between?)",
        )
    if status == HTTPStatus.NOT_FOUND:
        raise Unavailable(
            "http_status",
            f"HTTP status 404: there is no {path}",
            remedy="does the server have a path of its own, such as /prometheus? Put it after the address",
        )
    raise Unavailable(
        "rate_limited" if status in _BUSY else "http_status",
        f"HTTP status {status} for {path}{told}",
        remedy=_LOOK_THERE,
        retry_after_seconds=retry_after_seconds(response.headers),
    )


def _unpacked(encoding: str, body: bytes) -> bytes:
    """The beginning of a packed body, as far as it can be read."""
    try:
        beginning = Body(encoding, MAX_ERROR_BYTES)
        beginning.add(body)
    except Malformed:
        return b""
    return bytes(beginning)
