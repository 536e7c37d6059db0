"""The HTTP client of the Kubernetes API: lists, single objects and the events of a watch. Failures are SourceErrors.

It uses aiohttp, which is here anyway. A client library would need more memory than the exporter.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import aclosing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from exporter.config.files import read_regular
from exporter.config.http_file import HttpConfig
from exporter.config.tls import ClientTls
from exporter.errors import ConfigError, Malformed, TimedOut, Unavailable, Unsupported
from exporter.lenient import AnyObject
from exporter.sources.hearing import LISTENER, heard
from exporter.sources.http import Client, Peer, retry_after_seconds, why_broken
from exporter.sources.kubernetes.list_text import MAX_ITEM_BYTES, read_list
from exporter.wording import one_line

LONGEST_PAUSE_SECONDS = 30.0
# The API ends a watch after WATCH_SECONDS. After SILENCE_SECONDS without a byte the connection is dead.
WATCH_SECONDS = 240
SILENCE_SECONDS = 270.0
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0
PAGE_OBJECTS = 500  # the number that client-go asks for, too
MOST_OBJECTS = 50_000
MOST_RESTARTS = 3
# etcd takes no object above 1.5 MiB; JSON needs a little more room than etcd's form
MAX_OBJECT_BYTES = 2 * 1024 * 1024
MAX_STATUS_BYTES = 16 * 1024
JSON = "application/json"
# The Accept headers for names and labels alone: the API server leaves out the rest of each object. A server that does
# not know this form sends whole objects. https://kubernetes.io/docs/reference/using-api/api-concepts/
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
LIST_AND_WATCH = "list and watch"
GET = "get"
ONLY_THAT = "only what it adds is missing"
_NOT_THE_API = "is this the Kubernetes API's own address (--kubernetes.url), without a proxy that answers for it?"
_UNREACHABLE = (
    "can this container reach that address? A firewall or a NetworkPolicy may be in between, or the API server restarts"
)

# the remedies of 401, which doubts the client's identity and not its rights
_MOUNT_IT = (
    "mount the service account's token (automountServiceAccountToken: true), or name another file with"
    " --kubernetes.token-file"
)
_RENEW_IT = (
    "the token has expired or is another cluster's; no role would help. The kubelet renews a token that it mounts: use"
    " that one, or renew the file of --kubernetes.token-file"
)

Object = AnyObject


def as_it_is(item: Object) -> Object:
    """The whole object: the default of `list`, if a caller needs all of it."""
    return item


class Forgotten(Exception):
    """410 Gone: the API no longer knows the resourceVersion from which the watch goes on."""


class KubernetesApi:
    """An API server, by its URL. The token is read for every request, since Kubernetes replaces it now and then."""

    most_connections = 100

    def __init__(
        self,
        *,
        url: str,
        token_file: str,
        ca_file: str,
        manifest: str = "deploy/rbac.yaml",
        meanwhile: str = ONLY_THAT,
        agent: str = "pod-gpu-metrics-exporter",
    ) -> None:
        """`manifest` is the file that gives the rights, `meanwhile` the cost of a failure. Remedies name both."""
        self.meanwhile = meanwhile
        self._too_much = f"it is more than this program reads; {meanwhile}"
        self._manifest = manifest
        self._url = url.rstrip("/")
        self._token_file = Path(token_file)
        # called for each request with the verb, and with the HTTP status or "none" for no answer
        self._on_answer: Callable[[str, str], None] = lambda _verb, _status: None
        peer = Peer(
            flag="--kubernetes.ca-file",
            where=f"the Kubernetes API at {self._url}: ",
            refused="is the API server running, and is this its address (KUBERNETES_SERVICE_HOST and"
            " KUBERNETES_SERVICE_PORT, or --kubernetes.url)?",
            tls=f"{ca_file} (--kubernetes.ca-file) must hold the authority that issued the API server's"
            " certificate, and --kubernetes.url must name it by a name or an address that stands in the certificate",
            unreachable=_UNREACHABLE,
            bad_file="tls",
        )
        self._client = Client(
            peer,
            http=HttpConfig(tls=ClientTls(ca_file=ca_file)),
            headers=(("Accept", JSON), ("User-Agent", agent)),
            connect_seconds=CONNECT_SECONDS,
            may_lack_authority=True,
            unpacks=True,
            most_connections=self.most_connections,
        )
        # the rights that were granted once: a later refusal may come from an API server that has just started
        self._allowed: set[str] = set()
        self._listener = LISTENER.get()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def list(
        self,
        path: str,
        parameters: Mapping[str, str],
        read: Callable[[Object], Any] = as_it_is,
        *,
        metadata_only: bool = False,
        most: int | None = None,
    ) -> tuple[Sequence[Any], str]:
        """A list's objects, each as `read` returns it, and the list's resourceVersion.

        The list comes in pages. If the API forgets the version of the first page before it sends the last page (410),
        the list begins anew. `read` makes the result of an object, which is then dropped. `metadata_only`: the API
        sends only each object's metadata. `most` is the most objects that the list may have.

        Raises:
            Forgotten: see `lines`.
            SourceError: see `lines`; also if the list has more than `most` objects.
        """
        for _ in range(MOST_RESTARTS):
            items: list[Any] = []
            token = version = ""
            try:
                while True:
                    accept = METADATA_LIST if metadata_only else JSON
                    # a token stands for a version; the API refuses a token together with a version
                    page = {"continue": token, "resourceVersion": ""} if token else {}
                    metadata = await self._page(path, {**parameters, **page}, accept, items, read, most or MOST_OBJECTS)
                    version = version or str(metadata.get("resourceVersion") or "")
                    token = str(metadata.get("continue") or "")
                    if not token:
                        return items, version
            except Forgotten:
                if not token:
                    raise
        message = f"the Kubernetes API forgot the rest of {path} {MOST_RESTARTS} times before it was read"
        raise TimedOut(message, remedy="is the API server, or etcd behind it, overloaded?")

    async def get(self, path: str) -> Object:
        """An object, or the kinds of an API group. Raises SourceError: see `lines`; Unsupported: no such path."""
        async with aclosing(self._chunks(path, {}, GET, ANSWER_SECONDS, JSON)) as chunks:
            body = self._body(chunks, path, MAX_OBJECT_BYTES)
            if self._listener is not None:
                body = heard(self._listener, "kubernetes", "kubernetes", path, body)
            return read_object(await body, path)

    async def lines(
        self, path: str, parameters: Mapping[str, str], on_open: Callable[[], None], *, metadata_only: bool = False
    ) -> AsyncGenerator[Object, None]:
        """The events of a watch, as they come, until the API ends it. `on_open` is called when the watch begins.

        Raises:
            Forgotten: the API answers 410 Gone.
            SourceError: no answer came, or one with a status other than 200, or one that is no JSON.
        """
        rest = b""
        accept = METADATA if metadata_only else JSON
        async with aclosing(self._chunks(path, parameters, LIST_AND_WATCH, None, accept, on_open)) as chunks:
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > MAX_ITEM_BYTES:
                    message = f"one event of {path} is larger than {MAX_ITEM_BYTES} bytes"
                    raise Malformed("oversize", message, remedy=self._too_much)
                for line in lines:
                    if line.strip():
                        yield read_object(line, path)

    async def _page(
        self,
        path: str,
        parameters: Mapping[str, str],
        accept: str,
        items: MutableSequence[Any],
        read: Callable[[Object], Any],
        most: int,
    ) -> Object:
        """Append the objects of a page of a list to `items`, as `read` returns them. Returns the page's metadata."""

        def take(item: Object) -> None:
            if len(items) >= most:
                raise Malformed("oversize", f"{path} holds more than {most} objects", remedy=self._too_much)
            items.append(read(item))

        query = {**parameters, "limit": str(PAGE_OBJECTS)}
        async with aclosing(self._chunks(path, query, LIST_AND_WATCH, ANSWER_SECONDS, accept)) as chunks:
            try:
                return await read_list(chunks, path, take)
            except (ValueError, RecursionError) as error:
                message = f"the Kubernetes API answers {path} with what is no list in JSON: {error}"
                raise Malformed("garbage", message, remedy=_NOT_THE_API) from error

    async def _body(self, chunks: AsyncIterable[bytes], path: str, most_bytes: int) -> bytes:
        body = bytearray()
        async for chunk in chunks:
            body += chunk
            if len(body) > most_bytes:
                message = f"the Kubernetes API answers {path} with more than {most_bytes} bytes"
                raise Malformed("oversize", message, remedy=self._too_much)
        return bytes(body)

    async def _chunks(
        self,
        path: str,
        parameters: Mapping[str, str],
        verb: str,
        seconds: float | None,
        accept: str,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The body of an answer, as it comes. `seconds` None: a watch, which may last. Raises as `lines` does."""
        timeout = aiohttp.ClientTimeout(total=seconds, connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        headers = {"Accept": accept, **self.token()}
        status = "none"
        asked = "watch" if seconds is None else verb.removesuffix(" and watch")
        try:
            with self._translated(path):
                # the API answers a watch at once, too, though its first event may take long
                async with asyncio.timeout(ANSWER_SECONDS):
                    response = await self._client.request(
                        "GET", self._url + path, parameters=parameters, headers=headers, timeout=timeout
                    )
                status = str(response.status)
                self._on_answer(asked, status)
                async with response:
                    await self._check(response, path, verb, has_token="Authorization" in headers)
                    if on_open:
                        on_open()
                    async for chunk in response.content.iter_any():
                        yield chunk
        finally:
            if status == "none":
                self._on_answer(asked, status)

    def token(self) -> dict[str, str]:
        """The header with the token; empty without a file. Raises Unavailable: the file cannot be read."""
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
        try:
            yield
        except TimeoutError as error:
            if isinstance(error, aiohttp.ConnectionTimeoutError):
                raise self._client.why_failed(error, self._url) from error
            remedy = "is the API server overloaded, or gone behind an address that still takes connections?"
            raise TimedOut(f"the Kubernetes API at {self._url} does not answer {path}", remedy=remedy) from error
        except (ConfigError, aiohttp.ClientConnectionError) as error:
            raise self._client.why_failed(error, self._url) from error
        except (aiohttp.ClientError, OSError) as error:
            message = f"the Kubernetes API at {self._url}: {why_broken(error)}"
            raise Unavailable("unreachable", message, remedy=_UNREACHABLE) from error

    async def _check(self, response: aiohttp.ClientResponse, path: str, verb: str, *, has_token: bool) -> None:
        status = response.status
        right = f"{verb} on {resource_of(path)}"
        if status == HTTPStatus.OK:
            self._allowed.add(right)
            return
        if status == HTTPStatus.GONE:
            raise Forgotten
        if status == HTTPStatus.NOT_FOUND:
            raise Unsupported(f"the Kubernetes API knows no {path}", remedy=self.meanwhile)
        is_forbidden = status == HTTPStatus.FORBIDDEN
        message = told_by(await response.content.read(MAX_STATUS_BYTES)) if is_forbidden else ""
        raise self._refusal(response, path, right, message, has_token=has_token)

    def _refusal(
        self, response: aiohttp.ClientResponse, path: str, right: str, message: str, *, has_token: bool
    ) -> Unavailable:
        """The error for any other status. `right` is the right that the request needs, `message` the API server's."""
        status = response.status
        answers = f"the Kubernetes API answers {path} with"
        if status == HTTPStatus.UNAUTHORIZED and not has_token:
            message = f"{answers} 401: it was asked without a token, since {self._token_file} does not exist"
            return Unavailable("unauthorized", message, remedy=_MOUNT_IT)
        if status == HTTPStatus.UNAUTHORIZED:
            message = f"{answers} 401: it does not accept the token in {self._token_file}"
            return Unavailable("unauthorized", message, remedy=_RENEW_IT)
        if status == HTTPStatus.FORBIDDEN:
            return forbidden(path, right, message, was_allowed=right in self._allowed, manifest=self._manifest)
        later = retry_after_seconds(response.headers)
        return Unavailable(
            "rate_limited" if status == HTTPStatus.TOO_MANY_REQUESTS else "http_status",
            f"{answers} HTTP status {status}{': ' if message else ''}{message}",
            remedy=f"it is asked again; until then {self.meanwhile}",
            retry_after_seconds=None if later is None else min(later, LONGEST_PAUSE_SECONDS),
        )


def read_object(body: bytes, path: str) -> Object:
    """The JSON object in a body. Raises Malformed: it is no JSON object."""
    try:
        item = json.loads(body)
    except (ValueError, RecursionError) as error:
        message = f"the Kubernetes API answers {path} with what is no JSON: {error}"
        raise Malformed("garbage", message, remedy=_NOT_THE_API) from error
    if not isinstance(item, dict):
        raise Malformed("garbage", f"the Kubernetes API answers {path} with what is no object", remedy=_NOT_THE_API)
    return item


MAX_TOLD_CHARS = 300


def forbidden(path: str, right: str, message: str, *, was_allowed: bool, manifest: str) -> Unavailable:
    """The error for a 403.

    A starting API server refuses everyone until it has read its roles (measured on 1.36). Then it names roles that it
    has not found, or refuses a right that it granted before.

    Args:
        path: the path of the request.
        right: the right that the request needs.
        message: the API server's own message.
        was_allowed: whether the server granted the right before.
        manifest: the file that gives the right.
    """
    says = f"the Kubernetes API refuses {path} with 403{': ' if message else ''}{message}"
    needs = f"the service account needs {right} ({manifest})"
    if "RBAC:" in message and "not found" in message:
        return Unavailable(
            "http_status",
            says,
            remedy="an API server that has just started does not know its roles for some seconds, and is asked again;"
            f" if this stays, a role that a binding names does not exist: apply {manifest}",
        )
    if was_allowed:
        return Unavailable(
            "http_status",
            says,
            remedy="it allowed this before: an API server that has just started refuses everything for some seconds,"
            f" and is asked again; if this stays, the right was taken away: {needs}",
        )
    return Unavailable("permission", says, remedy=needs)


def resource_of(path: str) -> str:
    """The resource of a path as RBAC names it (`pods`, `replicasets (API group apps)`); else the path itself."""
    root, *parts = path.strip("/").split("/")
    group = parts.pop(0) if root == "apis" and parts else ""
    del parts[:1]  # the version
    if parts[:1] == ["namespaces"] and len(parts) > len(("namespaces", "name")):
        del parts[:2]
    if not parts:
        return path
    return f"{parts[0]} (API group {group})" if group else parts[0]


def told_by(body: bytes) -> str:
    """The message of a Status; "" if the body is no Status."""
    try:
        return one_line(json.loads(body)["message"], MAX_TOLD_CHARS)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
