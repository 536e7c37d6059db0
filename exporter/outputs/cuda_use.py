"""The figures of a container's CUDA use.

In JSON they have the names of the families pod_gpu_cuda_*, without that prefix and _total.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.lenient import Object

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUse


@dataclass(frozen=True, slots=True)
class CudaFigure:
    """A figure: its name, what it is, and its amount in a container's use.

    The amount is a number in units of 10**-`power`, or a number for each value of `label`. `grows`: it never falls.
    """

    name: str
    text: str
    amount: Callable[["CudaUse"], int | float | Mapping[str, int]]
    power: int = 0
    label: str = ""
    grows: bool = True


def as_object(use: "CudaUse") -> Object:
    """The figures as an object of JSON. Copies by direction, and errors by code, are objects within it."""
    figures: Object = {}
    for figure in FIGURES:
        amount = figure.amount(use)
        if figure.power and not isinstance(amount, Mapping):
            amount /= 10**figure.power
        figures[figure.name] = amount
    return figures


def _by_direction(amounts: Sequence[int]) -> dict[str, int]:
    """Amounts of copies by direction."""
    from exporter.model.cuda import DIRECTIONS  # noqa: PLC0415 - only a node with a probe needs it

    return dict(zip(DIRECTIONS, amounts, strict=True))


def _by_code(errors: Mapping[int, int]) -> dict[str, int]:
    """Errors by code, as a decimal number; last the sum of all codes that are not counted one by one."""
    from exporter.model.cuda import OTHER_ERRORS  # noqa: PLC0415 - see above

    amounts = {str(code): errors[code] for code in sorted(errors) if code != OTHER_ERRORS}
    if OTHER_ERRORS in errors:
        amounts["other"] = errors[OTHER_ERRORS]
    return amounts


FIGURES = (
    CudaFigure(
        "processes",
        "Running processes of a container that have called CUDA on a GPU. In all of these families processes in no pod"
        " have empty owners, and UUID is empty if the GPU is not known.",
        lambda use: use.processes,
        grows=False,
    ),
    CudaFigure(
        "kernel_launches",
        "Kernels that programs launched, without those of graphs.",
        lambda use: use.counts.launches,
    ),
    CudaFigure(
        "graph_launches",
        "Graphs that programs launched.",
        lambda use: use.counts.graph_launches,
    ),
    CudaFigure(
        "threads_launched",
        "Threads of the launched kernels: grid size times block size.",
        lambda use: use.counts.threads,
    ),
    CudaFigure(
        "allocations",
        "Allocations of GPU memory that succeeded.",
        lambda use: use.counts.allocations,
    ),
    CudaFigure(
        "allocation_failures",
        "Allocations of GPU memory that failed.",
        lambda use: use.counts.failed_allocations,
    ),
    CudaFigure(
        "frees",
        "Allocations that programs gave back.",
        lambda use: use.counts.frees,
    ),
    CudaFigure(
        "memory_allocated_bytes",
        "Bytes that running programs asked for and have not freed. The driver takes more.",
        lambda use: use.counts.memory_bytes,
        grows=False,
    ),
    CudaFigure(
        "memory_peak_bytes",
        "The most that was allocated at a time: by all programs at a read of the probe, or by one at any time.",
        lambda use: use.counts.peak_bytes,
        grows=False,
    ),
    CudaFigure(
        "memory_freed_bytes",
        "Bytes that programs freed.",
        lambda use: use.counts.freed_bytes,
    ),
    CudaFigure(
        "memory_released_at_exit_bytes",
        "Bytes that programs had not freed when they ended.",
        lambda use: use.released_bytes,
    ),
    CudaFigure(
        "copies",
        "Copies: host_to_host, host_to_device, device_to_host, device_to_device, or default (by the addresses).",
        lambda use: _by_direction(use.counts.copies),
        label="direction",
    ),
    CudaFigure(
        "copied_bytes",
        "Bytes that programs copied, by direction.",
        lambda use: _by_direction(use.counts.copied_bytes),
        label="direction",
    ),
    CudaFigure(
        "synchronizations",
        "Calls that wait for the GPU.",
        lambda use: use.counts.syncs,
    ),
    CudaFigure(
        "sync_seconds",
        "The time that threads waited for the GPU, summed over threads.",
        lambda use: use.counts.sync_ns,
        power=9,
    ),
    CudaFigure(
        "active_seconds",
        "The time with work on the GPU, from the first launch to the synchronisation that ends it, in any stream. It"
        " includes time in a queue, and time in which other containers had the GPU.",
        lambda use: use.active_seconds,
    ),
    CudaFigure(
        "errors",
        "Failed calls, by cudaError_t or CUresult; other after the first 64 codes of a row.",
        lambda use: _by_code(use.counts.errors),
        label="code",
    ),
)
