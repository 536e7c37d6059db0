"""The simulated kubelet behaves as the recorded ones did."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from exporter._gen import podresources_v1_pb2 as v1
from exporter.model.devices import Claim
from exporter.sources.kubelet.assignments import LIST_METHODS
from exporter.sources.kubelet.socket import open_channel
from tests.support.simulated import Container, Pod, SimulatedKubelet

GPU = "nvidia.com/gpu"


def pod(name: str, *devices: str, init: str = "", running: bool = True) -> Pod:
    held = Container(name="main", devices=tuple((GPU, device) for device in devices), running=running)
    before = (Container(name="warm", devices=((GPU, init),)),) if init else ()
    return Pod(namespace="ml", name=name, uid=name, containers=(held,), init_containers=before)


PODS = (
    pod("four", "GPU-1", "GPU-2", "GPU-3", "GPU-4"),
    pod("handover", "GPU-5", init="GPU-5"),
    pod("init-only", init="GPU-6"),
    pod("crash-loop", "GPU-7", running=False),
    replace(pod("static-node"), owner=("Node", "node")),
)


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[SimulatedKubelet]:
    simulated = SimulatedKubelet(tmp_path / "kubelet.sock", lambda: PODS)
    yield simulated
    await simulated.stop()


async def answer_of(kubelet: SimulatedKubelet) -> v1.ListPodResourcesResponse:
    """One answer."""
    channel = open_channel(str(kubelet._socket))
    try:
        call = channel.unary_unary(
            LIST_METHODS["v1"], request_serializer=lambda body: body, response_deserializer=lambda body: body
        )
        body: bytes = await call(b"", wait_for_ready=True)
    finally:
        await channel.close()
    return v1.ListPodResourcesResponse.FromString(body)


async def asked(kubelet: SimulatedKubelet) -> dict[str, list[str]]:
    """The device ids of the pods in one answer, in its order."""
    answer = await answer_of(kubelet)
    return {
        pod.name: [device_id for container in pod.containers for of in container.devices for device_id in of.device_ids]
        for pod in answer.pod_resources
    }


# issue 7, line 42
async def test_every_answer_has_an_order_of_its_own(kubelet: SimulatedKubelet) -> None:
    await kubelet.start()
    answers = [await asked(kubelet) for _ in range(20)]
    assert len({tuple(answer) for answer in answers}) > 3
    assert len({tuple(answer["four"]) for answer in answers}) > 3
    assert {frozenset(answer["four"]) for answer in answers} == {frozenset({"GPU-1", "GPU-2", "GPU-3", "GPU-4"})}


# issue 7, line 42
async def test_init_containers_are_not_listed_and_the_container_after_them_is(kubelet: SimulatedKubelet) -> None:
    await kubelet.start()
    answer = await asked(kubelet)
    assert (answer["handover"], answer["init-only"]) == (["GPU-5"], [])


# issue 7, line 42
async def test_a_restart_is_as_it_was_measured(kubelet: SimulatedKubelet) -> None:
    await kubelet.start()
    began = time.monotonic()
    await kubelet.restart(down_seconds=0.0)
    while not await asked(kubelet):
        await asyncio.sleep(0.02)
    assert time.monotonic() - began > 0.3


# issue 7, line 42
async def test_without_its_plugin_it_rejects_pods_that_need_it_again_for_good(kubelet: SimulatedKubelet) -> None:
    await kubelet.start()
    await kubelet.restart(down_seconds=0.0, empty_seconds=0.0, partial_seconds=0.0, plugin=False)
    assert set(await asked(kubelet)) == {"four", "static-node"}
    await kubelet.restart(down_seconds=0.0, empty_seconds=0.0, partial_seconds=0.0)
    assert set(await asked(kubelet)) == {"four", "static-node"}


# issue 7, line 3
async def test_without_the_api_server_it_lists_nothing_only_if_it_starts_so(kubelet: SimulatedKubelet) -> None:
    await kubelet.start()
    assert len(await asked(kubelet)) == len(PODS)
    kubelet.api_away = True
    assert len(await asked(kubelet)) == len(PODS)
    await kubelet.restart(down_seconds=0.0, empty_seconds=0.0, partial_seconds=0.0)
    assert await asked(kubelet) == {"static-node": []}
    kubelet.api_away = False
    assert len(await asked(kubelet)) == len(PODS)


DEVICES = tuple(
    Claim(namespace="ml", name="both", driver="d", pool="p", device=device, cdi_names=(f"cdi-{device}",))
    for device in ("gpu-6", "gpu-7")
)
ON_ONE_CLAIM = tuple(
    Pod(namespace="ml", name=name, uid=name, containers=(Container(name="main", claims=DEVICES),)) for name in "abcd"
)


# issue 22, line 2
async def test_a_claims_devices_are_listed_for_each_time_that_it_was_prepared(tmp_path: Path) -> None:
    pods = ON_ONE_CLAIM[:1]
    kubelet = SimulatedKubelet(tmp_path / "kubelet.sock", lambda: pods)
    await kubelet.start()

    async def listed() -> list[tuple[str, int]]:
        """The devices of the claim, each with the number of its CDI names."""
        entries = (await answer_of(kubelet)).pod_resources[0].containers[0].dynamic_resources[0].claim_resources
        return [(entry.device_name, len(entry.cdi_devices)) for entry in entries]

    async def restarted() -> None:
        await kubelet.restart(down_seconds=0.0, empty_seconds=0.0, partial_seconds=0.0)

    once, again = [("gpu-6", 1), ("gpu-7", 2)], [("gpu-6", 3), ("gpu-7", 4)]
    try:
        assert await listed() == once
        pods = ON_ONE_CLAIM[:2]
        assert await listed() == once, "a later pod does not have it prepared"
        await restarted()
        assert await listed() == once, "as recorded"
        pods = ON_ONE_CLAIM[:3]
        assert await listed() == [*once, *again]
        pods = ON_ONE_CLAIM[2:3]
        assert await listed() == [*once, *again], "as long as the claim lives"
        pods = ()
        assert not (await answer_of(kubelet)).pod_resources
        pods = ON_ONE_CLAIM[:2]
        assert await listed() == [*once, *again], "two started on it together"
    finally:
        await kubelet.stop()
