"""--dcgm.selector: dcgm-exporter's pods are found by their labels, come and go, and fail each for itself."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from exporter.config.load import load
from exporter.config.node_settings import Config
from exporter.config.parsers import GPU_OPERATOR_NAMESPACES
from exporter.config.tls import ServerTls, server_context
from exporter.errors import ConfigError
from exporter.model.pods import PodInfo
from exporter.sources.pages.discovery import AT_ONCE, MOST_FOUND, Discovery
from exporter.sources.pages.url import DcgmSource
from tests.support.certificates import Authority
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import Pod, SimulatedDcgm, SimulatedNode

OURS = {"app": "nvidia-dcgm-exporter"}


def pod(
    name: str, ip: str, phase: str = "Running", *, namespace: str = "gpu-operator", created: int = 1000, **labels: str
) -> Pod:
    return Pod(
        namespace=namespace, name=name, containers=(), uid=name, ip=ip, phase=phase, created=created,
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
        assert config.dcgm.urls == tuple(settings.get("dcgm_url", ()))
        return await self._stack.enter_async_context(
            running(replace(config, dcgm=replace(config.dcgm, port=self.port)))
        )


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
        replace(pod("one", "127.0.0.2"), labels=(("app.kubernetes.io/name", "dcgm-exporter"),)),
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
        await exporter.until_page(lambda page, now=now: uuids(page) == set(now))  # type: ignore[misc]


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
    await exporter.until_page(bool)


async def test_pods_that_cannot_be_known_are_the_reason(found: Found) -> None:
    await found.simulated.pods_api.stop()
    status, text = await (await found.start()).get("/gpu/metrics", **{"X-Prometheus-Scrape-Timeout-Seconds": "2"})
    assert status == 503
    assert str(found.simulated.pods_socket) in text


# issue 7, line 27
@pytest.mark.parametrize("source", ["kubelet", "api"])
async def test_a_tenants_pod_is_never_an_upstream(found: Found, source: str) -> None:
    """It has the labels, an older address, and samples of the same device."""
    await found.dcgm("127.0.0.3")
    theirs = await found.dcgm("127.0.0.2")
    found.simulated.world.pods += (
        pod("real", "127.0.0.3"),
        pod("tenant", "127.0.0.2", namespace="team-a", created=1),
    )
    exporter = await found.start(source)
    assert uuids(await exporter.page()) == {"127.0.0.3"}
    assert theirs.fetches == 0
    # nor does it become one when it is the only one left
    found.simulated.world.pods = tuple(other for other in found.simulated.world.pods if other.name != "real")
    answer = await exporter.until("/gpu/metrics", bool, status=503)
    assert "pods with these labels are in team-a" in answer
    assert "in the namespaces gpu-operator" in answer
    assert theirs.fetches == 0
    sources = json.loads((await exporter.get("/debug/mapping"))[1])["sources"]
    assert sources["dcgm:discovery"]["remedy"].endswith("--dcgm.selector-namespace team-a")


# issue 7, line 27
async def test_a_namespace_that_is_named_is_the_only_one(found: Found) -> None:
    await found.dcgm("127.0.0.2")
    await found.dcgm("127.0.0.3")
    found.simulated.world.pods += (pod("a", "127.0.0.2", namespace="monitoring"), pod("b", "127.0.0.3"))
    exporter = await found.start(dcgm_selector_namespace=["monitoring", "elsewhere"])
    assert uuids(await exporter.page()) == {"127.0.0.2"}


# issue 7, line 27
@pytest.mark.parametrize("source", ["kubelet", "api"])
async def test_of_two_samples_of_one_series_the_older_pods_goes_out(found: Found, source: str) -> None:
    for ip, value in (("127.0.0.2", 2), ("127.0.0.3", 3)):
        (await found.dcgm(ip)).failure = lambda _, value=value: web.Response(
            text=f'DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-x"}} {value}\n'
        )
    found.simulated.world.pods += (pod("young", "127.0.0.2", created=2000), pod("old", "127.0.0.3", created=1000))
    page = await (await found.start(source)).page()
    (line,) = (line for line in page.splitlines() if line.startswith("DCGM_FI_DEV_GPU_TEMP{"))
    assert line.endswith(" 3")


# issue 7, line 27
@pytest.mark.parametrize(
    ("allow", "families"),
    [(None, {"DCGM_FI_DEV_GPU_TEMP"}), ("up|DCGM_FI_DEV_GPU_TEMP", {"up", "DCGM_FI_DEV_GPU_TEMP"})],
)
async def test_a_found_pod_brings_families_of_gpus_alone(
    found: Found, allow: str | None, families: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    (await found.dcgm("127.0.0.2")).failure = lambda _: web.Response(
        text='# TYPE up gauge\nup{job="kubelet"} 0\nkube_pod_info{pod="x"} 1\n# HELP DCGM_FI_DEV_GPU_TEMP t\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-x"} 1\nDCGMX 1\n'
    )
    found.simulated.world.pods += (pod("one", "127.0.0.2"),)
    exporter = await found.start(**({"families_allow": allow} if allow else {}))
    page = await exporter.until_page(lambda text: "GPU-x" in text)
    names = {line.split("{")[0].split(" ")[0] for line in page.splitlines() if not line.startswith("#")}
    assert {name for name in names if not name.startswith("pod_gpu_exporter_")} == families
    assert ("# TYPE up" in page) is bool(allow)
    await exporter.page()
    said = [record for record in caplog.records if "--families.allow takes them" in record.message]
    assert len(said) == (0 if allow else 1)


# issue 7, line 27
async def test_a_found_pod_without_a_gpus_family_is_no_source(found: Found) -> None:
    (await found.dcgm("127.0.0.2")).failure = lambda _: web.Response(text="up 1\n")
    found.simulated.world.pods += (pod("one", "127.0.0.2"),)
    status, text = await (await found.start()).get("/gpu/metrics")
    assert (status, "not one valid sample" in text) == (503, True)


# issue 7, line 27
async def test_no_credential_goes_over_plain_http_to_a_found_pod(found: Found, tmp_path: Path) -> None:
    seen: list[tuple[str, str | None, str | None]] = []

    def answer(request: web.Request) -> web.Response:
        seen.append((request.host, request.headers.get("Authorization"), request.headers.get("X-Key")))
        return web.Response(text=f'DCGM_FI_DEV_GPU_TEMP{{UUID="GPU-{request.host}"}} 1\n')

    for ip in ("127.0.0.2", "127.0.0.3"):
        (await found.dcgm(ip)).failure = answer
    found.simulated.world.pods += (pod("one", "127.0.0.2"),)
    path = tmp_path / "http.yaml"
    content = {"authorization": {"credentials": "s3cret"}, "http_headers": {"X-Key": {"values": ["s3cret"]}}}
    path.write_text(yaml.safe_dump(content))
    named = f"http://127.0.0.3:{found.port}/metrics"
    exporter = await found.start(dcgm_http_config=str(path), dcgm_url=[named])
    await exporter.page()
    assert {host.partition(":")[0]: rest for host, *rest in seen} == {
        "127.0.0.2": [None, None],
        "127.0.0.3": ["Bearer s3cret", "s3cret"],
    }
    with pytest.raises(ConfigError, match=r"never sent over plain HTTP to a pod that --dcgm\.selector finds"):
        await found.start(dcgm_http_config=str(path))


# issue 7, line 27
async def test_with_tls_a_found_pod_is_asked_over_it_with_the_credentials(found: Found, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    pair = authority.issue("server", "dcgm.local")
    seen: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.Response(text='DCGM_FI_DEV_GPU_TEMP{UUID="GPU-tls"} 1\n')

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    context = server_context(ServerTls(cert_file=str(pair.cert), key_file=str(pair.key)), "test")
    await web.TCPSite(runner, "127.0.0.2", found.port, ssl_context=context).start()
    found.simulated.world.pods += (pod("one", "127.0.0.2"),)
    path = tmp_path / "http.yaml"
    tls = {"ca_file": "ours-ca.pem", "server_name": "dcgm.local"}
    path.write_text(yaml.safe_dump({"authorization": {"credentials": "s3cret"}, "tls_config": tls}))
    try:
        assert uuids(await (await found.start(dcgm_http_config=str(path))).page()) == {"tls"}
    finally:
        await runner.cleanup()
    assert seen == ["Bearer s3cret"]


async def once(exporter: Exporter) -> str:
    """The whole answer. aiohttp's client would ask again where a connection is closed without a byte."""
    host, _, port = exporter.base.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /gpu/metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer.decode()


# issue 7, line 32
@pytest.mark.parametrize("others", [True, False])
async def test_a_pod_that_goes_while_a_scrape_waits_for_it_costs_itself(found: Found, others: bool) -> None:
    await found.dcgm("127.0.0.2")
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # until the other side gives up
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.3", found.port)
    world = found.simulated.world
    staying = (*world.pods, *((pod("one", "127.0.0.2"),) if others else ()))
    world.pods = (*staying, pod("two", "127.0.0.3"))
    exporter = await found.start(dcgm_timeout="30s")
    async with listener:
        waiting = asyncio.create_task(once(exporter))
        await asked.wait()
        world.pods = staying
        async with asyncio.timeout(20):  # less than --dcgm.timeout
            while not waiting.done():
                # another scrape is told of it first
                await exporter.get("/gpu/metrics", **{"X-Prometheus-Scrape-Timeout-Seconds": "0.2"})
            answer = await waiting
    if others:
        assert answer.startswith("HTTP/1.1 200")
        assert uuids(answer) == {"127.0.0.2"}
    else:
        assert answer.startswith("HTTP/1.1 503")
        assert "no running pod of node gpu-node-1" in answer
    assert "127.0.0.3" not in answer


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
    assert environment(DCGM_LABELS=text).dcgm.selectors == found
    assert environment(DCGM_LABELS=text).dcgm.urls == ()
    # a host that is named wins
    assert environment(DCGM_LABELS=text, DCGM_HOST="h").dcgm.selectors == ()
    assert environment(DCGM_LABELS=text, DCGM_HOST="h").dcgm.urls == ("http://h:9400/metrics",)


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
    assert (config.dcgm.port, config.dcgm.path) == (port, path)


# issue 7, line 27
@pytest.mark.parametrize(
    ("environ", "own", "flag", "namespaces"),
    [
        ({}, "", None, GPU_OPERATOR_NAMESPACES),
        ({}, "pod-gpu-metrics", None, ("pod-gpu-metrics", *GPU_OPERATOR_NAMESPACES)),
        ({"POD_NAMESPACE": "mine"}, "account", None, ("mine", *GPU_OPERATOR_NAMESPACES)),
        ({"POD_NAMESPACE": "gpu-operator"}, "", None, GPU_OPERATOR_NAMESPACES),
        ({"POD_NAMESPACE": "mine"}, "", ["a", "b"], ("a", "b")),
        ({"POD_GPU_EXPORTER_DCGM_SELECTOR_NAMESPACE": "a, b"}, "mine", None, ("a", "b")),
    ],
)
def test_namespaces(environ: dict[str, str], own: str, flag: list[str] | None, namespaces: tuple[str, ...]) -> None:
    flags = {"dcgm.selector-namespace": flag} if flag else {}
    config = load(flags, {"DCGM_LABELS": "auto", **environ}, None, "host", own_namespace=own)
    assert config.dcgm.namespaces == namespaces


@pytest.mark.parametrize("text", ["", "*", "A", "a.b", "-a", "a" * 64])
def test_namespaces_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="it takes a namespace's name"):
        load({"dcgm.selector-namespace": [text]}, {}, None, "host")


def found_by(discovery: Discovery, *pods: PodInfo) -> list[str]:
    return [source.name for source in discovery.update({(found.namespace, found.name): found for found in pods})]


def info(number: int, created: float | None, ip: str = "", namespace: str = "ns") -> PodInfo:
    return PodInfo(
        namespace=namespace, name=f"p{number}", uid=str(number), labels={"app": "a"}, phase="Running",
        ip=ip or f"10.0.0.{number}", created_at_seconds=created,
    )  # fmt: skip


@pytest.fixture
async def discovery() -> AsyncIterator[Discovery]:
    def make(name: str, url: str, places: asyncio.Semaphore) -> DcgmSource:
        return DcgmSource(name=name, url=url, timeout_seconds=1, max_bytes=1, on_health=lambda *_: None, places=places)

    made = Discovery(selectors=((("app", "a"),),), namespaces=("ns",), port=9400, path="/metrics", make=make)
    yield made
    await made.close()


# issue 7, line 27
async def test_the_oldest_pod_comes_first_and_one_of_unknown_age_last(discovery: Discovery) -> None:
    pods = (info(1, None), info(2, 300.0), info(3, 100.0), info(4, 200.0, "10.0.0.3"), info(5, 1.0, namespace="x"))
    assert found_by(discovery, *pods) == ["dcgm:10.0.0.3:9400", "dcgm:10.0.0.2:9400", "dcgm:10.0.0.1:9400"]


# issue 7, line 41
async def test_the_64_oldest_are_asked(discovery: Discovery) -> None:
    pods = [info(number, 1000.0 - number) for number in range(1, 101)]
    assert MOST_FOUND == 64
    assert found_by(discovery, *pods) == [f"dcgm:10.0.0.{number}:9400" for number in range(100, 36, -1)]


async def test_addresses_and_limits() -> None:
    made: list[tuple[str, str]] = []
    limits = set()

    def make(name: str, url: str, places: asyncio.Semaphore) -> DcgmSource:
        made.append((name, url))
        limits.add(places)
        return DcgmSource(name=name, url=url, timeout_seconds=1, max_bytes=1, on_health=lambda *_: None, places=places)

    discovery = Discovery(selectors=((("app", "a"),),), namespaces=("ns",), port=9400, path="/metrics", make=make)
    pods = {
        ("ns", str(number)): PodInfo(
            namespace="ns", name=str(number), uid=str(number), labels={"app": "a"}, phase="Running", ip=ip
        )
        for number, ip in enumerate(("fd00::7", "10.0.0.1", "10.0.0.1", ""))
    }
    first = discovery.update(pods)
    assert made == [
        ("dcgm:[fd00::7]:9400", "http://[fd00::7]:9400/metrics"),
        ("dcgm:10.0.0.1:9400", "http://10.0.0.1:9400/metrics"),
    ]
    assert discovery.update(pods) == first, "the same sources, with their connections"
    (places,) = limits
    assert places._value == AT_ONCE == 15
    await discovery.close()
