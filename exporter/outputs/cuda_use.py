"""What a container asked of CUDA, as an object: the families pod_gpu_cuda_* without that prefix and _total."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUse

_OTHER = "other"
_NANOSECONDS = 1e9


def as_object(use: "CudaUse") -> dict[str, Any]:
    """Copies by direction, and errors by code, are objects of their own."""
    counts = use.counts
    return {
        "processes": use.processes,
        "kernel_launches": counts.launches,
        "graph_launches": counts.graph_launches,
        "threads_launched": counts.threads,
        "allocations": counts.allocations,
        "allocation_failures": counts.failed_allocations,
        "frees": counts.frees,
        "memory_allocated_bytes": counts.memory_bytes,
        "memory_peak_bytes": counts.peak_bytes,
        "memory_freed_bytes": counts.freed_bytes,
        "memory_released_at_exit_bytes": use.released_bytes,
        "copies": by_direction(counts.copies),
        "copied_bytes": by_direction(counts.copied_bytes),
        "synchronizations": counts.syncs,
        "sync_seconds": counts.sync_ns / _NANOSECONDS,
        "active_seconds": use.active_seconds,
        "errors": by_code(counts.errors),
    }


def by_direction(amounts: Sequence[int]) -> dict[str, int]:
    """Amounts of copies by direction."""
    from exporter.model.cuda import DIRECTIONS  # noqa: PLC0415 - only a node with a probe needs it

    return dict(zip(DIRECTIONS, amounts, strict=True))


def by_code(errors: Mapping[int, int]) -> dict[str, int]:
    """Errors by code, as a decimal number; those of codes that are not counted by themselves at the end."""
    from exporter.model.cuda import OTHER_ERRORS  # noqa: PLC0415 - see above

    named = {str(code): errors[code] for code in sorted(errors) if code != OTHER_ERRORS}
    return {**named, _OTHER: errors[OTHER_ERRORS]} if OTHER_ERRORS in errors else named
