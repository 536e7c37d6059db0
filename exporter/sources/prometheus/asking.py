"""Asking Prometheus over HTTP: a query → the bytes of the answer, or a SourceError that says why not."""

import asyncio
import json
from http import HTTPStatus

import aiohttp

from exporter.config.http_file import HttpConfig, authorization
from exporter.errors import ConfigError, Malformed, SourceError, TimedOut, Unavailable
from exporter.sources.http import (
    Client,
    ConnectRemedies,
    one_line,
    retry_after_seconds,
    why_no_connection,
)
from exporter.sources.prometheus.answer import REMEDY, short
from exporter.sources.unpack import Body

FLAG = "--cluster.http-config"
PATH = "/api/v1/query"
_OF_CONNECTING = 0.8
_KEEP_ALIVE_SECONDS = 60.0
_MOST_TOLD_BYTES = 4096

_SLOW = "look at that server: is it overloaded? A large cluster may need a longer --cluster.timeout"
_LOOK_THERE = "look at that server's log, and at what the address answers to curl"
_REMEDIES = ConnectRemedies(
    refused="is Prometheus running, and on this port?",
    unreachable="is it up, and does a NetworkPolicy or a firewall let this role reach it?",
    tls=f"name its authority (ca_file), its name (server_name) and this role's certificate in {FLAG}, under tls_config;"
    " or does it speak plain HTTP?",
)


class Asking:
    """The connections to one server. No redirect is followed."""

    def __init__(self, *, url: str, timeout_seconds: float, max_bytes: int, http: HttpConfig) -> None:
        """`url` is what /api/v1/query is put after. An answer has at most `max_bytes` after decompression."""
        self.in_flight_bytes = 0
        self._url = url + PATH
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes
        self._http = http
        self._timeout = aiohttp.ClientTimeout(total=None, connect=timeout_seconds * _OF_CONNECTING)
        self._client = Client(
            flag=FLAG,
            tls=http.tls,
            headers=(("Accept", "application/json"), ("Accept-Encoding", "gzip"), *http.headers),
            keepalive_seconds=_KEEP_ALIVE_SECONDS,
        )

    async def close(self) -> None:
        """End the connections."""
        await self._client.close()

    async def ask(self, query: str, *, at_seconds: float | None, look_back_seconds: float) -> bytes:
        """The body of the answer to an instant query, at a moment since 1970 or at the server's own now.

        A sample that is older than `look_back_seconds` does not count where the server lets a query say so.

        Raises:
            Unavailable: nobody answers, or with a status other than 200.
            TimedOut: not within the timeout.
            Malformed: cut off, too large, or in an unknown encoding.
        """
        form = {
            "query": query,
            "timeout": f"{self._timeout_seconds:g}s",
            "lookback_delta": f"{look_back_seconds:g}s",
            # Thanos leaves out what a store does not answer, unless it is told not to
            "partial_response": "false",
        }
        if at_seconds is not None:
            form["time"] = f"{at_seconds:.3f}"
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._answer(form)
        except TimeoutError as error:
            raise self._late(error) from error
        except ConfigError as error:
            raise Unavailable(
                "permission", str(error), remedy=f"mend that file, or name another one in {FLAG}; it is read again"
            ) from error
        except aiohttp.ClientPayloadError as error:
            raise Malformed("truncated", "its answer was cut off", remedy=_LOOK_THERE) from error
        except aiohttp.ClientConnectionError as error:
            raise why_no_connection(error, _REMEDIES) from error
        except aiohttp.ClientError as error:
            raise Malformed(
                "garbage", f"it does not answer in HTTP: {one_line(error)[:300]}", remedy=_LOOK_THERE
            ) from error
        finally:
            self.in_flight_bytes = 0

    async def _answer(self, form: dict[str, str]) -> bytes:
        async with self._client.post(
            self._url, form=form, headers=authorization(self._http, FLAG), timeout=self._timeout
        ) as response:
            if response.status != HTTPStatus.OK:
                raise await _refusal(response)
            return await self._body(response)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        body = Body(response.headers.get("Content-Encoding", ""), self._max_bytes)
        try:
            async for chunk in response.content.iter_any():
                is_small = body.add(chunk)
                self.in_flight_bytes = body.size
                if not is_small:
                    raise Malformed(
                        "oversize",
                        f"an answer has more than --cluster.max-bytes {self._max_bytes}",
                        remedy="raise --cluster.max-bytes and this container's memory limit (it needs some three times"
                        " that), or ask for fewer nodes with --cluster.prometheus-matchers",
                    )
        except SourceError:
            response.close()
            raise
        if not body.is_whole:
            raise Malformed("truncated", "its packed answer was cut off", remedy=_LOOK_THERE)
        return bytes(body)

    def _late(self, error: TimeoutError) -> TimedOut:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return TimedOut(
                "deadline",
                f"no connection within {self._timeout.connect:g} s: nothing comes back from there",
                remedy=_REMEDIES.unreachable,
            )
        return TimedOut("deadline", f"no whole answer within {self._timeout_seconds:g} s", remedy=_SLOW)


async def _refusal(response: aiohttp.ClientResponse) -> Unavailable:
    status = response.status
    told = await _told_by(response)
    # what is left of it is not waited for
    response.close()
    said = f"HTTP status {status}{told and ': '}{told}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return Unavailable(
            "permission",
            f"it refuses {PATH} with {said}",
            remedy=f"give this role a password, a token, a client certificate or the header of its tenant with {FLAG}"
            " (http_headers: {X-Scope-OrgID: {values: [...]}} for Mimir)",
        )
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return Unavailable(
            "rate_limited",
            f"it is asked too often or for too much: {said}",
            remedy="raise its limits for this tenant, or --cluster.interval",
            retry_after_seconds=retry_after_seconds(response.headers),
        )
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return Unavailable("http_status", f"there is no POST {PATH}: {said}", remedy=REMEDY)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return Unavailable(
            "http_status",
            f"HTTP status {status}: it wants to be asked elsewhere, which is not done",
            remedy="give the address that answers itself (https in place of http? a prefix? past a login page?)",
        )
    return Unavailable("http_status", said, remedy=_LOOK_THERE)


async def _told_by(response: aiohttp.ClientResponse) -> str:
    """What the server says is wrong; "" where it says nothing in Prometheus' form."""
    try:
        return short(json.loads(await response.content.read(_MOST_TOLD_BYTES))["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
