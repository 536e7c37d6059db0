"""/metrics: what the exporter says about itself and its sources, and which pod holds which GPU."""

from collections.abc import Sequence

from exporter.exposition.families import pieces
from exporter.model.slices import Work
from exporter.outputs.complaints import complaints
from exporter.outputs.families.catalogue import FAMILIES
from exporter.outputs.families.family import filled
from exporter.outputs.output import TEXT_FORMAT, Answer, Look, Need, Output, answer


def render(look: Look) -> Work[Sequence[bytes]]:
    """The exporter's own families, after comments that say what is wrong."""
    yield from look.work_out()
    families = yield from pieces(filled(FAMILIES, look))
    return (complaints(look.snapshot.health), *families)


def _make(look: Look) -> Work[Answer]:
    return answer(TEXT_FORMAT, *(yield from render(look)), look.telemetry.render_process())


OUTPUT = Output(
    path="/metrics",
    says="the exporter's own metrics, and which pod holds which GPU",
    make=_make,
    needs=frozenset({Need.NODE, Need.ACCOUNTS}),
)
