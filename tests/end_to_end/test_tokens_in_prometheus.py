"""Energy for each 1,000 tokens of simulated model servers: by the shipped rules in a real Prometheus, and by `report`.

A server has a whole GPU, one a share of a GPU on which its kernels run for a third of all kernels' time, and one is two
pods with four GPUs each. The truth is what the GPUs' own meters say, divided by the tokens.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
from aiohttp import web

from exporter.simulator.machine import Machine, RunningPod
from exporter.sources.nvml import nvml_source
from tests.end_to_end.accounted import SCRAPES_APART_SECONDS
from tests.end_to_end.clusters import quick
from tests.support.background import Background
from tests.support.command import run_here
from tests.support.components import real
from tests.support.exporter import config_of, running
from tests.support.grafana import ALL, Chosen, dashboard, filled, panels
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.places import ROOT
from tests.support.prometheus import Answers, Prometheus, prometheus, shipped_jobs
from tests.support.simulated import GPU_RESOURCE, SHARED_RESOURCE, Container, SimulatedNode, World
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(480)]

SECONDS = 20.0  # and twice as long at each try: scrapes that are late are off by seconds, however long it is
SETTLED = 10.0  # until what is recorded does not look back to before the first scrapes
WITHIN = 0.02
TRIES = 4  # a machine that stops for a while scrapes, reads and evaluates at other times than it should
PRICE = 2.5
SERVER_PANELS = ("Generated tokens a second", "Energy of 1,000 tokens")
# tokens a second, by pod
RATES = {"whole-0": 200.0, "third-0": 50.0, "wide-0": 900.0, "wide-1": 300.0}
OTHER = "other-0"
ACTIVITIES = {"third-0": 0.25, OTHER: 0.5}
SERVED = {"whole": 1.0, "third": 1 / 3, "wide": 1.0}  # and which part of what its GPUs draw is a server's


@dataclass(frozen=True)
class Span:
    """What was so, and what was said of it: joules for 1,000 tokens by server, the report, the panels."""

    real: Mapping[str, float]
    recorded: Mapping[str, float]
    report: Mapping[str, Mapping[str, float]]
    notes: list[Mapping[str, str]]
    panels: Mapping[str, Answers]


class ModelServers:
    """Count tokens by the clock, each at its own rate, as vLLM writes them."""

    def __init__(self) -> None:
        self.began_seconds = time.time()

    def generated(self, pod: str, at_seconds: float) -> float:
        return RATES[pod] * (at_seconds - self.began_seconds)

    async def answer(self, request: web.Request) -> web.Response:
        value = self.generated(request.match_info["pod"], time.time())
        return web.Response(
            text="# TYPE vllm:generation_tokens counter\n"
            f'vllm:generation_tokens_total{{engine="0",model_name="llama"}} {value}\n'
        )

    async def start(self, stack: AsyncExitStack) -> str:
        app = web.Application()
        app.router.add_get("/{pod}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return str(site.name).removeprefix("http://")


def furnished(world: World) -> dict[str, tuple[str, ...]]:
    """Puts the pods in place. Returns the GPUs of each server."""
    whole = [gpu.uuid for gpu in world.gpus if not gpu.shared]
    (shared,) = (gpu.uuid for gpu in world.gpus if gpu.shared)

    def add(name: str, resource: str, *devices: str) -> None:
        container = Container(name="server", devices=tuple((resource, device) for device in devices))
        made = world.make.pod("ml", name.rpartition("-")[0], (container,))
        world.pods += (replace(made, name=name, owner=("StatefulSet", name.rpartition("-")[0])),)

    world.pods = ()
    add("whole-0", GPU_RESOURCE, whole[0])
    add("third-0", SHARED_RESOURCE, f"{shared}::0")
    add(OTHER, SHARED_RESOURCE, f"{shared}::1")
    add("wide-0", GPU_RESOURCE, *whole[1:5])
    add("wide-1", GPU_RESOURCE, *whole[5:9])
    return {"whole": (whole[0],), "third": (shared,), "wide": tuple(whole[1:9])}


def steady(running_now: Callable[[Machine], Iterator[RunningPod]]) -> Callable[[Machine], Iterator[RunningPod]]:
    """Kernels of those on the shared GPU run for the same part of the time always."""

    def at_present(machine: Machine) -> Iterator[RunningPod]:
        for each in running_now(machine):
            yield each._replace(activity=ACTIVITIES.get(each.pod, each.activity))

    return at_present


@pytest.fixture(scope="module")
def span(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Span]:
    background, stack, servers = Background(), AsyncExitStack(), ModelServers()
    node = SimulatedNode(World(gpus=10, shared=1, seed=3), collect_seconds=SCRAPES_APART_SECONDS)
    gpus = furnished(node.world)
    folder = tmp_path_factory.mktemp("tokens")
    real("gcc")
    assert node.nvml.build()

    async def start() -> tuple[str, str]:
        await node.start()
        stack.push_async_callback(node.stop)
        stack.push_async_callback(until_nobody_uses_it)
        alive = asyncio.create_task(keep_running(node))
        stack.callback(alive.cancel)
        config = config_of(
            kubelet_socket=str(node.socket),
            dcgm_url=node.url,
            kubelet_pods_socket=str(node.pods_socket),
            kubernetes_url=node.api_url,
            root=str(node.root),
            nvml_mode="on",
            workload_labels="app.kubernetes.io/name",
            accounting_interval="250ms",
        )
        return (await stack.enter_async_context(running(config))).base[7:], await servers.start(stack)

    with pytest.MonkeyPatch.context() as patch:
        loads(patch, node.nvml)
        patch.setattr(nvml_source, "AGAIN_SECONDS", 0.2)
        patch.setattr(Machine, "running", steady(Machine.running))
        exporter, models = background.run(start())
        jobs = shipped_jobs(exporter, "500ms")
        for pod in RATES:
            static = [{"targets": [models], "labels": {"namespace": "ml", "pod": pod, "node": "gpu-node-1"}}]
            jobs += [{"job_name": pod, "metrics_path": f"/{pod}", "scrape_interval": "500ms", "static_configs": static}]
        try:
            with prometheus(folder, jobs, "1s", quick(folder)) as server:
                server.wait_for_scrapes(len(jobs))
                for number in range(TRIES):
                    watched = watch(server, node, servers, gpus, SECONDS * 2**number)
                    if are_joules_right(watched) and shown_of_server(watched) == near(watched):
                        break
                yield watched
        finally:
            background.run(stack.aclose())
            background.close()


async def keep_running(node: SimulatedNode) -> None:
    while True:
        node.write_processes()
        await asyncio.sleep(0.1)


def watch(
    server: Prometheus, node: SimulatedNode, servers: ModelServers, gpus: Mapping[str, tuple[str, ...]], seconds: float
) -> Span:
    """What happened in so many seconds, and what is said of it."""

    def meters() -> dict[str, float]:
        return {name: sum(node.world.energy_mj(uuid) for uuid in gpus[name]) / 1000 for name in SERVED}

    server.at_seconds = None
    recorded = "served_model:pod_gpu_energy_joules_per_1000_tokens:ratio_rate5m"
    wait_until(lambda: len(server.query(recorded)) == len(SERVED), why=lambda: server.query(recorded))
    time.sleep(SETTLED)
    began, before = time.time(), meters()
    time.sleep(seconds)
    ended, after = time.time(), meters()
    time.sleep(2 * SCRAPES_APART_SECONDS)
    server.at_seconds = ended
    window = f"[{ended - began:.0f}s]"
    query = (
        f"sum_over_time(served_model:pod_gpu_energy_joules:rate5m{window})"
        f" / sum_over_time(served_model:generation_tokens:rate5m{window}) * 1000"
    )
    tokens = {
        name: sum(
            servers.generated(pod, ended) - servers.generated(pod, began)
            for pod in RATES
            if pod.rpartition("-")[0] == name
        )
        for name in SERVED
    }
    report = reported(server, began, ended)
    return Span(
        real={name: (after[name] - before[name]) * SERVED[name] / tokens[name] * 1000 for name in SERVED},
        recorded={labels["workload_name"]: value for labels, value in server.query(query)},
        report={group["name"]: group for group in report["groups"]},
        notes=report["notes"],
        panels=dict(shown(server)),
    )


def shown(server: Prometheus) -> Iterator[tuple[str, Answers]]:
    """What the dashboard's panels about model servers show of one of them, by the panel's title."""
    model = dashboard(ROOT / "deploy" / "grafana" / "workload.json")
    chosen: Chosen = {"cluster": ALL, "namespace": "ml", "workload": "whole", "price": f"{PRICE}"}
    for panel in panels(model):
        queries = [filled(target["expr"], model, chosen, {}) for target in panel.get("targets", ())]
        if any("served_model:" in query for query in queries):
            yield panel["title"], [answer for query in queries for answer in server.query(query)]


def reported(server: Prometheus, began: float, ended: float) -> Any:
    flags = [f"--from={began:.3f}", f"--to={ended:.3f}", "--by=workload", "--format=json"]
    price = f"--price-per-gpu-hour={PRICE}"
    report = run_here("report", f"--prometheus={server.base}", "--per-token", *flags, price)
    assert report.returncode == 0, report.stderr
    return json.loads(report.stdout)


def said(watched: Span) -> dict[str, tuple[float, float, float]]:
    """By server: what was so, what the rules say, and what the report says."""
    return {
        name: (
            watched.real[name],
            watched.recorded[name],
            watched.report[f"ml/StatefulSet/{name}"]["joules_per_1000_tokens"],
        )
        for name in SERVED
    }


def are_joules_right(watched: Span) -> bool:
    return all(
        abs(each - real_joules) <= WITHIN * real_joules
        for real_joules, *others in said(watched).values()
        for each in others
    )


def values_of_panels(watched: Span) -> dict[str, list[float]]:
    return {title: [value for _, value in answers] for title, answers in watched.panels.items()}


def shown_of_server(watched: Span) -> dict[str, list[float]]:
    values = values_of_panels(watched)
    return {title: values[title] for title in SERVER_PANELS}


def near(watched: Span) -> dict[str, Any]:
    """What SERVER_PANELS should show: a moment, in windows of seconds."""
    values = ((RATES["whole-0"], 0.2), (watched.real["whole"], 0.3))
    return {title: [pytest.approx(value, rel=rel)] for title, (value, rel) in zip(SERVER_PANELS, values, strict=True)}


# issue 20, Must show 3
def test_joules_per_token_of_a_whole_gpu_a_third_and_two_pods_of_four(span: Span) -> None:
    assert are_joules_right(span), said(span)


def test_the_report_has_the_cost_of_the_tokens(span: Span) -> None:
    assert span.report.keys() == {f"ml/StatefulSet/{name}" for name in SERVED}
    for group in span.report.values():
        assert group["cost"] == pytest.approx(group["gpu_hours_held"] * PRICE, abs=1e-5)
        assert group["cost_per_1000_tokens"] == pytest.approx(
            group["cost"] / group["tokens"] * 1000, rel=1e-2, abs=1e-6
        )


def test_the_dashboard_shows_each_figure_of_a_server(span: Span) -> None:
    values = values_of_panels(span)
    assert shown_of_server(span) == near(span)
    held_seconds, used_seconds = values["GPU-seconds of 1,000 tokens"]
    assert held_seconds == pytest.approx(1000 / RATES["whole-0"], rel=0.2)
    assert 0 < used_seconds <= held_seconds * 1.1
    assert values["Cost of 1,000 tokens"] == [pytest.approx(held_seconds / 3600 * PRICE)]
