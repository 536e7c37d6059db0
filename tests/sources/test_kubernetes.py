"""The Kubernetes API as a source, against a simulated API server on a real port."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.model import Health
from exporter.simulator.kubernetes import SimulatedApi
from exporter.simulator.pods_api import container_id
from exporter.simulator.world import World
from exporter.sources import kubernetes
from exporter.sources.kubernetes import ApiPods, ApiSlices
from exporter.sources.kubernetes_api import KubernetesApi
from tests.sources.test_pods_api import until

NODE = "gpu-node-1"


@pytest.fixture
def world() -> World:
    return World(gpus=4, claims=2, seed=3)


@pytest.fixture
async def server(world: World) -> AsyncIterator[SimulatedApi]:
    simulated = SimulatedApi(world, node_name=NODE)
    yield simulated
    await simulated.stop()


Connect = Callable[..., Any]


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    made: list[Any] = []

    def build(url: str, kind: type = ApiPods, node: str = NODE) -> Any:
        api = KubernetesApi(url=url, token_file=str(tmp_path / "token"), ca_file=str(tmp_path / "ca"))
        source = kind(api=api, node_name=node, on_health=lambda _name, _health: None)
        made.append(source)
        return source

    yield build
    for source in made:
        await source.close()


async def settle(source: Any) -> Health:
    waiting = source.begin()
    if waiting is not None:
        await waiting
    health: Health = source.health
    return health


def uids(source: ApiPods) -> set[str]:
    return {pod.uid for pod in source.pods.values()}


async def test_pods_are_listed_once_and_then_watched(server: SimulatedApi, connect: Connect, world: World) -> None:
    source = connect(await server.start())
    assert (await settle(source)).up
    assert uids(source) == {pod.uid for pod in world.pods}
    pod = world.pods[1]
    info = source.pods[pod.namespace, pod.name]
    assert (info.phase, dict(info.labels), info.owners[0].kind) == ("Running", dict(pod.labels), pod.owner[0])
    assert info.container_ids[pod.containers[0].name] == container_id(pod, pod.containers[0].name)
    world.relabel(pod, team="other")
    await until(lambda: source.pods[pod.namespace, pod.name].labels["team"] == "other")
    for _ in range(5):
        world.step()
    await until(lambda: uids(source) == {pod.uid for pod in world.pods})
    assert (server.lists, server.watches) == (1, 1)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [
        ("2023-11-14T22:13:20Z", 1_700_000_000.0),
        (None, None),
        ("yesterday", None),
        (5, None),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_when_a_pod_was_made(time: object, seconds: float | None) -> None:
    found = kubernetes.read_pod({"metadata": {"name": "p", "creationTimestamp": time}}).created_at_seconds
    assert found == seconds


async def test_other_nodes_pods_are_none_of_ours(server: SimulatedApi, connect: Connect) -> None:
    source = connect(await server.start(), node="gpu-node-2")
    assert (await settle(source)).up
    assert source.pods == {}


async def test_a_watch_that_breaks_is_taken_up_where_it_was(
    server: SimulatedApi, connect: Connect, world: World
) -> None:
    source = connect(await server.start())
    await settle(source)
    for _ in range(3):
        world.step()
        server.break_watches()
        await until(lambda: uids(source) == {pod.uid for pod in world.pods})
    assert server.lists == 1


async def test_bookmarks_move_the_place_and_410_means_a_new_list(
    server: SimulatedApi, connect: Connect, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = connect(await server.start())
    await settle(source)
    await until(lambda: source._listed._version == str(server._now))
    server.compact()
    world.step()
    await until(lambda: uids(source) == {pod.uid for pod in world.pods})
    assert server.lists == 2
    assert source.health.up


async def test_an_api_server_that_restarts(server: SimulatedApi, connect: Connect, world: World) -> None:
    url = await server.start()
    source = connect(url)
    await settle(source)
    everything = uids(source)
    await server.stop()
    await until(lambda: source.health.up is False)
    assert source.health.reason == "unreachable"
    assert uids(source) == everything
    world.step()
    await server.start(int(url.rpartition(":")[2]))
    await until(lambda: bool(source.health.up) and uids(source) == {pod.uid for pod in world.pods}, 10.0)


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        (403, "permission", "the service account needs list and watch on pods (deploy/rbac.yaml)"),
        (401, "unauthorized", "without a token"),
        (500, "http_status", "HTTP status 500"),
        (429, "rate_limited", "429"),
    ],
)
async def test_a_refusal_says_what_to_do_and_its_end_is_noticed(
    server: SimulatedApi, connect: Connect, status: int, reason: str, text: str
) -> None:
    server.failure = (status, {})
    source = connect(await server.start())
    health = await settle(source)
    assert (health.up, health.reason) == (False, reason)
    assert text in f"{health.message}: {health.remedy}"
    server.failure = None
    await until(lambda: bool(source.health.up))


async def test_retry_after_is_heeded(server: SimulatedApi, connect: Connect) -> None:
    server.failure = (429, {"Retry-After": "1"})
    source = connect(await server.start())
    began = asyncio.get_running_loop().time()
    await settle(source)
    server.failure = None
    await until(lambda: bool(source.health.up))
    assert asyncio.get_running_loop().time() - began >= 1.0
    assert server.lists == 2


async def test_the_token_is_read_for_every_request(server: SimulatedApi, connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    source = connect(await server.start())
    await settle(source)
    await until(lambda: server.watches == 1)
    (tmp_path / "token").write_text("second\n")
    server.break_watches()
    await until(lambda: server.seen_tokens == {"Bearer first", "Bearer second"})
    assert "first" not in source.health.message


@pytest.mark.parametrize("version", kubernetes.SLICE_VERSIONS)
async def test_slices_in_every_version(connect: Connect, world: World, version: str) -> None:
    server = SimulatedApi(world, node_name=NODE, slice_version=version)
    source = connect(await server.start(), ApiSlices)
    try:
        assert (await settle(source)).up
        assert {key: device.uuid for key, device in source.devices.items()} == {
            ("gpu.nvidia.com", "gpu-node-1", f"gpu-{index}"): world.gpus[index].uuid for index in range(2)
        }
        assert server.lists == kubernetes.SLICE_VERSIONS.index(version) * 0 + 1
    finally:
        await server.stop()


async def test_slices_that_change(server: SimulatedApi, connect: Connect) -> None:
    def slice_of(name: str, generation: int, count: int, device: str, uuid: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name},
            "spec": {
                "driver": "gpu.nvidia.com",
                "pool": {"name": "p", "generation": generation, "resourceSliceCount": count},
                "devices": [{"name": device, "attributes": {"uuid": {"string": uuid}, "type": {"string": "gpu"}}}],
            },
        }

    server.slices = [slice_of("a", 1, 1, "gpu-0", "GPU-old")]
    source = connect(await server.start(), ApiSlices)
    await settle(source)

    def found() -> dict[str, str]:
        return {key[2]: device.uuid for key, device in source.devices.items()}

    assert found() == {"gpu-0": "GPU-old"}
    server.slices = [*server.slices, slice_of("b", 2, 2, "gpu-0", "GPU-new")]
    await until(lambda: "b" in source._slices)
    assert found() == {"gpu-0": "GPU-old"}
    server.slices = [*server.slices, slice_of("c", 2, 2, "gpu-1", "GPU-more")]
    await until(lambda: found() == {"gpu-0": "GPU-new", "gpu-1": "GPU-more"})
    server.slices = server.slices[:1]
    await until(lambda: found() == {"gpu-0": "GPU-old"})


@pytest.mark.parametrize("answer", [b"<html>", b"[]", json.dumps({"items": [5], "metadata": {}}).encode()])
async def test_noise_is_a_failure_that_says_so(connect: Connect, answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listener:
        source = connect(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        health = await settle(source)
        assert (health.up, health.reason) == (False, "garbage")
        await source.close()
