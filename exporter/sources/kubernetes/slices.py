"""The ResourceSlices of this node, by the Kubernetes API."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from exporter.attribution.slice_retention import MOST_KEPT, KnownDevices, named, told
from exporter.errors import Malformed
from exporter.model.devices import Assignment, ResourceSlice, SliceDevice, SliceDeviceName
from exporter.model.snapshot import Health
from exporter.sources.kubernetes.api import ONLY_THAT, KubernetesApi, Object
from exporter.sources.kubernetes.list_watch import ListWatch
from exporter.sources.source import PATIENCE_SECONDS, Attempt, Bound, OnHealth, Source

SLICES = "resourceslices"
SLICE_VERSIONS = ("v1", "v1beta2", "v1beta1")
MOST_SLICES = 1000  # each may hold 128 devices
_TOO_MANY = f"no node has that many: does what answers know of this node alone? Until then {ONLY_THAT}"

Devices = Mapping[SliceDeviceName, SliceDevice]


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


class Slices(Source, Protocol):
    """A source of ResourceSlices' devices."""

    @property
    def devices(self) -> Devices:
        """What is known now by driver, pool and device; the same object as long as nothing changed."""

    def devices_for(self, assignments: Iterable[Assignment]) -> Devices:
        """Those of the slices, and those of slices that are gone as long as they are kept."""


class NoSlices:
    """In place of ResourceSlices where they are not read."""

    name = SLICES
    patience_seconds = 0.0
    devices: Devices = MappingProxyType({})

    def __init__(self, health: Health) -> None:
        """`health` says why."""
        self.health = health
        self.bounds = _bounds(lambda: 0, lambda: 0)

    def devices_for(self, _: Iterable[Assignment]) -> Devices:
        """None."""
        return self.devices

    def begin(self) -> Attempt | None:
        """Nothing is there to be asked."""

    async def close(self) -> None:
        """Nothing is in flight."""


class ApiSlices:
    """The devices of this node's ResourceSlices; those that pods hold outlive their slices (slice_retention.py)."""

    name = SLICES
    patience_seconds = PATIENCE_SECONDS

    def __init__(
        self,
        *,
        api: KubernetesApi,
        node_name: str,
        on_health: OnHealth,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._clock = clock
        self._slices: dict[str, ResourceSlice] = {}
        self._known = KnownDevices()
        self._listed = ListWatch(
            SLICES,
            api,
            paths=tuple(f"/apis/resource.k8s.io/{version}/resourceslices" for version in SLICE_VERSIONS),
            selector=f"spec.nodeName={node_name}",
            read=lambda found: (_name(found), read_slice(found)),
            replace=self._replace,
            put=self._put,
            remove=self._remove,
            on_health=on_health,
        )
        self.begin = self._listed.watch.begin
        self.bounds = _bounds(lambda: self.count, lambda: self.kept)

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
    def devices(self) -> Devices:
        """What is known now by driver, pool and device; the same object as long as nothing changed."""
        return self._known.devices

    def devices_for(self, assignments: Iterable[Assignment]) -> Devices:
        """By driver, pool and device: those of the slices, and those of slices that are gone as long as they are kept.

        `assignments` are the ones in force. The answer is the same object as long as nothing changed.
        """
        self._known = named(self._known, assignments, now=self._clock())
        return self._known.devices

    async def close(self) -> None:
        """End the watch and the connections."""
        await self._listed.watch.close()
        await self._api.close()

    def _replace(self, slices: Sequence[tuple[str, ResourceSlice]]) -> None:
        if len(slices) > MOST_SLICES:
            raise Malformed(
                "oversize",
                f"{len(slices)} ResourceSlices of one node; at most {MOST_SLICES} are read",
                remedy=_TOO_MANY,
            )
        self._slices = dict(slices)
        self._known = told(self._known, self._slices.values(), now=self._clock())

    def _put(self, named_slice: tuple[str, ResourceSlice]) -> None:
        name, resource_slice = named_slice
        if len(self._slices) >= MOST_SLICES and name not in self._slices:
            raise Malformed("oversize", f"more than {MOST_SLICES} ResourceSlices of one node", remedy=_TOO_MANY)
        self._slices[name] = resource_slice
        self._known = told(self._known, self._slices.values(), now=self._clock())

    def _remove(self, named_slice: tuple[str, ResourceSlice]) -> None:
        self._slices.pop(named_slice[0], None)
        self._known = told(self._known, self._slices.values(), now=self._clock())


def _bounds(slices: Callable[[], int], kept: Callable[[], int]) -> Mapping[str, Bound]:
    """`kept` counts the devices that no slice names now."""
    return {"resourceslices": Bound(MOST_SLICES, slices), "resourceslice_devices_kept": Bound(MOST_KEPT, kept)}


def _name(found: Object) -> str:
    return str(found.get("metadata", {}).get("name", ""))
