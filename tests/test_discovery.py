"""--dcgm.selector: dcgm-exporter's pods are found by their labels, come and go, and fail each for itself."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from exporter.config import Config, load
from exporter.errors import ConfigError
from exporter.model import PodInfo
from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.node import SimulatedNode
from exporter.simulator.world import Pod
from exporter.sources.dcgm import DcgmSource
from exporter.sources.discovery import AT_ONCE, Discovery
from tests.conftest import Exporter, config_of, running

OURS = {"app": "nvidia-dcgm-exporter"}


def pod(name: str, ip: str, phase: str = "Running", **labels: str) -> Pod:
    return Pod(
        namespace="gpu-operator", name=name, containers=(), uid=name, ip=ip, phase=phase,
        labels=tuple((labels or OURS).items()),
    )  # fmt: skip


class Found:
    """dcgm-exporters on loopback addresses of their own and on one port, and the exporter that looks for them."""

    def __init__(self, simulated: SimulatedNode, stack: AsyncExitStack) -> None:
        self.simulated = simulated
        self.port = int(simulated.url.rpartition(":")[2].partition("/")[0])
        self._stack = stack

    async def dcgm(self, ip: str) -> SimulatedDcgm:
        found = SimulatedDcgm(self.simulated.world)
        await found.start(ip, self.port)
        self._stack.push_async_callback(found.stop)
        found.failure = lambda _: web.Response(text=f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-{ip}"}} 1\n')
        return found

    async def start(self, source: str = "kubelet", **settings: Any) -> Exporter:
        config = config_of(
            kubelet_socket=str(self.simulated.socket),
            kubelet_pods_socket=str(self.simulated.pods_socket),
            kubernetes_url=self.simulated.api_url,
            node_name="gpu-node-1",
            pods_source=source,
            dcgm_selector="auto",
            **settings,
        )
        assert config.dcgm_urls == tuple(settings.get("dcgm_url", ()))
        return await self._stack.enter_async_context(running(replace(config, dcgm_port=self.port)))


@pytest.fixture
async def found(simulated: SimulatedNode) -> AsyncIterator[Found]:
    async with AsyncExitStack() as stack:
        yield Found(simulated, stack)


def uuids(page: str) -> set[str]:
    return {line.split('UUID="GPU-')[1].partition('"')[0] for line in page.splitlines() if "GPU_TEMP{" in line}


@pytest.mark.parametrize("source", ["kubelet", "api"])
async def test_the_very_first_page_has_what_was_found(found: Found, source: str) -> None:
    await found.dcgm("127.0.0.2")
    await found.dcgm("127.0.0.3")
    found.simulated.world.pods += (
        pod("one", "127.0.0.2", **{"app.kubernetes.io/name": "dcgm-exporter"}),
        pod("two", "127.0.0.3", app="nvidia-dcgm-exporter-dra"),
        pod("without-address", ""),
        pod("ended", "127.0.0.4", "Succeeded"),
        pod("pending", "127.0.0.5", "Pending"),
        pod("other", "127.0.0.6", app="something-else"),
    )
    exporter = await found.start(source)
    page = await exporter.page()
    assert uuids(page) == {"127.0.0.2", "127.0.0.3"}
    for ip in ("127.0.0.2", "127.0.0.3"):
        assert f'pod_gpu_exporter_source_up{{source="dcgm:{ip}:{found.port}"}} 1' in page
    assert page.count('source="dcgm:') == 4


async def test_it_follows_pods_that_come_and_go(found: Found) -> None:
    await found.dcgm("127.0.0.2")
    await found.dcgm("127.0.0.3")
    world = found.simulated.world
    others = world.pods
    world.pods = (*others, pod("one", "127.0.0.2"))
    exporter = await found.start()
    assert uuids(await exporter.page()) == {"127.0.0.2"}
    for now in (("127.0.0.2", "127.0.0.3"), ("127.0.0.3",)):
        world.pods = (*others, *(pod(f"at-{ip}", ip) for ip in now))
        async with asyncio.timeout(5):
            while uuids(await exporter.page()) != set(now):
                await asyncio.sleep(0.02)


async def test_one_that_fails_costs_itself(found: Found) -> None:
    await found.dcgm("127.0.0.2")
    (await found.dcgm("127.0.0.3")).failure = lambda _: web.Response(status=500)
    found.simulated.world.pods += (pod("one", "127.0.0.2"), pod("two", "127.0.0.3"), pod("three", "127.0.0.4"))
    page = await (await found.start()).page()
    assert uuids(page) == {"127.0.0.2"}
    assert page.count('pod_gpu_exporter_source_up{source="dcgm:127.0.0.') == 3
    for ip in ("127.0.0.3", "127.0.0.4"):
        assert f'source_up{{source="dcgm:{ip}:{found.port}"}} 0' in page


async def test_none_is_503_that_says_what_was_looked_for(found: Found) -> None:
    exporter = await found.start()
    status, text = await exporter.get("/gpu/metrics")
    assert status == 503
    for part in ("no running pod of node gpu-node-1", "app=nvidia-dcgm-exporter-dra", "--dcgm.selector"):
        assert part in text
    status, text = await exporter.get("/container/metrics")
    assert status == 503
    assert "app.kubernetes.io/name=dcgm-exporter" in json.loads(text)["error"]
    await found.dcgm("127.0.0.2")
    found.simulated.world.pods += (pod("one", "127.0.0.2"),)
    async with asyncio.timeout(5):
        while (await exporter.get("/gpu/metrics"))[0] != 200:
            await asyncio.sleep(0.02)


async def test_pods_that_cannot_be_known_are_the_reason(found: Found) -> None:
    await found.simulated.pods_api.stop()
    status, text = await (await found.start()).get("/gpu/metrics", **{"X-Prometheus-Scrape-Timeout-Seconds": "2"})
    assert status == 503
    assert str(found.simulated.pods_socket) in text


def environment(**environ: str) -> Config:
    return load({}, environ, None, "host")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("app=a", ((("app", "a"),),)),
        ("app:a", ((("app", "a"),),)),
        ("app=a, tier : gpu", ((("app", "a"), ("tier", "gpu")),)),
        ("app.kubernetes.io/name=dcgm-exporter", ((("app.kubernetes.io/name", "dcgm-exporter"),),)),
        ("app=", ((("app", ""),),)),
    ],
)
def test_selectors(text: str, found: object) -> None:
    assert environment(DCGM_LABELS=text).dcgm_selectors == found
    assert environment(DCGM_LABELS=text).dcgm_urls == ()
    # a host that is named wins
    assert environment(DCGM_LABELS=text, DCGM_HOST="h").dcgm_selectors == ()
    assert environment(DCGM_LABELS=text, DCGM_HOST="h").dcgm_urls == ("http://h:9400/metrics",)


@pytest.mark.parametrize("text", ["app", "=a", "app=a,", "app==a", "a b=c", "app=a b", "app=a,,b=c"])
def test_selectors_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="it takes auto, or labels such as"):
        environment(DCGM_LABELS=text)


@pytest.mark.parametrize(
    ("environ", "port", "path"),
    [
        ({}, 9400, "/metrics"),
        ({"DCGM_PORT": "9500", "DCGM_METRICS_ENDPOINT": "x"}, 9500, "/x"),
        ({"DCGM_PORT": "tcp://10.0.0.1:9400"}, 9400, "/metrics"),
        ({"DCGM_PORT": "99999999"}, 9400, "/metrics"),
    ],
)
def test_port_and_path(environ: dict[str, str], port: int, path: str) -> None:
    config = environment(DCGM_LABELS="app=a", **environ)
    assert (config.dcgm_port, config.dcgm_path) == (port, path)


async def test_addresses_and_limits() -> None:
    made: list[tuple[str, str]] = []
    limits = set()

    def make(name: str, url: str, places: asyncio.Semaphore) -> DcgmSource:
        made.append((name, url))
        limits.add(places)
        return DcgmSource(name=name, url=url, timeout_seconds=1, max_bytes=1, on_health=lambda *_: None, places=places)

    discovery = Discovery(selectors=((("app", "a"),),), port=9400, path="/metrics", make=make)
    pods = {
        ("ns", str(number)): PodInfo(
            namespace="ns", name=str(number), uid=str(number), labels={"app": "a"}, phase="Running", ip=ip
        )
        for number, ip in enumerate(("fd00::7", "10.0.0.1", "10.0.0.1", ""))
    }
    first = discovery.update(pods)
    assert made == [
        ("dcgm:10.0.0.1:9400", "http://10.0.0.1:9400/metrics"),
        ("dcgm:[fd00::7]:9400", "http://[fd00::7]:9400/metrics"),
    ]
    assert discovery.update(pods) == first, "the same sources, with their connections"
    (places,) = limits
    assert places._value == AT_ONCE == 15
    await discovery.close()
