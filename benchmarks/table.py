"""The table of figures, for which each benchmark returns rows."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: its subject, the figure in words, the aim in words ("" for none), and the bare number."""

    what: str
    figure: str
    aim: str
    number: float


def median_seconds(work: Callable[[], object], *, rounds: int) -> float:
    """The median time of one call, in seconds."""
    times = []
    for _ in range(rounds):
        began = perf_counter()
        work()
        times.append(perf_counter() - began)
    return statistics.median(times)


def rounds(usual: int, effort: float) -> int:
    """The number of rounds: `usual` times the effort, and at least seven."""
    return max(7, int(usual * effort))


def show(rows: Sequence[Row]) -> str:
    """The table as text."""
    head = Row("what", "figure", "aim", 0.0)
    widths = [max(len(getattr(row, name)) for row in (head, *rows)) for name in ("what", "figure", "aim")]
    lines = [
        "  ".join(
            text.ljust(width) for text, width in zip((row.what, row.figure, row.aim), widths, strict=True)
        ).rstrip()
        for row in (head, *rows)
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def save(rows: Sequence[Row], path: Path) -> None:
    """Write the table as JSON, for a comparison with another run."""
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
