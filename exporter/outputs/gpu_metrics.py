"""/gpu/metrics: the joined page, ended by the slim part of the exporter's own families."""

from exporter.model import Snapshot
from exporter.outputs.families import slim


def render(snapshot: Snapshot) -> tuple[bytes, bytes] | None:
    """The page in two pieces, since its first may have megabytes; None where every GPU source failed."""
    if snapshot.joined is None:
        return None
    return snapshot.joined.body, slim(snapshot)
