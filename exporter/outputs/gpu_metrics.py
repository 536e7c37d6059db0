"""/gpu/metrics: the joined page, ended by the slim part of the exporter's own families."""

from exporter.model import Snapshot
from exporter.outputs.families import render as render_families
from exporter.telemetry import age_family, health_families


def render(snapshot: Snapshot) -> bytes | None:
    """The page; None where every GPU source failed."""
    if snapshot.joined is None:
        return None
    slim = (*health_families(snapshot.health), age_family(snapshot.assignments_age_seconds))
    return snapshot.joined.body + render_families(slim)


def why_not(snapshot: Snapshot) -> str:
    """One line that says why there is no page."""
    failures = (
        f"{name}: {state.message}" for name, state in snapshot.health.items() if state.up is False and name != "kubelet"
    )
    return "no GPU metrics: " + "; ".join(failures)
