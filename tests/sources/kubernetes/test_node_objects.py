"""The Kubernetes API as a source, against a simulated API server on a real port."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import Malformed
from exporter.model.devices import Assignment, Claim, Taint
from exporter.model.pods import Owner
from exporter.model.snapshot import Health
from exporter.simulator.pods_api import container_id
from exporter.sources.kubernetes import api as kubernetes_api
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.kubernetes.node_objects import (
    SLICE_VERSIONS,
    ApiPods,
    ApiSlices,
    read_pod,
    read_slice,
)
from exporter.sources.resource_slices import MOST_SLICES
from tests.support.simulated import DRA_DRIVER, DRA_POOL, World
from tests.support.simulated_api import SimulatedApi
from tests.support.waiting import until

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
    found = read_pod({"metadata": {"name": "p", "creationTimestamp": time}}).created_at_seconds
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
    await until(lambda: source._version == str(server.version))
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
    await until(lambda: bool(source.health.up) and uids(source) == {pod.uid for pod in world.pods})


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
    refused, server.failure = server.lists, None
    await until(lambda: bool(source.health.up))
    assert asyncio.get_running_loop().time() - began >= 1.0
    assert server.lists == refused + 1


async def test_a_retry_after_that_is_no_number_ends_nothing(server: SimulatedApi, connect: Connect) -> None:
    server.failure = (429, {"Retry-After": "²"})
    source = connect(await server.start())
    health = await settle(source)
    assert (health.up, health.reason) == (False, "rate_limited")


async def test_the_token_is_read_for_every_request(server: SimulatedApi, connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    source = connect(await server.start())
    await settle(source)
    await until(lambda: server.watches == 1)
    (tmp_path / "token").write_text("second\n")
    server.break_watches()
    await until(lambda: server.seen_tokens == {"Bearer first", "Bearer second"})
    assert "first" not in source.health.message


@pytest.mark.parametrize("version", SLICE_VERSIONS)
async def test_slices_in_every_version(connect: Connect, world: World, version: str) -> None:
    server = SimulatedApi(world, node_name=NODE, slice_version=version)
    source = connect(await server.start(), ApiSlices)
    try:
        assert (await settle(source)).up
        assert {key: device.uuid for key, device in source.devices.items()} == {
            ("gpu.nvidia.com", "gpu-node-1", f"gpu-{index}"): world.gpus[index].uuid for index in range(2)
        }
        assert server.lists == SLICE_VERSIONS.index(version) * 0 + 1
    finally:
        await server.stop()


# issue 30, line 13
@pytest.mark.parametrize("is_basic", [False, True])
def test_taints_of_a_slice(*, is_basic: bool) -> None:
    """v1 keeps them in the device, v1beta1 in its field `basic`; a driver may give many, and long ones."""
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    fields = {"attributes": {"uuid": {"string": "GPU-1"}}, "taints": [taint, {"key": "k" * 999}, *[taint] * 99]}
    spec = {
        "driver": "d",
        "pool": {"name": "p"},
        "devices": [{"name": "g", **({"basic": fields} if is_basic else fields)}],
    }
    device = read_slice({"spec": spec}).devices["g"]
    assert device.taints[0] == Taint("NoExecute", "gpu.nvidia.com/xid", "79", 1_767_225_600.0)
    assert (str(device.taints[0]), device.taints[1].added_at) == ("gpu.nvidia.com/xid=79", 0.0)
    assert len(device.taints) <= 8
    assert all(len(f"{taint}") <= 257 for taint in device.taints)


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


def held(*devices: str) -> frozenset[Assignment]:
    claims = (Claim(namespace="ml", name="c", driver=DRA_DRIVER, pool=DRA_POOL, device=device) for device in devices)
    owner = Owner(namespace="ml", pod="train", container="main")
    return frozenset(
        Assignment(owner=owner, resource=DRA_DRIVER, device_id=claim.device_id, claim=claim) for claim in claims
    )


# issue 7, line 1
async def test_slices_that_a_starting_kubelet_wipes(server: SimulatedApi, connect: Connect) -> None:
    source = connect(await server.start(), ApiSlices)
    await settle(source)
    before = dict(source.devices_for(held("gpu-0")))
    assert len(before) == source.bounds["resourceslices"].used() == 2
    server.wipe_slices(away_seconds=0.3)
    await until(lambda: source.bounds["resourceslices"].used() == 0)
    assert source.devices_for(held("gpu-0")) == before
    assert source.bounds["resourceslice_devices_kept"].used() == 2, "also what nobody holds yet (issue 15, line 21)"
    await until(lambda: source.bounds["resourceslices"].used() == 2)
    assert source.devices_for(held("gpu-0")) == before
    assert source.bounds["resourceslice_devices_kept"].used() == 0


# issue 7, line 41: MOST_SLICES
async def test_slices_too_many(server: SimulatedApi, connect: Connect) -> None:
    def slices(count: int) -> list[dict[str, Any]]:
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        return [{"metadata": {"name": str(number)}, "spec": {"driver": "d", "pool": pool}} for number in range(count)]

    server.slices = slices(MOST_SLICES + 1)
    source = connect(await server.start(), ApiSlices)
    health = await settle(source)
    assert (health.up, health.reason) == (False, "oversize")
    assert (source.bounds["resourceslices"].used(), f"{MOST_SLICES + 1} ResourceSlices" in health.message) == (0, True)
    server.slices = slices(MOST_SLICES)
    await until(lambda: source.bounds["resourceslices"].used() == MOST_SLICES)
    with pytest.raises(Malformed, match=f"more than {MOST_SLICES}"):
        source._take({"type": "ADDED", "object": slices(MOST_SLICES + 1)[-1]})
    source._take({"type": "MODIFIED", "object": slices(1)[0]})
    assert source.bounds["resourceslices"].used() == MOST_SLICES


# issue 7, line 2
async def test_an_api_server_that_lists_nothing_after_it_started_over(
    server: SimulatedApi, connect: Connect, world: World
) -> None:
    source = connect(await server.start())
    await settle(source)
    everything, pods = uids(source), world.pods
    world.pods = ()
    server.forget()
    await until(lambda: server.lists == 2 and bool(source.health.up))
    await asyncio.sleep(0.1)
    assert uids(source) == everything
    world.pods = pods[1:]
    server.forget()
    await until(lambda: uids(source) == {pod.uid for pod in world.pods})


# issue 7, line 5
@pytest.mark.parametrize(
    ("status", "known_to_kubelet"),
    [
        # as the recorded scheduler left it, and what the recorded kubelet wrote first
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled"}], "qosClass": "BestEffort"}, False),
        ({}, False),
        ({"phase": "Pending", "startTime": "2026-11-21T23:08:28Z"}, True),
        ({"phase": "Pending", "containerStatuses": [{"name": "main", "state": {"waiting": {}}}]}, True),
        ({"phase": "Running"}, True),
    ],
)
def test_whether_the_kubelet_knows_a_pod(status: dict[str, Any], known_to_kubelet: bool) -> None:
    assert read_pod({"metadata": {"name": "p"}, "status": status}).is_acknowledged is known_to_kubelet


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


# issue 15, line 19
async def test_pages_hold_the_version_they_began_with_until_it_is_forgotten(
    server: SimulatedApi, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_api, "PAGE_OBJECTS", 2)
    server.slices = [{"metadata": {"name": f"s{number}"}, "spec": {"driver": "d"}} for number in range(5)]
    source = connect(await server.start(), ApiSlices)
    await settle(source)
    assert (source.bounds["resourceslices"].used(), server.lists) == (5, 1), (
        "of any version, the watch cache gives everything in one answer"
    )
    server.compact()
    await until(lambda: server.lists == 4)
    await until(lambda: bool(source.health.up) and server.watches == 2)
    path, limited = "/apis/resource.k8s.io/v1/resourceslices", {"fieldSelector": f"spec.nodeName={NODE}"}
    names: list[str] = []

    def read(item: Any) -> None:
        names.append(item["metadata"]["name"])
        if len(names) == 1:
            server.slices = server.slices[3:] if server.slices else None
        if len(names) == 4:
            server.compact()

    assert len((await source._api.list(path, limited, read))[0]) == 2
    assert names == ["s0", "s1", "s2", "s3", "s3", "s4"], "s2 and s3 of the first version, then anew"


# issue 15, line 19
@pytest.mark.parametrize("in_pages", [True, False])
async def test_large_pods_are_read_one_by_one_with_pages_and_without(connect: Connect, in_pages: bool) -> None:
    """The watch cache of a real API server has no pages: with resourceVersion=0 it sends the whole list at once."""
    count, size = 45, 1_300_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        query = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        first = int(query.partition("continue=")[2].partition("&")[0] or 0)
        last = min(first + 10, count) if in_pages else count
        metadata = {"resourceVersion": "7", **({"continue": str(last)} if last < count else {})}
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        writer.write(b'{"metadata": %b, "items": [' % json.dumps(metadata).encode())
        for number in range(first, last):
            pod = {"metadata": {"name": f"p{number}", "uid": f"u{number}", "annotations": {"a": "x" * size}}}
            writer.write(b"," * (number > first) + json.dumps(pod).encode())
            await writer.drain()
        writer.write(b"]}")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        source = connect(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        tracemalloc.start()
        assert (await settle(source)).up
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await source.close()
    assert len(source.pods) == count
    assert peak < count * size / 4, f"{peak / 2**20:.0f} MiB"
