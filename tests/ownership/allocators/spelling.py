"""Pods in short, and what annotations say of them, for the tests of allocators."""

from exporter.model.pods import PodContainer
from exporter.ownership.allocators.allocator_table import ALLOCATORS, Allocator
from exporter.ownership.allocators.positions import places
from exporter.ownership.allocators.said import WrittenDevice

A = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9"
B = "GPU-40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"


def containers(spelt: str, resource: str) -> tuple[PodContainer, ...]:
    """Containers named by letters: those before | are init containers, capitals ask for the resource."""
    init, _, rest = spelt.rpartition("|")
    return tuple(
        PodContainer(name=name, is_init=is_init, resources=frozenset({resource}) if name.isupper() else frozenset())
        for names, is_init in ((init, True), (rest, False))
        for name in names
    )


def given(
    allocator: str | Allocator, resource: str, annotations: dict[str, str], spelt: str
) -> dict[str, tuple[WrittenDevice, ...]]:
    """The devices of each container, by a pod's annotations. Raises Unreadable."""
    by = ALLOCATORS[allocator] if isinstance(allocator, str) else allocator
    written = by.said_in(resource, annotations)
    assert written is not None
    annotation, of_places = written
    return dict(places(of_places, annotation, resource, containers(spelt, resource)))


def names(devices: dict[str, tuple[WrittenDevice, ...]]) -> dict[str, list[str]]:
    """The names of each container's devices."""
    return {
        name: [
            device.ref.uuid or device.ref.mig or device.ref.device or device.ref.index or device.ref.minor
            for device in those
        ]
        for name, those in devices.items()
    }
