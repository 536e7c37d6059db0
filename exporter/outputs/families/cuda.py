"""Families of the requests of containers' programs to CUDA, and of the state of the probe. Only if the probe runs.

Amounts are written exactly, from whole numbers. A row has the same labels in every family, so the labels are written
once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from exporter.exposition.families import Written, render_number, render_units
from exporter.outputs.cuda_use import FIGURES, CudaFigure
from exporter.outputs.families.family import OF_CONTAINER, Fill, OwnFamily, by_label, container_text, own, single
from exporter.outputs.output import Look

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUse, CudaUses

_Rows = Sequence[tuple["CudaUse", bytes]]


@lru_cache(maxsize=1)
def _labelled(cuda: "CudaUses", node: str) -> _Rows:
    return [(use, container_text(owner, device, node)) for (owner, device), use in cuda.uses.items()]


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

    name, kind = f"pod_gpu_cuda_{figure.name}{'_total' * figure.grows}", "counter" if figure.grows else "gauge"
    labels = (figure.label, *OF_CONTAINER) if figure.label else OF_CONTAINER
    return OwnFamily(name, kind, figure.text, labels, write=write)


def _of_probe(value: Callable[["CudaUses"], int]) -> Fill[Look]:
    return single(lambda look: None if look.snapshot.cuda is None else value(look.snapshot.cuda))


def _by_name(numbers: Callable[["CudaUses"], Mapping[str, int]]) -> Fill[Look]:
    return by_label(lambda look: {} if look.snapshot.cuda is None else numbers(look.snapshot.cuda))


FAMILIES = tuple(map(_family, FIGURES))
# the state of the probe itself
PROBE = (
    own("pod_gpu_exporter_probe_programs", _of_probe(lambda cuda: cuda.programs)),
    own("pod_gpu_exporter_probe_attach_failures_total", _by_name(lambda cuda: cuda.failures)),
    own("pod_gpu_exporter_probe_unreadable_processes", _of_probe(lambda cuda: cuda.unreadable)),
    own("pod_gpu_exporter_probe_events_lost_total", _by_name(lambda cuda: cuda.lost)),
    own(
        "pod_gpu_exporter_probe_map_entries",
        _by_name(lambda cuda: {name: entries for name, (entries, _) in cuda.map_entries.items()}),
    ),
    own(
        "pod_gpu_exporter_probe_map_limit",
        _by_name(lambda cuda: {name: limit for name, (_, limit) in cuda.map_entries.items()}),
    ),
)
