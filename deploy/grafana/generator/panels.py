"""Panels: the JSON of each kind, as Grafana wants it.

Colours are names from Grafana's palette, which Grafana fits to its light or dark theme.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Model = dict[str, Any]
DATASOURCE: Model = {"type": "prometheus", "uid": "${datasource}"}
# the oldest Grafana with these options; a later one migrates those that it has changed
PLUGIN_VERSION = "10.0.0"
PERCENT, WATTS, GPUS, HOURS, MONEY = "percentunit", "watt", "suffix: GPUs", "suffix: GPU-h", "currencyUSD"
KWH, CELSIUS, HERTZ, FLOW, COUNT = "kwatth", "celsius", "hertz", "Bps", "short"

GREEN = ("green",)
# thresholds for a ratio of use: little is bad
USE = ("red", (0.2, "orange"), (0.5, "green"))
# thresholds for an idle part: much is bad
IDLE = ("green", (0.2, "orange"), (0.5, "red"))
FULL = ("green", (0.8, "orange"), (0.95, "red"))
BAD = ("green", (1, "red"))
WARM = ("green", (80, "orange"), (90, "red"))


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and the legend of its series."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel without its place: its queries, and the JSON that its kind adds (`model`)."""

    title: str
    says: str
    kind: str
    model: Model
    targets: Sequence[Model] = ()
    height: int = 8
    width: int | None = None

    def at(self, number: int, x: int, y: int, width: int) -> Model:
        """The panel's JSON, at a place in the grid of 24 columns."""
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.says,
            "gridPos": {"x": x, "y": y, "w": width, "h": self.height},
            **({"datasource": DATASOURCE, "targets": list(self.targets)} if self.targets else {}),
            "pluginVersion": PLUGIN_VERSION,
            **self.model,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels side by side under a headline. The row at the top has no headline."""

    title: str = ""
    panels: Sequence[Panel] = field(default=())
    folded: bool = False


def target(number: int, query: Query, *, instant: bool, table: bool = False) -> Model:
    """A query of a panel."""
    return {
        "refId": chr(ord("A") + number),
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "format": "table" if table else "time_series",
        "instant": instant,
        "range": not instant,
        "exemplar": False,
    }


def steps(levels: Sequence[Any]) -> Model:
    """Thresholds: the colour below all of them, and for each value the colour from there on."""
    first, *others = levels
    made = [{"color": first, "value": None}, *({"color": color, "value": value} for value, color in others)]
    return {"mode": "absolute", "steps": made}


def _defaults(unit: str, most: float | None, levels: Sequence[Any], mode: str, **more: Any) -> Model:  # noqa: ANN401
    limits = {"min": 0} | ({} if most is None else {"max": most})
    decimals = {"decimals": 0} if unit in {CELSIUS, WATTS} else {}
    return {
        "unit": unit,
        **limits,
        **decimals,
        "color": {"mode": mode},
        "thresholds": steps(levels),
        "mappings": [],
        "links": [],
        **more,
    }


def stat(
    title: str, says: str, expr: str, unit: str = COUNT, levels: Sequence[Any] = GREEN, *, most: float | None = None
) -> Panel:
    """A panel with one number, and its course in the background."""
    return Panel(
        title=title,
        says=says,
        kind="stat",
        height=4,
        targets=[target(0, Query(expr), instant=False)],
        model={
            "fieldConfig": {"defaults": _defaults(unit, most, levels, "thresholds"), "overrides": []},
            "options": {
                "colorMode": "value",
                "graphMode": "area",
                "justifyMode": "auto",
                "orientation": "auto",
                "textMode": "value",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            },
        },
    )


def new_xids(where: str) -> Panel:
    """A panel with the number of new errors."""
    return stat(
        "New XIDs",
        "Errors that the driver reported in the last 15 minutes.",
        f"sum(xid:pod_gpu_xid_errors:new15m{{{where}}}) or vector(0)",
        levels=BAD,
    )


def total(title: str, says: str, expr: str, unit: str, levels: Sequence[Any] = GREEN) -> Panel:
    """A panel with one number about the whole time range."""
    made = stat(title, says, expr, unit, levels)
    options = {**made.model["options"], "graphMode": "none"}
    return Panel(
        title=title,
        says=says,
        kind="stat",
        height=4,
        targets=[target(0, Query(expr), instant=True)],
        model={**made.model, "options": options},
    )


def lines(
    title: str,
    says: str,
    *queries: Query,
    unit: str = COUNT,
    most: float | None = None,
    stacked: bool = False,
    levels: Sequence[Any] = GREEN,
    links: Sequence[Model] = (),
) -> Panel:
    """A panel with series over time, and a legend with their mean, largest and last values."""
    custom: Mapping[str, Any] = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 40 if stacked else 8,
        "gradientMode": "none",
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "off" if levels is GREEN else "dashed"},
        "axisPlacement": "auto",
        "scaleDistribution": {"type": "linear"},
    }
    defaults = _defaults(unit, most, levels, "palette-classic", custom=custom)
    return Panel(
        title=title,
        says=says,
        kind="timeseries",
        targets=[target(number, query, instant=False) for number, query in enumerate(queries)],
        model={
            "fieldConfig": {"defaults": {**defaults, "links": list(links)}, "overrides": []},
            "options": {
                "legend": {
                    "displayMode": "table",
                    "placement": "bottom",
                    "showLegend": True,
                    "calcs": ["mean", "max", "lastNotNull"],
                    "sortBy": "Mean",
                    "sortDesc": True,
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            },
        },
    )


def bars(title: str, says: str, query: Query, *, unit: str, levels: Sequence[Any], most: float | None = None) -> Panel:
    """A panel with a bar for the last value of each series."""
    return Panel(
        title=title,
        says=says,
        kind="bargauge",
        targets=[target(0, query, instant=True)],
        model={
            "fieldConfig": {"defaults": _defaults(unit, most, levels, "thresholds"), "overrides": []},
            "options": {
                "displayMode": "basic",
                "orientation": "horizontal",
                "showUnfilled": True,
                "valueMode": "color",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            },
        },
    )
