"""The Kubernetes API, limited to this node: pods and ResourceSlices, by list and watch."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from exporter.attribution.slice_retention import KnownDevices, named, told
from exporter.attribution.workloads import read_owners
from exporter.errors import Malformed
from exporter.model import Assignment, Bearers, Health, PodInfo, ResourceSlice, SliceDevice, SliceDeviceName
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
    phase = status.get("phase", "")
    return PodInfo(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        labels=dict(metadata.get("labels") or {}),
        owners=read_owners(metadata.get("ownerReferences")),
        phase=phase,
        ip=status.get("podIP", ""),
        created_at_seconds=_seconds(metadata.get("creationTimestamp")),
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
