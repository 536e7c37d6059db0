"""The exporters of many nodes: real ones in front of simulated nodes, and what finds them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from benchmarks import exporters as benchmark
from exporter.cluster.exporters import exporters_source as source_module
from exporter.cluster.exporters import known_nodes
from exporter.cluster.exporters.node_answer import NodeAnswer, read_answer
from exporter.config.http_file import HttpConfig, Secret
from exporter.model.slices import Work
from exporter.model.snapshot import Health
from exporter.sources.cluster_source import ExporterPlace
from exporter.sources.exporters.asking import GivenPlaces
from tests.cluster.exporters.conftest import Make, Respond, Serve, good, round_of
from tests.cluster.exporters.test_hostile import never
from tests.support.cluster_settings import endpoint_slices
from tests.support.exporter import Start
from tests.support.kubernetes import NAMESPACE, Simulated, endpoint_slice
from tests.support.real_api import Object
from tests.support.waiting import until


async def test_a_node_without_its_kubelets_word_does_not_look_idle(start: Start, make: Make) -> None:
    one = await start(node_name="a", kubelet_socket="/nowhere/kubelet.sock")
    source = make(("a", one.base))
    await round_of(source)
    trouble = source.view.nodes["a"].trouble
    assert trouble is not None
    assert "does not know who holds the GPUs" in trouble.message
    async with one.session.get(one.base + "/container/metrics") as response:
        assert (response.status, response.headers["X-Owners-Unknown"]) == (200, "true")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Simulated]:
    simulated = Simulated(tmp_path)
    await simulated.start()
    yield simulated
    await simulated.stop()


def slice_of(urls: Mapping[str, str]) -> Object:
    """An EndpointSlice whose endpoints are on loopback, which a real API server would refuse."""
    port = {url.rpartition(":")[2] for url in urls.values()}.pop()
    item = endpoint_slice("one", {node: {"ready": True} for node in urls}, ports=[{"name": "", "port": int(port)}])
    for endpoint, url in zip(item["endpoints"], urls.values(), strict=True):
        endpoint["addresses"] = [url.removeprefix("http://").rpartition(":")[0]]
    return item


async def test_nodes_that_come_and_go_in_kubernetes(
    api: Simulated, serve: Serve, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new one is asked at once, and not only in the next round; one that is gone is missing, and then forgotten."""
    monkeypatch.setattr(known_nodes, "LEFT_SECONDS", 0.3)
    url = await serve(by_host("ab"))
    urls = {node: url.replace("127.0.0.1", host) for node, host in (("a", "127.0.0.1"), ("b", "localhost"))}
    await api.put(slice_of({"a": urls["a"]}))
    healths: dict[str, Health] = {}
    places = endpoint_slices(
        api=api.api(),
        namespace=NAMESPACE,
        service="exporter",
        on_health=lambda name, health: healths.update({name: health}),
    )
    source = make(places=places, max_age_seconds=2.0)
    trouble = source.view.trouble
    assert trouble is not None
    assert "it is not known yet which nodes there are: the Service" in trouble.message
    await round_of(source)
    assert (list(source.view.nodes), source.view.missing, source.view.trouble) == (["a"], (), None)
    await api.put(slice_of(urls))
    await until(lambda: "b" in source.view.nodes and not source.view.nodes["b"].is_missing)
    await api.put(slice_of({"b": urls["b"]}))
    await until(lambda: "a" in source.view.missing)
    await round_of(source)
    assert not source.view.nodes["b"].is_missing

    async def is_forgotten() -> bool:
        await source.begin()
        return list(source.view.nodes) == ["b"]

    await until(is_forgotten)
    assert healths["endpointslices"].up
    assert source.bounds["endpointslices"].used() == 1


def by_host(nodes: str) -> Respond:
    """Several nodes behind one listener: the name that is asked says which."""
    answers = dict(zip(("127.0.0.1", "localhost"), map(good, nodes), strict=True))

    async def respond(writer: asyncio.StreamWriter, request: str) -> None:
        host = request.partition("Host: ")[2].partition(":")[0]
        await answers[host](writer, request)

    return respond


async def test_an_api_server_that_is_down_from_the_start_is_a_trouble(tmp_path: Path, make: Make) -> None:
    api = Simulated(tmp_path)
    await api.start()
    places = endpoint_slices(api=api.api(), namespace=NAMESPACE, service="x", on_health=lambda _name, _health: None)
    await api.stop()
    source = make(places=places)
    await source.begin()
    trouble = source.view.trouble
    assert trouble is not None
    assert trouble.reason == "refused"
    assert "the Kubernetes API at http://127.0.0.1" in trouble.message


async def test_an_exporter_that_moves_is_asked_where_it_is_now(serve: Serve, make: Make) -> None:
    """Its old address stalls, and the ask that hangs there is not waited for."""
    places = Moving({"a": ExporterPlace(url=await serve(never))})
    source = make(places=places, timeout_seconds=30.0)
    await source.begin()
    assert source.view.missing == ("a",)
    places.move({"a": ExporterPlace(url=await serve(good("a")))})
    await until(lambda: not source.view.missing)


class Moving(GivenPlaces):
    """Places that a test changes."""

    def __init__(self, places: Mapping[str, ExporterPlace]) -> None:
        super().__init__([])
        self.places = places

    def follow(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change

    def move(self, places: Mapping[str, ExporterPlace]) -> None:
        self.places = places
        self._on_change()


async def test_a_password_goes_along_and_connections_are_kept(serve: Serve, make: Make) -> None:
    requests: list[tuple[int, str]] = []
    answer = good("a")

    async def respond(writer: asyncio.StreamWriter, request: str) -> None:
        requests.append((writer.get_extra_info("peername")[1], request))
        await answer(writer, request)

    http = HttpConfig(scheme="Bearer", credentials=Secret(value="s3cret"), headers=(("X-Team", "gpu"),))
    source = make(("a", await serve(respond) + "/below"), http=http)
    for _ in range(3):
        await round_of(source)
    assert not source.view.missing
    assert len({port for port, _ in requests}) == 1
    assert all(text.startswith("GET /below/container/metrics HTTP/1.1\r\n") for _, text in requests)
    assert all("Authorization: Bearer s3cret\r\n" in text and "X-Team: gpu\r\n" in text for _, text in requests)


async def test_a_secret_that_cannot_be_read_is_said(serve: Serve, make: Make) -> None:
    http = HttpConfig(scheme="Bearer", credentials=Secret(file="/nonexistent/token"))
    source = make(("a", await serve(good("a"))), http=http)
    await round_of(source)
    trouble = source.view.nodes["a"].trouble
    assert trouble is not None
    assert "--cluster.http-config: '/nonexistent/token' cannot be read" in trouble.message


async def test_a_fault_of_this_program_costs_one_node(
    serve: Serve, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(body: bytes, node: str | None) -> Work[NodeAnswer]:
        if node == "a":
            raise ZeroDivisionError
        return read_answer(body, node)

    monkeypatch.setattr(source_module, "read_answer", broken)
    source = make(("a", await serve(good("a"))), ("b", await serve(good("b"))))
    await round_of(source)
    assert source.view.missing == ("a",)
    assert "a fault of this program itself: ZeroDivisionError()" in str(source.view.nodes["a"].trouble)


# issue 11, "Must show" 4
async def test_many_nodes_of_which_some_stall(make: Make) -> None:
    """Make bench does it with 500, and with the cluster role in a process of its own."""
    count, stalled = 60, 9
    many = benchmark.Exporters(count, await benchmark.moments(), benchmark.ways_of(count, stalled))
    await many.start()
    try:
        nodes = [(benchmark.name_of(number), many.url(number)) for number in range(count)]
        source = make(*nodes, timeout_seconds=3.0, max_age_seconds=60.0)
        await source.begin()
        assert source._asks, "nobody waits for those that stall"
        for _ in range(2):
            await until(lambda: not source._asks)
            view = source.view
            assert set(view.missing) == {name for name, _ in nodes[count - stalled :]}
            reasons = [node.trouble.reason for node in view.nodes.values() if node.trouble]
            assert {reason: reasons.count(reason) for reason in reasons} == {"deadline": 6, "refused": 3}
            assert all(
                len({device.row.device_uuid for device in node.devices}) == 8
                for node in view.nodes.values()
                if not node.trouble
            )
            source.begin()
        assert many.connections <= count
        await source.close()
    finally:
        await many.stop()
