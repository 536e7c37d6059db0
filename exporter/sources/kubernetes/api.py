"""The HTTP client of the Kubernetes API: lists, objects and the lines of a watch, or a SourceError that says why not.

Plain HTTP: aiohttp is here anyway, and a client library would weigh more than the exporter.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import aclosing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from exporter.config.regular import read_regular
from exporter.config.tls import ClientTls
from exporter.errors import ConfigError, Malformed, SourceError, TimedOut, Unavailable, Unsupported
from exporter.sources.http import (
    Client,
    ConnectRemedies,
    retry_after_seconds,
    why_broken,
    why_late,
    why_no_connection,
)
from exporter.sources.kubernetes.list_text import MAX_ITEM_BYTES, read_list
from exporter.sources.kubernetes.refusals import forbidden, resource_of, told_by, unauthorized

LONGEST_PAUSE_SECONDS = 30.0
# The API ends a watch by itself after this long; silence for longer is a connection that nobody holds any more.
WATCH_SECONDS = 240
SILENCE_SECONDS = 270.0
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
PAGE_OBJECTS = 500  # as client-go asks for
MOST_OBJECTS = 50_000
MOST_RESTARTS = 3
# etcd takes no object above 1.5 MiB; JSON takes a little more room than what it stores
MAX_OBJECT_BYTES = 2 * 1024 * 1024
MAX_STATUS_BYTES = 16 * 1024
LIST_AND_WATCH = "list and watch"
GET = "get"
ONLY_THAT = "only what it adds is missing"
_NOT_THE_API = "is this the Kubernetes API's own address (--kubernetes.url), without a proxy that answers for it?"
_UNREACHABLE = (
    "can this container reach that address? A firewall or a NetworkPolicy may be in between, or the API server restarts"
)

Object = Mapping[str, Any]


def as_it_is(item: Object) -> Object:
    """An object, of which everything is used."""
    return item


class Forgotten(Exception):
    """410 Gone: the API no longer knows the place where the watch was."""


class KubernetesApi:
    """One API server, by its URL. The token is read for every request: it is replaced while the program runs."""

    def __init__(
        self,
        *,
        url: str,
        token_file: str,
        ca_file: str,
        manifest: str = "deploy/rbac.yaml",
        meanwhile: str = ONLY_THAT,
    ) -> None:
        """`manifest` gives the rights that are needed; `meanwhile` is what a failure costs. Both are for remedies."""
        self.meanwhile = meanwhile
        self._manifest = manifest
        self._url = url.rstrip("/")
        self._token_file = Path(token_file)
        self._ca_file = Path(ca_file)
        # hears of each answer: the verb, and the HTTP status, or "none" where no answer came
        self._on_answer: Callable[[str, str], None] = lambda _verb, _status: None
        self._client = Client(
            flag="--kubernetes.ca-file",
            tls=ClientTls(ca_file=ca_file),
            headers=(("Accept", "application/json"), ("User-Agent", "pod-gpu-metrics-exporter")),
            may_lack_authority=True,
            unpacks=True,
        )
        # what was allowed once, as a right: a refusal of it later may be an API server that has just started
        self._allowed: set[str] = set()

    @property
    def _too_much(self) -> str:
        return f"it is more than this program reads; {self.meanwhile}"

    async def close(self) -> None:
        """End the connections."""
        await self._client.close()

    async def list(
        self, path: str, parameters: Mapping[str, str], read: Callable[[Object], Any] = as_it_is
    ) -> tuple[Sequence[Any], str]:
        """What `read` makes of each object of a list, and the list's resourceVersion. The objects are let go.

        The list is asked for in pages. Where the API has forgotten the version of the first page before it gave the
        last one (410), the list begins anew.

        Raises:
            Forgotten, SourceError: see `lines`.
        """
        for _ in range(MOST_RESTARTS):
            items: list[Any] = []
            token = version = ""
            try:
                while True:
                    metadata = await self._page(path, parameters, token, items, read)
                    version = version or str(metadata.get("resourceVersion") or "")
                    token = str(metadata.get("continue") or "")
                    if not token:
                        return items, version
            except Forgotten:
                if not token:
                    raise
        raise TimedOut(
            "deadline",
            f"the Kubernetes API forgot the rest of {path} {MOST_RESTARTS} times before it was read",
            remedy="is the API server, or etcd behind it, overloaded?",
        )

    async def get(self, path: str) -> Object:
        """One object, or the list of what an API group serves.

        Raises:
            SourceError: see `lines`. An object that is not there is Unsupported.
        """
        async with aclosing(self._chunks(path, {}, GET, ANSWER_SECONDS)) as chunks:
            return read_object(await self._body(chunks, path, MAX_OBJECT_BYTES), path)

    async def lines(
        self, path: str, parameters: Mapping[str, str], on_open: Callable[[], None]
    ) -> AsyncGenerator[Object, None]:
        """The events of a watch, as they come, until the API ends it. `on_open` hears that it is taken up.

        Raises:
            Forgotten: 410 Gone.
            SourceError: nobody answers, or with a status other than 200, or with what is no JSON.
        """
        rest = b""
        async with aclosing(self._chunks(path, parameters, LIST_AND_WATCH, None, on_open)) as chunks:
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > MAX_ITEM_BYTES:
                    raise Malformed(
                        "oversize", f"one event of {path} is larger than {MAX_ITEM_BYTES} bytes", remedy=self._too_much
                    )
                for line in lines:
                    if line.strip():
                        yield read_object(line, path)

    async def _page(
        self,
        path: str,
        parameters: Mapping[str, str],
        token: str,
        items: MutableSequence[Any],
        read: Callable[[Object], Any],
    ) -> Object:
        """Append what one page of a list holds to `items`. Returns the page's metadata."""

        def take(item: Object) -> None:
            if len(items) >= MOST_OBJECTS:
                raise Malformed("oversize", f"{path} holds more than {MOST_OBJECTS} objects", remedy=self._too_much)
            items.append(read(item))

        # a token stands for a version, and is refused beside one
        place = {"continue": token, "resourceVersion": ""} if token else {}
        query = {**parameters, "limit": str(PAGE_OBJECTS), **place}
        async with aclosing(self._chunks(path, query, LIST_AND_WATCH, ANSWER_SECONDS)) as chunks:
            try:
                return await read_list(chunks, path, take)
            except (ValueError, RecursionError) as error:
                raise Malformed(
                    "garbage",
                    f"the Kubernetes API answers {path} with what is no list in JSON: {error}",
                    remedy=_NOT_THE_API,
                ) from error

    async def _body(self, chunks: AsyncIterable[bytes], path: str, most_bytes: int) -> bytes:
        """A whole answer.

        Raises:
            Malformed: it is larger than that.
        """
        body = bytearray()
        async for chunk in chunks:
            body += chunk
            if len(body) > most_bytes:
                raise Malformed(
                    "oversize",
                    f"the Kubernetes API answers {path} with more than {most_bytes} bytes",
                    remedy=self._too_much,
                )
        return bytes(body)

    async def _chunks(
        self,
        path: str,
        parameters: Mapping[str, str],
        verb: str,
        seconds: float | None,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        timeout = aiohttp.ClientTimeout(total=seconds, connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        token = self.token()
        status = "none"
        asked = "watch" if seconds is None else verb.removesuffix(" and watch")
        try:
            with self._translated(path):
                # a watch, too, is answered at once, though its events may be long in coming
                async with asyncio.timeout(ANSWER_SECONDS):
                    response = await self._client.get(
                        self._url + path, parameters=parameters, headers=token, timeout=timeout
                    )
                status = str(response.status)
                self._on_answer(asked, status)
                async with response:
                    await self._check(response, path, verb, has_token=bool(token))
                    if on_open:
                        on_open()
                    async for chunk in response.content.iter_any():
                        yield chunk
        finally:
            if status == "none":
                self._on_answer(asked, status)

    def token(self) -> dict[str, str]:
        """Its header, read anew for every request: it is replaced while the program runs. None where no file is."""
        try:
            return {"Authorization": f"Bearer {read_regular(self._token_file).decode('ascii').strip()}"}
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no token"
            raise Unavailable(
                "permission",
                f"{self._token_file} cannot be read: {why}",
                remedy="let the user that this program runs as read it, or name another file with"
                " --kubernetes.token-file",
            ) from error

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """What goes wrong with a request, as a SourceError."""
        try:
            yield
        except TimeoutError as error:
            raise self._late(error, path) from error
        except ConfigError as error:
            raise Unavailable(
                "tls", str(error), remedy="mend that file, or name another one with --kubernetes.ca-file"
            ) from error
        except aiohttp.ClientConnectionError as error:
            raise self._unreachable(error) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(
                "unreachable", f"the Kubernetes API at {self._url}: {why_broken(error)}", remedy=_UNREACHABLE
            ) from error

    def _late(self, error: TimeoutError, path: str) -> SourceError:
        connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
        where = f"the Kubernetes API at {self._url}: "
        before_it = (
            why_late(self._client.connector, CONNECT_SECONDS, connecting=True, where=where) if connecting else None
        )
        return before_it or TimedOut(
            "deadline",
            f"the Kubernetes API at {self._url} does not answer {path}",
            remedy="is the API server overloaded, or gone behind an address that still takes connections?",
        )

    def _unreachable(self, error: aiohttp.ClientConnectionError) -> SourceError:
        remedies = ConnectRemedies(
            refused="is the API server running, and is this its address (KUBERNETES_SERVICE_HOST and"
            " KUBERNETES_SERVICE_PORT, or --kubernetes.url)?",
            tls=f"{self._ca_file} (--kubernetes.ca-file) must hold the authority that issued the API server's"
            " certificate, and --kubernetes.url must name it by a name or an address that stands in the certificate",
            unreachable=_UNREACHABLE,
        )
        return why_no_connection(error, remedies, where=f"the Kubernetes API at {self._url}: ")

    async def _check(self, response: aiohttp.ClientResponse, path: str, verb: str, *, has_token: bool) -> None:
        status = response.status
        right = f"{verb} on {resource_of(path)}"
        if status == HTTPStatus.OK:
            self._allowed.add(right)
            return
        if status == HTTPStatus.GONE:
            raise Forgotten
        if status == HTTPStatus.NOT_FOUND:
            raise Unsupported("unimplemented", f"the Kubernetes API knows no {path}", remedy=self.meanwhile)
        is_forbidden = status == HTTPStatus.FORBIDDEN
        told = told_by(await response.content.read(MAX_STATUS_BYTES)) if is_forbidden else ""
        raise self._refusal(response, path, right, told, has_token=has_token)

    def _refusal(
        self, response: aiohttp.ClientResponse, path: str, right: str, told: str, *, has_token: bool
    ) -> Unavailable:
        """What any other status means; `right` is what the request needed, `told` what the API server said."""
        status = response.status
        if status == HTTPStatus.UNAUTHORIZED:
            return unauthorized(path, token_file=self._token_file, has_token=has_token)
        if status == HTTPStatus.FORBIDDEN:
            return forbidden(path, right, told, was_allowed=right in self._allowed, manifest=self._manifest)
        later = retry_after_seconds(response.headers)
        return Unavailable(
            "rate_limited" if status == HTTPStatus.TOO_MANY_REQUESTS else "http_status",
            f"the Kubernetes API answers {path} with HTTP status {status}{': ' if told else ''}{told}",
            remedy=f"it is asked again; until then {self.meanwhile}",
            retry_after_seconds=None if later is None else min(later, LONGEST_PAUSE_SECONDS),
        )


def read_object(body: bytes, path: str) -> Object:
    """A JSON object.

    Raises:
        Malformed: it is none.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(
            "garbage", f"the Kubernetes API answers {path} with what is no JSON: {error}", remedy=_NOT_THE_API
        ) from error
    if not isinstance(found, dict):
        raise Malformed("garbage", f"the Kubernetes API answers {path} with what is no object", remedy=_NOT_THE_API)
    return found
