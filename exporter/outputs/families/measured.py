"""What containers use of the node's GPUs, as the driver's processes tell. Here only where that is measured."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from exporter.exposition.families import Samples
from exporter.model.devices import DeviceKey
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import Look

if TYPE_CHECKING:
    from exporter.model.measured import Measured

_OF_ROW = ("namespace", "pod", "container", "UUID", "GPU_I_ID", "node")


class _Row(NamedTuple):
    owner: tuple[str, str, str]
    device: DeviceKey
    memory_bytes: int | None
    sm_ratio: float | None
    processes: int


def _rows(measured: "Measured") -> Iterator[_Row]:
    """Those of owners, and one for each device that has processes of nobody."""
    for (device, owner), use in measured.uses.items():
        of = (owner.namespace, owner.pod, owner.container)
        yield _Row(of, device, use.memory_bytes, use.sm_ratio, use.processes)
    for device, use in measured.nobodys.items():
        yield _Row(("", "", ""), device, use.memory_bytes, use.sm_ratio, use.processes)


def _each(value: Callable[[_Row], float | None]) -> Callable[[Look], Samples]:
    def fill(look: Look) -> Samples:
        measured, node = look.snapshot.measured, look.snapshot.node
        if measured is None:
            return ()
        return [
            ((*row.owner, row.device.uuid, row.device.instance, node), float(known))
            for row in _rows(measured)
            if (known := value(row)) is not None
        ]

    return fill


FAMILIES = (
    OwnFamily(
        "pod_gpu_memory_used_bytes",
        "gauge",
        "GPU memory of a container's processes; that of processes that no owner of the GPU has, with empty owners.",
        _OF_ROW,
        fill=_each(lambda row: row.memory_bytes),
    ),
    OwnFamily(
        "pod_gpu_utilization_ratio",
        "gauge",
        "The part of the time in which kernels of a container ran, 0 to 1. Those of several may run at a time.",
        _OF_ROW,
        fill=_each(lambda row: row.sm_ratio),
    ),
    OwnFamily(
        "pod_gpu_processes",
        "gauge",
        "Processes of a container on a GPU; those that no owner of the GPU has, with empty owners.",
        _OF_ROW,
        fill=_each(lambda row: row.processes),
    ),
)
