"""The report as one HTML page that can be sent by mail and kept: no script, and nothing that is fetched from anywhere.

Its own Content-Security-Policy allows the page's one style, by its hash, and nothing else. Colours follow the reader's
light or dark, and paper. Charts are inline SVG: bars show what was held, and on top of it in a darker colour what of it
was used. The numbers of a bar are its title, which browsers show under the pointer, and stand in the table, too.
"""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import islice
from math import floor, log10

from exporter.errors import counted
from exporter.report import forms
from exporter.report.costs import apportioned
from exporter.report.formatting import clean, fit, money, name_of, number, percent
from exporter.report.report import Line, Moment, Report, sum_of
from exporter.report.span import long_written

MOST_ROWS = 500  # more than anybody reads; the other forms have all
MOST_BARS = 20
_WIDTH = 720
_ROW, _BAR = 26, 16
_NAMES, _NUMBERS = 220, 74  # pixels at the left and at the right of horizontal bars
_MOST_NAME = 28
_HEIGHT, _LEFT, _FOOT, _HEAD = 220, 44, 26, 14
_TICKS = 4
_NICE = (1, 2, 2.5, 5, 10)
_MS_OF_SECOND = 1000
_LEAST = 1e-9  # of GPUs, and of GPU-hours: nothing that has a length
_STYLE = (files("exporter.report") / "page.css").read_text()
_KEY = '<p class="dim"><span class="key held"></span>held<span class="key used"></span>used</p>'


def render_page(report: Report) -> str:
    """The whole document."""
    style_hash = b64encode(sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style_hash}'; base-uri 'none'; form-action 'none'"
    by = escape(clean(str(report.by)))
    begin, end = report.span.shown()
    before = f"; before: {' to '.join(report.span_before.shown())}" if report.span_before else ""
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="referrer" content="no-referrer">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>GPU report, {begin} to {end}</title><style>{_STYLE}</style></head><body><main>",
        f'<h1>GPU report</h1><p class="dim">{begin} to {end} ({long_written(report.span.ms)}), by {by}{before}</p>',
        _tiles(report),
        *_section(f"GPU-hours by {by}", bars_of_groups(report)),
        _wide("Groups", _table(str(report.by), report.groups, forms.columns_of_groups(report), report.total)),
        f'<p class="dim">{escape(forms.of_all_there_was(report))}</p>',
        *_section("GPUs at a time", columns_of_time(report.moments)),
    ]
    if report.wasteful:
        table = _table("workload", report.wasteful, forms.columns_of_wasteful(report))
        parts += ["<h2>Workloads that hold most and use least</h2>", _wide("Workloads", table)]
    parts += [f'<p class="dim">{escape(sentence)}</p>' for sentence in forms.words_of(report)]
    if report.notes:
        notes = "".join(f"<li>{escape(clean(str(note), forms.MOST_CHARS_OF_NOTE))}</li>" for note in report.notes)
        parts.append(f'<h2>What could not be known</h2><ul class="notes">{notes}</ul>')
    parts.append("</main></body></html>\n")
    return "\n".join(parts)


def _section(heading: str, chart: str) -> Sequence[str]:
    return (f"<h2>{heading}</h2>", _KEY, _wide(f"Chart: {heading}", chart)) if chart else (f"<h2>{heading}</h2>",)


def _wide(name: str, content: str) -> str:
    """What may be wider than a phone: it scrolls by itself, by keys as well."""
    return f'<div class="wide" role="region" aria-label="{name}" tabindex="0">{content}</div>'


def _tiles(report: Report) -> str:
    total = report.total
    tiles = [("GPU-hours held", number(total.hours.held)), ("of them used", percent(total.used_ratio))]
    if report.capacity_hours:
        tiles.insert(1, ("of all there were", percent(report.held_of_capacity)))
    if report.has_unknown_use:
        tiles.append(("use unknown", number(total.use_unknown_hours)))
    tiles.append(("GPU-hours idle", number(total.hours.idle)))
    if report.has_unknown_idle:
        tiles.append(("idle unknown", number(total.hours.idle_unknown)))
    tiles.append(("kWh", number(total.hours.joules)))
    costs = {"cost": total.costs.held, "idle cost": total.costs.idle, "free cost": total.costs.free}
    shown = {name: cost for name, cost in costs.items() if name == "cost" or cost is not None}
    if report.prices.are_given:
        tiles += [(name, money(apportioned((cost,), 2)[0])) for name, cost in shown.items()]
    return f"<dl>{''.join(f'<div><dt>{name}</dt><dd>{escape(value)}</dd></div>' for name, value in tiles)}</dl>"


def _table(by: str, lines: Sequence[Line], columns: Sequence[forms.Column], total: Line | None = None) -> str:
    heads = "".join(f'<th scope="col" title="{escape(column.means)}">{column.heading}</th>' for column in columns)
    heading = escape(clean(by.removeprefix("label:")))
    rows = zip(lines, forms.rows_of(lines, columns), strict=True)
    body = "".join(_row(name_of(line.name, by), cells) for line, cells in islice(rows, MOST_ROWS))
    if len(lines) > MOST_ROWS:
        more = f"and {len(lines) - MOST_ROWS} more, which the total has too (--format csv names them)"
        body += f'<tr><td colspan="{len(columns) + 1}">{more}</td></tr>'
    foot = f"<tfoot>{_row('total', forms.rows_of([total], columns)[0])}</tfoot>" if total else ""
    return f'<table><thead><tr><th scope="col">{heading}</th>{heads}</tr></thead><tbody>{body}</tbody>{foot}</table>'


def _row(name: str, cells: Sequence[str]) -> str:
    columns = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(name)}</th>{columns}</tr>'


def bars_of_groups(report: Report) -> str:
    """A bar for each group that held anything, most first; those beyond twenty are a line of text.

    A bar of all others would be so long that the bars of the groups became stumps.
    """
    held = [line for line in report.groups if max(line.hours.held, line.hours.used) > _LEAST]
    groups = [line for line in held if line.groups == 1]
    shown = groups[:MOST_BARS]
    if not shown:
        return ""
    others = [*groups[MOST_BARS:], *(line for line in held if line.groups > 1)]
    most = max(max(line.hours.held, line.hours.used) for line in shown)
    scale = (_WIDTH - _NAMES - _NUMBERS) / most
    parts: list[str] = []
    for place, line in enumerate(shown):
        parts += _bar(name_of(line.name, str(report.by)), line, place * _ROW, scale)
    if others:
        count = sum(line.groups for line in others)
        parts.append(_line_of_others(count, sum_of(others, None), len(shown) * _ROW))
    rows = len(shown) + bool(others)
    return _svg(rows * _ROW, f"GPU-hours by {report.by}", parts)


def _bar(name: str, line: Line, top: int, scale: float) -> Sequence[str]:
    text_at = top + _BAR - 3
    hours, used = (escape(number(value)) for value in (line.hours.held, line.hours.used))
    end = _NAMES + max(line.hours.held, line.hours.used) * scale
    return [
        f"<g><title>{escape(name)}: {hours} GPU-hours held, {used} used</title>",
        f'<text class="name" x="{_NAMES - 8}" y="{text_at}">{escape(fit(name, _MOST_NAME).strip())}</text>',
        _rect("held", _NAMES, top, line.hours.held * scale, _BAR),
        _rect("used", _NAMES, top, line.hours.used * scale, _BAR),
        f'<text x="{end + 6:.1f}" y="{text_at}">{hours}</text></g>',
    ]


def _line_of_others(count: int, line: Line, top: int) -> str:
    hours, used = number(line.hours.held), number(line.hours.used)
    text_at = top + _BAR - 3
    return (
        f'<g><text class="name" x="{_NAMES - 8}" y="{text_at}">{counted(count, "other")}</text>'
        f'<text x="{_NAMES}" y="{text_at}">{escape(hours)} together, {escape(used)} used: no bar</text></g>'
    )


def columns_of_time(moments: Sequence[Moment]) -> str:
    """A column for each piece of the span, as high as the GPUs that were held in it at a time."""
    gpus = [(had.held * _MS_OF_SECOND / span.ms, had.used * _MS_OF_SECOND / span.ms) for span, had in moments]
    highest = max((max(pair) for pair in gpus), default=0.0)
    if highest <= _LEAST:
        return ""
    most, ticks = _axis(highest)
    high = _HEIGHT - _FOOT - _HEAD
    scale = high / most
    parts = []
    for tick in ticks:
        y = _HEAD + high - tick * scale
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="name" x="{_LEFT - 6}" y="{y + 4:.1f}">{tick:g}</text>')
    whole = moments[-1].span.to_ms - moments[0].span.from_ms
    per_ms = (_WIDTH - _LEFT) / whole
    for moment, (held, used) in zip(moments, gpus, strict=True):
        x = _LEFT + (moment.span.from_ms - moments[0].span.from_ms) * per_ms + 1
        wide = max(1.0, moment.span.ms * per_ms - 2)
        says = [escape(number(value)) for value in (held, used)]
        parts += [
            f"<g><title>{moment.span.shown()[0]}: {says[0]} GPUs held, {says[1]} used</title>",
            _rect("held", x, _HEAD + high - held * scale, wide, held * scale),
            _rect("used", x, _HEAD + high - used * scale, wide, used * scale),
            "</g>",
        ]
    foot = _HEIGHT - 8
    parts.append(f'<text x="{_LEFT}" y="{foot}">{moments[0].span.shown()[0]}</text>')
    parts.append(f'<text class="name" x="{_WIDTH}" y="{foot}">{moments[-1].span.shown()[1]}</text>')
    return _svg(_HEIGHT, "GPUs held and used over time", parts)


def _axis(most: float) -> tuple[float, Sequence[float]]:
    """Where an axis ends that shows so much, and its ticks: round numbers."""
    power = 10.0 ** floor(log10(most / _TICKS))
    step = next(power * nice for nice in _NICE if power * nice * _TICKS >= most)
    ticks = [step * place for place in range(_TICKS + 1)]
    return ticks[-1], ticks


def _rect(kind: str, x: float, y: float, wide: float, high: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"/>'


def _svg(high: int, label: str, parts: Sequence[str]) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {high}" role="img" aria-label="{escape(label)}">{body}</svg>'
