"""The report as one HTML page that can be sent by mail and kept. It has no script, and fetches nothing.

The page's Content-Security-Policy allows its one style, by the hash, and nothing else. Colours follow the reader's
light or dark theme, and paper. Charts are inline SVG: a bar shows the hours held, and on top of it, in a darker colour,
the hours used. A bar's numbers are its title, which browsers show under the pointer. The table has them, too.

Tests: tests/report/test_page.py, tests/report/test_forms.py.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import islice
from math import floor, log10

from exporter.report import forms
from exporter.report.costs import Cost, apportioned
from exporter.report.formatting import clean, fit, money, name_of, number, percent
from exporter.report.report import Line, Moment, Report, sum_of
from exporter.report.span import long_written
from exporter.wording import counted

MOST_ROWS = 500  # more than anybody reads; the other forms have all rows
MOST_BARS = 20
_WIDTH = 720
_ROW = 26
_BAR = 16
# pixels to the left and to the right of horizontal bars
_NAMES = 220
_NUMBERS = 74
_MOST_NAME = 28
# pixels of the chart over time: its height, left of and above the columns
_HEIGHT = 220
_LEFT = 44
_HEAD = 14
_FLOOR = _HEIGHT - 26  # the bottom of the columns
_TICKS = 4
_NICE = (1, 2, 2.5, 5, 10)
_MS_OF_SECOND = 1000
_LEAST = 1e-9  # GPUs or GPU-hours: a bar of so few has no length
_STYLE = (files("exporter.report") / "page.css").read_text()
_KEY = '<p class="dim"><span class="key held"></span>held<span class="key used"></span>used</p>'


def render_page(report: Report) -> str:
    """The whole document."""
    by = str(report.by)
    begin, end = report.span.shown()
    length = long_written(report.span.ms)
    before = f"; before: {' to '.join(report.span_before.shown())}" if report.span_before else ""
    groups = _table(by, report.groups, forms.columns_of_groups(report), report.total)
    parts = [
        *_head(f"GPU report, {begin} to {end}"),
        f'<h1>GPU report</h1><p class="dim">{begin} to {end} ({length}), by {escape(clean(by))}{before}</p>',
        _tiles(report),
        *_section(f"GPU-hours by {escape(clean(by))}", bars_of_groups(report)),
        _wide("Groups", groups),
        f'<p class="dim">{escape(forms.of_all_there_was(report))}</p>',
        *_section("GPUs at a time", columns_of_time(report.moments)),
    ]
    if report.wasteful:
        workloads = _table("workload", report.wasteful, forms.columns_of_wasteful(report))
        parts += ["<h2>Workloads that hold most and use least</h2>", _wide("Workloads", workloads)]
    parts += [f'<p class="dim">{escape(sentence)}</p>' for sentence in forms.words_of(report)]
    if report.notes:
        notes = [escape(clean(str(note), forms.MOST_CHARS_OF_NOTE)) for note in report.notes]
        items = "".join(f"<li>{note}</li>" for note in notes)
        parts.append(f'<h2>What could not be known</h2><ul class="notes">{items}</ul>')
    parts.append("</main></body></html>\n")
    return "\n".join(parts)


def _head(title: str) -> Sequence[str]:
    """The document up to the heading, with a policy that allows the page's one style and nothing else."""
    style_hash = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style_hash}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="referrer" content="no-referrer">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body><main>",
    )


def _section(heading: str, chart: str) -> Sequence[str]:
    title = f"<h2>{heading}</h2>"
    if not chart:
        return (title,)
    return (title, _KEY, _wide(f"Chart: {heading}", chart))


def _wide(name: str, content: str) -> str:
    """A region for content that may be wider than a phone. It scrolls by itself, also by keys."""
    return f'<div class="wide" role="region" aria-label="{name}" tabindex="0">{content}</div>'


def _tiles(report: Report) -> str:
    tiles = [*_tiles_of_hours(report), ("kWh", number(report.total.hours.joules)), *_tiles_of_costs(report)]
    items = [f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in tiles]
    return f"<dl>{''.join(items)}</dl>"


def _tiles_of_hours(report: Report) -> Iterator[tuple[str, str]]:
    total = report.total
    yield "GPU-hours held", number(total.hours.held)
    if report.capacity_hours:
        yield "of all there were", percent(report.held_of_capacity)
    yield "of them used", percent(total.used_ratio)
    if report.has_unknown_use:
        yield "use unknown", number(total.use_unknown_hours)
    yield "GPU-hours idle", number(total.hours.idle)
    if report.has_unknown_idle:
        yield "idle unknown", number(total.hours.idle_unknown)


def _tiles_of_costs(report: Report) -> Iterator[tuple[str, str]]:
    if not report.prices.are_given:
        return
    costs = report.total.costs
    yield "cost", _cents(costs.held)
    if costs.idle is not None:
        yield "idle cost", _cents(costs.idle)
    if costs.free is not None:
        yield "free cost", _cents(costs.free)


def _cents(cost: Cost) -> str:
    (rounded,) = apportioned((cost,), 2)
    return money(rounded)


def _table(by: str, lines: Sequence[Line], columns: Sequence[forms.Column], total: Line | None = None) -> str:
    heading = escape(clean(by.removeprefix("label:")))
    heads = [f'<th scope="col" title="{escape(column.means)}">{column.heading}</th>' for column in columns]
    head = f'<thead><tr><th scope="col">{heading}</th>{"".join(heads)}</tr></thead>'
    rows = zip(lines, forms.rows_of(lines, columns), strict=True)
    body = [_row(name_of(line.name, by), cells) for line, cells in islice(rows, MOST_ROWS)]
    if len(lines) > MOST_ROWS:
        more = f"and {len(lines) - MOST_ROWS} more, which the total has too (--format csv names them)"
        body.append(f'<tr><td colspan="{len(columns) + 1}">{more}</td></tr>')
    foot = f"<tfoot>{_row('total', forms.rows_of([total], columns)[0])}</tfoot>" if total else ""
    return f"<table>{head}<tbody>{''.join(body)}</tbody>{foot}</table>"


def _row(name: str, cells: Sequence[str]) -> str:
    columns = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(name)}</th>{columns}</tr>'


def bars_of_groups(report: Report) -> str:
    """A chart with a bar for each group that held anything, most first. Groups after the twentieth are a line of text.

    One bar for all these groups would be so long that the other bars would become stumps.
    """
    lines = [line for line in report.groups if _longest(line) > _LEAST]
    groups = [line for line in lines if line.groups == 1]
    shown = groups[:MOST_BARS]
    if not shown:
        return ""
    scale = (_WIDTH - _NAMES - _NUMBERS) / max(map(_longest, shown))
    parts: list[str] = []
    for place, line in enumerate(shown):
        parts += _bar(name_of(line.name, str(report.by)), line, place * _ROW, scale)
    rows = len(shown)
    folded = [line for line in lines if line.groups > 1]
    others = [*groups[MOST_BARS:], *folded]
    if others:
        count = sum(line.groups for line in others)
        parts.append(_line_of_others(count, sum_of(others, None), rows * _ROW))
        rows += 1
    return _svg(rows * _ROW, f"GPU-hours by {report.by}", parts)


def _longest(line: Line) -> float:
    """GPU-hours of the line's longer bar."""
    return max(line.hours.held, line.hours.used)


def _bar(name: str, line: Line, top: int, scale: float) -> Sequence[str]:
    text_at = top + _BAR - 3
    held = escape(number(line.hours.held))
    used = escape(number(line.hours.used))
    end = _NAMES + _longest(line) * scale
    return [
        f"<g><title>{escape(name)}: {held} GPU-hours held, {used} used</title>",
        f'<text class="name" x="{_NAMES - 8}" y="{text_at}">{escape(fit(name, _MOST_NAME).strip())}</text>',
        _rect("held", _NAMES, top, line.hours.held * scale, _BAR),
        _rect("used", _NAMES, top, line.hours.used * scale, _BAR),
        f'<text x="{end + 6:.1f}" y="{text_at}">{held}</text></g>',
    ]


def _line_of_others(count: int, line: Line, top: int) -> str:
    held = escape(number(line.hours.held))
    used = escape(number(line.hours.used))
    text_at = top + _BAR - 3
    return (
        f'<g><text class="name" x="{_NAMES - 8}" y="{text_at}">{counted(count, "other")}</text>'
        f'<text x="{_NAMES}" y="{text_at}">{held} together, {used} used: no bar</text></g>'
    )


def columns_of_time(moments: Sequence[Moment]) -> str:
    """A chart with a column for each piece of the span. Its height is the number of GPUs held at a time."""
    highest = max((max(_gpus_at_a_time(moment)) for moment in moments), default=0.0)
    if highest <= _LEAST:
        return ""
    most, ticks = _axis(highest)
    scale = (_FLOOR - _HEAD) / most
    first = moments[0].span
    last = moments[-1].span
    per_ms = (_WIDTH - _LEFT) / (last.to_ms - first.from_ms)
    parts: list[str] = []
    for tick in ticks:
        parts += _tick(tick, scale)
    for moment in moments:
        left = _LEFT + (moment.span.from_ms - first.from_ms) * per_ms + 1
        wide = max(1.0, moment.span.ms * per_ms - 2)
        parts += _column(moment, left, wide, scale)
    foot = _HEIGHT - 8
    parts.append(f'<text x="{_LEFT}" y="{foot}">{first.shown()[0]}</text>')
    parts.append(f'<text class="name" x="{_WIDTH}" y="{foot}">{last.shown()[1]}</text>')
    return _svg(_HEIGHT, "GPUs held and used over time", parts)


def _gpus_at_a_time(moment: Moment) -> tuple[float, float]:
    """The GPUs held at a time, and those used."""
    amounts = moment.amounts
    return amounts.held * _MS_OF_SECOND / moment.span.ms, amounts.used * _MS_OF_SECOND / moment.span.ms


def _tick(gpus: float, scale: float) -> Sequence[str]:
    y = _FLOOR - gpus * scale
    return (
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>',
        f'<text class="name" x="{_LEFT - 6}" y="{y + 4:.1f}">{gpus:g}</text>',
    )


def _column(moment: Moment, left: float, wide: float, scale: float) -> Sequence[str]:
    held, used = _gpus_at_a_time(moment)
    numbers = f"{escape(number(held))} GPUs held, {escape(number(used))} used"
    return (
        f"<g><title>{moment.span.shown()[0]}: {numbers}</title>",
        _rect("held", left, _FLOOR - held * scale, wide, held * scale),
        _rect("used", left, _FLOOR - used * scale, wide, used * scale),
        "</g>",
    )


def _axis(most: float) -> tuple[float, Sequence[float]]:
    """The end of an axis that shows values up to `most`, and its ticks, which are round numbers."""
    power = 10.0 ** floor(log10(most / _TICKS))
    step = next(power * nice for nice in _NICE if power * nice * _TICKS >= most)
    ticks = [step * place for place in range(_TICKS + 1)]
    return ticks[-1], ticks


def _rect(kind: str, x: float, y: float, wide: float, high: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"/>'


def _svg(high: int, label: str, parts: Sequence[str]) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {high}" role="img" aria-label="{escape(label)}">{body}</svg>'
