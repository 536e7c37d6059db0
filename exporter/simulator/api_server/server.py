"""The simulated Kubernetes API server: its listener, what it knows, and what a test may do to it."""

import asyncio
import copy
import ssl
import time
from dataclasses import dataclass

from aiohttp import web

from exporter.simulator.api_server import access, discovery, requests
from exporter.simulator.api_server.answers import (
    Json,
    Object,
    Refused,
    RefusedInWords,
    no_resource,
    not_found,
    not_served,
)
from exporter.simulator.api_server.definitions import Definitions
from exporter.simulator.api_server.deleting import delete
from exporter.simulator.api_server.faults import Faults
from exporter.simulator.api_server.garbage import Collector
from exporter.simulator.api_server.kinds import Kinds
from exporter.simulator.api_server.patches import json_patched, merge_patched
from exporter.simulator.api_server.reading import list_of, shown
from exporter.simulator.api_server.requests import APPLY, JSON, MERGE, Target
from exporter.simulator.api_server.scaling import rescaled, scale_of
from exporter.simulator.api_server.store import Key, Store
from exporter.simulator.api_server.validation import Rules
from exporter.simulator.api_server.watching import BOOKMARK_SECONDS, Watch
from exporter.simulator.api_server.writing import SCALE, Writer, Written, now

_WATCH_ENDS_SECONDS = 1.0  # after its definition has gone
_NAMESPACES = ("default", "kube-system")
_MOST_BYTES = 3 * 1024**2
_METADATA_ONLY = "PartialObjectMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A request that wanted to write: who asked for what, how it was answered, and whether anything changed by it."""

    user: str
    manager: str
    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    code: int
    changed: bool


class SimulatedApiServer:
    """Serves built-in kinds and those that CustomResourceDefinitions define, from its memory.

    `rules` are those of RBAC by namespace, "" for everywhere; where there are any, a request that none allows is
    forbidden. `users` names the users of tokens; a token that it lacks is refused, unless it is empty. `writes` are the
    requests that wanted to write. `reviewer` says what is wrong by a rule in CEL; without one these are not checked.
    """

    def __init__(self, *, reviewer: Rules | None = None, seed: int = 0) -> None:
        self.store = Store()
        self.kinds = Kinds()
        self.faults = Faults(seed)
        self.definitions = Definitions(self.store, self.kinds, now=now)
        self.writer = Writer(self.store, self.kinds, rules=reviewer, seed=seed)
        self.collector = Collector(self.store, self.kinds)
        self.rules: access.Rules | None = None
        self.users: dict[str, str] = {}
        self.writes: list[Write] = []
        self.asked: list[str] = []  # method and path of each request
        self.bookmark_seconds = BOOKMARK_SECONDS
        self.url = ""
        self._breaks = 0
        self._app: web.AppRunner | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.background = [self.collector.run]  # what runs while it listens
        for name in _NAMESPACES:
            self.add_namespace(name)

    def add_namespace(self, name: str) -> None:
        """Make a namespace."""
        item = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "status": {"phase": "Active"}}
        self.put(item)

    def put(self, item: Object) -> Object:
        """Make an object what it is told to be, status included, past every check. Returns it as it is stored."""
        kind = self.kinds.of_object(item["apiVersion"], item["kind"])
        if kind is None:
            raise KeyError(f"{item['apiVersion']} {item['kind']}")
        metadata = item["metadata"]
        key = Key(kind.resource, metadata.get("namespace", "") if kind.namespaced else "", metadata["name"])
        live = self.store.get(key)
        given = {
            "uid": f"uid-{kind.plural}-{key.namespace}-{key.name}-{self.store.version}",
            "creationTimestamp": now(),
        }
        before = live["metadata"] if live else given
        return self.store.put(key, {**copy.deepcopy(kind.skeleton), **item, "metadata": {**before, **metadata}})

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """An object by its kind's name, or None."""
        return next((item for item in self.all(kind) if _is_named(item, namespace, name)), None)

    def all(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [item for _, item in self.store.all() if item["kind"] == kind]

    async def start(self, port: int = 0, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> str:
        """Listen, with TLS where `tls` is given. Returns the URL on loopback."""
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._app = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
        await self._app.setup()
        await web.TCPSite(self._app, host, port, ssl_context=tls, reuse_address=True).start()
        self._tasks = [asyncio.ensure_future(run()) for run in self.background]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._app.addresses[0][1]}"
        return self.url

    async def stop(self) -> None:
        """Stop listening, and end every watch; what is stored is kept for the next start."""
        self.break_watches()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._app is not None:
            await self._app.cleanup()
            self._app = None

    def break_watches(self) -> None:
        """End every watch, without a last word."""
        self._breaks += 1

    def compact(self) -> None:
        """Forget all versions before now, and end every watch; a new one from an old version is answered with 410."""
        self.store.compact()
        self.break_watches()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
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
        depth = {"api": 2, "apis": 3}.get(parts[0])
        if depth is None or len(parts) <= depth:
            self.faults.check("get", "", "", "")
            return self._discovered(request, parts)
        target = requests.target_of(self.kinds, request.path)
        verb = requests.verb_of(request, target)
        kind = target.kind
        self.faults.check(verb, kind.group, kind.plural, target.name)
        self._check_access(user, verb, target)
        self.definitions.check(kind, verb)
        if verb == "watch":
            return await self._watched(request, target)
        if verb == "list":
            return self._read(request, list_of(self.store, kind, target.namespace, request.query))
        if verb == "get":
            return self._read(request, self._get(target))
        code, changed, intent = 500, False, requests.intent_of(request)
        try:
            body = await requests.body_of(request, kind)
            if verb in ("delete", "deletecollection"):
                before = self.store.version
                answer: Object = self._delete(target, body or {}, dry_run=intent.dry_run)
                code, changed, warnings = 200, self.store.version != before, []
            else:
                self._check_grant(user, target, body)
                written = self._write(request, user, target, body)
                answer, warnings = self._shown(target, written), written.warnings
                code, changed = 201 if written.created else 200, written.changed and not intent.dry_run
        except Refused as refused:
            code = refused.code
            raise
        finally:
            self.writes.append(
                Write(user=user, manager=intent.manager, verb=verb, resource=kind.resource, code=code, changed=changed,
                      namespace=target.namespace, name=target.name, subresource=target.subresource)
            )  # fmt: skip
        response = web.json_response(answer, status=code)
        for warning in warnings:
            quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{quoted}"')
        return response

    def _user_of(self, request: web.Request) -> str:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not self.users:
            return "system:admin"
        if not token:
            return "system:anonymous"
        if token not in self.users:
            raise Refused(401, "Unauthorized", "Unauthorized")
        return self.users[token]

    def _check_access(self, user: str, verb: str, target: Target) -> None:
        if self.rules is not None and user != "system:admin":
            access.check(
                self.rules, user, verb, target.kind,
                namespace=target.namespace, name=target.name, subresource=target.subresource,
            )  # fmt: skip

    def _check_grant(self, user: str, target: Target, body: Json) -> None:
        if self.rules is not None and user != "system:admin" and isinstance(body, dict):
            metadata = {**(body.get("metadata") or {}), "namespace": target.namespace}
            access.check_grant(self.rules, user, target.kind, {**body, "metadata": metadata})

    def _discovered(self, request: web.Request, parts: list[str]) -> web.Response:
        groups = self.kinds.groups()
        accept = request.headers.get("Accept", "")
        if parts[0] == "version":
            return web.json_response(discovery.VERSION)
        if parts[0] in ("healthz", "livez", "readyz"):
            return web.Response(text="ok")
        if parts[0] not in ("api", "apis"):
            raise not_served()
        if len(parts) == 1:
            if discovery.AGGREGATED in accept:
                answer = discovery.aggregated(self.kinds, groups, is_core=parts[0] == "api")
                kind = f"application/json;g={discovery.AGGREGATED};v=v2;as=APIGroupDiscoveryList"
                return web.json_response(answer, headers={"Content-Type": kind})
            return web.json_response(
                discovery.core_versions(request.host) if parts[0] == "api" else discovery.group_list(groups)
            )
        if parts[0] == "apis" and parts[1] not in groups:
            raise not_served()
        if parts[0] == "apis" and len(parts) == 2:  # noqa: PLR2004
            return web.json_response(discovery.group(parts[1], groups[parts[1]]))
        api_version = "/".join(parts[1:])
        if not any(kind.api_version == api_version for kind in self.kinds):
            raise no_resource() if parts[0] == "apis" else RefusedInWords(404, "404 page not found")
        return web.json_response(discovery.resource_list(self.kinds, api_version))

    def _get(self, target: Target) -> Object:
        item = self.store.get(target.key)
        kind = target.kind
        if item is None:
            raise not_found(kind.group, kind.plural, target.name)
        if target.subresource == SCALE and kind.scale:
            return scale_of(kind.scale, item)
        return shown(kind, item)

    def _read(self, request: web.Request, answer: Object) -> web.Response:
        """The answer to a get or a list, in the form that is asked for."""
        if _METADATA_ONLY not in request.headers.get("Accept", ""):
            return web.json_response(answer)
        about = {"apiVersion": "meta.k8s.io/v1", "kind": _METADATA_ONLY}
        if "items" not in answer:
            return web.json_response({**about, "metadata": answer["metadata"]})
        items = [{**about, "metadata": item["metadata"]} for item in answer["items"]]
        return web.json_response(
            {**about, "kind": f"{_METADATA_ONLY}List", "metadata": answer["metadata"], "items": items}
        )

    def _shown(self, target: Target, written: Written) -> Object:
        if target.subresource == SCALE and target.kind.scale:
            return scale_of(target.kind.scale, written.item)
        return shown(target.kind, written.item)

    def _write(self, request: web.Request, user: str, target: Target, body: Json) -> Written:
        kind, key, intent = target.kind, target.key, requests.intent_of(request)
        if request.method == "POST":
            return self.writer.create(kind, target.namespace, body, intent)
        if target.subresource == SCALE:
            return self._rescale(request, target, body)
        if request.method == "PUT":
            return self.writer.replace(kind, key, body, target.subresource, intent)
        if request.content_type == APPLY:
            if self.store.get(key) is None:
                self._check_access(user, "create", target)
            return self.writer.apply(kind, key, body, target.subresource, intent)
        if request.content_type == MERGE:
            return self.writer.patch(kind, key, lambda live: merge_patched(live, body), target.subresource, intent)
        if request.content_type == JSON:
            return self.writer.patch(kind, key, lambda live: json_patched(live, body), target.subresource, intent)
        said = (
            f"the body of the request was in an unknown format - accepted media types include: {JSON}, {MERGE}, {APPLY}"
        )
        raise Refused(415, "UnsupportedMediaType", said)

    def _rescale(self, request: web.Request, target: Target, body: Json) -> Written:
        live = self.store.get(target.key)
        if live is None:
            raise not_found(target.kind.group, target.kind.plural, target.name)
        assert target.kind.scale is not None  # noqa: S101 (a path without one is not served)
        if request.method == "PATCH":
            former = scale_of(target.kind.scale, live)
            body = json_patched(former, body) if request.content_type == JSON else merge_patched(former, body)
        item = rescaled(target.kind, target.kind.scale, target.key, live, body)
        return self.writer.rescale(target.kind, target.key, live, item, requests.intent_of(request))

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
            return is_gone or self._breaks != breaks or self._app is None

        watch = Watch(
            self.store, target.kind, target.namespace, request.query,
            has_ended=has_ended, bookmark_seconds=self.bookmark_seconds,
        )  # fmt: skip
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        async for line in watch.events():
            await response.write(line)
        return response


def _is_named(item: Object, namespace: str, name: str) -> bool:
    return bool(item["metadata"].get("namespace", "") == namespace and item["metadata"]["name"] == name)
