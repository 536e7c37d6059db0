"""/metrics: the exporter's own families, about itself, its sources, and which pod holds which GPU.

/metric has only the families of gpu-manager, at the path that gpu-manager uses.

Tests: tests/outputs/test_openmetrics.py.
"""

from collections.abc import Sequence

from exporter.exposition.families import pieces
from exporter.model.slices import Work
from exporter.outputs.complaints import complaints
from exporter.outputs.families.catalogue import FAMILIES
from exporter.outputs.families.family import filled
from exporter.outputs.families.gpu_manager import FAMILIES as OF_GPU_MANAGER
from exporter.outputs.output import TEXT_FORMAT, Answer, Look, Need, Output, answer, metrics_answer


def render(look: Look) -> Work[Sequence[bytes]]:
    """The exporter's own families. In the text format, comments before them name the troubles of sources."""
    yield from look.work_out()
    is_open = look.question.is_open
    families = yield from pieces(filled(FAMILIES, look), is_open=is_open)
    return (b"" if is_open else complaints(look.snapshot.health), *families)


def _make(look: Look) -> Work[Answer]:
    return metrics_answer(look, *(yield from render(look)))


def _make_metric(look: Look) -> Work[Answer]:
    yield from look.work_out()
    return answer(TEXT_FORMAT, *(yield from pieces(filled(OF_GPU_MANAGER, look))))


OUTPUT = Output(
    path="/metrics",
    says="the exporter's own metrics, and which pod holds which GPU",
    make=_make,
    needs=frozenset({Need.NODE, Need.ACCOUNTS, Need.VERDICTS}),
    has_open=True,
)
METRIC = Output(
    path="/metric", says="gpu-manager's metrics: the GPUs that containers ask for and use", make=_make_metric
)
