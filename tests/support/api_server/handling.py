"""Answering requests: whether they may be asked, what is read and what is written."""

import asyncio
import contextlib
from dataclasses import dataclass

import msgspec
from aiohttp import web

from tests.support.api_server import containers, discovery, proxy, requests
from tests.support.api_server.answers import Json, Object, Refused, forbidden, not_found
from tests.support.api_server.faults import Faults
from tests.support.api_server.kinds import DEFINITION, Kind, Kinds, kinds_of, shown
from tests.support.api_server.reading import Lists, in_form
from tests.support.api_server.requests import APPLY, Path
from tests.support.api_server.store import ADDED, DELETED, Change, Store
from tests.support.api_server.watching import BOOKMARK_SECONDS, Watch
from tests.support.api_server.writing import Writer

ADMIN = "system:admin"
_DEPTHS = {"api": 2, "apis": 3}  # of the paths that name no collection
Rules = list[tuple[str, Object]]  # rules of RBAC by namespace, "" for everywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A request that wanted to write: who asked for what."""

    user: str
    verb: str  # RBAC's: create, update, patch, delete
    resource: str  # daemonsets.apps
    namespace: str
    name: str


class Handler:
    """Answers requests from a store.

    Where there are `rules`, a request that none of them allows is forbidden. `users` names the users of tokens; a token
    that it lacks is refused. While it is empty everybody is the administrator, who may do everything. `writes` are the
    requests that wanted to write, `asked` method and path of all, `paths` the verb and path of those below an API.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self.store = Store()
        self.kinds = Kinds()
        self.lists = Lists(self.store)
        self.containers = containers.Containers()
        self.faults = Faults(seed)
        self.writer = Writer(self.store, seed=seed)
        self.rules: Rules | None = None
        self.users: dict[str, str] = {}
        self.writes: list[Write] = []
        self.asked: list[str] = []
        self.paths: set[tuple[str, Path]] = set()
        self.forbidden: set[str] = set()  # the messages
        self.bookmark_seconds = BOOKMARK_SECONDS
        self._breaks = 0
        self._open: set[asyncio.Task[None]] = set()
        self.store.listeners.append(self._serve)

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
            return _json(refused.body, refused.code, refused.headers)

    async def _answered(self, request: web.Request) -> web.StreamResponse:
        user = self._user_of(request)
        parts = request.path.strip("/").split("/")
        if len(parts) <= _DEPTHS.get(parts[0], len(parts)):
            self.faults.check("get", "", "", "")
            return _json(discovery.document(self.kinds, parts))
        path = requests.read_path(request.path)
        verb = requests.verb_of(request, path)
        self.faults.check(verb, path.group, path.plural, path.name)
        await asyncio.sleep(self.faults.delay(verb, path.plural))
        self._check_access(user, verb, path)  # who may not ask does not learn what is served
        if path.subresource == proxy.SUBRESOURCE and path.group == "" and verb == "get":
            return await proxy.pass_on(self.store, path, request)
        if path.subresource in (containers.EXEC, containers.LOG) and path.plural == "pods":
            return await self.containers.answer(self.store, path, request)
        kind = requests.kind_of(self.kinds, path)
        if verb == "watch":
            return await self._watched(request, kind, path.namespace)
        if verb in ("get", "list"):
            answer = self._get(kind, path) if path.name else self.lists.answer(kind, path.namespace, request.query)
            return _json(in_form(answer, request.headers.get("Accept", "")))
        answer, code = await self._written(request, user, verb, path, kind)
        if self.faults.loses(verb, path.plural) and request.transport is not None:
            request.transport.abort()
        return _json(answer, code)

    async def _written(self, request: web.Request, user: str, verb: str, path: Path, kind: Kind) -> tuple[Object, int]:
        """The answer to a write, which is noted, and its status."""
        self.writes.append(
            Write(user=user, verb=verb, resource=kind.resource, namespace=path.namespace, name=path.name)
        )  # fmt: skip
        body = await requests.body_of(request)
        is_new = self.store.get(path.key(kind)) is None and not path.subresource
        if verb == "patch" and request.content_type == APPLY and is_new:
            self._check_access(user, "create", path)  # an apply that makes an object needs this right, too
        answer = self._write(request, kind, path, verb, body)
        if verb == "delete":
            return answer, 200
        is_made = verb == "create" or (verb == "patch" and is_new)
        return shown(kind, answer), 201 if is_made else 200

    def _write(self, request: web.Request, kind: Kind, path: Path, verb: str, body: Json) -> Object:
        key, manager = path.key(kind), requests.manager_of(request)
        if verb == "delete":
            return self.writer.delete(kind, key, body or {})
        if verb == "create":
            return self.writer.create(kind, path.namespace, body, manager)
        if verb == "update":
            return self.writer.replace(kind, key, body, manager)
        if request.content_type == APPLY:
            force = request.query.get("force") == "true"
            return self.writer.apply(kind, key, body, path.subresource, manager, force=force)
        return self.writer.merge(kind, key, body, path.subresource, manager)

    def _user_of(self, request: web.Request) -> str:
        if not self.users:
            return ADMIN
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.users:
            raise Refused(401, "Unauthorized", "Unauthorized")
        return self.users.get(token, "system:anonymous")

    def _check_access(self, user: str, verb: str, path: Path) -> None:
        """Refuse what no rule allows, whether or not it is served."""
        if self.rules is None or user == ADMIN:
            return
        self.paths.add((verb, path))
        if any(where in ("", path.namespace) and _allows(rule, verb, path) for where, rule in self.rules):
            return
        where = f'in the namespace "{path.namespace}"' if path.namespace else "at the cluster scope"
        why = f'User "{user}" cannot {verb} resource "{path.resource}" in API group "{path.group}" {where}'
        refused = forbidden(path.group, path.plural, path.name, why)
        self.forbidden.add(str(refused))
        raise refused

    def _get(self, kind: Kind, path: Path) -> Object:
        item = self.store.get(path.key(kind))
        if item is None:
            raise not_found(kind.group, kind.plural, path.name)
        return shown(kind, item)

    def _serve(self, change: Change) -> None:
        """Serve what the definitions define."""
        if change.key.resource != DEFINITION.resource:
            return
        if change.what in (ADDED, DELETED):
            self.kinds.remove(change.key.name)
        for kind in kinds_of(change.item) if change.what != DELETED else ():
            self.kinds.add(kind)

    async def _watched(self, request: web.Request, kind: Kind, namespace: str) -> web.StreamResponse:
        breaks = self._breaks

        def has_ended() -> bool:
            return self._breaks != breaks or self.kinds.find(kind.group, kind.version, kind.plural) is None

        watch = Watch(
            store=self.store, kind=kind, namespace=namespace, query=request.query, has_ended=has_ended,
            bookmark_seconds=self.bookmark_seconds, accept=request.headers.get("Accept", ""),
        )  # fmt: skip
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        task = asyncio.ensure_future(_stream(watch, response))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        await task
        return response


def _allows(rule: Object, verb: str, path: Path) -> bool:
    names = rule.get("resourceNames")
    wanted = (("verbs", verb), ("apiGroups", path.group), ("resources", path.resource))
    return (not names or path.name in names) and all({value, "*"} & {*rule[field]} for field, value in wanted)


def _json(answer: Object, code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(answer)
    return web.Response(body=body, status=code, headers=headers, content_type="application/json")


async def _stream(watch: Watch, response: web.StreamResponse) -> None:
    """Send the events of a watch until it ends, or who watched is gone."""
    with contextlib.suppress(ConnectionResetError):
        async for line in watch.events():
            await response.write(line)
