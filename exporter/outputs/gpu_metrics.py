"""/gpu/metrics: the joined page, ended by the slim part of the exporter's own families."""

from exporter.model import Snapshot
from exporter.outputs.families import slim


def render(snapshot: Snapshot) -> bytes | None:
    """The page; None where every GPU source failed."""
    if snapshot.joined is None:
        return None
    return snapshot.joined.body + slim(snapshot)


def why_not(snapshot: Snapshot) -> str:
    """One line that says why there is no page."""
    failures = (f"{name}: {snapshot.health[name].message}" for name in snapshot.page_sources)
    return "no GPU metrics: " + "; ".join(failures)
