"""The report of a run, as JSON and as Markdown for people and for docs/install.md#what-was-tested."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.hardware.judging import Row

_HEADS = ("what", "exporter", "nvidia-smi, or the load", "difference", "allowed", "", "pairs", "note")


def heading(about: Mapping[str, Any], model: str, driver: str) -> str:
    """What was tried, in a line. A library in the driver's place is no GPU, and the line says so."""
    what = f"{model}, driver {driver}" if not about["library"] else f"no GPU: a library that says {model}, {driver}"
    return f"{what}; compared with {about['compared_with']}; load: {about['load']}"


def markdown(title: str, rows: Sequence[Row]) -> str:
    """A table, with what fails first."""
    lines = [f"# {title}", "", f"| {' | '.join(_HEADS)} |", f"|{'---|' * len(_HEADS)}"]
    for row in sorted(rows, key=lambda row: row.verdict != "fails"):
        cells = (row.what, row.ours, row.theirs, row.difference, row.allowed, row.verdict, str(row.pairs), row.note)
        lines.append(f"| {' | '.join(_cell(text) for text in cells)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def write(folder: Path, title: str, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Write results.json and report.md."""
    content = {"title": title, "about": about, "rows": [asdict(row) for row in rows]}
    (folder / "results.json").write_text(json.dumps(content, indent=1))
    (folder / "report.md").write_text(markdown(title, rows))


def summary(rows: Sequence[Row]) -> list[str]:
    """What a terminal shows: the lines that fail, and how many do not."""
    lines = [
        f"fails: {row.what}: {row.ours or 'nothing'} beside {row.theirs or 'nothing'}, allowed {row.allowed or '-'}"
        + (f" ({row.note})" if row.note else "")
        for row in rows
        if row.verdict == "fails"
    ]
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in ("ok", "fails", "not judged")}
    return [*lines, ", ".join(f"{count} {verdict}" for verdict, count in counts.items())]
