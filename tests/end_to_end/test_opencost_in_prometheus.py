"""OpenCost's bill, by its own queries to a real Prometheus with the shipped rules, is the bill of `report`."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

import pytest
from aiohttp import web

from exporter.config.http_file import HttpConfig
from exporter.model.devices import Claim
from exporter.report.costs import Prices
from exporter.report.groups import read_by
from exporter.report.history.collect import collect
from exporter.report.history.over_http import over_http
from exporter.report.history.prometheus_api import PrometheusApi
from exporter.report.report import Report, ReportInput, make_report
from exporter.report.span import Span
from exporter.simulator.parts import REPLICAS
from tests.end_to_end.clusters import NODE, SETTLED, Target, jobs, quick
from tests.rules.opencost import ALLOCATED, COUNTS, PODS, PRICES, Costs, costs
from tests.rules.shipped import PROMETHEUS
from tests.support import quick_yaml
from tests.support.background import Background
from tests.support.exporter import config_of, running
from tests.support.prometheus import Prometheus, prometheus
from tests.support.simulated import (
    DRA_DRIVER,
    DRA_POOL,
    GPU_RESOURCE,
    SHARED_RESOURCE,
    Container,
    Pod,
    SimulatedNode,
    World,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

PRICE = Decimal("2.50")
SPAN_SECONDS = 20
LOOKS_APART_SECONDS = 0.25
SLICES = 7
NODE_OF_OTHERS = "without-an-exporter"
CLAIM_UID = "0f5b2c31-7d0e-4a52-9c7e-5d1f0a9b8c01"
SHARED_CLAIM = Claim(
    namespace="ml",
    name="gpu",
    driver=DRA_DRIVER,
    pool=DRA_POOL,
    device="gpu-0",
    cdi_names=(f"k8s.{DRA_DRIVER}/claim={CLAIM_UID}-gpu-0",),
)
# by pod what it holds of a GPU, and what it requests of nvidia.com/gpu: neither claims nor profiles of MIG
HELD = {
    **{f"quarter-{number}": (Fraction(1, REPLICAS), 1) for number in range(REPLICAS)},
    **{f"slice-{number}": (Fraction(1, SLICES), 0) for number in range(SLICES)},
    **{f"claimant-{number}": (Fraction(1, 2), 0) for number in range(2)},
    "whole-0": (Fraction(1), 1),
}
GPUS = 5  # the last one is free


def world() -> World:
    """A claimed GPU, a whole one, a free one, one in four shares, and one that is cut into seven."""
    made = World(gpus=GPUS, shared=1, mig=1, claims=1, cut=("1g.10gb",) * SLICES, seed=31)
    claimed, whole, _, shared, cut = made.gpus
    assert (claimed.claimed, shared.shared, len(cut.instances)) == (True, True, SLICES)
    containers = {f"claimant-{number}": Container(name="main", claims=(SHARED_CLAIM,)) for number in range(2)}
    containers["whole-0"] = Container(name="main", devices=((GPU_RESOURCE, whole.uuid),))
    for number in range(REPLICAS):
        share = (SHARED_RESOURCE, f"{shared.uuid}::{number}")
        containers[f"quarter-{number}"] = Container(name="main", devices=(share,))
    for number, slot in enumerate(cut.slots):
        containers[f"slice-{number}"] = Container(name="main", devices=(slot,))
    made.pods = tuple(
        Pod(namespace="ml", name=name, containers=(container,), uid=made.make.uid("ml", name))
        for name, container in containers.items()
    )
    return made


def page_of_opencost() -> str:
    """What it serves of this node and another one: requests and its count of GPUs, to which shares are GPUs."""
    row = 'container_gpu_allocation{{namespace="ml",pod="{0}",container="main",instance="{1}",node="{1}"}} {2}\n'.format
    pods = "".join(row(pod, NODE, requests) for pod, (_, requests) in HELD.items()) + row("other", NODE_OF_OTHERS, 2)
    of_node = '{{instance="{0}",node="{0}",instance_type="x",region="y",provider_id="z-{0}"}} {1}\n'.format
    counts = "node_gpu_count" + of_node(NODE, GPUS - 2 + REPLICAS) + "node_gpu_count" + of_node(NODE_OF_OTHERS, 4)
    prices = "".join("node_gpu_hourly_cost" + of_node(node, PRICE) for node in (NODE, NODE_OF_OTHERS))
    return pods + counts + prices


def page_of_kube_state_metrics() -> str:
    row = 'kube_pod_container_status_running{{namespace="ml",pod="{0}",container="main"}} 1\n'.format
    return "".join(map(row, (*HELD, "other")))


@dataclass
class Billed:
    """The server, and the span that both bills are of."""

    server: Prometheus
    span: Span

    @property
    def hours(self) -> float:
        return self.span.ms / 3_600_000

    @property
    def scrape_hours(self) -> float:
        """The longest time between two scrapes around the span, and a look: a busy machine is late for some."""
        at_seconds = self.span.to_ms / 1000 + 2
        query = urlencode({"query": f"pod_gpu_allocated_seconds_total[{SPAN_SECONDS + 4}s]", "time": at_seconds})
        rows = [[moment for moment, _ in row["values"]] for row in self.server.ask(f"query?{query}")["result"]]
        longest = max(after - before for row in rows for before, after in pairwise(row))
        return float(longest + LOOKS_APART_SECONDS) / 3600


@pytest.fixture(scope="module")
def billed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Billed]:
    background, stack = Background(), AsyncExitStack()
    folder = tmp_path_factory.mktemp("opencost")
    node = SimulatedNode(world(), NODE)
    pages = {"/metrics": page_of_opencost(), "/state": page_of_kube_state_metrics()}

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=pages[request.path])

    async def start() -> tuple[str, str]:
        await node.start()
        stack.push_async_callback(node.stop)
        app = web.Application()
        app.router.add_get("/{page}", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        config = config_of(
            kubelet_socket=str(node.socket),
            kubelet_pods_socket=str(node.pods_socket),
            dcgm_url=node.url,
            kubernetes_url=node.api_url,
            inventory_file=str(node.inventory_file),
            accounting_interval=f"{LOOKS_APART_SECONDS * 1000:.0f}ms",
        )
        exporter = await stack.enter_async_context(running(config))
        return exporter.base.removeprefix("http://"), "{}:{}".format(*runner.addresses[0])

    try:
        exporter, others = background.run(start())
        (opencost,) = quick_yaml.load((PROMETHEUS / "scrape-config-opencost.yaml").read_text())["scrape_configs"]
        target = {"static_configs": [{"targets": [others]}], "scrape_interval": "1s"}
        state: dict[str, Any] = {"job_name": "kube-state-metrics", "metrics_path": "/state", "honor_labels": True}
        scraped = [
            *({**job, "scrape_interval": "1s"} for job in jobs([Target("", exporter)])),
            opencost | target,
            state | target,
        ]
        with prometheus(folder, scraped, "1s", quick(folder)) as server:
            server.wait_for_scrapes(4)
            is_recorded = f"count(container_gpu_allocation > 0) == {len(HELD) + 1}"
            wait_until(lambda: server.query(is_recorded), why=lambda: server.query("container_gpu_allocation"))
            begin = int(time.time()) + SETTLED
            wait_until(lambda: time.time() > begin + SPAN_SECONDS + 2, SPAN_SECONDS + 60)
            yield Billed(server, Span(int(begin * 1000), int((begin + SPAN_SECONDS) * 1000)))
    finally:
        background.run(stack.aclose())
        background.close()


def bill_of_opencost(billed: Billed) -> Costs:
    """As OpenCost asks at the end of a window, with a second between the samples of what runs in place of a minute."""
    server = billed.server
    server.at_seconds = billed.span.to_ms / 1000
    window = f"{SPAN_SECONDS}s"
    asked = urlencode({"query": PODS.format(window=window, resolution="1s"), "time": server.at_seconds})
    hours = {
        (row["metric"]["namespace"], row["metric"]["pod"]): (row["values"][-1][0] - row["values"][0][0]) / 3600
        for row in server.ask(f"query?{asked}")["result"]
    }
    answers = [server.query(query.format(window=window)) for query in (ALLOCATED, PRICES, COUNTS)]
    server.at_seconds = None
    return costs(hours, *answers)


def report_by_pod(billed: Billed) -> Report:
    async def ask() -> ReportInput:
        api = PrometheusApi(over_http(url=billed.server.base, timeout_seconds=60, http=HttpConfig()))
        try:
            wanted = read_by("pod").wanted
            return await collect(api, billed.span, matchers=(), wanted=wanted, on_progress=lambda *_: None)
        finally:
            await api.close()

    return make_report(asyncio.run(ask()), read_by("pod"), Prices(of_any=PRICE))


def test_each_pod_costs_in_opencost_what_the_report_says(billed: Billed) -> None:
    """Within a scrape at the two ends of the span; and in OpenCost its part of a GPU, exactly."""
    by_opencost = bill_of_opencost(billed).of_pods
    by_report = {line.name: line.costs.held for line in report_by_pod(billed).groups if line.name}
    assert by_report.keys() == {f"ml/{pod}" for pod in HELD}
    for pod, (part, _) in HELD.items():
        cost, reported = by_opencost["ml", pod], by_report[f"ml/{pod}"]
        assert reported is not None
        assert cost == pytest.approx(float(part * Fraction(PRICE)) * billed.hours, rel=1e-6)
        assert cost == pytest.approx(float(reported), abs=float(part * Fraction(PRICE)) * 2 * billed.scrape_hours)


@pytest.mark.parametrize("pods", ["quarter", "slice", "claimant"])
def test_the_parts_of_a_gpu_are_one_gpu_hour_an_hour(billed: Billed, pods: str) -> None:
    cost = sum(cost for (_, pod), cost in bill_of_opencost(billed).of_pods.items() if pod.startswith(pods))
    assert cost / billed.hours == pytest.approx(float(PRICE), rel=1e-6)


def test_what_nobody_held_is_what_opencost_calls_idle(billed: Billed) -> None:
    """Its node less its pods: one GPU of five, although shares count as GPUs to OpenCost."""
    by_opencost, report = bill_of_opencost(billed), report_by_pod(billed)
    held = sum(cost for (_, pod), cost in by_opencost.of_pods.items() if pod in HELD)
    idle = by_opencost.of_nodes_per_hour[NODE] * billed.hours - held
    assert idle == pytest.approx(float(PRICE) * billed.hours, rel=1e-6)
    assert report.capacity_hours is not None
    free = (report.capacity_hours - report.total.hours.held) * float(PRICE)
    assert idle == pytest.approx(free, abs=GPUS * float(PRICE) * 2 * billed.scrape_hours)


def test_a_node_without_an_exporter_costs_what_it_did(billed: Billed) -> None:
    by_opencost = bill_of_opencost(billed)
    assert by_opencost.of_pods["ml", "other"] == pytest.approx(2 * float(PRICE) * billed.hours, rel=1e-6)
    assert by_opencost.of_nodes_per_hour[NODE_OF_OTHERS] == pytest.approx(4 * float(PRICE), rel=1e-6)


def test_without_the_renaming_four_quarters_would_cost_four_gpus(billed: Billed) -> None:
    """What the rules are for: OpenCost's own rows say one each, and nothing of MIG and claims."""
    own = Counter[str]()
    billed.server.at_seconds = billed.span.to_ms / 1000
    for row, requested in billed.server.query("opencost_container_gpu_allocation"):
        own[row["pod"].partition("-")[0]] += int(requested)
    billed.server.at_seconds = None
    assert own == {"quarter": 4, "slice": 0, "claimant": 0, "whole": 1, "other": 2}
