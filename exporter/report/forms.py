"""The report as text: a table for a terminal, and CSV and JSON for other programs.

No name in the table moves a cursor. The page (html_page.py) has the same columns. CSV and JSON have plain numbers and
whole names; an unknown number is empty or null.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from exporter.report.costs import Cost, apportioned
from exporter.report.formatting import change, clean, fit, money, name_of, number, percent, width
from exporter.report.groups import OF_GPUS
from exporter.report.report import Line, Report
from exporter.report.span import long_written, written

_LEAST_NAME = 12
_GAP = "  "
MOST_CHARS_OF_NOTE = 2000
# A spreadsheet takes a cell with such a beginning for a formula, and a pod's label may have any text. An apostrophe in
# front, which spreadsheets do not show, makes the cell a text (OWASP, "CSV Injection").
_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # noqa: RUF001 - the full-width ones, too
_MOST_CHARS = 65_536
_DIGITS = 6
_CENTS = 2
_SPECIAL = frozenset('",\r\n;')  # a cell with one of these is quoted
# the fields of a record that each piece of the span has
_OVER_TIME = ("gpu_hours_held", "gpu_hours_used", "gpu_hours_idle", "energy_kwh")
Record = Mapping[str, float | None]
Numbers = Sequence[float | None] | Sequence[Decimal | None]


class Column(NamedTuple):
    """A column: its heading, the heading's meaning, and the function that makes the cells of lines.

    The total's cell is made of the total's line alone.
    """

    heading: str
    means: str
    cells: Callable[[Sequence[Line]], Sequence[str]]


def _each(heading: str, means: str, cell: Callable[[Line], str]) -> Column:
    return Column(heading, means, lambda lines: [cell(line) for line in lines])


def _money(heading: str, means: str, cost: Callable[[Line], Cost]) -> Column:
    """A column of costs that add up to the cent."""
    return Column(heading, means, lambda lines: [money(amount) for amount in apportioned(map(cost, lines), _CENTS)])


def _change(line: Line) -> str:
    held = line.hours.held
    held_before = line.before.hours.held if line.before else 0.0
    word = ""
    if held and not held_before:
        word = " (new)"
    if held_before and not held:
        word = " (gone)"
    return change(held - held_before) + word


def _changes_of_cost(lines: Sequence[Line]) -> Sequence[str]:
    now = apportioned((line.costs.held for line in lines), _CENTS)
    before = apportioned(map(_cost_before, lines), _CENTS)
    pairs = zip(now, before, strict=True)
    return ["-" if one is None or was is None else f"{one - was:+,.2f}" for one, was in pairs]


def _cost_before(line: Line) -> Cost:
    return line.before.costs.held if line.before else Fraction(0)


_HELD = _each(
    "GPU-hours", "GPU-hours held, of a share or a MIG instance its part", lambda line: number(line.hours.held)
)
_CHANGE = _each("change", "GPU-hours held, less those in the span before", _change)
_USED = _each("used", "GPU-hours used: those held times the activity", lambda line: number(line.hours.used))
_PART = _each("used %", "used, of what was held while its use was known", lambda line: percent(line.used_ratio))
_UNKNOWN = _each(
    "use unknown", "GPU-hours held while nobody saw their use", lambda line: number(line.use_unknown_hours)
)
_IDLE = _each("idle", "GPU-hours held while the device did nothing", lambda line: number(line.hours.idle))
_IDLE_UNKNOWN = _each(
    "idle unknown", "GPU-hours of which nobody can tell idle from busy", lambda line: number(line.hours.idle_unknown)
)
_FREE = _each("free", "GPU-hours that nobody held", lambda line: number(line.hours.free))
_KWH = _each("kWh", "energy", lambda line: number(line.hours.joules))
_COST = _money("cost", "of what was held and of the energy, by the prices given", lambda line: line.costs.held)
_COST_CHANGE = Column("cost change", "cost, less that in the span before", _changes_of_cost)
_IDLE_COST = _money("idle cost", "of the idle hours, which is a part of the cost", lambda line: line.costs.idle)
_FREE_COST = _money("free cost", "of what nobody held, which is no part of the cost", lambda line: line.costs.free)
_UNUSED = _each(
    "not used", "GPU-hours held whose use was known, less those used", lambda line: number(line.unused_hours)
)
_TOKENS = _each("tokens", "that model servers generated", lambda line: number(line.amounts.tokens))
_ENERGY_PER = _each("J/1k tokens", "joules for them", lambda line: number(line.per_1000_tokens(line.amounts.joules)))
_COST_PER = _each("cost/1k tokens", "cost for them", lambda line: _small(line.per_1000_tokens(line.costs.held)))
# idle hours and hours not used, which differ
WORDS = (
    "idle: hours in which a GPU was held and its activity was below the exporter's --accounting.idle-below.",
    "not used: hours held whose use was known, less those used: all idle hours, and half of a half active hour.",
)
_UNKNOWN_IDLE = (
    "idle unknown: hours in which several held a GPU, in turn or at a time, under one value of its activity."
    " They are neither in idle nor in idle cost, which are the least that it may be."
)
_UNKNOWN_USE = (
    "use unknown: hours held in which nobody saw the use, as while dcgm-exporter's page was missing. What is used and"
    " not used is of the other hours."
)


def columns_of_groups(report: Report) -> Sequence[Column]:
    """The columns of the table of groups. Costs need prices, and free hours need groups to which GPUs belong."""
    is_compared = report.span_before is not None
    has_free = report.by.kind in OF_GPUS and report.capacity_hours is not None
    columns = [_HELD, _CHANGE if is_compared else _USED, _PART]
    if report.has_unknown_use:
        columns.append(_UNKNOWN)
    columns.append(_IDLE)
    if report.has_unknown_idle:
        columns.append(_IDLE_UNKNOWN)
    if has_free:
        columns.append(_FREE)
    if not is_compared:
        columns.append(_KWH)
    columns += _columns_of_costs(report, has_free=has_free)
    if report.total.amounts.tokens:
        columns += [_TOKENS, _ENERGY_PER]
        if report.prices.are_given:
            columns.append(_COST_PER)
    return columns


def _columns_of_costs(report: Report, *, has_free: bool) -> Iterator[Column]:
    if report.prices.are_given:
        yield _COST
        if report.span_before is not None:
            yield _COST_CHANGE
    if report.prices.are_of_gpus:
        yield _IDLE_COST
        if has_free:
            yield _FREE_COST


def columns_of_wasteful(report: Report) -> Sequence[Column]:
    """The columns of the table of workloads that hold most and use least."""
    columns = [_UNUSED, _HELD, _USED, _PART]
    if report.has_unknown_use:
        columns.append(_UNKNOWN)
    if report.prices.are_given:
        columns.append(_COST)
    if report.prices.are_of_gpus:
        columns.append(_IDLE_COST)
    return columns


def words_of(report: Report) -> Sequence[str]:
    """A sentence for each word of the tables that may be misunderstood."""
    words = [*WORDS] if report.wasteful else []
    if report.has_unknown_idle:
        words.append(_UNKNOWN_IDLE)
    if report.has_unknown_use:
        words.append(_UNKNOWN_USE)
    return words


def rows_of(lines: Sequence[Line], columns: Sequence[Column]) -> Sequence[Sequence[str]]:
    """The cells of each line."""
    return list(zip(*(column.cells(lines) for column in columns), strict=True))


def of_all_there_was(report: Report) -> str:
    """One sentence: GPU-hours held and free of the capacity; "" if the capacity is unknown."""
    if not report.capacity_hours or report.held_of_capacity is None:
        return ""
    part = percent(report.held_of_capacity)
    capacity = number(report.capacity_hours)
    free = number(report.total.hours.free)
    (free_cost,) = apportioned((report.total.costs.free,), _CENTS)
    cost = "" if free_cost is None else f", at a cost of {money(free_cost)}"
    return f"{part} of the {capacity} GPU-hours that there were was held; {free} were free{cost}."


def render_table(report: Report, columns: int | None) -> str:
    """The report as a table of at most `columns` columns of text; None for no limit."""
    begin, end = report.span.shown()
    parts = [f"GPUs from {begin} to {end} ({long_written(report.span.ms)}), by {clean(str(report.by))}"]
    if report.span_before:
        begin, end = report.span_before.shown()
        parts.append(f"before: from {begin} to {end} ({long_written(report.span_before.ms)})")
    parts += ["", *_table(str(report.by), report.groups, columns_of_groups(report), columns, report.total)]
    sentence = of_all_there_was(report)
    if sentence:
        parts += ["", sentence]
    if report.wasteful:
        parts += ["", "Workloads that hold most and use least:", ""]
        parts += _table("workload", report.wasteful, columns_of_wasteful(report), columns)
    words = words_of(report)
    if words:
        parts += ["", *words]
    if report.notes:
        parts += ["", "What could not be known:", ""]
        parts += [f"- {clean(str(note), MOST_CHARS_OF_NOTE)}" for note in report.notes]
    return "\n".join(line.rstrip() for line in parts) + "\n"


def _table(
    by: str, lines: Sequence[Line], columns: Sequence[Column], most_wide: int | None, total: Line | None = None
) -> Sequence[str]:
    """The lines of a table. `most_wide` is the terminal's width, to which names are cut; None: names stay whole."""
    names = [name_of(line.name, by) for line in lines]
    rows = [*rows_of(lines, columns)]
    if total:
        names.append("total")
        rows += rows_of([total], columns)
    headings = [column.heading for column in columns]
    widths = [max(map(len, cells)) for cells in zip(headings, *rows, strict=True)]
    heading = clean(by.removeprefix("label:"))
    wide_names = max(map(width, (heading, *names)))
    if most_wide is not None:
        left = most_wide - sum(widths) - len(_GAP) * len(widths)
        wide_names = max(_LEAST_NAME, min(wide_names, left))

    def put(name: str, row: Sequence[str]) -> str:
        right = (cell.rjust(wide) for cell, wide in zip(row, widths, strict=True))
        return _GAP.join((fit(name, wide_names), *right))

    written_rows = [put(name, row) for name, row in zip(names, rows, strict=True)]
    rule = _GAP.join("-" * wide for wide in (wide_names, *widths))
    if total:
        written_rows.insert(-1, rule)
    return [put(heading, headings), rule, *written_rows]


def render_csv(report: Report) -> str:
    """The report as CSV (RFC 4180), a line for each group. The total is left out, since each column adds up to it."""
    records = _records(report, report.groups)
    rows: list[Sequence[str]] = [("from", "to", str(report.by), *(records[0] if records else ()))]
    begin = written(report.span.from_ms)
    end = written(report.span.to_ms)
    for line, record in zip(report.groups, records, strict=True):
        rows.append((begin, end, line.name or "", *map(_plain, record.values())))
    return rows_as_csv(rows)


def rows_as_csv(rows: Iterable[Sequence[str]]) -> str:
    """Rows as RFC 4180 describes them, without cells that a spreadsheet would take for formulas."""
    return "".join(",".join(_cell(text) for text in row) + "\r\n" for row in rows)


def render_json(report: Report) -> str:
    """The report as one JSON object. A group's `name` is null if it belongs to nobody, or if nobody knows to whom."""
    before = report.span_before
    compared = {"compared_from": written(before.from_ms), "compared_to": written(before.to_ms)} if before else {}
    content = {
        "from": written(report.span.from_ms),
        "to": written(report.span.to_ms),
        **compared,
        "by": str(report.by),
        "groups": _named(report, report.groups),
        "total": _records(report, [report.total])[0],
        "capacity_gpu_hours": _round(report.capacity_hours),
        "hold_most_use_least": _named(report, report.wasteful),
        "over_time": _over_time(report),
        "notes": [{"says": note.message, "remedy": note.remedy} for note in report.notes],
    }
    return json.dumps(content, indent=2) + "\n"


def _over_time(report: Report) -> Sequence[Mapping[str, object]]:
    """The amounts of all rows in each piece of the span."""
    lines = [Line(name=None, amounts=moment.amounts) for moment in report.moments]
    records = _records(report, lines)
    pieces: list[Mapping[str, object]] = []
    for moment, record in zip(report.moments, records, strict=True):
        ends = {"from": written(moment.span.from_ms), "to": written(moment.span.to_ms)}
        pieces.append({**ends, **{name: record[name] for name in _OVER_TIME}})
    return pieces


def _records(report: Report, lines: Sequence[Line]) -> Sequence[Record]:
    """The record of each line for programs, with six decimals. Costs add up to the rounded total."""
    columns = {
        "gpu_hours_held": [line.hours.held for line in lines],
        "gpu_hours_used": [line.hours.used for line in lines],
        "gpu_hours_idle": [line.hours.idle for line in lines],
        "energy_kwh": [line.hours.joules for line in lines],
        "cost": _costs(line.costs.held for line in lines),
        "idle_cost": _costs(line.costs.idle for line in lines),
        **_columns_of_free(report, lines),
        "gpu_hours_use_unknown": [line.use_unknown_hours for line in lines],
        "gpu_hours_idle_unknown": [line.hours.idle_unknown for line in lines],
    }
    if report.span_before:
        columns["gpu_hours_held_before"] = [line.before.hours.held if line.before else None for line in lines]
        columns["cost_before"] = _costs(map(_cost_before, lines))
    if report.total.amounts.tokens:
        columns |= _columns_of_tokens(lines)
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, map(_round, row), strict=True)) for row in rows]


def _columns_of_free(report: Report, lines: Sequence[Line]) -> Mapping[str, Numbers]:
    """The free hours and costs of each line; unknown if the capacity is."""
    if report.capacity_hours is None:
        return dict.fromkeys(("gpu_hours_free", "free_cost"), [None] * len(lines))
    hours = [line.hours.free for line in lines]
    return {"gpu_hours_free": hours, "free_cost": _costs(line.costs.free for line in lines)}


def _columns_of_tokens(lines: Sequence[Line]) -> Mapping[str, Numbers]:
    return {
        "tokens": [line.amounts.tokens for line in lines],
        "joules_per_1000_tokens": [line.per_1000_tokens(line.amounts.joules) for line in lines],
        "cost_per_1000_tokens": [line.per_1000_tokens(line.costs.held) for line in lines],
    }


def _costs(costs: Iterable[Cost]) -> Numbers:
    return apportioned(costs, _DIGITS)


def _named(report: Report, lines: Sequence[Line]) -> Sequence[Mapping[str, object]]:
    return [{"name": line.name, **record} for line, record in zip(lines, _records(report, lines), strict=True)]


def _round(value: float | Decimal | None) -> float | None:
    return None if value is None else round(float(value), _DIGITS)


def _small(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.{_DIGITS}f}".rstrip("0").rstrip(".")


def _cell(text: str) -> str:
    text = clean(text, _MOST_CHARS)
    if text.startswith(_BEGIN_FORMULAS):
        text = f"'{text}"
    has_special = not _SPECIAL.isdisjoint(text)
    if has_special or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text
