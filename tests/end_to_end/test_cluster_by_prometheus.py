"""Six node exporters, a real Prometheus that scrapes them as shipped, and the cluster role in both ways at once.

The nodes' pages stand still, so both ways must say the same. Debian's Prometheus has no discovery by Kubernetes: static
targets have the labels that one would give.
"""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from aiohttp import web

from exporter.dcgm.fields import METRICS as FIELDS
from tests.support import quick_yaml
from tests.support.background import Background
from tests.support.cluster_role import ClusterRole, running_cluster
from tests.support.exporter import Exporter, config_of, running
from tests.support.places import ROOT
from tests.support.prometheus import OWN_LABELS, Prometheus, prometheus
from tests.support.simulated import SimulatedNode, Teams, World
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

TEAMS = Teams(namespaces=("ml", "web"), workloads={"trainer": "main", "render": "main", "jupyter": "notebook"})
# whole GPUs, shares, MIG instances, both generations of names, both ways to give shares out
NODES: Mapping[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "gpu-node-1": ({}, {}, {}),
    "gpu-node-2": ({"shared": 1}, {"generation": "4.9"}, {}),
    "gpu-node-3": ({"mig": 1}, {"counters": "full", "with_parents": True}, {}),
    "gpu-node-4": ({"shared": 1, "mig": 1}, {"counters": "full"}, {"sharing": "split"}),
    "10.0.0.5": ({}, {"generation": "1"}, {"labels_pod_uid": "on"}),
    # issue 28, churn-free series
    "gpu-node-6": ({"shared": 1, "mig": 1}, {"counters": "full"}, {"labels_owners": "off", "labels_pod_uid": "on"}),
}
SCRAPES_APART = "2s"
METRICS = ("power_usage", "gpu_utilization", "framebuffer_used", "sm_active", "pod_gpu_processes")


@dataclass
class Nodes:
    """The nodes, the roles and the server; and a loop to ask them in."""

    background: Background
    server: Prometheus
    directly: ClusterRole
    roles: dict[str, ClusterRole] = field(default_factory=dict)
    exporters: dict[str, Exporter] = field(default_factory=dict)
    worlds: dict[str, World] = field(default_factory=dict)
    enter: Callable[[Any], Coroutine[Any, Any, Any]] | None = None

    def get(self, role: ClusterRole, path: str) -> tuple[int, str]:
        return self.background.run(role.get(path))

    def by_prometheus(self, **flags: str) -> ClusterRole:
        """A role that asks the server; one for each set of flags."""
        key = json.dumps(flags)
        if key not in self.roles:
            given = {
                "cluster.prometheus": [self.server.base],
                "cluster.interval": ["500ms"],
                "cluster.timeout": ["5s"],
                "cluster.max-age": ["12s"],
                **{name.replace("_", ".", 1).replace("_", "-"): [text] for name, text in flags.items()},
            }
            assert self.enter
            self.roles[key] = self.background.run(self.enter(running_cluster(given)))
        return self.roles[key]

    def wait(self, role: ClusterRole, path: str, is_so: Callable[[int, str], object]) -> str:
        """The answer, once it is as it should be.

        A busy machine may take longer than a second to answer a scrape: a node may be missing until the next one.
        """
        answer = 0, ""

        def is_shown() -> object:
            nonlocal answer
            answer = self.get(role, path)
            return is_so(*answer)

        wait_until(is_shown, why=lambda: f"{path} stays {answer}")
        return answer[1]

    def wait_for_the_same(self, role: ClusterRole, path: str) -> int:
        """Until it answers what the role answers that asks the exporters themselves. Returns the status."""
        direct = 0, ""

        def is_the_same(*answer: object) -> bool:
            nonlocal direct
            direct = self.get(self.directly, path)
            return answer == direct

        self.wait(role, path, is_the_same)
        return direct[0]


def jobs(targets: Mapping[str, str], prefix: str = "", **changes: Any) -> Iterator[dict[str, Any]]:
    """deploy/prometheus/scrape-config.yaml with these targets by their nodes."""
    shipped = quick_yaml.load((ROOT / "deploy" / "prometheus" / "scrape-config.yaml").read_text())["scrape_configs"]
    labels = changes.pop("labels", {})
    for job in shipped:
        yield {
            **job,
            **changes,
            "job_name": prefix + job["job_name"],
            "scrape_interval": SCRAPES_APART,
            "static_configs": [
                {"targets": [target], "labels": {**OWN_LABELS, **labels, "node": node}}
                for node, target in targets.items()
            ],
        }


def quick_records(folder: Path) -> Path:
    """The shipped recording rules, evaluated as often as it scrapes over a time that a test can wait for."""
    text = (ROOT / "deploy" / "prometheus" / "rules" / "recording.yaml").read_text()
    (folder / "recording.yaml").write_text(
        text.replace("interval: 1m", f"interval: {SCRAPES_APART}").replace("[5m]", "[8s]")
    )
    return folder / "recording.yaml"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    background = Background()
    stack = AsyncExitStack()
    worlds = {}

    async def start(number: int, name: str) -> Exporter:
        of_world, of_node, settings = NODES[name]
        node = SimulatedNode(World(**{"gpus": 4, "seed": 20 + number, "teams": TEAMS, **of_world}), name, **of_node)
        worlds[name] = node.world
        await node.start()
        stack.push_async_callback(node.stop)
        page = node.dcgm.page().encode()
        node.dcgm.failure = lambda _: web.Response(body=page)  # values that stand still can be compared
        given = {
            "kubelet_socket": str(node.socket),
            "kubelet_pods_socket": str(node.pods_socket),
            "dcgm_url": node.url,
            "kubernetes_url": node.api_url,
            "inventory_file": str(node.inventory_file),
            "node_name": name,
            # no pod has it: workloads are called by their controllers, and are labels of the accounts
            "workload_labels": "example.com/workload",
            "accounting_interval": "1s",
            **settings,
        }
        return await stack.enter_async_context(running(config_of(**given)))

    exporters = {name: background.run(start(number, name)) for number, name in enumerate(NODES)}
    targets = {name: exporter.base[7:] for name, exporter in exporters.items()}
    asked = [f"{name}=http://{target}" for name, target in targets.items()]
    scraped = [
        *jobs(targets),
        *jobs(targets, "dishonored-", honor_labels=False, labels={"cluster": "dishonored"}),
    ]
    try:
        folder = tmp_path_factory.mktemp("prometheus")
        with prometheus(folder, scraped, SCRAPES_APART, rule_files=[quick_records(folder)]) as server:
            server.wait_for_scrapes(4 * len(targets))
            directly = background.run(stack.enter_async_context(running_cluster({"cluster.node": asked})))
            yield Nodes(background, server, directly, {}, exporters, worlds, enter=stack.enter_async_context)
    finally:
        background.run(stack.aclose())
        background.close()


HONORED = 'cluster=""'


def is_good(status: int, _: str) -> bool:
    return status == 200


def rows(text: str) -> list[dict[str, Any]]:
    """The objects but for what no series says: when they were read, since when they are held, what devices do."""
    in_no_series = ("timestamp", "read_at", "holder_since", "whole_device")
    return [{name: value for name, value in row.items() if name not in in_no_series} for row in json.loads(text)]


def is_sampled(row: dict[str, Any]) -> bool:
    """Whether it has a number. A device without samples that nobody holds is in no series."""
    return any(row[name] is not None for name in FIELDS)


# issue 11, "Must show" 3
@pytest.mark.parametrize("matchers", [HONORED, 'cluster="dishonored"'])
def test_containers_are_the_same_field_by_field(nodes: Nodes, matchers: str) -> None:
    role = nodes.by_prometheus(cluster_prometheus_matchers=matchers)
    found: list[dict[str, Any]] = []
    expected: list[dict[str, Any]] = []

    def is_the_same() -> bool:
        text = nodes.wait(role, "/container/metrics", is_good)
        _, direct = nodes.get(nodes.directly, "/container/metrics")
        found[:], expected[:] = rows(text), [row for row in rows(direct) if row["pod"] or is_sampled(row)]
        return found == expected and any(row["idle_since"] for row in found)

    with suppress(AssertionError):  # those below say more
        wait_until(is_the_same)  # the exporters may have learned something since they were scraped
    # both list the nodes by their names, so all is in the same order, too
    assert [(row["node_name"], row["device_uuid"], row["pod"]) for row in found] == [
        (row["node_name"], row["device_uuid"], row["pod"]) for row in expected
    ]
    assert found == expected
    assert {row["node_name"] for row in found} == {*NODES}
    assert any(row["idle_since"] for row in found)  # whoever is idle is so from the second look on
    assert {row.get("workload_name") for row in found if row["pod"]} >= {"trainer", "render"}
    assert any(row["gpu_shared"] for row in found)
    assert {row["entity"] for row in found} == {"gpu", "mig", "mig-parent"}
    assert sum(row["power_usage"] is not None for row in found) > len(NODES)


# issue 11, "Must show" 3
def test_what_the_nodes_hold_is_the_same(nodes: Nodes) -> None:
    role = nodes.by_prometheus(cluster_prometheus_matchers=HONORED)
    for path in ("/metrics/nodes", "/-/ready"):
        nodes.wait_for_the_same(role, path)
    nodes.wait(role, "/", lambda _, page: f"{len(NODES)} nodes: {len(NODES)} have answered, 0 are missing" in page)


# issue 11, "Must show" 3
@pytest.mark.parametrize("metric", METRICS)
def test_autoscalers_get_the_same(nodes: Nodes, metric: str) -> None:
    role = nodes.by_prometheus(cluster_prometheus_matchers=HONORED)
    said = {
        nodes.wait_for_the_same(role, f"/autoscale/{namespace}/{workload}/{metric}")
        for workload in (*TEAMS.workloads, "deployment:trainer", "nobody")
        for namespace in TEAMS.namespaces
    }
    assert said <= {200, 404, 409, 503}
    # of a workload that has no pods both say the same, too
    assert 404 in said


ADAPTER = quick_yaml.load((ROOT / "deploy" / "prometheus-adapter" / "values.yaml").read_text())["rules"]
OF_PODS = {
    "gpu_utilization": ("gpu_utilization", 1),
    "gpu_graphics_engine_active": ("graphics_engine_active", 100),
    "gpu_memory_used_mib": ("framebuffer_used", 1),
    "gpu_power_watts": ("power_usage", 1),
}


def expanded(rule: Mapping[str, Any], matchers: str, group_by: str) -> str:
    """A rule's query, as prometheus-adapter makes it of the template: it knows no more than these three fields."""
    series, _, _ = rule["seriesQuery"].partition("{")
    query = rule["metricsQuery"]
    for name, text in (("Series", series), ("LabelMatchers", matchers), ("GroupBy", group_by)):
        query = query.replace(f"<<.{name}>>", text)
    assert "<<" not in query
    return str(query)


def metric_of(rule: Mapping[str, Any]) -> str:
    """Its name in the API."""
    series, _, _ = rule["seriesQuery"].partition("{")
    assert re.search(rule["name"]["matches"], series)
    return str(rule["name"]["as"])


# issue 11: custom metrics without KEDA
@pytest.mark.parametrize("group_by", ["pod", "namespace, pod"])
def test_prometheus_adapter_tells_of_each_pod_its_mean_over_its_devices(nodes: Nodes, group_by: str) -> None:
    rules = {metric_of(rule): rule for rule in ADAPTER["custom"]}
    assert rules.keys() == {*OF_PODS, "gpu_own_utilization", "gpu_own_memory_bytes"}
    _, direct = nodes.get(nodes.directly, "/container/metrics")
    for metric, (name, times) in OF_PODS.items():
        of_pods = defaultdict[str, list[float]](list)
        pods = set()
        for row in rows(direct):
            if row["namespace"] == "ml":
                pods.add(row["pod"])
                if row[name] is not None and not row["gpu_shared"]:
                    of_pods[row["pod"]].append(row[name] * times)
        matchers = f'namespace="ml",pod=~"{"|".join(sorted(pods))}",cluster=""'
        means = {pod: sum(values) / len(values) for pod, values in of_pods.items()}
        assert len(means) > 1, metric

        def found(query: str = expanded(rules[metric], matchers, group_by)) -> dict[str, float]:
            return {labels["pod"]: value for labels, value in nodes.server.query(query)}

        wait_until(lambda found=found, means=means: found() == pytest.approx(means, rel=1e-6), why=found)  # type: ignore[misc]
        # nothing is measured of these nodes' containers, which is not 0
        for own_metric in ("gpu_own_utilization", "gpu_own_memory_bytes"):
            assert nodes.server.query(expanded(rules[own_metric], matchers, group_by)) == []
        series = nodes.server.ask(f"series?{urlencode({'match[]': rules[metric]['seriesQuery']})}")
        assert all(labels["namespace"] and labels["pod"] for labels in series)
        assert series


def test_prometheus_adapter_tells_what_a_workload_holds(nodes: Nodes) -> None:
    rules = {metric_of(rule): rule for rule in ADAPTER["external"]}
    matchers = 'namespace="ml",workload_name="trainer",workload_kind="Deployment",cluster=""'
    queries = {metric: expanded(rule, matchers, "namespace") for metric, rule in rules.items()}
    queries["held"] = f"sum(pod_gpu_allocated_ratio{{{matchers}}})"

    assert queries.keys() == {"gpu_workload_active", "gpu_workload_allocated", "held"}
    values: dict[str, float] = {}

    def are_right() -> bool:
        values.clear()
        values.update({name: value for name, query in queries.items() for _, value in nodes.server.query(query)})
        return values.keys() == queries.keys() and values["gpu_workload_allocated"] == pytest.approx(
            values["held"], rel=0.2
        )

    wait_until(are_right, why=lambda: values)  # a rate needs some scrapes
    assert values["held"] > 0
    assert 0 <= values["gpu_workload_active"] <= values["gpu_workload_allocated"] * 1.2


def test_two_clusters_in_one_prometheus_are_refused_until_one_is_chosen(nodes: Nodes) -> None:
    """Without a choice every node is scraped as two clusters' here, and nobody can say whose series are whose."""
    role = nodes.by_prometheus()
    text = nodes.wait(
        role,
        "/autoscale/ml/trainer/power_usage",
        lambda status, text: (status, {*json.loads(text).get("missing_nodes", ())}) == (503, {*NODES}),
    )
    said = json.loads(text)
    assert "--cluster.prometheus-matchers" in said["error"]


def test_a_pod_that_goes_takes_its_values_with_it(nodes: Nodes) -> None:
    """Prometheus looks back 5 minutes, and the role 30 s here; the series is over with the next scrape."""
    role = nodes.by_prometheus(cluster_prometheus_matchers=HONORED, cluster_max_age="30s")
    world = nodes.worlds["gpu-node-1"]
    gone = next(pod for pod in world.pods if pod.namespace == "ml")
    path = f"/container/metrics?pod={gone.name}"
    held = rows(nodes.wait(role, path, lambda status, text: status == 200 and rows(text)))

    async def remove() -> None:
        world.remove(gone)

    nodes.background.run(remove())
    began = time.monotonic()
    nodes.wait(role, path, lambda status, text: status == 200 and not rows(text))
    assert time.monotonic() - began < 25, "a scrape, and a query"

    def are_nobodys(status: int, text: str) -> bool:
        found = [row for row in rows(text) if status == 200]
        pods = [[row["pod"] for row in found if row["device_uuid"] == former["device_uuid"]] for former in held]
        return all(each == [""] for each in pods)

    nodes.wait(role, "/container/metrics", are_nobodys)


# issue 11, "Must show" 3
def test_a_node_that_stops_is_missing_and_named(nodes: Nodes) -> None:
    """This is the last test: the node stays away."""
    role = nodes.by_prometheus(cluster_prometheus_matchers=HONORED)
    path = "/autoscale/ml/nobody/power_usage"
    # every node has answered, and none has ever had a pod of it
    nodes.wait(role, path, lambda status, _: status == 404)
    nodes.background.run(nodes.exporters["gpu-node-2"].service.close())
    text = nodes.wait(role, path, lambda status, _: status == 503)
    said = json.loads(text)
    assert said["missing_nodes"] == ["gpu-node-2"]
    assert "up is 0" in said["error"]
    _, text = nodes.get(role, "/container/metrics")
    assert {row["node_name"] for row in rows(text)} == {*NODES} - {"gpu-node-2"}
    _, text = nodes.get(role, "/-/ready")
    assert "gpu-node-2" in text
    _, text = nodes.get(role, "/metrics")
    assert 'pod_gpu_exporter_cluster_node_up{node="gpu-node-2"} 0\n' in text
    assert 'pod_gpu_exporter_source_up{source="prometheus"} 1\n' in text
