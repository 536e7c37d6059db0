"""The interface of a source of ResourceSlices, and its placeholder. The source itself is in sources/kubernetes.

Tests: tests/sources/kubernetes/test_node_objects.py.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from exporter.model.devices import Assignment, SliceDevice, SliceDeviceName
from exporter.model.nothing import NOTHING
from exporter.model.snapshot import Health
from exporter.ownership.retention import MOST_KEPT
from exporter.sources.source import Bound, Bounds, NoSource, Source

SLICES = "resourceslices"
MOST_SLICES = 1000  # each may hold 128 devices

Devices = Mapping[SliceDeviceName, SliceDevice]


class Slices(Source, Protocol):
    """A source of ResourceSlices' devices."""

    @property
    def devices(self) -> Devices:
        """The known devices by driver, pool and device; the same object as long as nothing changed."""

    def devices_for(self, assignments: Iterable[Assignment]) -> Devices:
        """The devices of slices, with those that these assignments keep although their slices are gone."""


class NoSlices(NoSource):
    """The placeholder of ResourceSlices, if they are not read."""

    devices: Devices = NOTHING

    def __init__(self, health: Health) -> None:
        super().__init__(SLICES, health, bounds(lambda: 0, lambda: 0))

    def devices_for(self, _: Iterable[Assignment]) -> Devices:
        """Return no device."""
        return self.devices


def bounds(slices: Callable[[], int], kept: Callable[[], int]) -> Bounds:
    """The limits on slices and devices. `kept` counts the devices that no slice names any more."""
    return {"resourceslices": Bound(MOST_SLICES, slices), "resourceslice_devices_kept": Bound(MOST_KEPT, kept)}
