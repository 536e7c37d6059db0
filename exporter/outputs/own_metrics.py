"""/metrics: what the exporter says about itself and its sources, and which pod holds which GPU."""

from exporter.exposition.families import render as render_families
from exporter.outputs.complaints import complaints
from exporter.outputs.families.catalogue import FAMILIES
from exporter.outputs.families.family import filled
from exporter.outputs.output import TEXT_FORMAT, Answer, Look, Need, Output, answer


def render(look: Look) -> bytes:
    """The exporter's own families, after comments that say what is wrong."""
    return complaints(look.snapshot.health) + render_families(filled(FAMILIES, look))


def _make(look: Look) -> Answer:
    return answer(TEXT_FORMAT, render(look) + look.telemetry.render_process())


OUTPUT = Output(
    path="/metrics",
    says="the exporter's own metrics, and which pod holds which GPU",
    make=_make,
    needs=frozenset({Need.NODE, Need.ACCOUNTS}),
)
