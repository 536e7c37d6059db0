"""What containers use of the node's GPUs, as the driver's processes tell. Here only where that is measured."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from exporter.exposition.families import Samples
from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner
from exporter.outputs.families.family import OF_CONTAINER, container_labels, gauge
from exporter.outputs.output import Look

if TYPE_CHECKING:
    from exporter.model.measured import Measured, Use


def _uses(measured: "Measured") -> Iterator[tuple[Owner | None, DeviceKey, "Use"]]:
    """What each owner uses of a device, and what processes of nobody use of it."""
    for (device, owner), use in measured.uses.items():
        yield owner, device, use
    for device, use in measured.nobodys.items():
        yield None, device, use


def _each(value: Callable[["Use"], float | None]) -> Callable[[Look], Samples]:
    def fill(look: Look) -> Samples:
        measured = look.snapshot.measured
        return [
            (container_labels(owner, device, look.snapshot.node), float(amount))
            for owner, device, use in (_uses(measured) if measured else ())
            if (amount := value(use)) is not None
        ]

    return fill


FAMILIES = (
    gauge(
        "pod_gpu_memory_used_bytes",
        "GPU memory of a container's processes; that of processes that no owner of the GPU has, with empty owners.",
        OF_CONTAINER,
        fill=_each(lambda use: use.memory_bytes),
    ),
    gauge(
        "pod_gpu_utilization_ratio",
        "The part of the time in which kernels of a container ran, 0 to 1. Those of several may run at a time.",
        OF_CONTAINER,
        fill=_each(lambda use: use.sm_ratio),
    ),
    gauge(
        "pod_gpu_processes",
        "Processes of a container on a GPU; those that no owner of the GPU has, with empty owners.",
        OF_CONTAINER,
        fill=_each(lambda use: use.processes),
    ),
)
