"""All dashboards, and the text of each file."""

import json
from collections.abc import Mapping
from pathlib import Path

from deploy.grafana.generator import cluster, gpu, idle, namespace, node, queues, shared, workload

FOLDER = Path(__file__).parents[1]
DASHBOARDS = (
    cluster.DASHBOARD,
    namespace.DASHBOARD,
    workload.DASHBOARD,
    node.DASHBOARD,
    gpu.DASHBOARD,
    idle.DASHBOARD,
    shared.DASHBOARD,
    queues.DASHBOARD,
)


def texts() -> Mapping[str, str]:
    """The text of each file, by the file's name."""
    return {f"{made.name}.json": json.dumps(made.model(), indent=1, ensure_ascii=False) + "\n" for made in DASHBOARDS}
