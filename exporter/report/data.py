"""The report for other programs: CSV and JSON. Numbers are plain, unknown is empty or null, and names are whole."""

import json
from collections.abc import Mapping, Sequence

from exporter.report.report import Line, Report
from exporter.report.span import written
from exporter.report.words import clean

# A spreadsheet takes a cell that begins so for a formula, and a pod's label may say what it likes. An apostrophe in
# front, which spreadsheets do not show, makes it text (OWASP, "CSV Injection").
_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # noqa: RUF001 - the full-width ones, too
_MOST_CHARS = 65_536
_DIGITS = 6


def render_csv(report: Report) -> str:
    """A line for each group (RFC 4180), without the total: a sum over a column is the total."""
    fields = tuple(_numbers(report.total))
    rows: list[Sequence[str]] = [("from", "to", str(report.by), *fields)]
    begin, end = written(report.span.from_ms), written(report.span.to_ms)
    for line in report.groups:
        numbers = ("" if value is None else _plain(value) for value in _numbers(line).values())
        rows.append((begin, end, line.name or "", *numbers))
    return "".join(",".join(_cell(text) for text in row) + "\r\n" for row in rows)


def render_json(report: Report) -> str:
    """One object. A group whose `name` is null belongs to nobody, or nobody knows to whom."""
    return (
        json.dumps(
            {
                "from": written(report.span.from_ms),
                "to": written(report.span.to_ms),
                "by": str(report.by),
                "groups": [_named(line) for line in report.groups],
                "total": _rounded(report.total),
                "capacity_gpu_hours": _round(report.capacity_hours),
                "hold_most_use_least": [_named(line) for line in report.wasteful],
                "over_time": [
                    {
                        "from": written(moment.span.from_ms),
                        "to": written(moment.span.to_ms),
                        **_rounded(Line(name=None, amounts=moment.amounts, cost=None), without="cost"),
                    }
                    for moment in report.moments
                ],
                "notes": [{"says": note.says, "remedy": note.remedy} for note in report.notes],
            },
            indent=2,
        )
        + "\n"
    )


def _numbers(line: Line) -> Mapping[str, float | None]:
    return {
        "gpu_hours_held": line.held_hours,
        "gpu_hours_used": line.used_hours,
        "gpu_hours_idle": line.idle_hours,
        "energy_kwh": line.kwh,
        "cost": line.cost,
    }


def _rounded(line: Line, without: str = "") -> Mapping[str, float | None]:
    return {name: _round(value) for name, value in _numbers(line).items() if name != without}


def _named(line: Line) -> Mapping[str, object]:
    return {"name": line.name, **_rounded(line)}


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _plain(value: float) -> str:
    text = f"{value:.{_DIGITS}f}"
    return text.rstrip("0").rstrip(".")


def _cell(text: str) -> str:
    text = clean(text, _MOST_CHARS)
    if text.startswith(_BEGIN_FORMULAS):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if set(text) & set('",\r\n;') or text != text.strip() else text
