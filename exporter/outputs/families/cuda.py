"""What the programs of containers ask of CUDA, as the probe counts it, and how the probe is. Only where it runs.

Amounts are written exactly, from whole numbers. A row has the same labels in every family, so they are written once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from exporter.exposition.families import Samples, Written, render_labels, render_number, render_units
from exporter.outputs.cuda_use import by_code, by_direction
from exporter.outputs.families.family import OF_CONTAINER, OwnFamily, container_labels, counter, gauge
from exporter.outputs.output import Look

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUse, CudaUses

_NANOSECONDS = 9  # a power of ten
_Rows = Sequence[tuple["CudaUse", bytes]]


@lru_cache(maxsize=1)
def _labelled(cuda: "CudaUses", node: str) -> _Rows:
    rows = []
    for (owner, device), use in cuda.uses.items():
        labels = zip(OF_CONTAINER, container_labels(owner, device, node), strict=True)
        rows.append((use, render_labels(tuple(labels))))
    return rows


def _rows(look: Look) -> _Rows:
    cuda = look.snapshot.cuda
    return _labelled(cuda, look.snapshot.node) if cuda is not None else ()


def _of_use(name: str, text: str, amount: Callable[["CudaUse"], int], power: int = 0) -> OwnFamily[Look]:
    """A family of an amount that each row has, in units of 10**-power."""
    make = counter if name.endswith("_total") else gauge
    return make(
        name,
        text,
        OF_CONTAINER,
        write=lambda look: [(row, render_units(amount(use), power), b"") for use, row in _rows(look)],
    )


def _active(look: Look) -> Sequence[Written]:
    return [(labels, render_number(use.active_seconds), b"") for use, labels in _rows(look)]


def _by(label: str, amounts: Callable[["CudaUse"], Mapping[str, int]]) -> Callable[[Look], Sequence[Written]]:
    """Writes a sample for each row and each value of a label."""

    def write(look: Look) -> Sequence[Written]:
        return [
            (b'%b="%b",%b' % (label.encode(), value.encode(), labels), render_units(amount, 0), b"")
            for use, labels in _rows(look)
            for value, amount in amounts(use).items()
        ]

    return write


def _programs(look: Look) -> Samples:
    cuda = look.snapshot.cuda
    return [((), float(cuda.programs))] if cuda is not None else ()


def _unreadable(look: Look) -> Samples:
    cuda = look.snapshot.cuda
    return [((), float(cuda.unreadable))] if cuda is not None else ()


def _by_name(numbers: Callable[["CudaUses"], Mapping[str, int]]) -> Callable[[Look], Samples]:
    def fill(look: Look) -> Samples:
        cuda = look.snapshot.cuda
        return [((name,), float(number)) for name, number in numbers(cuda).items()] if cuda is not None else ()

    return fill


FAMILIES = (
    _of_use(
        "pod_gpu_cuda_processes",
        "Processes of a container that run and have called CUDA on a GPU. Those in no pod have empty owners, and UUID"
        " is empty where it is not known which GPU a process means: so in all of these families.",
        lambda use: use.processes,
    ),
    _of_use(
        "pod_gpu_cuda_kernel_launches_total",
        "Kernels that programs launched. Those of a graph are not among them.",
        lambda use: use.counts.launches,
    ),
    _of_use(
        "pod_gpu_cuda_graph_launches_total", "Graphs that programs launched.", lambda use: use.counts.graph_launches
    ),
    _of_use(
        "pod_gpu_cuda_threads_launched_total",
        "Threads of the launched kernels: the size of the grid times that of a block.",
        lambda use: use.counts.threads,
    ),
    _of_use(
        "pod_gpu_cuda_allocations_total",
        "Allocations of GPU memory that succeeded.",
        lambda use: use.counts.allocations,
    ),
    _of_use(
        "pod_gpu_cuda_allocation_failures_total",
        "Allocations of GPU memory that failed.",
        lambda use: use.counts.failed_allocations,
    ),
    _of_use("pod_gpu_cuda_frees_total", "Allocations that programs gave back.", lambda use: use.counts.frees),
    _of_use(
        "pod_gpu_cuda_memory_allocated_bytes",
        "Bytes that the running programs have allocated and not freed, as they asked for them: the driver rounds up,"
        " and takes memory of its own.",
        lambda use: use.counts.memory_bytes,
    ),
    _of_use(
        "pod_gpu_cuda_memory_peak_bytes",
        "The most that was allocated at a time: what all programs of the container had when the probe was read, or one"
        " of them at any time.",
        lambda use: use.counts.peak_bytes,
    ),
    _of_use("pod_gpu_cuda_memory_freed_bytes_total", "Bytes that programs freed.", lambda use: use.counts.freed_bytes),
    _of_use(
        "pod_gpu_cuda_memory_released_at_exit_bytes_total",
        "Bytes that programs had not freed when they ended.",
        lambda use: use.released_bytes,
    ),
    counter(
        "pod_gpu_cuda_copies_total",
        "Copies by direction: host_to_host, host_to_device, device_to_host, device_to_device, and default where CUDA"
        " works it out from the addresses.",
        ("direction", *OF_CONTAINER),
        write=_by("direction", lambda use: by_direction(use.counts.copies)),
    ),
    counter(
        "pod_gpu_cuda_copied_bytes_total",
        "Bytes that programs copied, by direction.",
        ("direction", *OF_CONTAINER),
        write=_by("direction", lambda use: by_direction(use.counts.copied_bytes)),
    ),
    _of_use("pod_gpu_cuda_synchronizations_total", "Calls that wait for the GPU.", lambda use: use.counts.syncs),
    _of_use(
        "pod_gpu_cuda_sync_seconds_total",
        "The time that threads spent in calls that wait for the GPU; that of several threads adds up.",
        lambda use: use.counts.sync_ns,
        _NANOSECONDS,
    ),
    counter(
        "pod_gpu_cuda_active_seconds_total",
        "The time in which a container had work on the GPU: from the first launch to the synchronisation that ends it,"
        " in any stream of any of its programs. It is not the time in which kernels ran: that in a queue, and that in"
        " which other containers had the GPU, count as well.",
        OF_CONTAINER,
        write=_active,
    ),
    counter(
        "pod_gpu_cuda_errors_total",
        "Calls that did not succeed, by cudaError_t or CUresult; code is other for all after the first 64 of a row.",
        ("code", *OF_CONTAINER),
        write=_by("code", lambda use: by_code(use.counts.errors)),
    ),
)
# how the probe itself is
PROBE = (
    gauge(
        "pod_gpu_exporter_probe_programs",
        "Files that the probe watches: CUDA's libraries, programs with CUDA linked in, and their C libraries.",
        fill=_programs,
    ),
    counter(
        "pod_gpu_exporter_probe_attach_failures_total",
        "Files that the probe could not watch.",
        ("reason",),
        fill=_by_name(lambda cuda: cuda.failures),
    ),
    gauge(
        "pod_gpu_exporter_probe_unreadable_processes",
        "Processes that the probe may not look at, so that nobody knows whether they use CUDA: those of pods, too,"
        " where the exporter has not the capability SYS_PTRACE.",
        fill=_unreadable,
    ),
    counter(
        "pod_gpu_exporter_probe_events_lost_total",
        "What found no room and was not counted, by what is full: a map of the probe's, its ring, the processes that"
        " wait for an owner (waiting), or the rows.",
        ("map",),
        fill=_by_name(lambda cuda: cuda.lost),
    ),
    gauge(
        "pod_gpu_exporter_probe_map_entries",
        "Entries in a map of the probe's.",
        ("map",),
        fill=_by_name(lambda cuda: {name: entries for name, (entries, _) in cuda.map_entries.items()}),
    ),
    gauge(
        "pod_gpu_exporter_probe_map_limit",
        "The most entries that a map of the probe's holds.",
        ("map",),
        fill=_by_name(lambda cuda: {name: limit for name, (_, limit) in cuda.map_entries.items()}),
    ),
)
