"""One Prometheus for several exporters, each a cluster of its own, with the shipped scrape config and rules.

Debian's Prometheus has no discovery by Kubernetes: static targets have the labels that one would give.
"""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from tests.end_to_end.accounted import MODES as SHARING
from tests.rules.shipped import FILES, PROMETHEUS
from tests.support import quick_yaml
from tests.support.exporter import config_of, running
from tests.support.prometheus import OWN_LABELS, Prometheus
from tests.support.simulated import SimulatedNode

NODE = "gpu-node-1"
WITHOUT_OWNERS = "without-owners"
MODES = (*SHARING, WITHOUT_OWNERS)  # each is a cluster
SCRAPES_APART = "2s"
WINDOW = "8s"  # in place of 5 minutes
# A scrape is of the moment at which it began, and is stored later. With the same time between evaluations as between
# scrapes, one that begins right before an evaluation would do so each time, and be missed by it each time.
EVALUATIONS_APART = "2600ms"
SETTLED = 10.0  # seconds until what is recorded does not look back to before the first scrapes


class Target(NamedTuple):
    """An exporter."""

    cluster: str
    address: str
    node: str = NODE


def jobs(targets: Iterable[Target]) -> Iterator[dict[str, Any]]:
    """scrape-config-kubernetes.yaml, whose discovery has answered."""
    shipped = quick_yaml.load((PROMETHEUS / "scrape-config-kubernetes.yaml").read_text())["scrape_configs"]
    for job in shipped:
        found = {name: value for name, value in job.items() if name not in {"kubernetes_sd_configs", "scrape_interval"}}
        static = [
            {
                "targets": [target.address],
                "labels": {
                    **OWN_LABELS,
                    "cluster": target.cluster,
                    "__meta_kubernetes_pod_node_name": target.node,
                    "__meta_kubernetes_pod_phase": "Running",
                    "__meta_kubernetes_pod_container_port_name": port,
                },
            }
            for target in targets
            for port in ("metrics", "dcgm")
        ]
        yield {**found, "static_configs": static}


def in_short(expression: str) -> str:
    """The same with WINDOW in place of 5 minutes."""
    expression = expression.replace("[5m]", f"[{WINDOW}]").replace("offset 5m", f"offset {WINDOW}")
    return expression.replace(" / 300", f" / {WINDOW[:-1]}")


def quick(folder: Path) -> list[Path]:
    """The rules, evaluated often, with a window that a test can wait for."""
    for path in FILES:
        text = path.read_text().replace("    interval: 1m\n", "")
        text = in_short(text)
        text = re.sub(r"(?<=  - name: )(\S+\n)", rf"\1    interval: {EVALUATIONS_APART}\n", text)
        (folder / path.name).write_text(text)
    return [folder / path.name for path in FILES]


async def of_each_mode(node: SimulatedNode, stack: AsyncExitStack) -> list[Target]:
    """The node, and an exporter in front of it for each of MODES, until the stack is closed."""
    await node.start()
    stack.push_async_callback(node.stop)
    common = {
        "kubelet_socket": str(node.socket),
        "kubelet_pods_socket": str(node.pods_socket),
        "dcgm_url": node.url,
        "kubernetes_url": node.api_url,
        "inventory_file": str(node.inventory_file),
        "workload_labels": "app.kubernetes.io/name",
        "accounting_interval": "1s",
    }
    settings = {mode: {"sharing": mode} for mode in SHARING} | {WITHOUT_OWNERS: {"labels_owners": "off"}}
    return [
        Target(mode, (await stack.enter_async_context(running(config_of(**common, **given)))).base[7:])
        for mode, given in settings.items()
    ]


Series = dict[frozenset[tuple[str, str]], float]


def recorded_and_direct(server: Prometheus, name: str, expression: str) -> tuple[Series, Series]:
    """What was last recorded under a name, and what the expression answers for that moment; nothing, if none was."""
    server.at_seconds = time.time()
    moments = [value for _, value in server.query(f"timestamp({name})")]
    if not moments:
        server.at_seconds = None
        return {}, {}
    server.at_seconds = max(moments)
    answers: list[Series] = []
    for query in (f"{name} == {name}", expression):
        rows = server.query(query)
        answers.append({frozenset((key, text) for key, text in row.items() if key != "__name__"): n for row, n in rows})
    server.at_seconds = None
    return answers[0], answers[1]
