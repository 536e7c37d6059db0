"""What the programs of containers ask of CUDA, as the probe counts it, and how the probe is. Only where it runs.

Amounts are written exactly, from whole numbers. A row has the same labels in every family, so they are written once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from exporter.exposition.families import Samples, Written, render_labels, render_number, render_units
from exporter.outputs.cuda_use import FIGURES, CudaFigure
from exporter.outputs.families.family import OF_CONTAINER, OwnFamily, container_labels, counter, gauge
from exporter.outputs.output import Look

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUse, CudaUses

_Rows = Sequence[tuple["CudaUse", bytes]]


@lru_cache(maxsize=1)
def _labelled(cuda: "CudaUses", node: str) -> _Rows:
    rows = []
    for (owner, device), use in cuda.uses.items():
        labels = zip(OF_CONTAINER, container_labels(owner, device, node), strict=True)
        rows.append((use, render_labels(tuple(labels))))
    return rows


def _family(figure: CudaFigure) -> OwnFamily[Look]:
    def write(look: Look) -> Sequence[Written]:
        cuda = look.snapshot.cuda
        written: list[Written] = []
        for use, labels in _labelled(cuda, look.snapshot.node) if cuda is not None else ():
            amount = figure.amount(use)
            if isinstance(amount, Mapping):
                named = ((b'%b="%b",%b' % (figure.label.encode(), of.encode(), labels), n) for of, n in amount.items())
                written += ((its_labels, render_units(number, 0), b"") for its_labels, number in named)
            else:
                text = render_units(amount, figure.power) if isinstance(amount, int) else render_number(amount)
                written.append((labels, text, b""))
        return written

    make, labels = counter if figure.grows else gauge, (figure.label, *OF_CONTAINER) if figure.label else OF_CONTAINER
    return make(f"pod_gpu_cuda_{figure.name}{'_total' * figure.grows}", figure.text, labels, write=write)


def _of_probe(value: Callable[["CudaUses"], int]) -> Callable[[Look], Samples]:
    return _by_name(lambda cuda: {"": value(cuda)})


def _by_name(numbers: Callable[["CudaUses"], Mapping[str, int]]) -> Callable[[Look], Samples]:
    """A sample for each name; that of "" has no label."""

    def fill(look: Look) -> Samples:
        cuda = look.snapshot.cuda
        named = numbers(cuda).items() if cuda is not None else ()
        return [((name,) if name else (), float(number)) for name, number in named]

    return fill


FAMILIES = tuple(map(_family, FIGURES))
# how the probe itself is
PROBE = (
    gauge(
        "pod_gpu_exporter_probe_programs",
        "Files that the probe watches: CUDA's libraries, programs with CUDA linked in, and their C libraries.",
        fill=_of_probe(lambda cuda: cuda.programs),
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
        fill=_of_probe(lambda cuda: cuda.unreadable),
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
