"""--families.names before promtool and two generations of Prometheus; and what is read of such a page inside."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.background import Background
from tests.support.components import LINT, check, newer, real
from tests.support.exporter import Exporter, config_of, running
from tests.support.prometheus import prometheus
from tests.support.simulated import SimulatedDcgm, SimulatedNode, World
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.real

GENERATIONS = ("4.8", "4.9")
SETTINGS = ("as-is", *GENERATIONS, "both")
Exporters = dict[tuple[str, str], Exporter]


class Nodes:
    """One node, whose GPUs stand still; an exporter for each generation of its page and each setting."""

    def __init__(self, sharing: str) -> None:
        self.exporters: Exporters = {}
        self.sharing = sharing
        self._now_ns = 10**12
        self._world = World(gpus=6, shared=2, mig=2, seed=7, clock=lambda: self._now_ns)
        self._node = SimulatedNode(self._world)
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        await self._node.start()
        self._stack.push_async_callback(self._node.stop)
        dcgms = {came: SimulatedDcgm(self._world, generation=came, counters="full") for came in GENERATIONS}
        self._now_ns += 60 * 10**9
        pages = {came: dcgm.page().encode() for came, dcgm in dcgms.items()}
        for came, dcgm in dcgms.items():
            dcgm.failure = lambda _, page=pages[came]: web.Response(body=page)
            url = await dcgm.start()
            self._stack.push_async_callback(dcgm.stop)
            for names in SETTINGS:
                config = config_of(
                    kubelet_socket=str(self._node.socket),
                    dcgm_url=url,
                    sharing=self.sharing,
                    families_names=names,
                )
                self.exporters[came, names] = await self._stack.enter_async_context(running(config))

    async def stop(self) -> None:
        await self._stack.aclose()


@pytest.fixture(scope="module", params=["copy", "split"])
def nodes(request: pytest.FixtureRequest) -> Iterator[Nodes]:
    """The nodes whose exporters have one --sharing."""
    background, nodes = Background(), Nodes(request.param)
    try:
        background.run(nodes.start())
        yield nodes
    finally:
        background.run(nodes.stop())
        background.close()


def answer(exporter: Exporter, path: str) -> str:
    with urllib.request.urlopen(exporter.base + path, timeout=PATIENCE_SECONDS) as answered:
        return str(answered.read().decode())


def test_promtool_takes_each_page(promtool: Path, nodes: Nodes) -> None:
    for exporter in nodes.exporters.values():
        code, complaints = check(promtool, answer(exporter, "/gpu/metrics").encode())
        assert code in (0, LINT), complaints


def test_what_is_read_inside_does_not_depend_on_the_setting(nodes: Nodes) -> None:
    answers: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def are_alike() -> bool:
        for which, exporter in nodes.exporters.items():
            answers[which] = comparable(answer(exporter, "/container/metrics"))
        first, *others = answers.values()
        return len(first) > 10 and all(other == first for other in others)

    # an exporter knows how each device is a moment after it begins
    wait_until(are_alike, why=lambda: answers)


def comparable(text: str) -> list[dict[str, Any]]:
    """The objects without their moments. With `split` parts of memory are as fine as the unit of the page: a MiB."""
    objects: list[dict[str, Any]] = json.loads(text)
    return [
        {
            name: round(value, -1) if name.startswith("framebuffer") and value else value
            for name, value in each.items()
            if name not in {"timestamp", "read_at", "holder_since"}
        }
        for each in objects
    ]


def test_two_generations_of_prometheus_store_one_set_of_series(tmp_path: Path, nodes: Nodes) -> None:
    """One generation for each --sharing is enough: --sharing decides whose a value is, and changes no name."""
    jobs = [
        {
            "job_name": f"{came}-{names}",
            "metrics_path": "/gpu/metrics",
            "honor_labels": True,
            "static_configs": [{"targets": [exporter.base.removeprefix("http://")], "labels": {"instance": "node"}}],
        }
        for (came, names), exporter in nodes.exporters.items()
    ]
    program = real("prometheus") if nodes.sharing == "copy" else newer("prometheus")
    with prometheus(tmp_path, jobs, program=program) as server:
        server.wait_for_scrapes(len(jobs))
        server.stand_where_all_are_up()
        stored = {job["job_name"]: series_of(server.texts(f'{{job="{job["job_name"]}"}}')) for job in jobs}
        dropped = "scrape_samples_scraped - scrape_samples_post_metric_relabeling"
        assert {value for _, value in server.texts(dropped)} == {"0"}
        for query in ("DCGM_FI_DEV_SM_CLOCK * 1e6 or DCGM_FI_DEV_SM_CLOCK_HERTZ", "DCGM_FI_DEV_FB_USED"):
            counts = server.texts(f"count by (job) ({query})")
            assert len({value for labels, value in counts if "as-is" not in labels["job"]} - {"0"}) == 1
    for names in GENERATIONS:
        assert stored[f"4.8-{names}"] == stored[f"4.9-{names}"] == stored[f"{names}-as-is"]
    assert stored["4.8-both"] == stored["4.9-both"]
    names_of = {job: {dict(labels)["__name__"] for labels in series} for job, series in stored.items()}
    assert names_of["4.8-both"] == names_of["4.8-as-is"] | names_of["4.9-as-is"]
    assert len(stored["4.8-both"]) > 1.5 * len(stored["4.8-as-is"])


def series_of(answers: list[tuple[dict[str, str], str]]) -> dict[frozenset[tuple[str, str]], str]:
    """DCGM's series of a job, without the job's name."""
    return {
        frozenset((name, value) for name, value in labels.items() if name != "job"): value
        for labels, value in answers
        if labels["__name__"].startswith("DCGM_")
    }
