"""The drop for node-exporter's textfile collector: a page without timestamps, renamed into place."""

import os
import tempfile
from pathlib import Path

from exporter.exposition.lines import SampleLine, read_line, split_lines
from exporter.model.snapshot import Snapshot
from exporter.outputs.complaints import complaints
from exporter.outputs.families.slim import slim


def render(snapshot: Snapshot) -> bytes:
    """The content of the file: the joined page and the exporter's own families.

    If every source of GPU samples failed, it has only the own families, after comments with the reasons. A file that
    was not replaced would show old values for ever.
    """
    if snapshot.joined is None:
        return complaints(snapshot.health) + slim(snapshot)
    return without_timestamps(snapshot.joined.body) + slim(snapshot)


def without_timestamps(page: bytes) -> bytes:
    """The page without timestamps: node-exporter refuses a whole file for a single timestamp."""
    lines = []
    for line in split_lines(page):
        may_have_one = line[-1:].isdigit() and line.count(b" ") + line.count(b"\t") > 1
        # with the labels that it gained, a line may be longer than the limit for lines of an upstream
        sample = read_line(line, is_limited=False) if may_have_one else None
        if isinstance(sample, SampleLine) and sample.timestamp:
            lines.append(sample.series + sample.gap + sample.value)
        else:
            lines.append(line)
    return b"".join(b"%b\n" % line for line in lines)


def write(path: Path, body: bytes) -> None:
    """Replace the file: write a file beside it, sync it, rename it. Readers see the old file or the new file, no half.

    Raises OSError: nothing was replaced, and the old file is whole.
    """
    # not *.prom: node-exporter must not read it. Other users may write to the folder. Under a name that they foresee,
    # they could place a link to a file of root's, so the name is random, and the file must be new
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
