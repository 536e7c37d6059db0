"""The report as text: a table in a terminal, in which nothing moves a cursor, and CSV and JSON for other programs.

The page (page.py) has the table's columns. In CSV and JSON numbers are plain, unknown is empty or null, and names are
whole.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from exporter.report.formatting import clean, fit, name_of, number, percent, width
from exporter.report.report import Line, Report
from exporter.report.span import long_written, written

_LEAST_NAME = 12
_GAP = "  "
MOST_CHARS_OF_NOTE = 2000
# A spreadsheet takes a cell that begins so for a formula, and a pod's label may say what it likes. An apostrophe in
# front, which spreadsheets do not show, makes it text (OWASP, "CSV Injection").
_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # noqa: RUF001 - the full-width ones, too
_MOST_CHARS = 65_536
_DIGITS = 6


class Column(NamedTuple):
    """A heading, what it means, and a line's cell."""

    heading: str
    means: str
    cell: Callable[[Line], str]


_HELD = Column(
    "GPU-hours",
    "GPU-hours held; a share and a MIG instance count as the part of a GPU that they are",
    lambda line: number(line.held_hours),
)
_USED = Column("used", "GPU-hours used: those held times the activity", lambda line: number(line.used_hours))
_PART = Column("used %", "used, of what was held while its use was known", lambda line: percent(line.used_ratio))
_IDLE = Column("idle", "GPU-hours held while the device did nothing", lambda line: number(line.idle_hours))
_KWH = Column("kWh", "energy", lambda line: number(line.kwh))
_COST = Column("cost", "by the prices given", lambda line: number(line.cost))
_UNUSED = Column("not used", "GPU-hours held and not used", lambda line: number(line.unused_hours))


def columns_of_groups(report: Report) -> Sequence[Column]:
    """Those of the table of groups; costs only where there are prices."""
    return (_HELD, _USED, _PART, _IDLE, _KWH, *((_COST,) if report.prices.are_given else ()))


def columns_of_wasteful(report: Report) -> Sequence[Column]:
    """Those of the table of workloads that hold most and use least."""
    return (_UNUSED, _HELD, _USED, _PART, *((_COST,) if report.prices.are_given else ()))


def render_table(report: Report, columns: int | None) -> str:
    """The report, no wider than `columns`; as wide as it must be where that is None."""
    title = f"GPUs from {written(report.span.from_ms)} to {written(report.span.to_ms)}"
    parts = [f"{title} ({long_written(report.span.ms)}), by {clean(str(report.by))}", ""]
    parts += _table(str(report.by), (*report.groups, report.total), columns_of_groups(report), columns, has_total=True)
    if report.capacity_hours and report.held_of_capacity is not None:
        part = percent(report.held_of_capacity)
        parts += ["", f"{part} of the {number(report.capacity_hours)} GPU-hours that there were was held."]
    if report.wasteful:
        parts += ["", "Workloads that hold most and use least:", ""]
        parts += _table("workload", report.wasteful, columns_of_wasteful(report), columns)
    if report.notes:
        parts += ["", "What could not be known:", ""]
        parts += [f"- {clean(str(note), MOST_CHARS_OF_NOTE)}" for note in report.notes]
    return "\n".join(line.rstrip() for line in parts) + "\n"


def _table(
    by: str, lines: Sequence[Line], cells: Sequence[Column], columns: int | None, *, has_total: bool = False
) -> list[str]:
    names = [name_of(line.name, by) for line in lines]
    if has_total:
        names[-1] = "total"
    rows = [[column.cell(line) for column in cells] for line in lines]
    widths = [max(len(column.heading), *(len(row[place]) for row in rows)) for place, column in enumerate(cells)]
    heading = clean(by.removeprefix("label:"))
    of_names = max(width(heading), *(width(name) for name in names))
    if columns is not None:
        of_names = max(_LEAST_NAME, min(of_names, columns - sum(widths) - len(_GAP) * len(widths)))

    def put(name: str, row: Sequence[str]) -> str:
        right = (cell.rjust(wide) for cell, wide in zip(row, widths, strict=True))
        return _GAP.join((fit(name, of_names), *right))

    written_rows = [put(name, row) for name, row in zip(names, rows, strict=True)]
    rule = _GAP.join(("-" * of_names, *("-" * wide for wide in widths)))
    if has_total:
        written_rows.insert(-1, rule)
    return [put(heading, [column.heading for column in cells]), rule, *written_rows]


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
    """One object. A group whose `name` is null belongs to nobody, or it is unknown to whom."""
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
                "notes": [{"says": note.message, "remedy": note.remedy} for note in report.notes],
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
