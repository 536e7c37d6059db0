"""Prometheus' answers, made up for tests."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

NOW = 1_700_000_000.0
Row = tuple[Mapping[str, str], str]


def body(rows: Sequence[Row], at: float = NOW, **more: Any) -> bytes:
    """An instant vector; `more` are fields beside the data."""
    result = [{"metric": dict(labels), "value": [at, value]} for labels, value in rows]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}, **more}).encode()


def target(
    node: str = "n1", *, instance: str = "", up: str = "1", age: float = 5.0, pages: Sequence[str] = (), **labels: str
) -> list[Row]:
    """What the query for targets answers of a node."""
    rows: list[Row] = []
    for path in pages or ("/gpu/metrics", "/metrics"):
        of = {"node": node, "instance": instance or f"{node}:9400", "metrics_path": path, "job": "gpu", **labels}
        rows += [({**of, "__name__": "up", "about": "up"}, up), ({**of, "about": "scraped"}, str(NOW - age))]
    return rows


def of_device(name: str, uuid: str = "GPU-1", *, node: str = "n1", pod: str = "", **labels: str) -> dict[str, str]:
    """The labels of a series of a device and its owner."""
    owner = {"namespace": "ml", "pod": pod, "container": "main"} if pod else {}
    return {
        "__name__": name,
        "instance": f"{node}:9400",
        "UUID": uuid,
        "gpu": "0",
        "device": "nvidia0",
        **owner,
        **labels,
    }
