"""A dashboard as a picture: its JSON and Prometheus' answers → SVG, in Grafana's layout. Pure.

The picture is not made by Grafana, and says so. It shows the JSON's places, titles, units, thresholds, legends and
columns, for the kinds of panels that the dashboards use. A panel without an answer says "No data", as in Grafana.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import isfinite
from typing import Any, Final

from docs.generator.grafana_units import shown

Model = Mapping[str, Any]
Point = tuple[float, float]

WIDTH: Final = 1200
_HEAD, _FOOT = 66, 26
_COLUMNS, _CELL, _GAP = 24, 30, 8
_INK, _FAINT, _GROUND, _PANEL, _LINE = "#ccccdc", "#8e8ea0", "#111217", "#181b1f", "#2c3235"
_COLORS: Final[Mapping[str, str]] = {"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c", "blue": "#5794f2"}
_PALETTE: Final = ("#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0", "#508642")
_LEGEND: Final = re.compile(r"\{\{\s*(\w+)\s*\}\}")
_MOST_LEGENDS = 4
_ROW = 24  # px, of a table
_CHARACTER = 6.4  # px, the average width in a text of 12 px; nothing here can measure it


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series of an answer. `points` are Unix seconds and values, in order; an instant query gives one point."""

    labels: Mapping[str, str]
    points: Sequence[Point]

    @property
    def last(self) -> float:
        """The last value."""
        return self.points[-1][1]


# Prometheus' answers to the queries of panels, by the panel's id and the query's refId.
Answers = Mapping[tuple[int, str], Sequence[Series]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle of the picture, in px."""

    x: float
    y: float
    width: float
    height: float

    def inside(self, *, top: float = 0, bottom: float = 0, left: float = 0, right: float = 0) -> "Box":
        """The box without its margins."""
        return Box(x=self.x + left, y=self.y + top, width=self.width - left - right, height=self.height - top - bottom)


def picture(model: Model, answers: Answers, *, caption: str, choices: Mapping[str, str], cells: int = 1000) -> str:
    """The SVG.

    `choices` are the texts of the variables at the top. Panels below the row `cells` of the grid are left out.

    Raises:
        KeyError: a kind of panel, or a unit, is not known here, since no dashboard had it so far.
    """
    panels = [panel for panel in model["panels"] if panel["gridPos"]["y"] + panel["gridPos"]["h"] <= cells]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    height = _HEAD + rows * (_CELL + _GAP) + _FOOT
    moments = [moment for each in answers.values() for series in each for moment, _ in series.points]
    span = (min(moments), max(moments)) if moments else (0.0, 1.0)
    body = [
        _rectangle(Box(x=0, y=0, width=WIDTH, height=height), _GROUND),
        *_head(model["title"], choices),
        *(piece for panel in panels for piece in _panel(panel, answers, span)),
        _text(_GAP * 2, height - 10, caption, color=_FAINT, size=11),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="Inter, Helvetica, Arial, sans-serif" role="img" aria-label="{escape(caption)}">\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _head(title: str, choices: Mapping[str, str]) -> Iterator[str]:
    yield _text(_GAP * 2, 24, f"Dashboards / {title}", size=15, weight=600)
    x = _GAP * 2.0
    for label, value in choices.items():
        width = (len(label) + len(value)) * _CHARACTER * 1.15 + 40
        yield _rectangle(Box(x=x, y=36, width=width, height=24), _PANEL, stroke=_LINE)
        yield _text(x + 8, 52, label, color="#6e9fff")
        yield _text(x + width - 8, 52, value, anchor="end")
        x += width + _GAP


def _panel(panel: Model, answers: Answers, span: tuple[float, float]) -> Iterator[str]:
    place = panel["gridPos"]
    column = (WIDTH - _GAP) / _COLUMNS
    box = Box(
        x=_GAP + place["x"] * column,
        y=_HEAD + place["y"] * (_CELL + _GAP),
        width=place["w"] * column - _GAP,
        height=place["h"] * (_CELL + _GAP) - _GAP,
    )
    if panel["type"] == "row":
        yield _text(box.x + 4, box.y + 20, f"{'▸' if panel['collapsed'] else '▾'}  {panel['title']}", size=14)
        return
    yield _rectangle(box, _PANEL, stroke=_LINE)
    yield _text(box.x + 9, box.y + 20, panel["title"], size=13, weight=500, most=box.width - 16)
    each = [answers.get((panel["id"], target["refId"]), ()) for target in panel["targets"]]
    inside = box.inside(top=32, bottom=8, left=9, right=9)
    if not any(each):
        yield _text(box.x + box.width / 2, box.y + box.height / 2 + 6, "No data", color=_FAINT, anchor="middle")
        return
    if panel["type"] == "table":
        yield from _table(panel, each, inside)
    else:
        legends = [
            (_legend(target, series), series)
            for target, answer in zip(panel["targets"], each, strict=True)
            for series in answer
        ]
        yield from _KINDS[panel["type"]](panel, legends, inside, span)


def _legend(target: Model, series: Series) -> str:
    """The name of a series: the legend's text with its labels, or else Grafana's default name."""
    if target["legendFormat"] != "__auto":
        return _LEGEND.sub(lambda match: series.labels.get(match[1], ""), target["legendFormat"])
    return ", ".join(f"{name}={value}" for name, value in series.labels.items()) or "Value"


def _colored(value: float, thresholds: Model) -> str:
    """The colour of the highest step that the value reaches."""
    color = next(
        step["color"]
        for step in reversed(thresholds["steps"])
        if step["value"] is None or (isfinite(value) and value >= step["value"])
    )
    return _COLORS[color]


Legends = Sequence[tuple[str, Series]]


def _stat(panel: Model, legends: Legends, box: Box, span: tuple[float, float]) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    series = legends[0][1]
    color = _colored(series.last, defaults["thresholds"])
    if panel["options"]["graphMode"] == "area" and len(series.points) > 1:
        values = [value for _, value in series.points if isfinite(value)]
        top = max([*values, 1e-9])
        low = min([*values, top])
        below = box.inside(top=box.height * 0.6, left=-8, right=-8, bottom=-6)
        spread = (top - low) or top
        yield _area(series.points, below, span, (low - spread * 0.1, top), color, opacity=0.25)
    value = shown(series.last, defaults["unit"], defaults.get("decimals"))
    size = min(30.0, (box.width - 4) / (len(value) * 0.62))
    yield _text(
        box.x + box.width / 2, box.y + box.height * 0.55, value, color=color, size=size, weight=600, anchor="middle"
    )


def _timeseries(panel: Model, legends: Legends, box: Box, span: tuple[float, float]) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    by_mean = sorted(legends, key=lambda each: _mean(each[1]), reverse=True)
    colors = {id(series): _PALETTE[number % len(_PALETTE)] for number, (_, series) in enumerate(legends)}
    rows = by_mean[:_MOST_LEGENDS]
    plot = box.inside(bottom=18 + 16 * (len(rows) + 1), left=52)
    drawn = list(_stacked([series for _, series in legends])) if stacked else [
        (series, series.points, None) for _, series in legends
    ]  # fmt: skip
    highest = max([value for _, points, _ in drawn for _, value in points if isfinite(value)], default=1.0)
    scale = (0.0, defaults.get("max") or _nice(highest * 1.02))
    yield from _axes(plot, scale, defaults["unit"], span)
    for step in (
        defaults["thresholds"]["steps"][1:] if defaults["custom"]["thresholdsStyle"]["mode"] == "dashed" else ()
    ):
        if scale[0] <= step["value"] <= scale[1]:
            y = _at(step["value"], scale, plot)
            yield _stroke(((plot.x, y), (plot.x + plot.width, y)), _COLORS[step["color"]], dashes="6 6")
    for series, points, base in reversed(drawn):
        color = colors[id(series)]
        yield _area(points, plot, span, scale, color, opacity=defaults["custom"]["fillOpacity"] / 100, base=base)
    yield from _legend_table(rows, colors, defaults, box)


def _legend_table(rows: Legends, colors: Mapping[int, str], defaults: Model, box: Box) -> Iterator[str]:
    """The names of series with their mean, largest and last value, at the foot of the panel."""
    unit, decimals = defaults["unit"], defaults.get("decimals")
    top = box.y + box.height - 16 * len(rows) - 2
    columns = (box.x + box.width - 150, box.x + box.width - 75, box.x + box.width)
    for x, title in zip(columns, ("Mean", "Max", "Last *"), strict=True):
        yield _text(x, top - 4, title, color="#6e9fff", size=11, anchor="end")
    for number, (name, series) in enumerate(rows):
        y = top + 12 + 16 * number
        yield _rectangle(Box(x=box.x, y=y - 6, width=12, height=3), colors[id(series)])
        yield _text(box.x + 18, y, name, size=11, most=box.width - 230)
        finite = [value for _, value in series.points if isfinite(value)]
        for x, value in zip(columns, (_mean(series), max(finite, default=0.0), series.last), strict=True):
            yield _text(x, y, shown(value, unit, decimals), size=11, anchor="end")


def _stacked(series: Sequence[Series]) -> Iterator[tuple[Series, Sequence[Point], Sequence[Point]]]:
    """Each series with its upper and its lower line, on top of the series before it."""
    heights: dict[float, float] = {}
    for one in series:
        base = [(moment, heights.get(moment, 0.0)) for moment, _ in one.points]
        for moment, value in one.points:
            heights[moment] = heights.get(moment, 0.0) + (value if isfinite(value) else 0.0)
        yield one, [(moment, heights[moment]) for moment, _ in one.points], base


def _axes(plot: Box, scale: tuple[float, float], unit: str, span: tuple[float, float]) -> Iterator[str]:
    for number in range(5):
        value = scale[0] + (scale[1] - scale[0]) * number / 4
        y = _at(value, scale, plot)
        yield _stroke(((plot.x, y), (plot.x + plot.width, y)), _LINE)
        yield _text(plot.x - 6, y + 4, shown(value, unit), color=_FAINT, size=11, anchor="end")
    for number in range(1, 6):
        moment = span[0] + (span[1] - span[0]) * number / 6
        x = plot.x + plot.width * number / 6
        clock = datetime.fromtimestamp(moment, UTC).strftime("%H:%M")
        yield _text(x, plot.y + plot.height + 15, clock, color=_FAINT, size=11, anchor="middle")


def _bargauge(panel: Model, legends: Legends, box: Box, _span: tuple[float, float]) -> Iterator[str]:
    defaults = panel["fieldConfig"]["defaults"]
    finite = [series.last for _, series in legends if isfinite(series.last)]
    full = defaults.get("max") or max([*finite, 1e-9])
    rows = legends[: max(1, int(box.height // 26))]
    for number, (name, series) in enumerate(rows):
        y = box.y + number * 26
        color = _colored(series.last, defaults["thresholds"])
        bar = Box(x=box.x + box.width * 0.4, y=y, width=box.width * 0.48, height=18)
        yield _text(box.x, y + 14, name, most=box.width * 0.38)
        yield _rectangle(bar, _LINE)
        part = min(1.0, series.last / full) if isfinite(series.last) else 0.0
        yield _rectangle(Box(x=bar.x, y=bar.y, width=bar.width * part, height=bar.height), color)
        value = shown(series.last, defaults["unit"], defaults.get("decimals"))
        yield _text(box.x + box.width, y + 14, value, color=color, anchor="end")


_KINDS: Final[Mapping[str, Callable[[Model, Legends, Box, tuple[float, float]], Iterator[str]]]] = {
    "stat": _stat,
    "timeseries": _timeseries,
    "bargauge": _bargauge,
}


def _table(panel: Model, each: Sequence[Sequence[Series]], box: Box) -> Iterator[str]:
    """A table. As its transformations say, rows are merged by their labels, and columns are renamed and sorted."""
    (organize,) = (one["options"] for one in panel["transformations"] if one["id"] == "organize")
    fields = sorted(organize["indexByName"], key=organize["indexByName"].__getitem__)
    titles = [organize["renameByName"][name] for name in fields]
    overrides = {
        one["matcher"]["options"]: {each["id"]: each["value"] for each in one["properties"]}
        for one in panel["fieldConfig"]["overrides"]
    }
    rows: dict[tuple[tuple[str, str], ...], dict[str, str | float]] = {}
    for target, answer in zip(panel["targets"], each, strict=True):
        value = f"Value #{target['refId']}" if len(each) > 1 else "Value"
        for series in answer:
            labels = {name: text for name, text in series.labels.items() if name in fields}
            rows.setdefault(tuple(sorted(labels.items())), {**labels})[value] = series.last
    order = [*rows.values()]
    for by in panel["options"].get("sortBy", ()):
        name = fields[titles.index(by["displayName"])]
        order.sort(key=lambda row: _number(row.get(name)), reverse=by["desc"])
    column = box.width / len(fields)
    for number, title in enumerate(titles):
        yield _text(box.x + column * number + 4, box.y + 14, title, color="#6e9fff", most=column - 8)
    for line, row in enumerate(order[: max(1, int((box.height - 22) // _ROW))]):
        y = box.y + 22 + line * _ROW
        yield _stroke(((box.x, y), (box.x + box.width, y)), _LINE)
        for number, (name, title) in enumerate(zip(fields, titles, strict=True)):
            cell = Box(x=box.x + column * number + 4, y=y, width=column - 8, height=_ROW)
            yield from _table_cell(row.get(name, ""), overrides.get(title, {}), cell)


def _table_cell(value: str | float, properties: Model, cell: Box) -> Iterator[str]:
    if isinstance(value, str):
        yield _text(cell.x, cell.y + 16, value, color="#6e9fff" if "links" in properties else _INK, most=cell.width)
        return
    kind = properties.get("custom.cellOptions", {"type": "auto"})["type"]
    color = _colored(value, properties["thresholds"]) if "thresholds" in properties else _INK
    text = shown(value, properties["unit"])
    if kind == "gauge":
        bar = Box(x=cell.x, y=cell.y + 5, width=cell.width - 56, height=14)
        yield _rectangle(bar, _LINE)
        part = min(1.0, max(0.0, value)) if isfinite(value) else 0.0
        yield _rectangle(Box(x=bar.x, y=bar.y, width=bar.width * part, height=bar.height), color)
        yield _text(cell.x + cell.width, cell.y + 16, text, color=color, anchor="end")
    else:
        yield _text(cell.x, cell.y + 16, text, color=color, most=cell.width)


def _number(value: str | float | None) -> float:
    return value if isinstance(value, float) and isfinite(value) else float("-inf")


def _mean(series: Series) -> float:
    values = [value for _, value in series.points if isfinite(value)]
    return sum(values) / len(values) if values else 0.0


def _nice(value: float) -> float:
    """The next larger end of an axis whose quarters are round numbers."""
    if value <= 0:
        return 1.0
    size = 10.0 ** len(str(int(value))) if value >= 1 else 1.0
    while size / 10 >= value:
        size /= 10
    return next(size * part for part in (0.12, 0.16, 0.2, 0.24, 0.32, 0.4, 0.6, 0.8, 1.0) if size * part >= value)


def _at(value: float, scale: tuple[float, float], plot: Box) -> float:
    low, high = scale
    return plot.y + plot.height * (1 - (min(max(value, low), high) - low) / (high - low))


def _area(
    points: Sequence[Point], plot: Box, span: tuple[float, float], scale: tuple[float, float], color: str, *,
    opacity: float, base: Sequence[Point] | None = None,
) -> str:  # fmt: skip
    """A line, and the area below it down to `base`. Missing values are a gap in the line."""
    width = (span[1] - span[0]) or 1.0
    pieces: list[list[tuple[float, float, float]]] = [[]]
    for number, (moment, value) in enumerate(points):
        far = number and moment - points[number - 1][0] > width / 40
        if far or not isfinite(value):
            pieces.append([])
        if isfinite(value):
            low = base[number][1] if base else scale[0]
            x = plot.x + plot.width * (moment - span[0]) / width
            pieces[-1].append((x, _at(value, scale, plot), _at(low, scale, plot)))
    drawn = []
    for piece in filter(None, pieces):
        above = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in piece)
        below = " ".join(f"{x:.1f},{low:.1f}" for x, _, low in reversed(piece))
        drawn.append(f'<polygon points="{above} {below}" fill="{color}" fill-opacity="{opacity:g}"/>')
        drawn.append(f'<polyline points="{above}" fill="none" stroke="{color}" stroke-width="1.3"/>')
    return "".join(drawn)


def _stroke(ends: Sequence[tuple[float, float]], color: str, dashes: str = "") -> str:
    (x1, y1), (x2, y2) = ends
    more = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{more}/>'


def _rectangle(box: Box, color: str, stroke: str = "") -> str:
    edge = f' stroke="{stroke}" rx="2"' if stroke else ""
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{max(0.0, box.width):.1f}" height="{max(0.0, box.height):.1f}"'
    return f'<rect {place} fill="{color}"{edge}/>'


def _text(
    x: float, y: float, text: str, *, color: str = _INK, size: float = 12, weight: int = 400, anchor: str = "start",
    most: float | None = None,
) -> str:  # fmt: skip
    """A text, cut at its end if it is wider than `most` px."""
    if most is not None:
        length = max(1, int(most / (_CHARACTER * size / 12)))
        text = text if len(text) <= length else f"{text[: length - 1]}…"
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" font-size="{size:g}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )
