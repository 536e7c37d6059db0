"""/gpu/metrics: the joined page, ended by the slim part of the exporter's own families."""

from collections.abc import Sequence

from exporter.model.snapshot import Snapshot
from exporter.outputs.families import slim


def render(snapshot: Snapshot) -> tuple[Sequence[bytes], int] | None:
    """The page in pieces (see `JoinedPage`) and its size in bytes; None where every GPU source failed."""
    if snapshot.joined is None:
        return None
    end = slim(snapshot)
    return (*snapshot.joined.pieces, end), snapshot.joined.size + len(end)
