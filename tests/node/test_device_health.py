"""The health of held devices through the whole node role, by both sources of pods."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from aiohttp import web

from exporter.ownership import device_health
from exporter.sources.kubernetes.workloads import Workloads
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import GPU_RESOURCE, Container, Pod, SimulatedNode, World
from tests.support.waiting import PATIENCE_SECONDS, until

ROW = re.compile(r"^pod_gpu_device_health\{(.*)\} 1$", re.MULTILINE)
LEFT_OUT = "its device plugin no longer offers it"


@pytest.fixture
async def node() -> AsyncIterator[SimulatedNode]:
    """A pod holds both GPUs of the node."""
    simulated = SimulatedNode(World(gpus=2, seed=7))
    devices = tuple((GPU_RESOURCE, gpu.uuid) for gpu in simulated.world.gpus)
    container = Container(name="main", devices=devices)
    simulated.world.pods = (Pod(namespace="ml", name="train-0", uid="uid-0", containers=(container,)),)
    await simulated.start()
    yield simulated
    await simulated.stop()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as found:
        yield found


async def exporter_of(stack: AsyncExitStack, node: SimulatedNode, source: str, **more: str) -> Exporter:
    settings = {
        "kubelet_socket": str(node.socket),
        "kubelet_max_age": "0s",
        "dcgm_url": node.url,
        "accounting_interval": "100ms",
        **more,
    }
    if source != "nobody":
        settings |= {"labels_pod_uid": "on", "pods_source": source, "kubelet_pods_socket": str(node.pods_socket)}
        settings |= {"kubernetes_url": node.api_url}
    return await stack.enter_async_context(running(config_of(**settings)))


def ail(node: SimulatedNode, *ailing: tuple[str, str, str]) -> None:
    """What the kubelet says of the pod's devices from now on. An unhealthy one is not on offer."""
    (pod,) = node.world.pods
    (container,) = pod.containers
    node.world.change(pod, replace(pod, containers=(replace(container, ailing=ailing),)))
    unhealthy = {device_id for device_id, health, _ in ailing if health == "Unhealthy"}
    offer(node, *(gpu.uuid for gpu in node.world.gpus if gpu.uuid not in unhealthy))


def offer(node: SimulatedNode, *uuids: str) -> None:
    node.kubelet.offers = lambda: [(GPU_RESOURCE, uuid) for uuid in uuids]


async def words(exporter: Exporter) -> dict[str, str]:
    """By UUID."""
    rows = [dict(re.findall(r'(\w+)="([^"]*)"', row)) for row in ROW.findall((await exporter.get("/metrics"))[1])]
    assert all((row["namespace"], row["pod"], row["container"]) == ("ml", "train-0", "main") for row in rows)
    assert all((row["GPU_I_ID"], row["node"]) == ("", "gpu-node-1") for row in rows)
    return {row["UUID"]: row["health"] for row in rows}


async def objects(exporter: Exporter) -> dict[str, tuple[str | None, str | None]]:
    rows = json.loads((await exporter.get("/container/metrics"))[1])
    return {row["device_uuid"]: (row.get("health"), row.get("health_message")) for row in rows}


# issue 19, line 1
@pytest.mark.parametrize("source", ["kubelet", "api"])
async def test_unhealthy_with_a_message_well_again_and_unknown(
    node: SimulatedNode, stack: AsyncExitStack, source: str
) -> None:
    first, second = (gpu.uuid for gpu in node.world.gpus)
    exporter = await exporter_of(stack, node, source)
    both = {first: "Healthy", second: "Healthy"}

    async def says(expected: dict[str, str]) -> bool:
        return await words(exporter) == expected

    await until(lambda: says(both))
    assert await objects(exporter) == dict.fromkeys((first, second), ("ok", None))
    ail(node, (first, "Unhealthy", "Xid 79: the GPU has fallen off the bus"))
    await until(lambda: says(both | {first: "Unhealthy"}))
    assert await objects(exporter) == {
        first: ("failing", "Xid 79: the GPU has fallen off the bus"),
        second: ("ok", None),
    }
    ail(node)
    await until(lambda: says(both))
    assert await objects(exporter) == dict.fromkeys((first, second), ("ok", None))
    ail(node, (second, "Unknown", "no news for 30s"))
    await until(lambda: says(both | {second: "Unknown"}))
    assert (await objects(exporter))[second] == ("unknown", "no news for 30s")


# issue 19, line 1
@pytest.mark.parametrize("source", ["kubelet", "api", "nobody"])
async def test_a_device_that_its_plugin_no_longer_offers_is_unknown(
    node: SimulatedNode, stack: AsyncExitStack, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where pods are not read, that is all that is said."""
    monkeypatch.setattr(device_health, "GRACE_SECONDS", 0.5)
    first, second = (gpu.uuid for gpu in node.world.gpus)
    exporter = await exporter_of(stack, node, source)
    well = {} if source == "nobody" else {first: "Healthy", second: "Healthy"}

    async def says(expected: dict[str, str]) -> bool:
        return await words(exporter) == expected

    await exporter.until("/metrics", lambda text: "pod_gpu_allocated_seconds_total{" in text)
    await until(lambda: says(well))
    offer(node, second)
    await until(lambda: says(well | {first: "Unknown"}))
    health, message = (await objects(exporter))[first]
    assert health == "unknown"
    assert message is not None
    assert message.startswith(LEFT_OUT)
    offer(node)
    await until(lambda: says({first: "Unknown", second: "Unknown"}))
    offer(node, first, second)
    await until(lambda: says(well))


# issue 19, line 1
@pytest.mark.parametrize("source", ["kubelet", "api"])
async def test_a_kubelet_that_restarts_makes_no_row_flicker(
    node: SimulatedNode, stack: AsyncExitStack, source: str
) -> None:
    """As a real one: for a second no plugin is registered, and the unhealthy device is called healthy."""
    first, second = (gpu.uuid for gpu in node.world.gpus)
    exporter = await exporter_of(stack, node, source)
    sick = (first, "Unhealthy", "Xid 79")
    expected = {first: "Unhealthy", second: "Healthy"}
    ail(node, sick)

    async def is_shown() -> bool:
        return await words(exporter) == expected

    async def restart() -> None:
        await node.restart_kubelet(down_seconds=0.1, empty_seconds=0.3)
        ail(node)
        offer(node)
        await asyncio.sleep(0.3)
        offer(node, second)
        await asyncio.sleep(0.2)
        ail(node, sick)
        await asyncio.sleep(0.2)

    await until(is_shown)
    for _ in range(2):
        restarting = asyncio.create_task(restart())
        while not restarting.done():
            assert await words(exporter) == expected
            await asyncio.sleep(0.02)
        await restarting


# issue 22, line 5
@pytest.mark.parametrize("source", ["kubelet", "api"])
async def test_a_device_that_is_well_again_is_well_before_the_next_beat(
    node: SimulatedNode, stack: AsyncExitStack, source: str
) -> None:
    """The kubelet offers no unhealthy device. What it offered at the last beat is older than what its stream says."""
    first, second = (gpu.uuid for gpu in node.world.gpus)
    both = {first: "Healthy", second: "Healthy"}
    ail(node, (first, "Unhealthy", "Xid 79"))
    exporter = await exporter_of(stack, node, source, accounting_interval="1h")

    async def says(expected: dict[str, str]) -> bool:
        return await words(exporter) == expected

    await until(lambda: node.kubelet.calls_of_allocatable)
    await until(lambda: says(both | {first: "Unhealthy"}))
    ail(node)
    await until(lambda: says(both))
    assert await objects(exporter) == dict.fromkeys((first, second), ("ok", None))


# issue 22, line 5
async def test_a_device_that_is_offered_again_is_well_before_the_next_beat(
    node: SimulatedNode, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet has said Healthy of it all the time: no stream tells that its plugin is back."""
    monkeypatch.setattr(device_health, "GRACE_SECONDS", 0.5)
    first, second = (gpu.uuid for gpu in node.world.gpus)
    offer(node, second)
    exporter = await exporter_of(stack, node, "kubelet", accounting_interval="1h")

    async def says(word: str) -> bool:
        return await words(exporter) == {first: word, second: "Healthy"}

    await until(lambda: says("Unknown"))
    offer(node, first, second)
    await until(lambda: says("Healthy"))


# issue 22, line 5
async def test_scrapes_ask_what_is_offered_in_doubt_alone(node: SimulatedNode, stack: AsyncExitStack) -> None:
    first, second = (gpu.uuid for gpu in node.world.gpus)
    exporter = await exporter_of(stack, node, "kubelet", accounting_interval="1h", kubelet_max_age="1h")
    kubelet = node.kubelet

    async def says(word: str) -> bool:
        return await words(exporter) == {first: word, second: "Healthy"}

    await until(lambda: kubelet.calls_of_allocatable)
    await until(lambda: says("Healthy"))
    ail(node, (first, "Unhealthy", "Xid 79"))
    await until(lambda: says("Unhealthy"))
    ail(node)
    await until(lambda: says("Healthy"))
    assert kubelet.calls_of_allocatable == 1, "what was offered before is no reason to doubt it"
    # its plugin calls it healthy and does not list it: the last answer does not say so
    offer(node, second)
    for _ in range(3):
        assert await says("Healthy")
    assert kubelet.calls_of_allocatable == 1


# issue 22, line 5
async def test_a_look_that_waited_for_workloads_shows_devices_as_they_are_now(
    node: SimulatedNode, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else JSON says for half a second what /metrics no longer says."""
    first, second = (gpu.uuid for gpu in node.world.gpus)
    (pod,) = node.world.pods
    node.world.change(pod, replace(pod, owner=("ReplicaSet", "train-5d9f8")))
    asked, may_answer, answer_one = asyncio.Event(), asyncio.Event(), node.api.answer_one

    async def late(request: web.Request) -> web.Response:
        asked.set()
        await may_answer.wait()
        return await answer_one(request)

    monkeypatch.setattr(node.api, "answer_one", late)
    monkeypatch.setattr(Workloads, "patience_seconds", PATIENCE_SECONDS)
    await node.api.stop()
    node.api_url = await node.api.start()
    exporter = await exporter_of(stack, node, "kubelet")
    await until(lambda: words(exporter))
    waiting = asyncio.create_task(objects(exporter))
    await asked.wait()
    ail(node, (first, "Unhealthy", "Xid 79"))

    async def says() -> bool:
        return await words(exporter) == {first: "Unhealthy", second: "Healthy"}

    await until(says)
    assert not waiting.done()
    may_answer.set()
    assert await waiting == {first: ("failing", "Xid 79"), second: ("ok", None)}
