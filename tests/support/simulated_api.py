"""The simulated Kubernetes API with all that tests do to it: it refuses, forgets, and has other objects, in parts.

Its unkind answers are those of a real one (tests/data/kubernetes-1.36).
"""

import asyncio
import json

from aiohttp import web

from exporter.simulator import kubernetes
from exporter.simulator.kubernetes import Object
from exporter.simulator.world import World

REPUBLISHED_SECONDS = 30.0
# The collections of namespaces, by the kinds of their objects.
COLLECTIONS = {
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
}


def key_of(item: Object) -> str:
    """By which an object of a namespace is known here."""
    metadata = item["metadata"]
    return f"{COLLECTIONS[item['kind']].format(namespace=metadata['namespace'])} {metadata['name']}"


def resource_of(path: str) -> tuple[str, str]:
    """The API group and the resource of a collection's path."""
    parts = path.strip("/").split("/")
    return (parts[1] if parts[0] == "apis" else ""), parts[-1]


def forbidden(path: str, namespace: str, verb: str = "list") -> web.Response:
    """What RBAC says of a collection, in a real API server's words."""
    group, resource = resource_of(path)
    message = (
        f'{resource} is forbidden: User "system:serviceaccount:simulated" cannot {verb} resource "{resource}"'
        f' in API group "{group}"' + (f' in the namespace "{namespace}"' if namespace else " at the cluster scope")
    )
    return web.json_response(status_of(403, "Forbidden", message, details={"kind": resource}), status=403)


def status_of(code: int, reason: str, message: str, **more: Object) -> Object:
    """The object that says why a request failed."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return {**status, "reason": reason, **more, "code": code}


class SimulatedApi(kubernetes.SimulatedApi):
    """Answers with `failure` (a status and headers) where that is set.

    `objects` are other objects by path, discovery documents included. `gets` are the paths of objects that were asked
    for. `slices`, where it is set, are the ResourceSlices in place of those of the world. `rules` are those of RBAC by
    namespace, "" for all of them; a request that none allows is forbidden, where there are any.

    `compact` forgets old versions, so that watches and pages of lists from them are answered with 410 Gone.
    `wipe_slices` deletes the ResourceSlices, as a starting kubelet does.
    """

    def __init__(self, world: World, *, node_name: str = "gpu-node-1", slice_version: str = "v1") -> None:
        super().__init__(world, node_name=node_name)
        self.slice_version = slice_version
        self.lists = self.watches = 0
        self.gets: list[str] = []
        self.objects: dict[str, Object] = {}
        self.failure: tuple[int, dict[str, str]] | None = None
        self.slices: list[Object] | None = None
        self.rules: list[tuple[str, Object]] | None = None
        self.seen_tokens: set[str] = set()
        self._slices_back_at = 0.0
        self._oldest = 1
        self._placed: dict[str, Object] = {}
        self._pages: dict[str, tuple[int, list[Object]]] = {}  # by token: a list's version, and what is left of it

    def add_routes(self, router: web.UrlDispatcher) -> None:
        super().add_routes(router)
        for path in COLLECTIONS.values():
            router.add_get(path, self.answer)

    def compact(self) -> None:
        """Forget all versions before now, and end every watch; a new one must begin with a list."""
        self.look()
        self.version += 1
        self._oldest = self.version
        self.gone = []
        self._pages.clear()
        self.break_watches()

    def forget(self) -> None:
        """Start over with the objects of now: objects that are gone are never reported as deleted."""
        self.versions = {}
        self.compact()

    def wipe_slices(self, *, away_seconds: float = REPUBLISHED_SECONDS) -> None:
        """Delete the ResourceSlices; the driver publishes them again under other names and uids."""
        self._slices_back_at = asyncio.get_running_loop().time() + away_seconds
        self.publication += 1

    def put(self, item: Object) -> None:
        """An EndpointSlice or a Pod is there in its namespace, or has changed."""
        self._placed[key_of(item)] = item

    def remove(self, item: Object) -> None:
        """It is there no longer."""
        del self._placed[key_of(item)]

    def objects_now(self) -> dict[str, Object]:
        return {**super().objects_now(), **self._placed}

    def slices_now(self) -> list[Object]:
        if asyncio.get_running_loop().time() < self._slices_back_at:
            return []
        slices = super().slices_now() if self.slices is None else self.slices
        if self.slice_version == "v1beta1" and self.slices is None:
            for each in slices:
                devices = each["spec"]["devices"]
                each["spec"]["devices"] = [
                    {"name": one["name"], "basic": {"attributes": one["attributes"]}} for one in devices
                ]
        return slices

    def is_meant(self, request: web.Request, key: str, item: Object) -> bool:
        wanted = filter(None, request.query.get("labelSelector", "").split(","))
        labels = item["metadata"].get("labels") or {}
        return super().is_meant(request, key, item) and all(
            labels.get(pair.partition("=")[0]) == pair.partition("=")[2] for pair in wanted
        )

    async def answer(self, request: web.Request) -> web.StreamResponse:
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
        since = int(request.query.get("resourceVersion") or 0)
        if is_watch and since < self._oldest:
            # a real one says so in a stream that has begun well
            message = f"too old resource version: {since} ({self._oldest})"
            event = {"type": "ERROR", "object": status_of(410, "Expired", message)}
            return web.Response(text=f"{json.dumps(event)}\n", content_type="application/json")
        return await super().answer(request)

    def answer_list(self, request: web.Request) -> web.Response:
        """The next page of a list; of any version (resourceVersion=0) the watch cache gives all of it."""
        query, version = request.query, self.version
        token, limit = query.get("continue", ""), int(query.get("limit", "0"))
        if token and query.get("resourceVersion", "") not in ("", "0"):
            refused = status_of(400, "BadRequest", "specifying resource version is not allowed when using continue")
            return web.json_response(refused, status=400)
        if token and token not in self._pages:
            message = "The provided continue parameter is too old to display a consistent list result."
            return web.json_response(status_of(410, "Expired", message), status=410)
        version, items = self._pages[token] if token else (version, self.listed(request))
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

    async def answer_one(self, request: web.Request) -> web.Response:
        self.gets.append(request.path)
        collection = request.path.rpartition("/")[0]
        namespace = collection.rpartition("/namespaces/")[2].partition("/")[0]
        if not self._may("get", collection, namespace):
            return forbidden(collection, namespace, "get")
        if self.failure is not None:
            return web.json_response({"kind": "Status", "code": self.failure[0]}, status=self.failure[0])
        if request.path in self.objects:
            return web.json_response(self.objects[request.path])
        return await super().answer_one(request)
