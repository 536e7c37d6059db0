"""The only code that writes to the Kubernetes API: server-side apply, deletion, status, leases and events.

A request that may succeed a moment later is sent again a few times: if the API server is busy or starts (429, 5xx, no
connection), if a new definition is not served yet (404, then 429, for 0.1 s, although it says Established), and if
somebody else wrote at the same time (409). After that the error is raised, and the caller tries again later.
"""

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus

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
    """The API server refuses a request for good.

    `why` is its text on one line, and `reason_given` its reason in one word, such as AlreadyExists.
    """

    def __init__(self, path: str, status: int, why: str, reason_given: str) -> None:
        message = f"the Kubernetes API refuses {path} with {status}: {why}"
        super().__init__("http_status", message, remedy="change what it names")
        self.status = status
        self.why = why
        self.reason_given = reason_given


def may_go_well(error: SourceError) -> bool:
    """Whether to send a request again after this error.

    404 without a Status means that a group is not served yet, 409 Conflict that somebody else wrote at that moment.
    """
    if isinstance(error, Refused):
        # a conflict with another owner of a field, or about a uid, lasts
        is_lasting = any(words in error.why for words in ("conflict with", "recondition", "uid mismatch"))
        return error.status == HTTPStatus.CONFLICT and error.reason_given == "Conflict" and not is_lasting
    if isinstance(error, TimedOut):
        return True
    return isinstance(error, Unavailable) and error.reason not in ("permission", "tls", "unauthorized")


def is_by_admission(message: str) -> bool:
    """Whether a 403 comes from admission: from a quota, a policy or a webhook, or since the namespace is being deleted.

    If a right is missing, the message names the user, or the owner reference that they may not set (recorded on 1.36).
    While an API server starts, it is not ready to admit anything. That passes, and does not count as admission.
    """
    return bool(message) and not _FOR_WANT_OF_A_RIGHT.search(message)


MANIFEST = "deploy/operator/operator.yaml"
MEANWHILE = "what the operator made stays as it is"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON = "application/json"
TRIES = 5
PAUSE = Pause(0.2, least=0.5)
# If the API server asks for a longer pause than this, the request fails, and the caller tries again later.
LONGEST_WAIT_SECONDS = 5.0
_MANAGER: Mapping[str, str] = {"fieldManager": OPERATOR}
_FORCE = {**_MANAGER, "force": "true"}
# The statuses of a refusal: bad request, forbidden, not found, no such method, conflict, too large, no such form,
# invalid.
_REFUSED = frozenset({400, 403, 404, 405, 409, 413, 415, 422})
_TIMEOUT = aiohttp.ClientTimeout(total=ANSWER_SECONDS, connect=CONNECT_SECONDS)
OnAnswer = Callable[[str, str], None]


class Writer(KubernetesApi):
    """A client of the Kubernetes API that also writes.

    Every method that writes raises Refused if the schema, admission or a missing right forbids the request, and another
    SourceError if the API server did not answer well within a few tries.
    """

    # a watch of each kind in each namespace of --operator.namespace has a connection of its own
    most_connections = 10_000

    def __init__(
        self, *, url: str, token_file: str, ca_file: str, on_answer: OnAnswer, seed: int | None = None
    ) -> None:
        """Make the client.

        Args:
            url: the API server's address.
            token_file: the file with the token.
            ca_file: the file with the certificates of the API server's CA.
            on_answer: the function that is called for each request, with the verb and the HTTP status, or `none`.
            seed: the seed of the pauses' random part.
        """
        super().__init__(
            url=url, token_file=token_file, ca_file=ca_file, manifest=MANIFEST, meanwhile=MEANWHILE, agent=OPERATOR
        )
        self._on_answer = on_answer
        self._chance = random.Random(seed)  # noqa: S311 - no secret

    async def apply(self, item: Object, there: AnyObject | None) -> Object:
        """Apply the fields of `item` to an object, and leave its other fields alone. Return the object as it is then.

        `there` is the object to change. It is ours, so changes of others to our fields are overwritten. None if there
        should be no object of that name yet. Also raises Refused if another object has the name now.
        """
        path = path_of(item)
        if there is None:
            return await self._tried("PATCH", path, "apply", item, media_type=APPLY)
        # with the uid, an object that has taken the name since is refused with 409
        body = {**item, "metadata": {**item["metadata"], "uid": metadata(there)["uid"]}}
        return await self._tried("PATCH", path, "apply", body, parameters=_FORCE, media_type=APPLY)

    async def apply_status(self, owner: AnyObject, status: AnyObject) -> Object:
        """Write a custom resource's status. Return the object as it is then."""
        about = metadata(owner)
        named = {name: about[name] for name in ("name", "namespace", "uid") if name in about}
        item = {**{name: owner[name] for name in ("apiVersion", "kind")}, "metadata": named, "status": dict(status)}
        path = f"{path_of(item)}/status"
        return await self._tried("PATCH", path, "apply", item, parameters=_FORCE, media_type=APPLY)

    async def delete(self, item: AnyObject) -> None:
        """Delete an object, and then the objects that it owns.

        It is no error if the object is gone, or if another object has its name now.
        """
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
        """Create an object. Raises Refused if there is one of that name, which after a lost answer may be this one."""
        about = item["metadata"]
        path = BY_NAME[item["kind"]].path(about.get("namespace"))
        return await self._tried("POST", path, "create", item, tries=tries)

    async def replace(self, item: Object) -> Object:
        """Replace an object by one that was read and then changed. This is tried once.

        Raises Refused (409) if somebody else has changed the object since it was read.
        """
        return await self._tried("PUT", path_of(item), "update", item, tries=1)

    async def merge(self, item: Object) -> Object:
        """Change these fields of an object, even if they belong to others."""
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
        """Send a request until it succeeds, is refused for good, or was sent `tries` times."""
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
        """The API server's answer to a request that writes. It is counted by its status, "none" without an answer."""
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
