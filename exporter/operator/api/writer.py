"""The only code that writes to the Kubernetes API: server-side apply, deletion, status, leases and events.

A request that may go well a moment later is sent again, a few times: what the API server answers while it is busy or
starts (429, 5xx, no connection), while a definition that was just made is not served yet (404, then 429, for 0.1 s,
though it says Established), and 409 where somebody else wrote at the same time. Who calls comes again later.
"""

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import aiohttp

from exporter.config.tls import ClientTls
from exporter.errors import SourceError
from exporter.operator.api.refused import Refused, is_by_admission, may_go_well, reason_in
from exporter.operator.objects.kinds import OPERATOR, Object, kind_of, metadata, path_of
from exporter.operator.objects.parts import AnyObject, text
from exporter.sources.http import Client
from exporter.sources.kubernetes.api import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    MAX_OBJECT_BYTES,
    KubernetesApi,
    read_object,
)
from exporter.sources.kubernetes.refusals import resource_of, told_by

MANIFEST = "deploy/operator/operator.yaml"
MEANWHILE = "what the operator made stays as it is"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"
TRIES = 5
FIRST_PAUSE_SECONDS = 0.2
# A watch of each kind in each namespace of --operator.namespace has a connection of its own.
MOST_CONNECTIONS = 10_000
# Somebody who asks for more patience than this is asked by a later attempt.
LONGEST_WAIT_SECONDS = 5.0
_MANAGER: Mapping[str, str] = {"fieldManager": OPERATOR}
_REFUSED = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}
OnAnswer = Callable[[str, str], None]


class _WritingClient(Client):
    """A client that also sends what changes something."""

    def send(
        self, method: str, url: str, *, body: bytes, headers: Mapping[str, str], parameters: Mapping[str, str]
    ) -> "aiohttp.client._RequestContextManager":
        """A request with a body: await it, or enter it.

        Raises:
            ConfigError: a file of TLS cannot be used.
        """
        return self._begun().request(
            method,
            url,
            data=body,
            params=parameters,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS, connect=CONNECT_SECONDS),
            allow_redirects=False,
            ssl=self._context_now() if url.startswith("https:") else True,
        )


class Writer(KubernetesApi):
    """Writes, and reads as every client of the Kubernetes API here does."""

    def __init__(
        self, *, url: str, token_file: str, ca_file: str, on_answer: OnAnswer, seed: int | None = None
    ) -> None:
        """`on_answer` hears of each answer: the verb, and the HTTP status, or `none` where no answer came.

        `seed` is of the pauses between two tries.
        """
        super().__init__(url=url, token_file=token_file, ca_file=ca_file, manifest=MANIFEST, meanwhile=MEANWHILE)
        self._on_answer = on_answer
        self._client = self._writing = _WritingClient(
            flag="--kubernetes.ca-file",
            tls=ClientTls(ca_file=ca_file),
            headers=(("Accept", "application/json"), ("User-Agent", OPERATOR)),
            may_lack_authority=True,
            unpacks=True,
            most_connections=MOST_CONNECTIONS,
        )
        self._chance = random.Random(seed)  # noqa: S311 - no secret

    async def apply(self, item: Object, there: AnyObject | None) -> Object:
        """Make an object what `item` says of it, and leave alone what `item` does not name; the object afterwards.

        `there` is the object that is to be changed, which is ours: what others wrote into our fields is written over.
        None: there is to be none of that name yet.

        Raises:
            Refused: by the schema, by admission, or since another object is there now.
            SourceError: the API server did not answer well within a few tries.
        """
        body = item
        parameters = dict(_MANAGER)
        if there is not None:
            # another object that has its name since is not ours: 409
            body = {**item, "metadata": {**item["metadata"], "uid": metadata(there)["uid"]}}
            parameters["force"] = "true"
        return await self._tried("PATCH", path_of(item), "apply", body, parameters=parameters, media_type=APPLY)

    async def apply_status(self, owner: AnyObject, status: Mapping[str, Any]) -> Object:
        """Make a custom resource's status what is given; the object afterwards.

        Raises:
            Refused, SourceError: see `apply`.
        """
        about = metadata(owner)
        named = {name: about[name] for name in ("name", "namespace", "uid") if name in about}
        item = {**{name: owner[name] for name in ("apiVersion", "kind")}, "metadata": named, "status": dict(status)}
        parameters = {**_MANAGER, "force": "true"}
        path = f"{path_of(item)}/status"
        return await self._tried("PATCH", path, "apply", item, parameters=parameters, media_type=APPLY)

    async def delete(self, item: AnyObject) -> None:
        """Delete this very object, and what it owns after it. One that is gone, or is another by now, is no error.

        Raises:
            SourceError: see `apply`.
        """
        about = metadata(item)
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": about["uid"]},
            "propagationPolicy": "Background",
        }
        path = kind_of(item).path(text(about, "namespace"), text(about, "name"))
        try:
            await self._tried("DELETE", path, "delete", options)
        except Refused as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise

    async def create(self, item: Object, *, tries: int = TRIES) -> Object:
        """An object that is not there yet.

        Raises:
            Refused: one is there, or it is not allowed. Also where an answer was lost: the object may be this one.
            SourceError: see `apply`.
        """
        about = item["metadata"]
        path = kind_of(item).path(about.get("namespace"))
        return await self._tried("POST", path, "create", item, parameters=_MANAGER, tries=tries)

    async def replace(self, item: Object) -> Object:
        """An object as it was read and changed: once, and only if nobody else has changed it since.

        Raises:
            Refused: with 409, somebody else has.
            SourceError: see `apply`.
        """
        return await self._tried("PUT", path_of(item), "update", item, parameters=_MANAGER, tries=1)

    async def merge(self, item: Object) -> Object:
        """Change the fields of an object that are given, whoever they belong to.

        Raises:
            Refused, SourceError: see `apply`.
        """
        fields = {name: value for name, value in item.items() if name not in ("apiVersion", "kind", "metadata")}
        return await self._tried(
            "PATCH", path_of(item), "patch", fields, parameters=_MANAGER, media_type=MERGE, tries=1
        )

    async def _tried(
        self,
        method: str,
        path: str,
        verb: str,
        body: AnyObject,
        *,
        parameters: Mapping[str, str] | None = None,
        media_type: str = JSON,
        tries: int = TRIES,
    ) -> Object:
        """Send a request until it goes well, or will not, or `tries` are over."""
        data = json.dumps(body).encode()
        for again in range(1, tries + 1):
            try:
                return await self._sent(method, path, verb, data, parameters or {}, media_type)
            except SourceError as error:
                pause = FIRST_PAUSE_SECONDS * 2 ** (again - 1) * self._chance.uniform(0.5, 1.0)
                pause = max(pause, error.retry_after_seconds or 0.0)
                if again == tries or not may_go_well(error) or pause > LONGEST_WAIT_SECONDS:
                    raise
                await asyncio.sleep(pause)
        raise AssertionError(tries)  # the last try returned or raised

    async def _sent(
        self, method: str, path: str, verb: str, data: bytes, parameters: Mapping[str, str], media_type: str
    ) -> Object:
        token = self.token()
        headers = {**token, "Content-Type": media_type}
        status = "none"
        try:
            with self._translated(path):
                async with self._writing.send(
                    method, self._url + path, body=data, headers=headers, parameters=parameters
                ) as response:
                    status = str(response.status)
                    body = await self._body(response.content.iter_any(), path, MAX_OBJECT_BYTES)
                    self._judge(response, path, verb, body, has_token=bool(token))
                    return dict(read_object(body, path))
        finally:
            self._on_answer(verb, status)

    def _judge(self, response: aiohttp.ClientResponse, path: str, verb: str, body: bytes, *, has_token: bool) -> None:
        right = f"{'patch' if verb == 'apply' else verb} on {resource_of(path)}"
        if response.status in (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED):
            self._allowed.add(right)
            return
        told = told_by(body)
        if response.status in _REFUSED and told and (response.status != HTTPStatus.FORBIDDEN or is_by_admission(told)):
            raise Refused(path, response.status, told, reason_in(body))
        raise self._refusal(response, path, right, told, has_token=has_token)
