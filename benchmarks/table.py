"""The table of figures, for which each benchmark returns rows."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure should be: in words, and as the limit of the row's bare number."""

    text: str
    limit: float
    is_least: bool = False
    """The number should be no less than the limit. Otherwise it should be no more."""


def at_most(limit: float, unit: str, in_numbers: float = 1.0) -> Aim:
    """An upper limit. `in_numbers` is a unit in that of the row's number: 1e-3 for ms, the number in seconds."""
    return Aim(f"at most {limit:g} {unit}", limit * in_numbers)


def at_least(limit: float, unit: str) -> Aim:
    """A lower limit, in the unit of the row's number."""
    return Aim(f"at least {limit:g} {unit}", limit, is_least=True)


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: its subject, the figure in words, the aim if there is one, and the bare number."""

    what: str
    figure: str
    aim: Aim | None
    number: float

    @property
    def misses_its_aim(self) -> bool:
        if self.aim is None:
            return False
        return self.number < self.aim.limit if self.aim.is_least else self.number > self.aim.limit


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
    cells = [("what", "figure", "aim"), *((row.what, row.figure, row.aim.text if row.aim else "") for row in rows)]
    widths = [max(len(text) for text in column) for column in zip(*cells, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def misses(rows: Sequence[Row]) -> str:
    """The rows that miss their aim, for the end of the report: a noisy machine is no failure."""
    missing = [row for row in rows if row.misses_its_aim]
    with_aim = sum(row.aim is not None for row in rows)
    if not missing:
        return f"All {with_aim} rows with an aim reach it."
    lines = [f"{len(missing)} of {with_aim} rows with an aim miss it:"]
    lines += [f"  {row.what}: {row.figure}; the aim is {row.aim.text}" for row in missing if row.aim]
    return "\n".join(lines)


def save(rows: Sequence[Row], path: Path) -> None:
    """Write the table as JSON, for a comparison with another run."""
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
