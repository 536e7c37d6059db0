"""The report as a table in a terminal: plain text, as wide as the terminal, with nothing in it that moves a cursor."""

from collections.abc import Sequence

from exporter.report.columns import Column, columns_of_groups, columns_of_wasteful
from exporter.report.report import Line, Report
from exporter.report.span import long_written, written
from exporter.report.words import clean, fit, name_of, number, percent, width

_LEAST_NAME = 12
_GAP = "  "
_MOST_CHARS_OF_NOTE = 2000


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
        parts += [f"- {clean(str(note), _MOST_CHARS_OF_NOTE)}" for note in report.notes]
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
