"""Families of the requests of containers' programs to CUDA, and of the state of the probe. Only if the probe runs.

Amounts are written exactly, from whole numbers. A row has the same labels in every family, so the labels are written
once.

Tests: tests/outputs/test_cuda_use.py.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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


def _samples(figure: CudaFigure, use: "CudaUse", labels: bytes) -> Iterator[Written]:
    """The samples of one row: a sample for each value of the figure's label, where it has one."""
    amount = figure.amount(use)
    if isinstance(amount, Mapping):
        for value, number in amount.items():
            yield b'%b="%b",%b' % (figure.label.encode(), value.encode(), labels), render_units(number, 0), b""
    elif isinstance(amount, int):
        yield labels, render_units(amount, figure.power), b""
    else:
        yield labels, render_number(amount), b""


def _family(figure: CudaFigure) -> OwnFamily[Look]:
    """The family of one figure."""

    def write(look: Look) -> Sequence[Written]:
        cuda = look.snapshot.cuda
        if cuda is None:
            return []
        rows = _labelled(cuda, look.snapshot.node)
        return [sample for use, labels in rows for sample in _samples(figure, use, labels)]

    name = f"pod_gpu_cuda_{figure.name}"
    labels = (figure.label, *OF_CONTAINER) if figure.label else OF_CONTAINER
    if figure.grows:
        return OwnFamily(f"{name}_total", "counter", figure.text, labels, write=write)
    return OwnFamily(name, "gauge", figure.text, labels, write=write)


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
