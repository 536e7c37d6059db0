"""Charts of the page, as inline SVG: shapes and texts alone, whose colours the page's style gives.

Bars show what was held, and on top of it in a darker colour what of it was used. Every bar has its numbers as a title,
which browsers show under the pointer; the table beside has them too.
"""

from collections.abc import Sequence
from html import escape

from exporter.report.report import Line, Moment, Report
from exporter.report.rows import Amounts
from exporter.report.span import written
from exporter.report.words import fit, name_of, number

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


def bars_of_groups(report: Report) -> str:
    """A bar for each group that held anything, most first; those beyond twenty are one."""
    held = [line for line in report.groups if max(line.held_hours, line.used_hours) > _LEAST]
    rows = [(name_of(line.name, str(report.by)), line) for line in held[:MOST_BARS]]
    if len(held) > MOST_BARS:
        rest = Amounts()
        for line in held[MOST_BARS:]:
            rest = rest.plus(line.amounts)
        rows.append((f"{len(held) - MOST_BARS} others", Line(name=None, amounts=rest, cost=None)))
    if not rows:
        return ""
    most = max(max(line.held_hours, line.used_hours) for _, line in rows)
    scale = (_WIDTH - _NAMES - _NUMBERS) / most
    parts = []
    for place, (name, line) in enumerate(rows):
        top = place * _ROW
        text_at = top + _BAR - 3
        hours, used = (escape(number(value)) for value in (line.held_hours, line.used_hours))
        end = _NAMES + max(line.held_hours, line.used_hours) * scale
        parts += [
            f"<g><title>{escape(name)}: {hours} GPU-hours held, {used} used</title>",
            f'<text class="name" x="{_NAMES - 8}" y="{text_at}">{escape(fit(name, _MOST_NAME).strip())}</text>',
            _rect("held", _NAMES, top, line.held_hours * scale, _BAR),
            _rect("used", _NAMES, top, line.used_hours * scale, _BAR),
            f'<text x="{end + 6:.1f}" y="{text_at}">{hours}</text></g>',
        ]
    return _svg(len(rows) * _ROW, f"GPU-hours by {report.by}", parts)


def columns_of_time(moments: Sequence[Moment]) -> str:
    """A column for each piece of the span, as high as the GPUs that were held in it at a time."""
    gpus = [
        [seconds * _MS_OF_SECOND / moment.span.ms for seconds in (moment.amounts.held, moment.amounts.used)]
        for moment in moments
    ]
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
            f"<g><title>{written(moment.span.from_ms)}: {says[0]} GPUs held, {says[1]} used</title>",
            _rect("held", x, _HEAD + high - held * scale, wide, held * scale),
            _rect("used", x, _HEAD + high - used * scale, wide, used * scale),
            "</g>",
        ]
    foot = _HEIGHT - 8
    parts.append(f'<text x="{_LEFT}" y="{foot}">{written(moments[0].span.from_ms)}</text>')
    parts.append(f'<text class="name" x="{_WIDTH}" y="{foot}">{written(moments[-1].span.to_ms)}</text>')
    return _svg(_HEIGHT, "GPUs held and used over time", parts)


def _axis(most: float) -> tuple[float, Sequence[float]]:
    """Where an axis ends that shows so much, and its ticks: round numbers."""
    power = 1.0
    while power * 10 < most / _TICKS:
        power *= 10
    while power > most / _TICKS:
        power /= 10
    step = next(power * nice for nice in _NICE if power * nice * _TICKS >= most)
    ticks = [step * place for place in range(_TICKS + 1)]
    return ticks[-1], ticks


def _rect(kind: str, x: float, y: float, wide: float, high: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"/>'


def _svg(high: int, label: str, parts: Sequence[str]) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {high}" role="img" aria-label="{escape(label)}">{body}</svg>'
