"""The Kubernetes API, limited to this node: pods and ResourceSlices, by list and watch."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from exporter.attribution.claims import devices_of
from exporter.attribution.workloads import read_owners
from exporter.errors import Malformed
from exporter.model import Health, PodInfo, ResourceSlice, SliceDevice
from exporter.sources.kubernetes_api import KubernetesApi, Object
from exporter.sources.list_watch import ListWatch
from exporter.sources.pod_table import PodTable

PODS = "pods"
SLICES = "resourceslices"
SLICE_VERSIONS = ("v1", "v1beta2", "v1beta1")
MOST_SLICES = 1000  # each may hold 128 devices


def read_pod(pod: Object) -> PodInfo:
    """A Pod of core/v1 as JSON, as far as this program reads it."""
    metadata, status = pod.get("metadata", {}), pod.get("status", {})
    return PodInfo(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        labels=dict(metadata.get("labels") or {}),
        owners=read_owners(metadata.get("ownerReferences")),
        phase=status.get("phase", ""),
        ip=status.get("podIP", ""),
        created_at_seconds=_seconds(metadata.get("creationTimestamp")),
        container_ids={
            container["name"]: container["containerID"]
            for statuses in ("initContainerStatuses", "containerStatuses")
            for container in status.get(statuses) or ()
            if container.get("containerID")
        },
    )


def _seconds(time: object) -> float | None:
    """A Time of meta/v1 (RFC 3339) in seconds since 1970; None where it says nothing."""
    try:
        seconds = datetime.fromisoformat(str(time)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


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
    """The pods of this node, by the Kubernetes API."""

    def __init__(self, *, api: KubernetesApi, node_name: str, on_health: Callable[[str, Health], None]) -> None:
        self.name = PODS
        self._table = PodTable()
        self._api = api
        self._listed = ListWatch(
            PODS,
            api,
            paths=("/api/v1/pods",),
            selector=f"spec.nodeName={node_name}",
            replace=lambda pods: self._table.replace(map(read_pod, pods)),
            put=lambda pod: self._table.put(read_pod(pod)),
            remove=lambda pod: self._table.remove(read_pod(pod).uid),
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
        return self._table.by_name

    async def close(self) -> None:
        """End the watch and the connections."""
        await self._listed.watch.close()
        await self._api.close()


class ApiSlices:
    """The devices of this node's ResourceSlices."""

    def __init__(self, *, api: KubernetesApi, node_name: str, on_health: Callable[[str, Health], None]) -> None:
        self.name = SLICES
        self._api = api
        self._slices: dict[str, ResourceSlice] = {}
        self._devices: Mapping[tuple[str, str, str], SliceDevice] = {}
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
    def devices(self) -> Mapping[tuple[str, str, str], SliceDevice]:
        """By driver, pool and device; the same object as long as nothing changed."""
        return self._devices

    async def close(self) -> None:
        """End the watch and the connections."""
        await self._listed.watch.close()
        await self._api.close()

    def _replace(self, slices: Sequence[Object]) -> None:
        if len(slices) > MOST_SLICES:
            raise Malformed("oversize", f"{len(slices)} ResourceSlices of one node; at most {MOST_SLICES} are read")
        self._slices = {_name(found): read_slice(found) for found in slices}
        self._devices = devices_of(self._slices.values())

    def _put(self, found: Object) -> None:
        if len(self._slices) >= MOST_SLICES and _name(found) not in self._slices:
            raise Malformed("oversize", f"more than {MOST_SLICES} ResourceSlices of one node")
        self._slices[_name(found)] = read_slice(found)
        self._devices = devices_of(self._slices.values())

    def _remove(self, found: Object) -> None:
        self._slices.pop(_name(found), None)
        self._devices = devices_of(self._slices.values())


def _name(found: Object) -> str:
    return str(found.get("metadata", {}).get("name", ""))
