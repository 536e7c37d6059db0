"""What the programs of containers ask of CUDA, as the probe counts it. Here only where the probe runs.

Amounts are written exactly, from whole numbers. A row has the same labels in every family, so they are written once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from exporter.exposition.text import Written, render_labels, render_number, render_units
from exporter.outputs.cuda_use import by_code, by_direction
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import Look

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUse, CudaUses

_NANOSECONDS = 9  # a power of ten
_OF_ROW = ("namespace", "pod", "container", "UUID", "GPU_I_ID", "node")
_Rows = Sequence[tuple["CudaUse", bytes]]


@lru_cache(maxsize=1)
def _labelled(cuda: "CudaUses", node: str) -> _Rows:
    rows = []
    for (owner, device), use in cuda.uses.items():
        of_owner = (owner.namespace, owner.pod, owner.container) if owner else ("", "", "")
        labels = (*of_owner, device.uuid, device.instance, node)
        rows.append((use, render_labels(tuple(zip(_OF_ROW, labels, strict=True)))))
    return rows


def _rows(look: Look) -> _Rows:
    cuda = look.snapshot.cuda
    return _labelled(cuda, look.snapshot.node) if cuda is not None else ()


def _each(amount: Callable[["CudaUse"], int], power: int = 0) -> Callable[[Look], Sequence[Written]]:
    """Writes a sample for each row, in units of 10**-power."""

    def write(look: Look) -> Sequence[Written]:
        return [(labels, render_units(amount(use), power)) for use, labels in _rows(look)]

    return write


def _active(look: Look) -> Sequence[Written]:
    return [(labels, render_number(use.active_seconds)) for use, labels in _rows(look)]


def _by(label: str, amounts: Callable[["CudaUse"], Mapping[str, int]]) -> Callable[[Look], Sequence[Written]]:
    """Writes a sample for each row and each value of a label."""

    def write(look: Look) -> Sequence[Written]:
        return [
            (b'%b="%b",%b' % (label.encode(), value.encode(), labels), render_units(amount, 0))
            for use, labels in _rows(look)
            for value, amount in amounts(use).items()
        ]

    return write


FAMILIES = (
    OwnFamily(
        "pod_gpu_cuda_processes",
        "gauge",
        "Processes of a container that run and have called CUDA on a GPU. Those in no pod have empty owners, and UUID"
        " is empty where it is not known which GPU a process means: so in all of these families.",
        _OF_ROW,
        write=_each(lambda use: use.processes),
    ),
    OwnFamily(
        "pod_gpu_cuda_kernel_launches_total",
        "counter",
        "Kernels that programs launched. Those of a graph are not among them.",
        _OF_ROW,
        write=_each(lambda use: use.counts.launches),
    ),
    OwnFamily(
        "pod_gpu_cuda_graph_launches_total",
        "counter",
        "Graphs that programs launched.",
        _OF_ROW,
        write=_each(lambda use: use.counts.graph_launches),
    ),
    OwnFamily(
        "pod_gpu_cuda_threads_launched_total",
        "counter",
        "Threads of the launched kernels: the size of the grid times that of a block.",
        _OF_ROW,
        write=_each(lambda use: use.counts.threads),
    ),
    OwnFamily(
        "pod_gpu_cuda_allocations_total",
        "counter",
        "Allocations of GPU memory that succeeded.",
        _OF_ROW,
        write=_each(lambda use: use.counts.allocations),
    ),
    OwnFamily(
        "pod_gpu_cuda_allocation_failures_total",
        "counter",
        "Allocations of GPU memory that failed.",
        _OF_ROW,
        write=_each(lambda use: use.counts.failed_allocations),
    ),
    OwnFamily(
        "pod_gpu_cuda_frees_total",
        "counter",
        "Allocations that programs gave back.",
        _OF_ROW,
        write=_each(lambda use: use.counts.frees),
    ),
    OwnFamily(
        "pod_gpu_cuda_memory_allocated_bytes",
        "gauge",
        "Bytes that the running programs have allocated and not freed, as they asked for them: the driver rounds up,"
        " and takes memory of its own.",
        _OF_ROW,
        write=_each(lambda use: use.counts.memory_bytes),
    ),
    OwnFamily(
        "pod_gpu_cuda_memory_peak_bytes",
        "gauge",
        "The most that was allocated at a time: what all programs of the container had when the probe was read, or one"
        " of them at any time.",
        _OF_ROW,
        write=_each(lambda use: use.counts.peak_bytes),
    ),
    OwnFamily(
        "pod_gpu_cuda_memory_freed_bytes_total",
        "counter",
        "Bytes that programs freed.",
        _OF_ROW,
        write=_each(lambda use: use.counts.freed_bytes),
    ),
    OwnFamily(
        "pod_gpu_cuda_memory_released_at_exit_bytes_total",
        "counter",
        "Bytes that programs had not freed when they ended.",
        _OF_ROW,
        write=_each(lambda use: use.released_bytes),
    ),
    OwnFamily(
        "pod_gpu_cuda_copies_total",
        "counter",
        "Copies by direction: host_to_host, host_to_device, device_to_host, device_to_device, and default where CUDA"
        " works it out from the addresses.",
        ("direction", *_OF_ROW),
        write=_by("direction", lambda use: by_direction(use.counts.copies)),
    ),
    OwnFamily(
        "pod_gpu_cuda_copied_bytes_total",
        "counter",
        "Bytes that programs copied, by direction.",
        ("direction", *_OF_ROW),
        write=_by("direction", lambda use: by_direction(use.counts.copied_bytes)),
    ),
    OwnFamily(
        "pod_gpu_cuda_synchronizations_total",
        "counter",
        "Calls that wait for the GPU.",
        _OF_ROW,
        write=_each(lambda use: use.counts.syncs),
    ),
    OwnFamily(
        "pod_gpu_cuda_sync_seconds_total",
        "counter",
        "The time that threads spent in calls that wait for the GPU; that of several threads adds up.",
        _OF_ROW,
        write=_each(lambda use: use.counts.sync_ns, _NANOSECONDS),
    ),
    OwnFamily(
        "pod_gpu_cuda_active_seconds_total",
        "counter",
        "The time in which a container had work on the GPU: from the first launch to the synchronisation that ends it,"
        " in any stream of any of its programs. It is not the time in which kernels ran: that in a queue, and that in"
        " which other containers had the GPU, count as well.",
        _OF_ROW,
        write=_active,
    ),
    OwnFamily(
        "pod_gpu_cuda_errors_total",
        "counter",
        "Calls that did not succeed, by cudaError_t or CUresult; code is other for all after the first 64 of a row.",
        ("code", *_OF_ROW),
        write=_by("code", lambda use: by_code(use.counts.errors)),
    ),
)
