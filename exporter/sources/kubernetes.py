"""The Kubernetes API, limited to this node: pods and ResourceSlices, by list and watch.

Plain HTTP: aiohttp is here anyway, and a client library would weigh more than the exporter. The list is asked for once,
then the watch tells what changes, and is taken up again where it broke. The list is asked for anew only when the API
has forgotten that place (410 Gone).
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from exporter.attribution.slice_retention import KnownDevices, named, told
from exporter.attribution.workloads import read_owners
from exporter.errors import Malformed, SourceError, TimedOut, Unavailable, Unsupported
from exporter.model import Assignment, Bearers, Health, PodInfo, ResourceSlice, SliceDevice, SliceDeviceName
from exporter.sources.pod_table import PodTable
from exporter.sources.watch import Watch

PODS = "pods"
SLICES = "resourceslices"
SLICE_VERSIONS = ("v1", "v1beta2", "v1beta1")
LONGEST_PAUSE_SECONDS = 30.0
# The API ends a watch by itself after this long; silence for longer is a connection that nobody holds any more.
WATCH_SECONDS = 240
SILENCE_SECONDS = 270.0
ANSWER_SECONDS = 30.0
MOST_SLICES = 1000  # each may hold 128 devices
MAX_BYTES = 64 * 1024 * 1024

Object = Mapping[str, Any]


class Forgotten(Exception):
    """410 Gone: the API no longer knows the place where the watch was."""


class KubernetesApi:
    """One API server, by its URL. The token is read for every request: it is replaced while the program runs."""

    def __init__(self, *, url: str, token_file: str, ca_file: str) -> None:
        self._url = url.rstrip("/")
        self._token_file = Path(token_file)
        self._ca_file = Path(ca_file)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """End the connections."""
        if self._session is not None:
            await self._session.close()

    async def list(self, path: str, parameters: Mapping[str, str]) -> Object:
        """A whole list.

        Raises:
            Forgotten, SourceError: see `lines`.
        """
        body = bytearray()
        async for chunk in self._chunks(path, parameters, ANSWER_SECONDS):
            body += chunk
            if len(body) > MAX_BYTES:
                raise Malformed("oversize", f"the Kubernetes API answers {path} with more than {MAX_BYTES} bytes")
        return _object(bytes(body), path)

    async def get(self, path: str) -> Object:
        """One object.

        Raises:
            SourceError: see `lines`. An object that is not there is Unsupported.
        """
        return await self.list(path, {})

    async def lines(
        self, path: str, parameters: Mapping[str, str], on_open: Callable[[], None]
    ) -> AsyncIterator[Object]:
        """The events of a watch, as they come, until the API ends it. `on_open` hears that it is taken up.

        Raises:
            Forgotten: 410 Gone.
            SourceError: nobody answers, or with a status other than 200, or with what is no JSON.
        """
        rest = b""
        async for chunk in self._chunks(path, parameters, None, on_open):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MAX_BYTES:
                raise Malformed("oversize", f"one event of {path} is larger than {MAX_BYTES} bytes")
            for line in lines:
                if line.strip():
                    yield _object(line, path)

    async def _chunks(
        self, path: str, parameters: Mapping[str, str], seconds: float | None, on_open: Callable[[], None] | None = None
    ) -> AsyncIterator[bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=True)
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=10.0, sock_read=SILENCE_SECONDS)
        try:
            async with self._session.get(
                self._url + path,
                params=parameters,
                headers=self._headers(),
                ssl=self._ssl(),
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                self._check(response, path)
                if on_open:
                    on_open()
                async for chunk in response.content.iter_any():
                    yield chunk
        except TimeoutError as error:
            raise TimedOut("deadline", f"the Kubernetes API at {self._url} does not answer {path}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable("unreachable", f"the Kubernetes API at {self._url}: {error}") from error

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "pod-gpu-metrics-exporter"}
        try:
            headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='ascii').strip()}"
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable("permission", f"{self._token_file} cannot be read: {error}") from error
        return headers

    def _ssl(self) -> ssl.SSLContext | bool:
        if not self._url.startswith("https:") or not self._ca_file.exists():
            return True
        # made for every connection, so that a renewed certificate authority is taken up: there are few connections
        return ssl.create_default_context(cafile=str(self._ca_file))

    def _check(self, response: aiohttp.ClientResponse, path: str) -> None:
        status = response.status
        if status == HTTPStatus.OK:
            return
        if status == HTTPStatus.GONE:
            raise Forgotten
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Unavailable(
                "permission",
                f"the Kubernetes API refuses {path} with {status}: the service account needs list and watch on it"
                " (deploy/rbac.yaml)",
            )
        if status == HTTPStatus.NOT_FOUND:
            raise Unsupported("unimplemented", f"the Kubernetes API knows no {path}")
        later = response.headers.get("Retry-After", "")
        raise Unavailable(
            "rate_limited" if status == HTTPStatus.TOO_MANY_REQUESTS else "http_status",
            f"the Kubernetes API answers {path} with HTTP status {status}",
            retry_after_seconds=min(float(later), LONGEST_PAUSE_SECONDS) if later.isdigit() else None,
        )


class ListWatch:
    """A collection that is listed once and then watched. `put` and `remove` are told what changes."""

    def __init__(
        self,
        name: str,
        api: KubernetesApi,
        *,
        paths: Sequence[str],
        selector: str,
        replace: Callable[[Sequence[Object]], None],
        put: Callable[[Object], None],
        remove: Callable[[Object], None],
        on_health: Callable[[str, Health], None],
    ) -> None:
        """`paths` are tried in their order until one is known; `selector` is a field selector."""
        self.watch = Watch(name, self._attend, on_health, longest_pause_seconds=LONGEST_PAUSE_SECONDS)
        self._api = api
        self._paths = paths
        self._selector = selector
        self._replace, self._put, self._remove = replace, put, remove
        self._path = ""
        self._version: str | None = None
        self._forgotten = False

    async def _attend(self) -> None:
        try:
            if self._version is None:
                await self._list()
            while True:
                await self._follow()
        except Forgotten:
            self._version, self._forgotten = None, True
        except SourceError as error:
            if isinstance(error, Unsupported):
                self._version = None  # an upgraded API server may have dropped the version that was watched
            raise

    async def _list(self) -> None:
        # "0" is what the API server has at hand; after a 410 that may be what it had before
        parameters = {"fieldSelector": self._selector, "resourceVersion": "" if self._forgotten else "0"}
        for path in self._paths:
            try:
                answer = await self._api.list(path, parameters)
            except Unsupported:
                continue
            _tell(self._replace, answer.get("items") or (), path)
            self._path = path
            self._version = str(answer.get("metadata", {}).get("resourceVersion", ""))
            self._forgotten = False
            self.watch.in_sync()
            return
        raise Unsupported("unimplemented", f"the Kubernetes API knows none of {', '.join(self._paths)}")

    async def _follow(self) -> None:
        parameters = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "fieldSelector": self._selector,
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        started = asyncio.get_running_loop().time()
        async for event in self._api.lines(self._path, parameters, self.watch.in_sync):
            self._take(event)
            self.watch.heard()
        if asyncio.get_running_loop().time() - started < 1.0:
            # a watch that ends at once is an API server that goes down: not a reason to ask in a circle
            raise Unavailable("unreachable", f"the Kubernetes API ended the watch of {self._path}")

    def _take(self, event: Object) -> None:
        kind, found = event.get("type"), event.get("object")
        if not isinstance(found, Mapping):
            raise Malformed("garbage", f"an event of {self._path} holds no object")
        if kind == "ERROR":
            if found.get("code") == HTTPStatus.GONE:
                raise Forgotten
            raise Unavailable("unreachable", f"the watch of {self._path} failed: {found.get('message')}")
        if kind in ("ADDED", "MODIFIED"):
            _tell(self._put, found, self._path)
        elif kind == "DELETED":
            _tell(self._remove, found, self._path)
        version = found.get("metadata", {}).get("resourceVersion")
        if version:
            self._version = str(version)


def _tell(listener: Callable[[Any], None], found: object, path: str) -> None:
    try:
        listener(found)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise Malformed("garbage", f"an object of {path} is not of the kind it should be: {error}") from error


def _object(body: bytes, path: str) -> Object:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed("garbage", f"the Kubernetes API answers {path} with what is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Malformed("garbage", f"the Kubernetes API answers {path} with what is no object")
    return found


def read_pod(pod: Object) -> PodInfo:
    """A Pod of core/v1 as JSON, as far as this program reads it."""
    metadata, status = pod.get("metadata", {}), pod.get("status", {})
    phase = status.get("phase", "")
    return PodInfo(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        labels=dict(metadata.get("labels") or {}),
        owners=read_owners(metadata.get("ownerReferences")),
        phase=phase,
        ip=status.get("podIP", ""),
        container_ids={
            container["name"]: container["containerID"]
            for statuses in ("initContainerStatuses", "containerStatuses")
            for container in status.get(statuses) or ()
            if container.get("containerID")
        },
        # startTime is when the kubelet acknowledged the pod; the scheduler leaves it and the statuses empty
        is_acknowledged=bool(status.get("startTime") or status.get("containerStatuses"))
        or phase not in ("", "Pending"),
    )


def read_slice(found: Object) -> ResourceSlice:
    """A ResourceSlice: v1 keeps a device's attributes in the device, v1beta1 in its field `basic`."""
    spec = found.get("spec", {})
    pool, driver = spec.get("pool", {}), spec.get("driver", "")
    devices = {}
    for device in spec.get("devices") or ():
        attributes = {
            name.removeprefix(f"{driver}/"): str(value.get("string", ""))
            for name, value in ((device.get("basic") or device).get("attributes") or {}).items()
        }
        devices[device.get("name", "")] = SliceDevice(
            uuid=attributes.get("uuid", ""),
            kind=attributes.get("type", ""),
            parent_uuid=attributes.get("parentUUID", ""),
            profile=attributes.get("profile", ""),
        )
    return ResourceSlice(
        driver=driver,
        pool=pool.get("name", ""),
        generation=int(pool.get("generation", 0)),
        slice_count=int(pool.get("resourceSliceCount", 1)),
        devices=devices,
    )


class ApiPods:
    """The pods of this node, kept up to date by the API server.

    A list that could forget something is asked for without a resourceVersion, which means the newest state there is:
    what it lacks is gone. Only an empty one is not believed at once (see PodTable.replace).
    """

    def __init__(
        self,
        *,
        api: KubernetesApi,
        node_name: str,
        on_health: Callable[[str, Health], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = PODS
        self._table = PodTable()
        self._clock = clock
        self._api = api
        self._listed = ListWatch(
            PODS,
            api,
            paths=("/api/v1/pods",),
            selector=f"spec.nodeName={node_name}",
            replace=lambda pods: self._table.replace(map(read_pod, pods), now=clock()),
            put=lambda pod: self._table.put(read_pod(pod), now=clock()),
            remove=lambda pod: self._table.remove(read_pod(pod).uid, now=clock()),
            on_health=on_health,
        )
        self.begin = self._listed.watch.begin

    @property
    def health(self) -> Health:
        """How the watch is."""
        return self._listed.watch.health

    @property
    def pods(self) -> Mapping[tuple[str, str], PodInfo]:
        """By namespace and name; the same object as long as nothing changed."""
        return self._table.by_name(now=self._clock())

    @property
    def bearers(self) -> Bearers:
        """Who bears a name, and who did; the same object as long as nothing changed."""
        return self._table.bearers(now=self._clock())

    @property
    def gone(self) -> int:
        """How many pods that are gone are remembered."""
        return self._table.gone

    async def close(self) -> None:
        """End the watch and the connections."""
        await self._listed.watch.close()
        await self._api.close()


class ApiSlices:
    """The devices of this node's ResourceSlices; those that pods hold outlive their slices (slice_retention.py)."""

    def __init__(self, *, api: KubernetesApi, node_name: str, on_health: Callable[[str, Health], None]) -> None:
        self.name = SLICES
        self._api = api
        self._slices: dict[str, ResourceSlice] = {}
        self._known = KnownDevices()
        self._listed = ListWatch(
            SLICES,
            api,
            paths=tuple(f"/apis/resource.k8s.io/{version}/resourceslices" for version in SLICE_VERSIONS),
            selector=f"spec.nodeName={node_name}",
            replace=self._replace,
            put=self._put,
            remove=self._remove,
            on_health=on_health,
        )
        self.begin = self._listed.watch.begin

    @property
    def health(self) -> Health:
        """How the watch is."""
        return self._listed.watch.health

    @property
    def count(self) -> int:
        """How many slices are known."""
        return len(self._slices)

    @property
    def kept(self) -> int:
        """How many devices are known that no slice names now."""
        return len(self._known.kept)

    @property
    def devices(self) -> Mapping[SliceDeviceName, SliceDevice]:
        """What is known now by driver, pool and device; the same object as long as nothing changed."""
        return self._known.devices

    def devices_for(self, assignments: Iterable[Assignment]) -> Mapping[SliceDeviceName, SliceDevice]:
        """By driver, pool and device: those of the slices, and those of slices that are gone which are assigned.

        `assignments` are the ones in force. The answer is the same object as long as nothing changed.
        """
        self._known = named(self._known, assignments)
        return self._known.devices

    async def close(self) -> None:
        """End the watch and the connections."""
        await self._listed.watch.close()
        await self._api.close()

    def _replace(self, slices: Sequence[Object]) -> None:
        if len(slices) > MOST_SLICES:
            raise Malformed("oversize", f"{len(slices)} ResourceSlices of one node; at most {MOST_SLICES} are read")
        self._slices = {_name(found): read_slice(found) for found in slices}
        self._known = told(self._known, self._slices.values())

    def _put(self, found: Object) -> None:
        if len(self._slices) >= MOST_SLICES and _name(found) not in self._slices:
            raise Malformed("oversize", f"more than {MOST_SLICES} ResourceSlices of one node")
        self._slices[_name(found)] = read_slice(found)
        self._known = told(self._known, self._slices.values())

    def _remove(self, found: Object) -> None:
        self._slices.pop(_name(found), None)
        self._known = told(self._known, self._slices.values())


def _name(found: Object) -> str:
    return str(found.get("metadata", {}).get("name", ""))
