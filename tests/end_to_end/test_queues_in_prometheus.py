"""Queues in a real Prometheus, by the shipped rules: the exporter's pods in queues, and Kueue's and KAI's families.

Whole GPUs, shares and MIG instances are held by pods in a ClusterQueue, a LocalQueue, a queue of KAI's, and in none.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from tests.end_to_end.clusters import SCRAPES_APART, in_short, quick, recorded_and_direct
from tests.node.test_queues import put_in_queues
from tests.rules.shipped import of_group, records
from tests.support.background import Background
from tests.support.command import run_here
from tests.support.exporter import config_of, running
from tests.support.grafana import ALL, Chosen, dashboard, filled, panels, variables
from tests.support.places import ROOT
from tests.support.prometheus import Prometheus, prometheus, shipped_jobs
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

CREATED_SECONDS_AGO = 600
# as Kueue 0.18 with enableClusterQueueResources, KAI 0.8 and kube-state-metrics 2 write them
OTHERS = """\
# TYPE kueue_cluster_queue_nominal_quota gauge
kueue_cluster_queue_nominal_quota{cluster_queue="research",cohort="all",flavor="h100",replica_role="leader",resource="nvidia.com/gpu"} 8
kueue_cluster_queue_nominal_quota{cluster_queue="research",cohort="all",flavor="a100",replica_role="leader",resource="nvidia.com/gpu"} 4
kueue_cluster_queue_nominal_quota{cluster_queue="research",cohort="all",flavor="h100",replica_role="leader",resource="cpu"} 256
kueue_cluster_queue_nominal_quota{cluster_queue="empty",cohort="all",flavor="h100",replica_role="leader",resource="nvidia.com/gpu"} 2
# TYPE kueue_cluster_queue_resource_reservation gauge
kueue_cluster_queue_resource_reservation{cluster_queue="research",cohort="all",flavor="h100",replica_role="leader",resource="nvidia.com/gpu"} 3
# TYPE kueue_cluster_queue_resource_usage gauge
kueue_cluster_queue_resource_usage{cluster_queue="research",cohort="all",flavor="h100",replica_role="leader",resource="nvidia.com/gpu"} 2
# TYPE kueue_cluster_queue_resource_pending gauge
kueue_cluster_queue_resource_pending{cluster_queue="research",replica_role="leader",resource="nvidia.com/gpu"} 16
# TYPE kueue_pending_workloads gauge
kueue_pending_workloads{cluster_queue="research",replica_role="leader",status="active"} 1
kueue_pending_workloads{cluster_queue="research",replica_role="leader",status="inadmissible"} 2
# TYPE kai_queue_deserved_gpus gauge
kai_queue_deserved_gpus{queue_name="batch"} 6
kai_queue_deserved_gpus{queue_name="default-parent-queue"} -1
# TYPE kai_queue_allocated_gpus gauge
kai_queue_allocated_gpus{queue_name="batch"} 1.5
kai_queue_allocated_gpus{queue_name="default-parent-queue"} 1.5
# TYPE kube_pod_container_resource_requests gauge
kube_pod_container_resource_requests{namespace="ml",pod="waits",uid="1",container="main",node="",resource="nvidia_com_gpu",unit="integer"} 8
kube_pod_container_resource_requests{namespace="ml",pod="runs",uid="2",container="main",node="n",resource="nvidia_com_gpu",unit="integer"} 2
# TYPE kube_pod_status_phase gauge
kube_pod_status_phase{namespace="ml",pod="waits",uid="1",phase="Pending"} 1
kube_pod_status_phase{namespace="ml",pod="waits",uid="1",phase="Running"} 0
kube_pod_status_phase{namespace="ml",pod="runs",uid="2",phase="Pending"} 0
kube_pod_status_phase{namespace="ml",pod="runs",uid="2",phase="Running"} 1
# TYPE kube_pod_created gauge
"""  # noqa: E501 - lines of the text format
BUILTIN = {"__range": "1m", "__interval": "2s", "__rate_interval": "8s"}


class Watched(NamedTuple):
    """The server, and the queue of each pod that holds GPUs, by namespace and name."""

    server: Prometheus
    queues: Mapping[tuple[str, str], str]


async def serve_others(stack: AsyncExitStack) -> str:
    """A server of OTHERS. Returns its address."""
    created = f'kube_pod_created{{namespace="ml",pod="waits",uid="1"}} {time.time() - CREATED_SECONDS_AGO}\n'

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=OTHERS + created)

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return str(site.name).removeprefix("http://")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    background, stack = Background(), AsyncExitStack()
    node = SimulatedNode(World(gpus=6, shared=2, mig=1, seed=11), collect_seconds=0)
    queues = put_in_queues(node.world)
    folder = tmp_path_factory.mktemp("queues")

    async def start() -> tuple[str, str]:
        await node.start()
        stack.push_async_callback(node.stop)
        config = config_of(
            kubelet_socket=str(node.socket),
            kubelet_pods_socket=str(node.pods_socket),
            dcgm_url=node.url,
            inventory_file=str(node.inventory_file),
            accounting_interval="250ms",
        )
        return (await stack.enter_async_context(running(config))).base[7:], await serve_others(stack)

    exporter, others = background.run(start())
    static = [{"targets": [others]}]
    jobs = [
        *shipped_jobs(exporter, "500ms"),
        {"job_name": "queues", "scrape_interval": "500ms", "static_configs": static},
    ]
    try:
        with prometheus(folder, jobs, SCRAPES_APART, quick(folder)) as server:
            server.wait_for_scrapes(len(jobs))
            yield Watched(server, queues)
    finally:
        background.run(stack.aclose())
        background.close()


def by_queue(server: Prometheus, query: str) -> dict[str, float]:
    return {labels.get("queue", ""): value for labels, value in server.query(query)}


# issue 26, "Must show" 3
def test_sums_by_queue_equal_those_by_pod(watched: Watched) -> None:
    """Held by the accounts' own rows, with the queues that the world gave the pods; rates by the records by pod."""
    server, queues = watched
    seen: list[object] = []

    def is_so() -> bool:
        sums: dict[str, float] = defaultdict(float)
        server.at_seconds = time.time()
        for labels, value in server.query("pod_gpu_allocated_ratio"):
            if labels.get("pod"):
                sums[queues[labels["namespace"], labels["pod"]]] += value
        sums.pop("", None)
        rates: dict[str, float] = defaultdict(float)
        for labels, value in server.query("pod:pod_gpu_allocated_seconds:rate5m"):
            rates[queues.get((labels.get("namespace", ""), labels.get("pod", "")), "")] += value
        rates.pop("", None)
        held = by_queue(server, "queue:pod_gpu_allocated:sum")
        rated = by_queue(server, "queue:pod_gpu_allocated_seconds:rate5m")
        server.at_seconds = None
        seen[:] = [sums, held, rates, rated]
        # the rates are of a moment before, by one evaluation
        is_exact = bool(held) and held == pytest.approx(dict(sums))
        return is_exact and len(rated) > 2 and rated == pytest.approx(dict(rates), abs=0.05, rel=0.1)

    wait_until(is_so, why=lambda: seen)


# issue 11, "Must show" 3
@pytest.mark.parametrize("name", sorted(of_group("gpu-queue-records")))
def test_what_is_recorded_is_what_a_direct_query_answers(watched: Watched, name: str) -> None:
    expression = in_short(records()[name])
    seen: list[object] = []

    def do_agree() -> bool:
        recorded, direct = recorded_and_direct(watched.server, name, expression)
        seen[:] = [recorded, direct]
        return bool(recorded) and recorded == pytest.approx(direct, rel=1e-9)

    # a scrape of before the evaluation may be stored after it
    wait_until(do_agree, why=lambda: seen)


def test_quotas_and_those_who_wait(watched: Watched) -> None:
    server = watched.server

    def are_recorded() -> bool:
        return len(server.query("namespace:gpu_wait_seconds:max")) == 1 and bool(
            server.query("cohort:pod_gpu_allocated:sum")
        )

    wait_until(are_recorded)
    assert by_queue(server, 'queue:gpu_quota:sum{resource="nvidia.com/gpu"}') == {
        "research": 12,
        "empty": 2,
        "batch": 6,
    }
    assert by_queue(server, "queue:gpu_admitted:sum") == {"research": 2, "batch": 1.5, "default-parent-queue": 1.5}
    assert by_queue(server, "queue:gpu_reserved:sum") == {"research": 3}
    assert by_queue(server, "sum by (queue) (queue:workloads_pending:sum)") == {"research": 3}
    assert server.number('cohort:gpu_quota:sum{cohort="all"}') == 14
    assert server.number("namespace:gpu_waited_for:sum") == 8
    assert CREATED_SECONDS_AGO <= server.number("namespace:gpu_wait_seconds:max") < 2 * CREATED_SECONDS_AGO


def test_every_query_of_the_dashboard_returns_data(watched: Watched) -> None:
    model = dashboard(ROOT / "deploy" / "grafana" / "queues.json")
    given = {"datasource": "prometheus", "price": "2.5"}
    chosen: Chosen = {name: given.get(name, ALL) for name in variables(model)}
    queries = [
        (panel["title"], filled(target["expr"], model, chosen, BUILTIN))
        for panel in panels(model)
        for target in panel.get("targets", ())
    ]
    assert len(queries) > 20
    unanswered: list[object] = []

    def are_answered() -> bool:
        unanswered[:] = [each for each in queries if not watched.server.query(each[1].removesuffix(" or vector(0)"))]
        return not unanswered

    wait_until(are_answered, why=lambda: unanswered)


def test_the_report_by_queue(watched: Watched) -> None:
    """Its hours are those of the rows by pod, with the queues that the world gave the pods."""
    server, queues = watched
    to = time.time()

    def reported(by: str) -> Sequence[Mapping[str, Any]]:
        flags = [f"--from={to - 20:.3f}", f"--to={to:.3f}", "--format=json"]
        ended = run_here("report", f"--prometheus={server.base}", f"--by={by}", *flags)
        assert ended.returncode == 0, ended.stderr
        groups: Sequence[Mapping[str, Any]] = json.loads(ended.stdout)["groups"]
        return groups

    by_pod: dict[str | None, float] = defaultdict(float)
    for group in reported("pod"):
        if group["name"]:
            namespace, pod = group["name"].split("/")
            by_pod[queues[namespace, pod] or None] += group["gpu_hours_held"]
    hours = {group["name"]: group["gpu_hours_held"] for group in reported("queue")}
    assert hours == pytest.approx(dict(by_pod), abs=1e-5)
    assert {"research", "batch"} < hours.keys() - {None}
