"""Asking a node exporter over HTTP: a URL → the bytes of its answer, or a SourceError that says why not."""

import asyncio
import errno
import json
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp

from exporter.config.http_file import HttpConfig, authorization
from exporter.errors import ConfigError, Malformed, SourceError, TimedOut, Unavailable
from exporter.model.cluster import OWNERS_UNKNOWN, OWNERS_UNKNOWN_HEADER
from exporter.sources.exporters.room import Room
from exporter.sources.http import Client, ConnectRemedies, one_line, why_no_connection
from exporter.sources.unpack import Body

FLAG = "--cluster.http-config"
PATH = "/container/metrics"
# Exporters are asked every few seconds, each over a connection of its own that is kept.
KEEP_ALIVE_SECONDS = 120.0
# Of the time for an answer, as much may go by until there is a connection.
_OF_CONNECTING = 0.8
_MOST_TOLD_BYTES = 4096
_MOST_TOLD_CHARS = 200

_LOOK_THERE = "look at that exporter's log, and at what the address answers to curl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What exporters are asked for, and what to do where one does not answer, in the words of who asks.

    `flag` names the file of TLS and secrets in errors. `needs_owners`: an answer of an exporter whose kubelet does not
    say who holds the GPUs is none.
    """

    path: str
    flag: str
    most: str
    connect: ConnectRemedies
    slow: str
    too_large: str
    no_right: str
    needs_owners: bool = False


DEVICES = Question(
    path=PATH,
    flag=FLAG,
    most="--cluster.max-bytes ",
    connect=ConnectRemedies(
        refused="is the exporter running on that node, and on this port?",
        unreachable="is the node up, and does a NetworkPolicy or a firewall let this role reach its exporter?",
        tls="name the exporters' authority (ca_file), their name (server_name) and this role's certificate in"
        f" {FLAG}, under tls_config; or do they speak plain HTTP?",
    ),
    slow="look at that node and its exporter: is it overloaded? A large cluster may need a longer --cluster.timeout",
    too_large="is it this program's node exporter? If so, raise --cluster.max-bytes",
    no_right=f"give this role a password, a token or a client certificate that it accepts, with {FLAG}",
    needs_owners=True,
)


class Asking:
    """The connections to all exporters, which are kept. No redirect is followed."""

    def __init__(
        self,
        *,
        timeout_seconds: float,
        max_bytes: int,
        http: HttpConfig,
        most_in_flight_bytes: int,
        question: Question = DEVICES,
        connect_seconds: float | None = None,
    ) -> None:
        """An answer has at most `max_bytes`, and all that are being read together at most `most_in_flight_bytes`.

        `connect_seconds`, a part of `timeout_seconds`, may go by until there is a connection.
        """
        self.in_flight = Room(most_in_flight_bytes)
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes
        self._http = http
        self._question = question
        connect = connect_seconds or timeout_seconds * _OF_CONNECTING
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect)
        self._client = Client(
            flag=question.flag,
            tls=http.tls,
            headers=(("Accept", "application/json"), ("Accept-Encoding", "identity"), *http.headers),
            most_connections=0,  # as many as there are exporters
            keepalive_seconds=KEEP_ALIVE_SECONDS,
        )

    async def close(self) -> None:
        """End the connections."""
        await self._client.close()

    async def ask(self, url: str) -> bytes:
        """The body that answers the question below a URL.

        Raises:
            Unavailable: there is no URL yet (""), nobody answers, or with a status other than 200.
            TimedOut: not within the timeout.
            Malformed: cut off, too large, or in an unknown encoding.
        """
        if not url:
            raise Unavailable(
                "missing",
                "its exporter has no address yet",
                remedy="look at the exporter's pod on that node: why is it not running?",
            )
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await self._answer(url + self._question.path)
        except TimeoutError as error:
            raise self._late(error) from error
        except ConfigError as error:
            remedy = f"mend that file, or name another one in {self._question.flag}; it is read again"
            raise Unavailable("permission", str(error), remedy=remedy) from error
        except aiohttp.ClientPayloadError as error:
            raise Malformed("truncated", "its answer was cut off", remedy=_LOOK_THERE) from error
        except aiohttp.ClientConnectionError as error:
            raise _no_connection(error, self._question.connect) from error
        except aiohttp.ClientError as error:
            raise Malformed(
                "garbage", f"it does not answer in HTTP: {one_line(error)[:300]}", remedy=_LOOK_THERE
            ) from error

    async def _answer(self, url: str) -> bytes:
        async with self._client.get(
            url, headers=authorization(self._http, self._question.flag), timeout=self._timeout
        ) as response:
            if response.status != HTTPStatus.OK:
                raise await _refusal(response, self._question)
            if self._question.needs_owners and response.headers.get(OWNERS_UNKNOWN_HEADER) == "true":
                why = OWNERS_UNKNOWN
                response.close()
                raise Unavailable("missing", why.message, remedy=why.remedy)
            return await self._body(response)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        body = Body(response.headers.get("Content-Encoding", ""), self._max_bytes)
        is_lost = False

        def lose() -> None:
            nonlocal is_lost
            is_lost = True
            body.forget()

        try:
            async for chunk in response.content.iter_any():
                if not body.add(chunk):
                    most, remedy = f"{self._question.most}{self._max_bytes}", self._question.too_large
                    raise Malformed("oversize", f"it answers more than {most}", remedy=remedy)
                self.in_flight.hold(response, body.size, lose)
                if is_lost:
                    raise Malformed(
                        "oversize",
                        f"its answer is the largest of many that come at a time, more than {self.in_flight.most} bytes"
                        " in all",
                        remedy=_LOOK_THERE,
                    )
        except SourceError:
            response.close()
            raise
        finally:
            self.in_flight.free(response)
        if not body.is_whole:
            raise Malformed("truncated", "its packed answer was cut off", remedy=_LOOK_THERE)
        return bytes(body)

    def _late(self, error: TimeoutError) -> TimedOut:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return TimedOut(
                "deadline",
                f"no connection within {self._timeout.connect:g} s: nothing comes back from there",
                remedy=self._question.connect.unreachable,
            )
        return TimedOut("deadline", f"no whole answer within {self._timeout_seconds:g} s", remedy=self._question.slow)


def _no_connection(error: aiohttp.ClientConnectionError, remedies: ConnectRemedies) -> SourceError:
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return Unavailable(
            "unreachable",
            "this program may open no more connections",
            remedy="raise its limit of open files (ulimit -n): each exporter needs one",
        )
    return why_no_connection(error, remedies)


async def _refusal(response: aiohttp.ClientResponse, question: Question) -> Unavailable:
    status = response.status
    told = await _told_by(response)
    # what is left of it is not waited for
    response.close()
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return Unavailable(
            "permission",
            f"it refuses {question.path} with HTTP status {status}",
            remedy=question.no_right,
        )
    if status == HTTPStatus.NOT_FOUND:
        return Unavailable(
            "http_status",
            f"HTTP status 404: there is no {question.path}",
            remedy="is it this program's node exporter, and is its address given without a path?",
        )
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return Unavailable(
            "http_status",
            f"HTTP status {status}: it wants to be asked elsewhere, which is not done",
            remedy="give the address that answers itself (https in place of http?)",
        )
    return Unavailable("http_status", f"HTTP status {status}{told and ': '}{told}", remedy=_LOOK_THERE)


async def _told_by(response: aiohttp.ClientResponse) -> str:
    """What the exporter says is wrong; "" where it says nothing in its own form."""
    try:
        found = json.loads(await response.content.read(_MOST_TOLD_BYTES))["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    text = " ".join(str(found).split())
    return text if len(text) <= _MOST_TOLD_CHARS else f"{text[:_MOST_TOLD_CHARS]}…"
