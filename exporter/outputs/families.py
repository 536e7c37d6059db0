"""Families of the catalogue as text: what every output of them shares."""

from collections.abc import Iterable

from exporter.exposition.text import render_family
from exporter.model import Snapshot
from exporter.telemetry import Filled, age_family, health_families


def render(families: Iterable[Filled]) -> bytes:
    """The families one after the other; one without samples is left out: unknown yields no series."""
    return b"".join(
        [
            render_family(found.family.name, found.family.kind, found.family.help, found.family.labels, found.samples)
            for found in families
        ]
    )


def slim(snapshot: Snapshot) -> bytes:
    """The part of the exporter's own families that ends every page of GPU metrics: how its sources are."""
    return render((*health_families(snapshot.health), age_family(snapshot.assignments_age_seconds)))


def complaints(snapshot: Snapshot) -> bytes:
    """Comments that say why a source is down: its reason is for people, and no label could hold it."""
    return b"".join(
        f"# {name} failed ({state.reason}): {' '.join(state.message.split())}\n".encode("utf-8", "replace")
        for name, state in snapshot.health.items()
        if state.up is False
    )


def why_not(snapshot: Snapshot) -> str:
    """One line that says why there are no GPU samples."""
    failures = (f"{name}: {snapshot.health[name].message}" for name in snapshot.page_sources)
    return "no GPU metrics: " + "; ".join(failures)
