"""A simulated Kubernetes API of a world's pods and ResourceSlices, which answers as a recorded 1.36 did.

Tests: tests/simulator/test_allocators.py.
"""

import asyncio
import json
import re
import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from exporter.simulator.driver_files import UID_LENGTH, claim_status
from exporter.simulator.parts import DRA_DRIVER, DRA_POOL, Pod, SimulatedGpu
from exporter.simulator.pods_api import described, spec
from exporter.simulator.serving import Serving
from exporter.simulator.world import World

Object = dict[str, Any]
LOOK_SECONDS = 0.02
BOOKMARK_SECONDS = 0.2
_XIDS_OF_PROGRAMS = {13, 31, 43, 45, 68, 109}  # the driver's own list (its device_health.go)


class SimulatedApi:
    """Answers list and watch, with bookmarks (compare tests/data/kubernetes-1.36).

    A Deployment of the same name controls a ReplicaSet. If a Job's name ends with a minute since 1970 (8 digits), its
    CronJob controls it; nobody controls any other Job.
    """

    slice_version = "v1"

    def __init__(self, world: World, *, node_name: str = "gpu-node-1") -> None:
        self._world = world
        self.node_name = node_name
        self.publication = 1  # of the ResourceSlices
        self.version = 1
        self.versions: dict[str, tuple[Object, int]] = {}
        self.gone: list[tuple[str, Object, int]] = []
        self._tainted_at: dict[tuple[str, int], str] = {}  # by the GPU and its error
        self._broken = asyncio.Event()
        self._serving: Serving | None = None

    async def start(self, port: int = 0, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> str:
        """Listen, with TLS if `tls` is given. Returns the URL on loopback, which is the default host."""
        app = web.Application()
        self.add_routes(app.router)
        app.router.add_get("/{path:api(s?)/.*}", self.answer_one)
        self._serving = Serving(app, drain_seconds=0.1)
        await self._serving.start(host, port, tls)
        return f"{'https' if tls else 'http'}://127.0.0.1:{self._serving.address[1]}"

    async def stop(self) -> None:
        """Stop listening, and end every watch."""
        self.break_watches()
        if self._serving is not None:
            await self._serving.stop()
            self._serving = None

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Add the paths of the collections."""
        router.add_get("/api/v1/pods", self.answer)
        router.add_get(f"/apis/resource.k8s.io/{self.slice_version}/resourceslices", self.answer)

    def break_watches(self) -> None:
        """End every watch."""
        self._broken.set()
        self._broken = asyncio.Event()

    def objects_now(self) -> dict[str, Object]:
        """All present objects, by their paths and names."""
        objects = {f"/api/v1/pods {pod.uid}": pod_object(pod, self.node_name) for pod in self._world.seen}
        for item in self.slices_now():
            objects[f"/resourceslices {item['metadata']['name']}"] = item
        return objects

    def look(self) -> None:
        """Compare the objects with those of the last look, and give every changed or deleted one a new version."""
        objects = self.objects_now()
        for key, item in objects.items():
            if key not in self.versions or self.versions[key][0] != item:
                self.version += 1
                self.versions[key] = (item, self.version)
        for key in self.versions.keys() - objects.keys():
            self.version += 1
            self.gone.append((key, self.versions.pop(key)[0], self.version))

    def slices_now(self) -> list[Object]:
        """The present ResourceSlices: a pool of two slices, as drivers publish GPUs and their MIG devices."""
        devices: list[Object] = []
        for gpu in self._world.gpus:
            if gpu.claimed:
                taints = self._taints(gpu.uuid)
                devices += (_device_of_slice(gpu, name, taints) for _, name in gpu.slots)
        pool = {"name": DRA_POOL, "generation": 1, "resourceSliceCount": 2}
        spec = {"driver": DRA_DRIVER, "nodeName": self.node_name, "pool": pool}
        return [
            {
                "metadata": {
                    "name": f"{self.node_name}-{DRA_DRIVER}-{self.publication}-{number}",
                    "uid": f"uid-{self.publication}-{number}",
                },
                "spec": {**spec, "devices": devices[number::2]},
            }
            for number in range(2)
        ]

    def _taints(self, uuid: str) -> list[Object]:
        """The taints that NVIDIA's DRA driver makes of a GPU's last XID. They stay until the driver restarts."""
        errors = self._world.machine.xids.get(uuid)
        if not errors:
            return []
        last = errors[-1]
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        effect = "None" if last.xid in _XIDS_OF_PROGRAMS else "NoSchedule"
        taint = {"key": f"{DRA_DRIVER}/xid", "value": f"{last.xid}", "effect": effect}
        return [{**taint, "timeAdded": self._tainted_at.setdefault((uuid, last.at_ns), now)}]

    def is_meant(self, request: web.Request, key: str, _: Object) -> bool:
        """Whether a request is about an object."""
        return key.startswith("/resourceslices " if request.path.endswith("/resourceslices") else f"{request.path} ")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch. The API has only the pods of the node."""
        namespace = request.match_info.get("namespace", "")
        if not namespace and request.query.get("fieldSelector") != f"spec.nodeName={self.node_name}":
            return web.json_response({"items": [], "metadata": {"resourceVersion": "1"}})
        self.look()
        return await self._watch(request) if request.query.get("watch") == "1" else self.answer_list(request)

    def listed(self, request: web.Request) -> list[Object]:
        """The objects that a request asks for, in order."""
        items = [versioned(item, version) for _, item, version in self._meant(request)]
        return sorted(items, key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"]))

    def _meant(self, request: web.Request) -> Iterator[tuple[str, Object, int]]:
        """The objects that a request is about, each with its key and its version."""
        for key, (item, version) in self.versions.items():
            if self.is_meant(request, key, item):
                yield key, item, version

    def answer_list(self, request: web.Request) -> web.Response:
        """Answer a whole list."""
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": self.listed(request)})

    async def answer_one(self, request: web.Request) -> web.Response:
        """Answer with a single object."""
        collection, _, named = request.path.rpartition("/")
        if collection.startswith("/apis/apps/v1/") and collection.endswith("/replicasets"):
            return web.json_response(controlled_by("apps/v1", "Deployment", named))
        if re.fullmatch(rf"/apis/resource.k8s.io/{self.slice_version}/namespaces/[^/]+/resourceclaims", collection):
            return self.answer_claim(collection.split("/")[-2], named)
        if collection.startswith("/apis/batch/v1/") and collection.endswith("/jobs"):
            cron_job = re.fullmatch(r"(.+)-\d{8}", named)
            above = controlled_by("batch/v1", "CronJob", cron_job[1]) if cron_job else {"metadata": {}}
            return web.json_response(above)
        return _not_there()

    def answer_claim(self, namespace: str, name: str) -> web.Response:
        """Answer with a ResourceClaim that a pod has."""
        claims = [claim for pod in self._world.pods for claim in pod.all_claims]
        claim = next((claim for claim in claims if (claim.namespace, claim.name) == (namespace, name)), None)
        if claim is None:
            return _not_there()
        # drivers other than NVIDIA's need not name their CDI devices after the claim
        uid = claim.cdi_names[0].partition("=")[2][:UID_LENGTH] if claim.cdi_names else ""
        metadata = {"namespace": namespace, "name": name, "uid": uid}
        status = claim_status(self._world.pods, (namespace, name))
        return web.json_response({"kind": "ResourceClaim", "metadata": metadata, "status": status})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        """Send the changes since the resourceVersion that is asked for, and bookmarks, until `_broken` is set."""
        since = int(request.query.get("resourceVersion") or 0)
        broken = self._broken
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        bookmark_at = asyncio.get_running_loop().time() + BOOKMARK_SECONDS
        sent = {key for key, _, version in self._meant(request) if version <= since}
        with suppress(ConnectionError):  # whoever watched is gone
            while not broken.is_set():
                self.look()
                for version, what, item in self._events(request, since, sent):
                    await _send(response, what, versioned(item, version))
                since = self.version
                if asyncio.get_running_loop().time() >= bookmark_at:
                    bookmark_at += BOOKMARK_SECONDS
                    await _send(response, "BOOKMARK", {"metadata": {"resourceVersion": str(since)}})
                await asyncio.sleep(LOOK_SECONDS)
        return response

    def _events(self, request: web.Request, since: int, sent: set[str]) -> list[tuple[int, str, Object]]:
        """The events after a version about watched objects. `sent` are the keys of objects that the watch has sent."""
        events = []
        for key, (item, version) in self.versions.items():
            if version > since and self.is_meant(request, key, item):
                events.append((version, "MODIFIED" if key in sent else "ADDED", item))
                sent.add(key)
            elif version > since and key in sent:
                # its labels have changed: for a watch by labels it is gone
                events.append((version, "DELETED", item))
                sent.remove(key)
        for key, item, version in self.gone:
            if version > since and self.is_meant(request, key, item):
                events.append((version, "DELETED", item))
                sent.discard(key)
        return sorted(events, key=lambda event: event[0])


def _not_there() -> web.Response:
    return web.json_response({"kind": "Status", "code": 404}, status=404)


def _device_of_slice(gpu: SimulatedGpu, name: str, taints: list[Object]) -> Object:
    """A GPU, or an instance, which is cut only for its claim and has no UUID."""
    if name == gpu.claim_device:
        attributes = {"uuid": {"string": gpu.uuid}, "type": {"string": "gpu"}, "index": {"int": gpu.index}}
    else:
        texts = {"parentUUID": gpu.uuid, "type": "mig", "profile": gpu.placements[name][0]}
        attributes = {attribute: {"string": text} for attribute, text in texts.items()}
    device: Object = {"name": name, "attributes": attributes}
    if taints:
        device["taints"] = taints
    return device


def controlled_by(api_version: str, kind: str, name: str) -> Object:
    """The part of an object that names the object that controls it."""
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-of-{kind}-{name}", "controller": True}
    return {"metadata": {"ownerReferences": [owner]}}


def pod_object(pod: Pod, node_name: str) -> Object:
    """The pod as the API server has it."""
    content = described(pod)
    created = f"{datetime.fromtimestamp(pod.created, UTC):%Y-%m-%dT%H:%M:%SZ}"
    status = {**content["status"], "startTime": "2026-11-21T23:08:28Z"}
    return {
        "metadata": {**content["metadata"], "creationTimestamp": created},
        "spec": {"nodeName": node_name, **spec(pod)},
        "status": status if pod.is_acknowledged else {"phase": "Pending", "qosClass": "BestEffort"},
    }


def versioned(item: Object, version: int) -> Object:
    """An object with its resourceVersion."""
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}


async def _send(response: web.StreamResponse, kind: str, item: Object) -> None:
    await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
