"""Tables: a row for each combination of some labels, a column for each query."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deploy.grafana.generator.links import to
from deploy.grafana.generator.panels import GREEN, PERCENT, Model, Panel, Query, steps, target

# the labels' names at the head of a column, and the dashboards to which their values lead
_LABELS = {
    "cluster": "Cluster",
    "namespace": "Namespace",
    "workload_name": "Workload",
    "workload_kind": "Kind",
    "pod": "Pod",
    "container": "Container",
    "node": "Node",
    "gpu": "GPU",
    "UUID": "UUID",
    "GPU_I_ID": "MIG instance",
    "GPU_I_PROFILE": "MIG profile",
    "model": "Model",
    "modelName": "Model",
    "resource": "Resource",
    "xid": "XID",
    "link": "Link",
    "kind": "Kind of error",
    "class": "Class",
    "queue": "Queue",
    "cohort": "Cohort",
    "source": "Source",
    "instance": "Instance",
}
_LEADS = {
    "namespace": ("namespace", {"namespace": "namespace"}),
    "workload_name": ("workload", {"namespace": "namespace", "workload": "workload_name"}),
    "node": ("node", {"node": "node"}),
    "UUID": ("gpu", {"node": "node", "gpu": "UUID"}),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column with the values of a query. `levels` colour its cells, and make a bar of a ratio."""

    title: str
    expr: str
    unit: str
    levels: Sequence[Any] = ()


def table(title: str, says: str, by: str, *columns: Column, most_first: str = "", height: int = 9) -> Panel:
    """A table by labels, sorted by the column `most_first`, the largest value first."""
    labels = by.split(", ")
    names = [f"Value #{chr(ord('A') + number)}" for number in range(len(columns))] if columns[1:] else ["Value"]
    order = [*labels, *names]
    return Panel(
        title=title,
        says=says,
        kind="table",
        height=height,
        targets=[target(number, Query(column.expr), instant=True, table=True) for number, column in enumerate(columns)],
        model={
            "fieldConfig": {
                "defaults": {
                    "custom": {"align": "auto", "filterable": True, "cellOptions": {"type": "auto"}, "inspect": False},
                    "mappings": [],
                    "thresholds": steps(GREEN),
                    "color": {"mode": "thresholds"},
                },
                "overrides": [
                    *(_leading(label) for label in labels if _leads(label, labels)),
                    *(_shown(column) for column in columns),
                ],
            },
            "options": {
                "showHeader": True,
                "cellHeight": "sm",
                "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": []},
                **({"sortBy": [{"displayName": most_first, "desc": True}]} if most_first else {}),
            },
            "transformations": [
                *([{"id": "merge", "options": {}}] if columns[1:] else []),
                {
                    "id": "organize",
                    "options": {
                        "excludeByName": {"Time": True},
                        "indexByName": {name: place for place, name in enumerate(order)},
                        "renameByName": {label: _LABELS[label] for label in labels}
                        | {name: column.title for name, column in zip(names, columns, strict=True)},
                    },
                },
            ],
        },
    )


def _leads(label: str, labels: Sequence[str]) -> bool:
    return label in _LEADS and set(_LEADS[label][1].values()) <= set(labels)


def _leading(label: str) -> Model:
    dashboard, variables = _LEADS[label]
    fields = {variable: f"${{__data.fields.{of}}}" for variable, of in variables.items()}
    return _override(_LABELS[label], {"links": [to(dashboard, fields)]})


def _shown(column: Column) -> Model:
    properties: Model = {"unit": column.unit}
    if column.levels:
        properties["thresholds"] = steps(column.levels)
        if column.unit == PERCENT:
            properties |= {"min": 0, "max": 1, "custom.cellOptions": {"type": "gauge", "mode": "basic"}}
        else:
            properties["custom.cellOptions"] = {"type": "color-text"}
    return _override(column.title, properties)


def _override(name: str, properties: Model) -> Model:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key, "value": value} for key, value in properties.items()],
    }
