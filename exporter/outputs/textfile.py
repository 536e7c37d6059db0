"""The drop for node-exporter's textfile collector: a page without timestamps, renamed into place."""

import os
import tempfile
from pathlib import Path

from exporter.exposition.lines import SampleLine, read_line, split_lines
from exporter.model.snapshot import Snapshot
from exporter.outputs.complaints import complaints
from exporter.outputs.families.slim import slim


def render(snapshot: Snapshot) -> bytes:
    """What the file holds: the joined page, or the exporter's own families alone where every GPU source failed.

    Nobody shall read yesterday's values: a file that was not replaced would show them for ever.
    """
    if snapshot.joined is None:
        return complaints(snapshot.health) + slim(snapshot)
    return without_timestamps(snapshot.joined.body) + slim(snapshot)


def without_timestamps(page: bytes) -> bytes:
    """node-exporter refuses a whole file for one timestamp."""
    lines = []
    for line in split_lines(page):
        may_have_one = line[-1:].isdigit() and line.count(b" ") + line.count(b"\t") > 1
        # with the labels that it gained, a line may be longer than one that came
        sample = read_line(line, is_limited=False) if may_have_one else None
        if isinstance(sample, SampleLine) and sample.timestamp:
            lines.append(sample.series + sample.gap + sample.value)
        else:
            lines.append(line)
    return b"".join(b"%b\n" % line for line in lines)


def write(path: Path, body: bytes) -> None:
    """Replace the file: written beside it, synced, renamed. Readers see the old one or the new one, never a half.

    Raises OSError: nothing was replaced, the old file is whole.
    """
    # not *.prom: node-exporter must not read it. A name that nobody can foresee, in a file that was not there: others
    # may write to the folder, and would have a link to a file of root's wait here.
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
