"""The pulse through the whole node role: who scrapes, and how often, changes nothing of what is counted."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from exporter.config.node_settings import Config
from exporter.node.handover import WantedStreams
from exporter.node.node import Node
from exporter.node.role import NODE, make_role
from exporter.outputs.families import accounts as accounts_families
from exporter.service import Service
from exporter.sources.pages.url import DcgmSource
from tests.support.exporter import Exporter, Start, config_of, running
from tests.support.node_parts import accounts_of, source_of
from tests.support.simulated import GPU_RESOURCE, SHARED_RESOURCE, Container, Pod, SimulatedNode, World
from tests.support.waiting import until

FAMILIES = "|".join(family.name for family in accounts_families.FAMILIES)
ACCOUNTS = re.compile(rf"(?:# (?:HELP|TYPE) )?(?:{FAMILIES})\b")
SECOND = 1_000_000_000


def accounts(metrics: str) -> str:
    """The families of accounting alone."""
    return "".join(line for line in metrics.splitlines(keepends=True) if ACCOUNTS.match(line))


def node_of(service: Service[Config]) -> Node:
    role = service._role
    assert isinstance(role, Node)
    return role


def held(metrics: str, family: str = "pod_gpu_allocated_ratio") -> dict[tuple[str, str], float]:
    """A family's values by UUID and pod."""
    rows = re.findall(rf"^{family}\{{(.*)\}} (\S+)$", metrics, re.MULTILINE)
    found = {}
    for labels, value in rows:
        row = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        found[row["UUID"], row["pod"]] = float(value)
    return found


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """A whole GPU and one in four shares, of which one is held."""
    simulated = SimulatedNode(World(gpus=2, shared=1, seed=1))
    whole, shared = (gpu.uuid for gpu in simulated.world.gpus)
    simulated.world.pods = (
        a_pod("whole", (GPU_RESOURCE, whole)),
        a_pod("share", (SHARED_RESOURCE, f"{shared}::2")),
    )
    await simulated.start()
    yield simulated
    await simulated.stop()


def a_pod(name: str, *devices: tuple[str, str]) -> Pod:
    return Pod(namespace="ml", name=name, uid=f"uid-{name}", containers=(Container(name="main", devices=devices),))


def settings(node: SimulatedNode, **more: str) -> dict[str, str]:
    return {"kubelet_socket": str(node.socket), "kubelet_max_age": "0s", "dcgm_url": node.url, **more}


# issue 15, line 2
async def test_a_cut_gpu_of_which_all_is_held_is_full() -> None:
    """GpuModelFull fires above 95 %: an RTX PRO 6000 has 4 compute slices, not 7."""
    simulated = SimulatedNode(World(gpus=1, mig=1, cut=("1g.24gb",) * 4, seed=1))
    (gpu,) = simulated.world.gpus
    simulated.world.pods = tuple(a_pod(f"pod-{number}", slot) for number, slot in enumerate(gpu.slots))
    await simulated.start()
    try:
        config = config_of(**settings(simulated), inventory_file=str(simulated.inventory_file))
        async with running(config) as exporter:
            ratio = f'node_gpu_allocated_ratio{{model="{gpu.card.model}",node="gpu-node-1"}} '

            async def is_counted() -> bool:
                return ratio in (await exporter.get("/metrics"))[1]

            await until(is_counted)
            _, metrics = await exporter.get("/metrics")
            assert f"{ratio}1\n" in metrics
            assert {of: value for (_, of), value in held(metrics).items()} == {f"pod-{each}": 0.25 for each in range(4)}
    finally:
        await simulated.stop()


class History:
    """What the node did, moment by moment: the same for every exporter that looks."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.moment = 0
        self.pods = node.world.pods
        node.dcgm.failure = self.answer

    def __call__(self) -> int:
        """The clock of the pulse: 10 s from beat to beat."""
        return 1_700_000_000 * SECOND + self.moment * 10 * SECOND

    def go_on(self, moment: int) -> None:
        self.moment = moment
        self.node.world.pods = self.pods[: 1 + moment % 2]

    def answer(self, _: web.Request) -> web.Response:
        lines = []
        for index, gpu in enumerate(self.node.world.gpus):
            labels = f'{{gpu="{index}",UUID="{gpu.uuid}",modelName="H100"}}'
            lines += [
                f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{labels} {1_000_001 * self.moment}\n",
                f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{labels} 0.{self.moment % 10}\n",
                f"DCGM_FI_DEV_XID_ERRORS{labels} {79 if self.moment >= 3 else 0}\n",
            ]
        return web.Response(text="".join(lines))


class Beats:
    """A clock of the pulse that counts how often it is looked at: once a beat."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return time.monotonic_ns()


@asynccontextmanager
async def timed_by(clock: Callable[[], int], config: Config) -> AsyncIterator[Exporter]:
    """The exporter as it runs, with this clock for its pulse."""

    def make(config: Config, before: object) -> Node:
        role = make_role(config, before)
        accounts_of(role).clock = clock
        return role

    service = Service(config, replace(NODE, make=make))
    try:
        (address,) = await service.listen()
        async with aiohttp.ClientSession() as session:
            yield Exporter(service, f"http://{address}", session)
    finally:
        await service.close()


@asynccontextmanager
async def looked_at(node: SimulatedNode, scrape: Callable[[Exporter], Awaitable[object]]) -> AsyncIterator[list[str]]:
    """The accounts after each of a history's moments, of an exporter that is scraped in this way between them."""
    history, seen = History(node), list[str]()
    history.go_on(0)
    # the first beat comes by itself, and the next as good as never: the test says when
    async with timed_by(history, config_of(**settings(node, accounting_interval="1000h"))) as exporter:
        role = node_of(exporter.service)
        await until(lambda: accounts_of(role).ledger.rows and not role._is_beating)
        for moment in range(6):
            history.go_on(moment)
            await scrape(exporter)
            if moment:
                await role.pulse()
            await scrape(exporter)
            seen.append(accounts((await exporter.get("/metrics"))[1]))
        yield seen


# issue 9, "Must show" 2
async def test_any_number_of_scrapers_sees_the_same_accounts(node: SimulatedNode) -> None:
    async def nobody(_: Exporter) -> None:
        pass

    async def two(exporter: Exporter) -> None:
        await exporter.page()
        await exporter.get("/metrics")

    async def many(exporter: Exporter) -> None:
        paths = ("/gpu/metrics", "/metrics", "/container/metrics", "/debug/mapping") * 4
        await asyncio.gather(*(exporter.get(path) for path in paths))

    seen = []
    for scrape in (nobody, two, many):
        async with looked_at(node, scrape) as texts:
            seen.append(texts)
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0])) == 6
    whole, shared = (gpu.uuid for gpu in node.world.gpus)
    seconds = held(seen[0][-1], "pod_gpu_allocated_seconds_total")
    assert seconds == {(whole, "whole"): 50.0, (shared, "share"): 5.0}


# issue 15, line 3
async def test_while_the_page_is_away_pods_that_come_and_go_are_counted(node: SimulatedNode) -> None:
    history = History(node)
    history.go_on(0)
    async with timed_by(history, config_of(**settings(node, accounting_interval="1000h"))) as exporter:
        role = node_of(exporter.service)
        await until(lambda: accounts_of(role).ledger.rows and not role._is_beating)
        whole, _ = (gpu.uuid for gpu in node.world.gpus)
        pods = {1: (), 2: (a_pod("named", (GPU_RESOURCE, "nvidia0")),), 3: ()}
        for moment in range(1, 5):
            history.go_on(moment)
            node.world.pods = pods.get(moment, ())
            node.dcgm.failure = history.answer if moment == 4 else (lambda _: web.Response(status=503))
            await role.pulse()
        metrics = (await exporter.get("/metrics"))[1]
    # "whole" left at the first look without a page, "named" held the GPU from the second to the third
    assert held(metrics, "pod_gpu_allocated_seconds_total") == {(whole, "whole"): 10.0, (whole, "named"): 10.0}
    joules = held(metrics, "pod_gpu_energy_joules_total")
    assert [round(joules[of]) for of in ((whole, "whole"), (whole, "named"), (whole, ""))] == [1000, 1000, 2000]


# issue 9, C: shares held of shares offered
async def test_a_share_is_a_part_of_its_gpu_also_while_the_device_plugin_is_away(node: SimulatedNode) -> None:
    whole, shared = (gpu.uuid for gpu in node.world.gpus)
    expected = {(whole, "whole"): 1.0, (shared, "share"): 0.25}
    async with running(config_of(**settings(node, accounting_interval="20ms"))) as exporter:
        for is_gone in (False, True, False):
            node.kubelet.plugin_gone = is_gone
            calls = node.kubelet.calls_of_allocatable
            await until(lambda calls=calls: node.kubelet.calls_of_allocatable > calls + 3)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            assert held((await exporter.get("/metrics"))[1]) == expected


async def test_a_kubelet_that_does_not_say_what_it_offers_costs_nothing_else(tmp_path: object) -> None:
    simulated = SimulatedNode(World(gpus=1, shared=1, seed=1))
    (gpu,) = simulated.world.gpus
    simulated.kubelet.versions = ("v1alpha1",)
    simulated.world.pods = tuple(a_pod(name, (SHARED_RESOURCE, f"{gpu.uuid}::{name}")) for name in "ab")
    await simulated.start()
    try:
        async with running(config_of(**settings(simulated))) as exporter:
            await until(lambda: accounts_of(node_of(exporter.service)).ledger.rows)
            found = held((await exporter.get("/metrics"))[1])
            assert found == {(gpu.uuid, "a"): 0.5, (gpu.uuid, "b"): 0.5}
    finally:
        await simulated.stop()


async def test_the_pulse_and_scrapes_read_the_same_sources(node: SimulatedNode) -> None:
    """Neither of them keeps the other from anything, and only the pulse asks what is on offer."""
    beats = Beats()
    async with timed_by(beats, config_of(**settings(node, accounting_interval="50ms"))) as exporter:
        before = beats.count
        await asyncio.gather(*(exporter.page() for _ in range(50)))
        await until(lambda: beats.count > before + 3)
        assert node.kubelet.calls_of_allocatable <= beats.count + 1
        assert node.dcgm.fetches > beats.count
    fetches = node.dcgm.fetches
    await asyncio.sleep(0.2)
    assert node.dcgm.fetches == fetches, "nobody looks any more"


async def test_without_accounting_nobody_looks_and_nothing_is_shown(node: SimulatedNode) -> None:
    async with running(config_of(**settings(node, accounting_mode="off", accounting_interval="10ms"))) as exporter:
        await asyncio.sleep(0.1)
        assert (node.dcgm.fetches, node.kubelet.calls, node.kubelet.calls_of_allocatable) == (0, 0, 0)
        await exporter.page()
        assert accounts((await exporter.get("/metrics"))[1]) == ""


async def test_a_slow_kubelet_is_none_that_is_gone(node: SimulatedNode) -> None:
    """A scrape waits half a second for it, a beat as long as it takes: what it saw is then whole."""
    beats = Beats()
    given = settings(node, accounting_interval="200ms", kubelet_max_age="200ms")
    async with timed_by(beats, config_of(**given)) as exporter:
        await until(lambda: beats.count > 1)
        for _ in range(2):
            node.kubelet.stall()
            await asyncio.sleep(1.2)
            before = beats.count
            node.kubelet.resume()
            await until(lambda before=before: beats.count > before)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        metrics = (await exporter.get("/metrics"))[1]
        gaps = re.findall(r'gap_seconds_total\{.*reason="kubelet".*\} (\S+)$', metrics, re.MULTILINE)
        assert [float(seconds) for seconds in gaps] == [0.0]


async def test_labels_of_pods_and_workloads_come_with_the_accounts(start: Start, simulated: SimulatedNode) -> None:
    pods = {"kubelet_pods_socket": str(simulated.pods_socket), "kubernetes_url": simulated.api_url}
    plain = await start(**pods)
    asking = await start(
        **pods, labels_pod_uid="on", labels_pod_labels="team", workload_labels="app.kubernetes.io/name"
    )
    shown = []
    for exporter in (plain, asking):
        ledger = accounts_of(node_of(exporter.service)).ledger
        await until(lambda ledger=ledger: ledger.rows)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        await node_of(exporter.service).pulse()
        rows = re.findall(r"^pod_gpu_allocated_ratio\{(.*)\} \S+$", (await exporter.get("/metrics"))[1], re.MULTILINE)
        shown.append({name for row in rows for name, value in re.findall(r'(\w+)="([^"]+)"', row)})
    assert shown[1] - shown[0] == {"pod_uid", "label_team", "workload_name", "workload_kind"}
    # without a word about workloads the pulse asks nobody for them
    assert not node_of(plain.service).handover.the(WantedStreams).workloads
    # pods are read for their queues: the kubelet itself tells of them
    assert json.loads((await plain.get("/debug/mapping"))[1])["sources"].keys() == {
        "kubelet",
        "pods",
        source_of(node_of(plain.service), DcgmSource).name,
    }
