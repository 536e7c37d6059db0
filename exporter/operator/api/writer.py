"""The only code that writes to the Kubernetes API: server-side apply, deletion, status, leases and events.

A request that may go well a moment later is sent again, a few times: what the API server answers while it is busy or
starts (429, 5xx, no connection), while a definition that was just made is not served yet (404, then 429, for 0.1 s,
though it says Established), and 409 where somebody else wrote at the same time. Who calls comes again later.
"""

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import aiohttp

from exporter.errors import SourceError, TimedOut, Unavailable
from exporter.lenient import AnyObject, text
from exporter.operator.objects.kinds import BY_NAME, OPERATOR, metadata, path_of
from exporter.operator.objects.resources import Object
from exporter.sources.kubernetes.api import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    MAX_OBJECT_BYTES,
    KubernetesApi,
    read_object,
    resource_of,
    told_by,
)
from exporter.sources.pause import Pause

_FOR_WANT_OF_A_RIGHT = re.compile(
    r"""\b[Uu]ser "|\bRBAC: |cannot set (?:blockOwnerDeletion|an ownerRef)|not yet ready"""
)


class Refused(Unavailable):
    """The API server refuses this for good. `why` is its text on one line, `reason_given` its word (AlreadyExists)."""

    def __init__(self, path: str, status: int, why: str, reason_given: str) -> None:
        message = f"the Kubernetes API refuses {path} with {status}: {why}"
        super().__init__("http_status", message, remedy="change what it names")
        self.status, self.why, self.reason_given = status, why, reason_given


def may_go_well(error: SourceError) -> bool:
    """Whether to try again: 404 without a Status is a group not served yet, 409 Conflict a simultaneous change."""
    if isinstance(error, Refused):
        # a conflict with another owner of a field, or about a uid, does not pass
        is_lasting = any(words in error.why for words in ("conflict with", "recondition", "uid mismatch"))
        return error.status == HTTPStatus.CONFLICT and error.reason_given == "Conflict" and not is_lasting
    if isinstance(error, TimedOut):
        return True
    return isinstance(error, Unavailable) and error.reason not in ("permission", "tls", "unauthorized")


def is_by_admission(message: str) -> bool:
    """Whether a 403 is not for want of a right: a quota, a policy or a webhook says no, or the namespace is going.

    What is refused for want of a right names who asks, or what of owners they may not set (recorded on 1.36). An API
    server that starts is not ready to admit anything: that passes.
    """
    return bool(message) and not _FOR_WANT_OF_A_RIGHT.search(message)


MANIFEST = "deploy/operator/operator.yaml"
MEANWHILE = "what the operator made stays as it is"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"
TRIES = 5
PAUSE = Pause(0.2, least=0.5)
# Somebody who asks for more patience than this is asked by a later attempt.
LONGEST_WAIT_SECONDS = 5.0
_MANAGER: Mapping[str, str] = {"fieldManager": OPERATOR}
_FORCE = {**_MANAGER, "force": "true"}
# Bad request, forbidden, not found, no such method, conflict, too large, no such form, invalid.
_REFUSED = frozenset({400, 403, 404, 405, 409, 413, 415, 422})
_TIMEOUT = aiohttp.ClientTimeout(total=ANSWER_SECONDS, connect=CONNECT_SECONDS)
OnAnswer = Callable[[str, str], None]


class Writer(KubernetesApi):
    """Writes, and reads as every client of the Kubernetes API here does.

    What writes raises Refused: by the schema, by admission, or for want of a right. SourceError: the API server did not
    answer well within a few tries.
    """

    # a watch of each kind in each namespace of --operator.namespace has a connection of its own
    most_connections = 10_000

    def __init__(
        self, *, url: str, token_file: str, ca_file: str, on_answer: OnAnswer, seed: int | None = None
    ) -> None:
        """`on_answer` hears of each: verb, and HTTP status or `none` (no answer). `seed` is of the pauses."""
        super().__init__(
            url=url, token_file=token_file, ca_file=ca_file, manifest=MANIFEST, meanwhile=MEANWHILE, agent=OPERATOR
        )
        self._on_answer = on_answer
        self._chance = random.Random(seed)  # noqa: S311 - no secret

    async def apply(self, item: Object, there: AnyObject | None) -> Object:
        """Make an object what `item` says of it, and leave alone what `item` does not name; the object afterwards.

        `there` is the object that is to be changed, which is ours: what others wrote into our fields is written over.
        None: there is to be none of that name yet. Refused also where another object is there now.
        """
        path = path_of(item)
        if there is None:
            return await self._tried("PATCH", path, "apply", item, media_type=APPLY)
        # another object that has its name since is not ours: 409
        body = {**item, "metadata": {**item["metadata"], "uid": metadata(there)["uid"]}}
        return await self._tried("PATCH", path, "apply", body, parameters=_FORCE, media_type=APPLY)

    async def apply_status(self, owner: AnyObject, status: Mapping[str, Any]) -> Object:
        """Make a custom resource's status what is given; the object afterwards."""
        about = metadata(owner)
        named = {name: about[name] for name in ("name", "namespace", "uid") if name in about}
        item = {**{name: owner[name] for name in ("apiVersion", "kind")}, "metadata": named, "status": dict(status)}
        path = f"{path_of(item)}/status"
        return await self._tried("PATCH", path, "apply", item, parameters=_FORCE, media_type=APPLY)

    async def delete(self, item: AnyObject) -> None:
        """Delete this very object, and what it owns after it. One that is gone, or is another by now, is no error."""
        about = metadata(item)
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": about["uid"]},
            "propagationPolicy": "Background",
        }
        try:
            await self._tried("DELETE", path_of(item), "delete", options, parameters={})
        except Refused as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise

    async def create(self, item: Object, *, tries: int) -> Object:
        """An object that is not there yet. Refused where one is there: after a lost answer, it may be this one."""
        about = item["metadata"]
        path = BY_NAME[item["kind"]].path(about.get("namespace"))
        return await self._tried("POST", path, "create", item, tries=tries)

    async def replace(self, item: Object) -> Object:
        """An object as it was read and changed: once. Refused with 409 where somebody else has changed it since."""
        return await self._tried("PUT", path_of(item), "update", item, tries=1)

    async def merge(self, item: Object) -> Object:
        """Change the fields of an object that are given, whoever they belong to."""
        fields = {name: value for name, value in item.items() if name not in ("apiVersion", "kind", "metadata")}
        return await self._tried("PATCH", path_of(item), "patch", fields, media_type=MERGE, tries=1)

    async def _tried(
        self,
        method: str,
        path: str,
        verb: str,
        body: AnyObject,
        *,
        parameters: Mapping[str, str] = _MANAGER,
        media_type: str = JSON,
        tries: int = TRIES,
    ) -> Object:
        """Send a request until it goes well, or will not, or `tries` are over."""
        data = json.dumps(body).encode()
        for again in range(1, tries + 1):
            try:
                return await self._sent(method, path, verb, data, parameters, media_type)
            except SourceError as error:
                pause = max(PAUSE.after(again, self._chance), error.retry_after_seconds or 0.0)
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
                async with self._client.request(
                    method, self._url + path, body=data, headers=headers, parameters=parameters, timeout=_TIMEOUT
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
        message = told_by(body)
        is_forbidden = response.status == HTTPStatus.FORBIDDEN and not is_by_admission(message)
        if response.status in _REFUSED and message and not is_forbidden:
            raise Refused(path, response.status, message, text(json.loads(body), "reason"))
        raise self._refusal(response, path, right, message, has_token=has_token)
