"""The sources of this node's pods and ResourceSlices by the Kubernetes API."""

import time
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from functools import partial

from exporter.errors import Malformed
from exporter.model.devices import Assignment, ResourceSlice, SliceDevice, Taint
from exporter.model.pods import AllocatedDevice, ContainerEnd, PodContainer, PodInfo, PodsByName, PodsOfNames
from exporter.model.snapshot import PODS, Health
from exporter.ownership.retention import KnownDevices, described, named
from exporter.ownership.workloads import read_owners
from exporter.sources.kubernetes.api import ONLY_THAT, KubernetesApi, Object
from exporter.sources.kubernetes.list_watch import ListWatch
from exporter.sources.node_pods import (
    PodStop,
    PodTable,
    Termination,
    annotations_among,
    container_of_spec,
    end_of_container,
)
from exporter.sources.resource_slices import MOST_SLICES, SLICES, Devices, bounds
from exporter.sources.source import Bounds, Clock, OnHealth

SLICE_VERSIONS = ("v1", "v1beta2", "v1beta1")
_TOO_MANY = f"no node has that many: does what answers know of this node alone? Until then {ONLY_THAT}"


def read_pod(pod: Object, annotations: AbstractSet[str] = frozenset()) -> PodInfo:
    """The facts that this program needs of a Pod of core/v1, given as JSON, with these `annotations`."""
    metadata = pod.get("metadata", {})
    spec = pod.get("spec", {})
    status = pod.get("status", {})
    statuses = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    phase = status.get("phase", "")
    return PodInfo(
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        labels=dict(metadata.get("labels") or {}),
        annotations=annotations_among(metadata.get("annotations") or {}, annotations),
        owners=read_owners(metadata.get("ownerReferences")),
        containers=(
            *_of_spec(spec.get("initContainers"), is_init=True),
            *_of_spec(spec.get("containers"), is_init=False),
        ),
        phase=phase,
        ip=status.get("podIP", ""),
        created_at_seconds=_seconds(metadata.get("creationTimestamp")),
        container_ids={
            container["name"]: container["containerID"] for container in statuses if container.get("containerID")
        },
        allocated={
            container["name"]: _allocated(container)
            for container in statuses
            if container.get("allocatedResourcesStatus")
        },
        ends=dict(_ends(metadata, status, statuses)),
        # the kubelet sets startTime when it acknowledges the pod; the scheduler leaves it and the statuses empty
        is_acknowledged=bool(status.get("startTime") or status.get("containerStatuses"))
        or phase not in ("", "Pending"),
    )


def _ends(metadata: Object, status: Object, statuses: Iterable[Object]) -> Iterator[tuple[str, ContainerEnd]]:
    """The last end of each container that has ended."""
    asked_at = _seconds(metadata.get("deletionTimestamp"))
    if asked_at is not None:
        asked_at -= metadata.get("deletionGracePeriodSeconds") or 0
    stop = PodStop(reason=status.get("reason", ""), asked_at=asked_at)
    for container in statuses:
        states = (container.get("state"), container.get("lastState"))
        end = end_of_container(map(_termination, states), stop)
        if end is not None:
            yield container["name"], end


def _termination(state: Object | None) -> Termination | None:
    terminated = (state or {}).get("terminated")
    if not terminated:
        return None
    return Termination(
        id=terminated.get("containerID", ""),
        exit_code=terminated.get("exitCode", 0),
        reason=terminated.get("reason", ""),
        at_seconds=_seconds(terminated.get("finishedAt")),
    )


def _of_spec(containers: Iterable[Object] | None, *, is_init: bool) -> Iterator[PodContainer]:
    for container in containers or ():
        limits = (container.get("resources") or {}).get("limits") or {}
        yield container_of_spec(container["name"], limits, is_init=is_init)


def _allocated(container: Object) -> tuple[AllocatedDevice, ...]:
    """The devices in a container's status, each with its health."""
    return tuple(
        AllocatedDevice(
            resource=resource.get("name", ""),
            device_id=device.get("resourceID", ""),
            health=device.get("health", ""),
            message=device.get("message", ""),
        )
        for resource in container["allocatedResourcesStatus"]
        for device in resource.get("resources") or ()
    )


def _seconds(time: object) -> float | None:
    """A Time of meta/v1 (RFC 3339) in seconds since 1970; None if it is empty or cannot be read."""
    try:
        seconds = datetime.fromisoformat(str(time)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


class ApiPods(ListWatch):
    """The pods of this node, kept up to date by the API server.

    After a 410 the list is requested without a resourceVersion, which means the newest state: a pod that it lacks is
    gone. Only an empty list is not believed at once (see PodTable.replace).
    """

    def __init__(
        self,
        *,
        api: KubernetesApi,
        node_name: str,
        on_health: OnHealth,
        annotations: AbstractSet[str] = frozenset(),
        clock: Clock = time.monotonic,
    ) -> None:
        """`annotations` are those that are kept of a pod."""
        self._table = PodTable()
        self.bounds: Bounds = self._table.bounds(clock)
        self._clock = clock
        super().__init__(
            PODS,
            api,
            paths=("/api/v1/pods",),
            selector=f"spec.nodeName={node_name}",
            read=partial(read_pod, annotations=annotations),
            replace=lambda pods: self._table.replace(pods, now=clock()),
            put=lambda pod: self._table.put(pod, now=clock()),
            remove=lambda pod: self._table.remove(pod.uid, now=clock()),
            on_health=self._note_health,
        )
        self._on_health = on_health

    @property
    def pods(self) -> PodsByName:
        """The pods by namespace and name; the same object as long as nothing changed."""
        return self._table.by_name(now=self._clock())

    @property
    def pods_of_names(self) -> PodsOfNames:
        """The pods that have or had each name; the same object as long as nothing changed."""
        return self._table.pods_of_names(now=self._clock())

    def _note_health(self, name: str, health: Health) -> None:
        if health.up:
            self._table.hear_again(self._clock())
        else:
            self._table.cut_off(self._clock())
        self._on_health(name, health)


_MOST_TAINTS = 4
_MOST_TAINT_CHARS = 128


def read_slice(item: Object) -> ResourceSlice:
    """The facts of a ResourceSlice. v1 has attributes in the device itself, v1beta1 in the device's field `basic`."""
    spec = item.get("spec", {})
    pool = spec.get("pool", {})
    driver = spec.get("driver", "")
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
            taints=tuple(map(_read_taint, ((device.get("basic") or device).get("taints") or ())[:_MOST_TAINTS])),
        )
    return ResourceSlice(
        driver=driver,
        pool=pool.get("name", ""),
        generation=int(pool.get("generation", 0)),
        slice_count=int(pool.get("resourceSliceCount", 1)),
        devices=devices,
    )


def _read_taint(taint: Object) -> Taint:
    effect, key, value = (str(taint.get(name, ""))[:_MOST_TAINT_CHARS] for name in ("effect", "key", "value"))
    try:
        added_at = datetime.fromisoformat(str(taint.get("timeAdded"))).timestamp()
    except ValueError:
        added_at = 0.0
    return Taint(effect, key, value, added_at)


class ApiSlices(ListWatch):
    """The devices of this node's ResourceSlices. A device that a pod holds outlives its slice (retention.py)."""

    def __init__(
        self, *, api: KubernetesApi, node_name: str, on_health: OnHealth, clock: Clock = time.monotonic
    ) -> None:
        self._clock = clock
        self._slices: dict[str, ResourceSlice] = {}
        self._devices = KnownDevices()
        super().__init__(
            SLICES,
            api,
            paths=tuple(f"/apis/resource.k8s.io/{version}/resourceslices" for version in SLICE_VERSIONS),
            selector=f"spec.nodeName={node_name}",
            read=lambda item: (str(item["metadata"]["name"]), read_slice(item)),
            replace=self._replace,
            put=self._put,
            remove=self._remove,
            on_health=on_health,
        )
        self.bounds = bounds(lambda: len(self._slices), lambda: len(self._devices.kept))

    @property
    def devices(self) -> Devices:
        """The known devices by driver, pool and device; the same object as long as nothing changed."""
        return self._devices.devices

    def devices_for(self, assignments: Iterable[Assignment]) -> Devices:
        """The devices of slices, with those that these assignments keep although their slices are gone.

        The same object as long as nothing changed.
        """
        self._devices = named(self._devices, assignments, now=self._clock())
        return self._devices.devices

    def _replace(self, slices: Sequence[tuple[str, ResourceSlice]]) -> None:
        if len(slices) > MOST_SLICES:
            message = f"{len(slices)} ResourceSlices of one node; at most {MOST_SLICES} are read"
            raise Malformed("oversize", message, remedy=_TOO_MANY)
        self._slices = dict(slices)
        self._describe()

    def _put(self, named_slice: tuple[str, ResourceSlice]) -> None:
        name, resource_slice = named_slice
        if len(self._slices) >= MOST_SLICES and name not in self._slices:
            raise Malformed("oversize", f"more than {MOST_SLICES} ResourceSlices of one node", remedy=_TOO_MANY)
        self._slices[name] = resource_slice
        self._describe()

    def _remove(self, named_slice: tuple[str, ResourceSlice]) -> None:
        self._slices.pop(named_slice[0], None)
        self._describe()

    def _describe(self) -> None:
        self._devices = described(self._devices, self._slices.values(), now=self._clock())
