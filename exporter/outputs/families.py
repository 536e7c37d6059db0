"""Families of the catalogue as text: what every output of them shares."""

from collections.abc import Iterable

from exporter.exposition.text import render_family
from exporter.telemetry import Filled


def render(families: Iterable[Filled]) -> bytes:
    """The families one after the other; one without samples is left out: unknown yields no series."""
    return b"".join(
        render_family(
            filled.family.name,
            filled.family.kind,
            filled.family.help,
            ((tuple(zip(filled.family.labels, values, strict=True)), number) for values, number in filled.samples),
        )
        for filled in families
    )
