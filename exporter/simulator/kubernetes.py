"""A Kubernetes API server on a loopback port, which lists and watches.

It knows the pods and ResourceSlices of a world, and EndpointSlices and pods of any namespace that it is given. Its
unkind answers are those of a real one (tests/data/kubernetes-1.36).
"""

import asyncio
import json
import ssl
from datetime import UTC, datetime

from aiohttp import web

from exporter.simulator.kubernetes_requests import (
    COLLECTIONS,
    Object,
    forbidden,
    is_meant,
    key_of,
    resource_of,
    status_of,
)
from exporter.simulator.pods_api import container_id
from exporter.simulator.serving import Serving
from exporter.simulator.world import DRA_DRIVER, DRA_POOL, Pod, World

LOOK_SECONDS = 0.02
BOOKMARK_SECONDS = 0.2
REPUBLISHED_SECONDS = 30.0


class SimulatedApi:
    """Answers list and watch with bookmarks, or with `failure` (a status and headers) where that is set.

    `objects` are other objects by path, discovery documents included. A ReplicaSet that is not among them is controlled
    by a Deployment of the same name. `gets` are the paths of objects that were asked for. `slices`, where it is set,
    are the ResourceSlices in place of those of the world. `rules` are those of RBAC by namespace, "" for all of them; a
    request that none allows is forbidden, where there are any.

    `compact` forgets old versions, so that watches and pages of lists from them are answered with 410 Gone.
    `wipe_slices` deletes the ResourceSlices, as a starting kubelet does.
    """

    def __init__(self, world: World, *, node_name: str = "gpu-node-1", slice_version: str = "v1") -> None:
        self.lists = self.watches = 0
        self.gets: list[str] = []
        self.objects: dict[str, Object] = {}
        self.failure: tuple[int, dict[str, str]] | None = None
        self.slices: list[Object] | None = None
        self.rules: list[tuple[str, Object]] | None = None
        self.seen_tokens: set[str] = set()
        self._world = world
        self.node_name = self._node_name = node_name
        self._slice_version = slice_version
        self._slices_back_at = 0.0
        self._publications = 1
        self._oldest = 1
        self._now = 1
        self._placed: dict[str, Object] = {}
        self._known: dict[str, tuple[Object, int]] = {}
        self._gone: list[tuple[str, Object, int]] = []
        self._pages: dict[str, tuple[int, list[Object]]] = {}  # by token: a list's version, and what is left of it
        self._broken = asyncio.Event()
        self._serving: Serving | None = None

    async def start(self, port: int = 0, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> str:
        """Listen, with TLS where `tls` is given. Returns the URL on loopback, which is the default host."""
        app = web.Application()
        app.router.add_get("/api/v1/pods", self._answer)
        app.router.add_get(f"/apis/resource.k8s.io/{self._slice_version}/resourceslices", self._answer)
        for path in COLLECTIONS.values():
            app.router.add_get(path, self._answer)
        app.router.add_get("/{path:api(s?)/.*}", self._one)
        self._serving = Serving(app, drain_seconds=0.1)
        await self._serving.start(host, port, tls)
        return f"{'https' if tls else 'http'}://127.0.0.1:{self._serving.address[1]}"

    async def stop(self) -> None:
        """Stop listening, and end every watch."""
        self.break_watches()
        if self._serving is not None:
            await self._serving.stop()
            self._serving = None

    def break_watches(self) -> None:
        """End every watch."""
        self._broken.set()
        self._broken = asyncio.Event()

    def compact(self) -> None:
        """Forget all versions before now, and end every watch; a new one must begin with a list."""
        self._look()
        self._now += 1
        self._oldest = self._now
        self._gone = []
        self._pages.clear()
        self.break_watches()

    def forget(self) -> None:
        """Start over with the objects of now: objects that are gone are never reported as deleted."""
        self._known = {}
        self.compact()

    def wipe_slices(self, *, away_seconds: float = REPUBLISHED_SECONDS) -> None:
        """Delete the ResourceSlices; the driver publishes them again under other names and uids."""
        self._slices_back_at = asyncio.get_running_loop().time() + away_seconds
        self._publications += 1

    def put(self, item: Object) -> None:
        """An EndpointSlice or a Pod is there in its namespace, or has changed."""
        self._placed[key_of(item)] = item

    def remove(self, item: Object) -> None:
        """It is there no longer."""
        del self._placed[key_of(item)]

    def _look(self) -> None:
        """Compare the world with the last look, and give every changed or deleted object a new version."""
        objects = {f"/api/v1/pods {pod.uid}": _pod(pod, self._node_name) for pod in self._world.pods}
        for item in self._slices_now():
            objects[f"/resourceslices {item['metadata']['name']}"] = item
        objects.update(self._placed)
        for key, item in objects.items():
            if key not in self._known or self._known[key][0] != item:
                self._now += 1
                self._known[key] = (item, self._now)
        for key in self._known.keys() - objects.keys():
            self._now += 1
            self._gone.append((key, self._known.pop(key)[0], self._now))

    def _slices_now(self) -> list[Object]:
        """The ResourceSlices of now: one pool of two slices, as drivers publish GPUs and their MIG devices."""
        if asyncio.get_running_loop().time() < self._slices_back_at:
            return []
        if self.slices is not None:
            return self.slices
        devices = []
        for gpu in self._world.gpus:
            if gpu.claimed:
                attributes = {"uuid": {"string": gpu.uuid}, "type": {"string": "gpu"}, "index": {"int": gpu.index}}
                inner = {"attributes": attributes}
                is_old = self._slice_version == "v1beta1"
                devices.append({"name": gpu.claim_device, **({"basic": inner} if is_old else inner)})
        pool = {"name": DRA_POOL, "generation": 1, "resourceSliceCount": 2}
        spec = {"driver": DRA_DRIVER, "nodeName": self._node_name, "pool": pool}
        return [
            {
                "metadata": {
                    "name": f"{self._node_name}-{DRA_DRIVER}-{self._publications}-{number}",
                    "uid": f"uid-{self._publications}-{number}",
                },
                "spec": {**spec, "devices": devices[number::2]},
            }
            for number in range(2)
        ]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen_tokens.add(request.headers.get("Authorization", ""))
        is_watch = request.query.get("watch") == "1"
        self.watches += is_watch
        self.lists += not is_watch
        if self.failure is not None:
            status, headers = self.failure
            return web.json_response({"kind": "Status", "code": status}, status=status, headers=headers)
        namespace = request.match_info.get("namespace", "")
        if not self._may("watch" if is_watch else "list", request.path, namespace):
            return forbidden(request.path, namespace)
        if not namespace and request.query.get("fieldSelector") != f"spec.nodeName={self._node_name}":
            return web.json_response({"items": [], "metadata": {"resourceVersion": "1"}})
        self._look()
        if is_watch:
            return await self._watch(request)
        return self._page(request)

    def _page(self, request: web.Request) -> web.Response:
        """The next page of a list; of any version (resourceVersion=0) the watch cache gives all of it."""
        query, version = request.query, self._now
        token, limit = query.get("continue", ""), int(query.get("limit", "0"))
        if token and query.get("resourceVersion", "") not in ("", "0"):
            refused = status_of(400, "BadRequest", "specifying resource version is not allowed when using continue")
            return web.json_response(refused, status=400)
        if token and token not in self._pages:
            message = "The provided continue parameter is too old to display a consistent list result."
            return web.json_response(status_of(410, "Expired", message), status=410)
        if token:
            version, items = self._pages[token]
        else:
            items = [
                _versioned(item, made) for key, (item, made) in self._known.items() if is_meant(request, key, item)
            ]
            items.sort(key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"]))
        metadata = {"resourceVersion": str(version)}
        if 0 < limit < len(items) and query.get("resourceVersion") != "0":
            metadata["continue"] = f"{version}-{len(self._pages)}"
            self._pages[metadata["continue"]] = version, items[limit:]
            items = items[:limit]
        return web.json_response({"metadata": metadata, "items": items})

    def _may(self, verb: str, path: str, namespace: str) -> bool:
        """Whether a rule of RBAC allows it, in the namespace or everywhere."""
        group, resource = resource_of(path)
        return self.rules is None or any(
            where in ("", namespace)
            and group in rule["apiGroups"]
            and resource in rule["resources"]
            and verb in rule["verbs"]
            for where, rule in self.rules
        )

    async def _one(self, request: web.Request) -> web.Response:
        self.gets.append(request.path)
        collection, _, named = request.path.rpartition("/")
        namespace = collection.rpartition("/namespaces/")[2].partition("/")[0]
        if not self._may("get", collection, namespace):
            return forbidden(collection, namespace, "get")
        item = self.objects.get(request.path)
        if item is None and collection.startswith("/apis/apps/v1/") and collection.endswith("/replicasets"):
            item = controlled_by("apps/v1", "Deployment", named)
        if self.failure is not None or item is None:
            status = self.failure[0] if self.failure else 404
            return web.json_response({"kind": "Status", "code": status}, status=status)
        return web.json_response(item)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion") or 0)
        broken = self._broken
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if since < self._oldest:
            # a real one says so in a stream that has begun well
            message = f"too old resource version: {since} ({self._oldest})"
            await _send(response, "ERROR", status_of(410, "Expired", message))
            return response
        bookmark_at = asyncio.get_running_loop().time() + BOOKMARK_SECONDS
        told = {key for key, (item, seen) in self._known.items() if seen <= since and is_meant(request, key, item)}
        while not broken.is_set():
            self._look()
            for version, what, item in self._events(request, since, told):
                await _send(response, what, _versioned(item, version))
            since = self._now
            if asyncio.get_running_loop().time() >= bookmark_at:
                bookmark_at += BOOKMARK_SECONDS
                await _send(response, "BOOKMARK", {"metadata": {"resourceVersion": str(since)}})
            await asyncio.sleep(LOOK_SECONDS)
        return response

    def _events(self, request: web.Request, since: int, told: set[str]) -> list[tuple[int, str, Object]]:
        """What has happened after a version to what is watched. `told` are the keys that the watch has told of."""
        events = []
        for key, (item, version) in self._known.items():
            if version > since and is_meant(request, key, item):
                events.append((version, "MODIFIED" if key in told else "ADDED", item))
                told.add(key)
            elif version > since and key in told:
                # its labels are others now: to who watches by labels, it is gone
                events.append((version, "DELETED", item))
                told.remove(key)
        for key, item, version in self._gone:
            if version > since and is_meant(request, key, item):
                events.append((version, "DELETED", item))
                told.discard(key)
        return sorted(events, key=lambda event: event[0])


def controlled_by(api_version: str, kind: str, name: str) -> Object:
    """The part of an object that says which other object controls it."""
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-of-{kind}-{name}", "controller": True}
    return {"metadata": {"ownerReferences": [owner]}}


def _pod(pod: Pod, node_name: str) -> Object:
    kind, name = pod.owner
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}
    return {
        "metadata": {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "creationTimestamp": f"{datetime.fromtimestamp(pod.created, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "labels": dict(pod.labels),
            "ownerReferences": [owner] if kind else None,
        },
        "spec": {"nodeName": node_name},
        "status": _status(pod) if pod.is_acknowledged else {"phase": "Pending", "qosClass": "BestEffort"},
    }


def _status(pod: Pod) -> Object:
    """The status that a kubelet writes once it knows the pod."""
    return {
        "phase": pod.phase,
        "podIP": pod.ip,
        "startTime": "2026-11-21T23:08:28Z",
        "containerStatuses": [
            {"name": container.name, "containerID": container_id(pod, container.name)} for container in pod.containers
        ],
    }


def _versioned(item: Object, version: int) -> Object:
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}


async def _send(response: web.StreamResponse, kind: str, item: Object) -> None:
    await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
