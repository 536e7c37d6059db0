"""How the CUDA probe is. Here only where it runs."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from exporter.exposition.families import Samples
from exporter.outputs.families.family import OwnFamily
from exporter.outputs.output import Look

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUses


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
    OwnFamily(
        "pod_gpu_exporter_probe_programs",
        "gauge",
        "Files that the probe watches: CUDA's libraries, programs with CUDA linked in, and their C libraries.",
        fill=_programs,
    ),
    OwnFamily(
        "pod_gpu_exporter_probe_attach_failures_total",
        "counter",
        "Files that the probe could not watch.",
        ("reason",),
        fill=_by_name(lambda cuda: cuda.failures),
    ),
    OwnFamily(
        "pod_gpu_exporter_probe_unreadable_processes",
        "gauge",
        "Processes that the probe may not look at, so that nobody knows whether they use CUDA: those of pods, too,"
        " where the exporter has not the capability SYS_PTRACE.",
        fill=_unreadable,
    ),
    OwnFamily(
        "pod_gpu_exporter_probe_events_lost_total",
        "counter",
        "What found no room and was not counted, by what is full: a map of the probe's, its ring, the processes that"
        " wait for an owner (waiting), or the rows.",
        ("map",),
        fill=_by_name(lambda cuda: cuda.lost),
    ),
    OwnFamily(
        "pod_gpu_exporter_probe_map_entries",
        "gauge",
        "Entries in a map of the probe's.",
        ("map",),
        fill=_by_name(lambda cuda: {name: entries for name, (entries, _) in cuda.map_entries.items()}),
    ),
    OwnFamily(
        "pod_gpu_exporter_probe_map_limit",
        "gauge",
        "The most entries that a map of the probe's holds.",
        ("map",),
        fill=_by_name(lambda cuda: {name: limit for name, (_, limit) in cuda.map_entries.items()}),
    ),
)
