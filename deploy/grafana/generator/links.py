"""Links from a value to the dashboard with more about it. They keep the time range and the reader's choices."""

from collections.abc import Mapping
from typing import Any

# each dashboard's name in its address, and its variables
PREFIX = "pod-gpu-"
TITLES = {
    "cluster": "GPUs: cluster",
    "namespace": "GPUs: namespace",
    "workload": "GPUs: workload",
    "node": "GPUs: node",
    "gpu": "GPUs: one GPU",
    "idle": "GPUs: idle and wasted",
    "shared": "GPUs: shared",
    "queues": "GPUs: queues",
}


def to(dashboard: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """A link to a dashboard with these variables, and the reader's data source, clusters and time range."""
    kept = [f"${{{name}:queryparam}}" for name in ("datasource", "cluster")]
    given = [f"var-{name}={value}" for name, value in fields.items()]
    address = "&".join([*kept, *given, "${__url_time_range}"])
    return {"title": f"Open “{TITLES[dashboard]}”", "url": f"/d/{PREFIX}{dashboard}?{address}", "targetBlank": False}


def from_series(dashboard: str, **labels: str) -> list[dict[str, Any]]:
    """A link from a series; `labels` has for a variable of the dashboard the label with its value."""
    return [to(dashboard, {name: f"${{__field.labels.{label}}}" for name, label in labels.items()})]
