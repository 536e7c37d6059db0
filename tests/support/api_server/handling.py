"""Answering requests: whether they may be asked, what is read and what is written."""

import asyncio
import contextlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass

from aiohttp import web

from tests.support.api_server import access, containers, discovery, proxy, requests
from tests.support.api_server.answers import Json, Object, Refused, not_found
from tests.support.api_server.definitions import Definitions
from tests.support.api_server.deleting import delete
from tests.support.api_server.faults import Faults
from tests.support.api_server.forms import in_form
from tests.support.api_server.kinds import Kinds
from tests.support.api_server.patches import json_patched, merge_patched
from tests.support.api_server.reading import list_of, shown
from tests.support.api_server.requests import APPLY, JSON, MERGE, Path, Target
from tests.support.api_server.scaling import rescaled, scale_of
from tests.support.api_server.store import Key, Store
from tests.support.api_server.subresources import SCALE
from tests.support.api_server.validation import Rules
from tests.support.api_server.watching import BOOKMARK_SECONDS, Watch
from tests.support.api_server.writing import Intent, Writer, Written, now

_WATCH_ENDS_SECONDS = 1.0  # after its definition has gone
ADMIN = "system:admin"
_DEPTHS = {"api": 2, "apis": 3}  # of the paths that name no collection


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A request that wanted to write: who asked for what, how it was answered, and whether anything changed by it.

    `changed` says whether a new version of anything has come of it.
    """

    user: str
    manager: str
    verb: str  # RBAC's: create, update, patch, delete, deletecollection
    resource: str  # daemonsets.apps
    namespace: str
    name: str
    subresource: str
    code: int
    changed: bool


class Handler:
    """Answers requests from a store.

    `rules` are those of RBAC by namespace, "" for everywhere; where there are any, a request that none allows is
    forbidden. `users` names the users of tokens; a token that it lacks is refused. While it is empty everybody is
    the administrator, who may do everything. `writes` are the requests that wanted to write. `reviewer` says what is
    wrong by a rule in CEL; without one these are not checked.
    """

    def __init__(self, *, reviewer: Rules | None = None, seed: int = 0) -> None:
        self.store = Store()
        self.kinds = Kinds()
        self.containers = containers.Containers()
        self.faults = Faults(seed)
        self.definitions = Definitions(self.store, self.kinds, now=now)
        self.writer = Writer(self.store, self.kinds, rules=reviewer, seed=seed)
        self.rules: access.Rules | None = None
        self.users: dict[str, str] = {}
        self.writes: list[Write] = []
        self.asked: list[str] = []  # method and path of each request
        self.bookmark_seconds = BOOKMARK_SECONDS
        self._breaks = 0
        self._open: set[asyncio.Task[None]] = set()

    def break_watches(self) -> None:
        """End every watch, without a last word."""
        self._breaks += 1
        self.store.wake()

    async def watches_ended(self) -> None:
        """Wait until the watches that were broken have ended, for a second at the most."""
        if self._open:
            await asyncio.wait(self._open, timeout=1)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        self.asked.append(f"{request.method} {request.path}")
        try:
            return await self._answered(request)
        except Refused as refused:
            if isinstance(refused.body, str):
                return web.Response(text=refused.body, status=refused.code, headers=refused.headers)
            return web.json_response(refused.body, status=refused.code, headers=refused.headers)

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        user = self._user_of(request)
        parts = request.path.strip("/").split("/")
        if len(parts) <= _DEPTHS.get(parts[0], len(parts)):
            self.faults.check("get", "", "", "")
            answer, kind_of = discovery.document(self.kinds, parts, request.headers.get("Accept", ""), request.host)
            if isinstance(answer, str):
                return web.Response(text=answer)
            return web.Response(body=json.dumps(answer).encode(), headers={"Content-Type": kind_of})
        path = requests.read_path(request.path)
        verb = requests.verb_of(request, path)
        self.faults.check(verb, path.group, path.plural, path.name)
        await asyncio.sleep(self.faults.delay(verb, path.plural))
        self._check_access(user, verb, path)  # who may not ask does not learn what is served
        if path.subresource == proxy.SUBRESOURCE and path.group == "" and verb == "get":
            return await proxy.pass_on(self.store, path, request)
        if path.subresource in (containers.EXEC, containers.LOG) and path.plural == "pods":
            return await self.containers.answer(self.store, path, request)
        target = requests.target_of(self.kinds, path)
        kind = target.kind
        requests.check_verb(verb, target)
        self.definitions.check(kind, verb)
        if verb == "watch":
            return await self._watched(request, target)
        if verb in ("get", "list"):
            answer = self._get(target) if verb == "get" else list_of(self.store, kind, target.namespace, request.query)
            return web.json_response(in_form(answer, kind, request.headers.get("Accept", "")))
        response = await self._written(request, user, verb, path, target)
        if self.faults.loses(verb, kind.plural) and request.transport is not None:
            request.transport.abort()
        return response

    async def _written(self, request: web.Request, user: str, verb: str, path: Path, target: Target) -> web.Response:
        """The answer to a write, which is noted."""
        intent = requests.intent_of(request)
        code, before, warnings = 500, self.store.version, []
        try:
            body = await requests.body_of(request, target.kind)
            before = self.store.version
            if verb in ("delete", "deletecollection"):
                answer, code = self._delete(target, body or {}, dry_run=intent.dry_run), 200
            else:
                self._check_grant(user, target, body)
                if request.content_type == APPLY and not path.subresource and self.store.get(target.key) is None:
                    self._check_access(user, "create", path)
                written = self._write(request, target, body, intent)
                answer, code, warnings = self._shown(target, written), 200 + written.created, written.warnings
        except Refused as refused:
            code = refused.code
            raise
        finally:
            self.writes.append(
                Write(
                    user=user, manager=intent.manager, verb=verb, resource=target.kind.resource, code=code,
                    namespace=target.namespace, name=target.name, subresource=target.subresource,
                    changed=self.store.version != before,
                )
            )  # fmt: skip
        response = web.json_response(answer, status=code)
        for warning in warnings:
            quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{quoted}"')
        return response

    def _user_of(self, request: web.Request) -> str:
        if not self.users:
            return ADMIN
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.users:
            raise Refused(401, "Unauthorized", "Unauthorized")
        return self.users.get(token, "system:anonymous")

    def _check_access(self, user: str, verb: str, path: Path) -> None:
        if self.rules is not None and user != ADMIN:
            access.check(
                self.rules, user, verb, path, namespace=path.namespace, name=path.name, subresource=path.subresource,
            )  # fmt: skip

    def _check_grant(self, user: str, target: Target, body: Json) -> None:
        if self.rules is not None and user != ADMIN and isinstance(body, dict):
            metadata = {**(body.get("metadata") or {}), "namespace": target.namespace}
            access.check_grant(self.rules, user, target.kind, {**body, "metadata": metadata}, self._rules_of)

    def _rules_of(self, kind: str, namespace: str, name: str) -> Iterable[Object]:
        """The rules of a role that is there."""
        resource = f"{kind.lower()}s.rbac.authorization.k8s.io"
        found = self.store.get(Key(resource, namespace if kind == "Role" else "", name))
        return found.get("rules") or () if found else ()

    def _get(self, target: Target) -> Object:
        item = self.store.get(target.key)
        kind = target.kind
        if item is None:
            raise not_found(kind.group, kind.plural, target.name)
        if target.subresource == SCALE and kind.scale:
            return scale_of(kind.scale, item)
        return shown(kind, item)

    def _shown(self, target: Target, written: Written) -> Object:
        if target.subresource == SCALE and target.kind.scale:
            return scale_of(target.kind.scale, written.item)
        return shown(target.kind, written.item)

    def _write(self, request: web.Request, target: Target, body: Json, intent: Intent) -> Written:
        kind, key, subresource, writer = target.kind, target.key, target.subresource, self.writer
        if request.method == "POST":
            return writer.create(kind, target.namespace, body, intent)
        if subresource == SCALE:
            return self._rescale(request, target, body, intent)
        if request.method == "PUT":
            return writer.replace(kind, key, body, subresource, intent)
        if request.content_type == APPLY:
            return writer.apply(kind, key, body, subresource, intent)
        if request.content_type == MERGE:
            return writer.patch(kind, key, lambda live: merge_patched(live, body), subresource, intent)
        if request.content_type == JSON:
            return writer.patch(kind, key, lambda live: json_patched(live, body), subresource, intent)
        accepted = f"accepted media types include: {JSON}, {MERGE}, {APPLY}"
        message = f"the body of the request was in an unknown format - {accepted}"
        raise Refused(415, "UnsupportedMediaType", message)

    def _rescale(self, request: web.Request, target: Target, body: Json, intent: Intent) -> Written:
        live, kind = self.store.get(target.key), target.kind
        if live is None or kind.scale is None:
            raise not_found(kind.group, kind.plural, target.name)
        if request.method == "PATCH":
            former = scale_of(kind.scale, live)
            body = json_patched(former, body) if request.content_type == JSON else merge_patched(former, body)
        item = rescaled(kind, kind.scale, target.key, live, body)
        return self.writer.rescale(kind, target.key, live, item, intent)

    def _delete(self, target: Target, options: Object, *, dry_run: bool) -> Object:
        if target.name:
            answer = delete(self.store, target.kind, target.key, options, dry_run=dry_run)
            return answer if answer["kind"] == "Status" else shown(target.kind, answer)
        gone = list_of(self.store, target.kind, target.namespace, {})
        for key, _ in tuple(self.store.all(target.kind.resource, target.namespace)):
            delete(self.store, target.kind, key, options, dry_run=dry_run)
        return gone

    async def _watched(self, request: web.Request, target: Target) -> web.StreamResponse:
        breaks, began = self._breaks, time.monotonic()

        def has_ended() -> bool:
            gone = self.definitions.gone_at(target.kind.resource)
            is_gone = gone is not None and began < gone < time.monotonic() - _WATCH_ENDS_SECONDS
            return is_gone or self._breaks != breaks

        watch = Watch(
            self.store, target.kind, target.namespace, request.query,
            has_ended=has_ended, bookmark_seconds=self.bookmark_seconds, accept=request.headers.get("Accept", ""),
        )  # fmt: skip
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        task = asyncio.ensure_future(_stream(watch, response))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        await task
        return response


async def _stream(watch: Watch, response: web.StreamResponse) -> None:
    """Send the events of a watch until it ends, or who watched is gone."""
    with contextlib.suppress(ConnectionResetError):
        async for line in watch.events():
            await response.write(line)
