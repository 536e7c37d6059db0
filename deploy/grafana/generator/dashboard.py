"""A dashboard: its panels in their places, and the parts that all dashboards have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deploy.grafana.generator.links import PREFIX, TITLES
from deploy.grafana.generator.panels import DATASOURCE, Model, Panel, Row

TAG = "pod-gpu-metrics-exporter"
COLUMNS = 24
# the version of Grafana 10.0; later versions convert it when they load it
SCHEMA_VERSION = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A dashboard. `name` is that of its file, and with a prefix its address.

    The address must not change, since links and bookmarks have it.
    """

    name: str
    says: str
    variables: Sequence[Model]
    rows: Sequence[Row]
    since: str = "now-6h"

    def model(self) -> Model:
        """The content of the dashboard's file."""
        return {
            "uid": f"{PREFIX}{self.name}",
            "title": TITLES[self.name],
            "description": self.says,
            "tags": ["gpu", TAG],
            "schemaVersion": SCHEMA_VERSION,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "1m",
            "time": {"from": self.since, "to": "now"},
            "timepicker": {},
            "timezone": "",
            "weekStart": "",
            "annotations": {"list": [_XIDS]},
            "links": [_OTHERS],
            "templating": {"list": list(self.variables)},
            "panels": list(_placed(self.rows)),
        }


_XIDS: Model = {
    "name": "XIDs",
    "datasource": DATASOURCE,
    "enable": True,
    "hide": False,
    "iconColor": "red",
    "expr": 'sum by (node, xid) (xid:pod_gpu_xid_errors:new15m{cluster=~"$cluster"}) > 0',
    "titleFormat": "XID {{xid}} on {{node}}",
    "step": "5m",
}
_OTHERS: Model = {
    "title": "GPUs",
    "type": "dashboards",
    "tags": [TAG],
    "asDropdown": True,
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
    "icon": "external link",
    "tooltip": "The other dashboards, for the same time and choices",
    "url": "",
}


def _placed(rows: Sequence[Row]) -> Iterator[Model]:
    """Rows from top to bottom. A folded row contains its panels, whose places are those in the open row."""
    number, y = 1, 0
    for row in rows:
        inside: list[Model] = []
        below = y + 1 if row.title else y
        first = number + bool(row.title)
        for line in _lines(row.panels):
            x = 0
            for panel, width in line:
                inside.append(panel.at(first + len(inside), x, below, width))
                x += width
            below += max(panel.height for panel, _ in line)
        if row.title:
            yield {
                "id": number,
                "type": "row",
                "title": row.title,
                "collapsed": row.folded,
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
                "panels": inside if row.folded else [],
            }
        if not row.folded:
            yield from inside
        number, y = first + len(inside), y + 1 if row.folded else below


def _lines(panels: Sequence[Panel]) -> Iterator[list[tuple[Panel, int]]]:
    """The lines of a row. Small panels are all in one line, a table has its own, and others are in pairs.

    A panel with a width of its own takes that.
    """
    line: list[Panel] = []
    for panel in panels:
        if line and ((panel.kind != line[0].kind and "stat" in (panel.kind, line[0].kind)) or _full([*line, panel])):
            yield _shared(line)
            line = []
        line.append(panel)
    if line:
        yield _shared(line)


def _full(line: Sequence[Panel]) -> bool:
    return sum(panel.width or {"stat": 3, "table": COLUMNS}.get(panel.kind, COLUMNS // 2) for panel in line) > COLUMNS


def _shared(line: Sequence[Panel]) -> list[tuple[Panel, int]]:
    """The panels of a line with their widths. Those without a width of their own share the rest."""
    given = sum(panel.width or 0 for panel in line)
    open_ = sum(panel.width is None for panel in line)
    widths = []
    left = COLUMNS - given
    for panel in line:
        width = panel.width or left // open_
        if panel.width is None:
            left -= width
            open_ -= 1
        widths.append((panel, width))
    return widths
