"""A real Prometheus scrapes the exporter: values by pod, nothing dropped, no idle GPU with the exporter's own pod.

One server for all tests: its first scrape comes about 5 s after its start.
"""

import http.server
import re
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from exporter.model.pages import JoinedPage
from tests.end_to_end.generated import joined_pages
from tests.support.background import Background
from tests.support.exporter import config_of, running
from tests.support.prometheus import OWN_LABELS, Prometheus, prometheus, shipped_jobs
from tests.support.simulated import SimulatedNode, World

pytestmark = pytest.mark.real

SCRAPE_SECONDS = 3.0  # a hundred pages and more each time


@dataclass
class Scraped:
    """What there is to ask about."""

    prometheus: Prometheus
    node: SimulatedNode
    page: str
    generated: list[JoinedPage] = field(default_factory=list)

    def query(self, text: str) -> list[tuple[dict[str, str], str]]:
        return self.prometheus.texts(text)


def serve_pages(pages: list[JoinedPage]) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages[int(self.path[1:])].body
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever).start()
    return server


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    background = Background()
    node = SimulatedNode(World(gpus=8, shared=2, mig=1, seed=11))
    stack = AsyncExitStack()
    generated = joined_pages(120)
    pages = serve_pages(generated)

    async def start() -> tuple[str, str]:
        await node.start()
        frozen = node.dcgm.page()  # values that stand still can be compared
        node.dcgm.failure = lambda _: web.Response(body=frozen.encode())
        common = {"kubelet_socket": str(node.socket), "dcgm_url": node.url}
        usual = await stack.enter_async_context(running(config_of(**common)))
        omitting = await stack.enter_async_context(running(config_of(**common, labels_idle="omit")))
        return usual.base, omitting.base

    async def stop() -> None:
        await stack.aclose()
        await node.stop()

    usual, omitting = background.run(start())
    jobs = [
        job("gpu", "/gpu/metrics", usual[7:], honor=True, labels=OWN_LABELS),
        job("omitting", "/gpu/metrics", omitting[7:], honor=True, labels=OWN_LABELS),
        job("own", "/metrics", usual[7:]),
        job("nodes", "/metrics/nodes", usual[7:]),
        *shipped_jobs(usual[7:], prefix="shipped-"),
        *shipped_jobs(usual[7:], prefix="dishonored-", honor_labels=False),
        *(job(f"generated-{i}", f"/{i}", f"127.0.0.1:{pages.server_port}") for i in range(len(generated))),
    ]
    with urllib.request.urlopen(f"{usual}/gpu/metrics", timeout=30) as answer:
        page = answer.read().decode()
    try:
        with prometheus(tmp_path_factory.mktemp("prometheus"), jobs, f"{SCRAPE_SECONDS:g}s") as server:
            server.wait_for_scrapes(len(jobs))
            server.stand_where_all_are_up(SCRAPE_SECONDS)
            yield Scraped(server, node, page, generated)
    finally:
        pages.shutdown()
        pages.server_close()
        background.run(stop())
        background.close()


def job(
    name: str, path: str, target: str, *, honor: bool = False, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    return {
        "job_name": name,
        "metrics_path": path,
        "honor_labels": honor,
        "static_configs": [{"targets": [target], "labels": labels or {}}],
    }


def test_every_target_is_up(scraped: Scraped) -> None:
    assert [labels["job"] for labels, value in scraped.query("up") if value != "1"] == []


def test_a_query_by_pod_returns_the_values_of_its_gpus(scraped: Scraped) -> None:
    family = "DCGM_FI_DEV_FB_USED"
    expected = sorted(
        re.findall(rf'^{family}\{{.*UUID="([^"]*)".*,pod="([^"]+)".*\}} (\S+)$', scraped.page, re.MULTILINE)
    )
    pods = {pod for _, pod, _ in expected}
    assert len(pods) >= 4
    found = [
        (labels["UUID"], pod, value)
        for pod in pods
        for labels, value in scraped.query(f'{family}{{job="gpu",pod="{pod}"}}')
    ]
    assert sorted(found) == expected


def test_nothing_was_dropped(scraped: Scraped) -> None:
    samples = sum(1 for line in scraped.page.splitlines() if not line.startswith("#"))
    for metric in ("scrape_samples_scraped", "scrape_samples_post_metric_relabeling"):
        assert [int(value) for _, value in scraped.query(f'{metric}{{job="gpu"}}')] == [samples]
    with urllib.request.urlopen(f"{scraped.prometheus.base}/metrics", timeout=30) as answer:
        own = answer.read().decode()
    dropped = re.findall(
        r"^prometheus_target_scrapes_sample_(duplicate_timestamp|out_of_order)_total (\d+)$", own, re.MULTILINE
    )
    assert dict(dropped) == {"duplicate_timestamp": "0", "out_of_order": "0"}


def test_no_idle_gpu_carries_the_exporters_own_pod(scraped: Scraped) -> None:
    query = 'DCGM_FI_DEV_POWER_USAGE{job="%s",pod="exporter-x"}'
    assert scraped.query(query % "gpu") == []
    # without the empty labels it would: this is why they are there
    assert scraped.query(query % "omitting") != []


def test_shares_are_marked(scraped: Scraped) -> None:
    shared = {labels["UUID"] for labels, _ in scraped.query('DCGM_FI_DEV_GPU_UTIL{job="gpu",gpu_shared="true"}')}
    assert shared == {gpu.uuid for gpu in scraped.node.world.gpus if gpu.shared and scraped.node.world.holds(gpu.uuid)}


def test_the_mapping_families(scraped: Scraped) -> None:
    by_pod = {(labels["gpu_id"], labels["pod_name"]) for labels, _ in scraped.query("pod_and_gpu_map_info")}
    expected = {
        (device.partition("::")[0], pod.name)
        for pod in scraped.node.world.pods
        for container in pod.containers
        for _, device in container.devices
    }
    assert by_pod == expected
    assert {(labels["gpu_id"], labels["pod_name"]) for labels, _ in scraped.query("gpu_node_1_info")} == expected


def test_the_shipped_scrape_config_makes_the_owner_the_pod(scraped: Scraped) -> None:
    found = scraped.query('DCGM_FI_DEV_FB_USED{job="shipped-gpu"}')
    assert {labels["metrics_path"] for labels, _ in found} == {"/gpu/metrics"}
    owned = [labels for labels, _ in found if "pod" in labels]
    assert owned
    assert all(not name.startswith("exported_") for labels, _ in found for name in labels)
    assert "exporter-x" not in {labels["pod"] for labels in owned}
    # the exporter's own rows keep the exporter's own pod, the mapping rows the owner's
    assert {
        labels["pod"] for labels, _ in scraped.query('process_resident_memory_bytes{job="shipped-gpu-exporter"}')
    } == {"exporter-x"}
    owners = {pod.name for pod in scraped.node.world.pods}
    assert {labels["pod"] for labels, _ in scraped.query('pod_gpu_info{job="shipped-gpu-exporter"}')} <= owners


def test_the_two_pages_of_one_target_do_not_overwrite_each_other(scraped: Scraped) -> None:
    up = scraped.query('up{job=~"shipped-.*"}')
    assert {labels["metrics_path"] for labels, _ in up} == {"/gpu/metrics", "/metrics"}


def test_without_honor_labels_the_owner_arrives_as_exported_pod(scraped: Scraped) -> None:
    found = [labels for labels, _ in scraped.query('DCGM_FI_DEV_FB_USED{job="dishonored-gpu"}')]
    assert {labels["pod"] for labels in found} == {"exporter-x"}
    honored = [labels for labels, _ in scraped.query('DCGM_FI_DEV_FB_USED{job="shipped-gpu"}')]
    assert sorted(labels.get("exported_pod", "") for labels in found) == sorted(
        labels.get("pod", "") for labels in honored
    )
    assert {name for labels in found for name in labels if name.startswith("exported_")} == {
        "exported_pod",
        "exported_namespace",
        "exported_container",
    }


def test_generated_pages_are_taken_whole(scraped: Scraped) -> None:
    """Whatever went into the join, a real scraper takes what came out, sample for sample."""
    counts = {labels["job"]: int(value) for labels, value in scraped.query("scrape_samples_scraped")}
    for i, page in enumerate(scraped.generated):
        assert counts[f"generated-{i}"] == page.sample_count, page.body
