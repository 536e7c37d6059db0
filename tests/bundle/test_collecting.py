"""What is collected of a node: the peers' answers as they came, the files, and what the exporter says of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from exporter._gen import podresources_v1_pb2 as v1
from exporter.bundle.collecting import looking as looking_at
from exporter.bundle.collecting.looking import CollectedMoments, collect
from exporter.bundle.recording import PeerAnswer, RecordedMoment
from exporter.node.first_look import look_at_now
from exporter.ownership.allocators.allocator_table import ANNOTATIONS
from exporter.simulator.allocators import ALLOCATORS
from exporter.sources.hearing import LISTENER
from exporter.sources.kubelet import device_checkpoint
from tests.support.bundles import MomentsMade, config_of_node
from tests.support.simulated import Container, SimulatedNode, World


@pytest.fixture
async def mixed() -> AsyncIterator[SimulatedNode]:
    """Eight GPUs: whole ones, shares, MIG instances and claims."""
    simulated = SimulatedNode(World(gpus=8, mig=1, shared=2, claims=2, dynamic=1, seed=7))
    await simulated.start()
    yield simulated
    await simulated.stop()


async def collected_of(node: SimulatedNode, **settings: Any) -> CollectedMoments:
    how = {
        "for_seconds": settings.pop("for_seconds", 0.0),
        "every_seconds": 0.2,
        "is_over": settings.pop("is_over", None),
    }
    return await collect(config_of_node(node, **settings), **how)


def the_answer(moment: RecordedMoment, question: str) -> PeerAnswer:
    (answer,) = [answer for answer in moment.answers if question in answer.question and not answer.trouble]
    return answer


async def test_all_peers_are_heard(mixed: SimulatedNode) -> None:
    collected = await collected_of(mixed, labels_pod_labels="app.*")
    (moment,) = collected.moments
    listed = v1.ListPodResourcesResponse.FromString(the_answer(moment, "/List").body)
    assert {pod.name for pod in listed.pod_resources} >= {pod.name for pod in mixed.world.pods if pod.devices}
    offered = v1.AllocatableResourcesResponse.FromString(the_answer(moment, "/GetAllocatableResources").body)
    assert {device.resource_name for device in offered.devices} >= {"nvidia.com/gpu"}
    page = the_answer(moment, mixed.url)
    assert (page.peer, page.name) == ("page", f"dcgm:{urlsplit(mixed.url).netloc}")
    assert b"DCGM_FI_DEV_GPU_TEMP" in page.body
    pods = json.loads(the_answer(moment, "v1alpha1.Pods/WatchPods").body)["items"]
    assert {pod["metadata"]["name"] for pod in pods} == {pod.name for pod in mixed.world.pods}
    owners = [answer for answer in moment.answers if "/replicasets/" in answer.question]
    assert {answer.peer for answer in owners} == {"kubernetes"}
    assert collected.report.works()
    assert moment.outputs.keys() == {
        "/gpu/metrics", "/container/metrics", "/metrics", "/metrics/nodes", "/metric", "/events", "/debug/mapping",
    }  # fmt: skip
    assert LISTENER.get() is None


# by the API server: no Pods API, and claims whose devices only ResourceSlices name
async def test_pods_and_slices_of_the_api_server(mixed: SimulatedNode) -> None:
    settings = {"pods_source": "api", "labels_pod_uid": "on", "dra": "on", "root": "/nonexistent"}
    (moment,) = (await collected_of(mixed, **settings)).moments
    pods = json.loads(the_answer(moment, "/api/v1/pods").body)["items"]
    assert {pod["metadata"]["name"] for pod in pods} == {pod.name for pod in mixed.world.pods}
    slices = json.loads(the_answer(moment, "/resourceslices").body)["items"]
    assert {device["name"] for item in slices for device in item["spec"]["devices"]} >= {"gpu-0"}
    assert {answer.peer for answer in moment.answers} == {"kubelet", "page", "kubernetes"}


async def test_an_allocator_and_what_its_plugin_answered() -> None:
    node = SimulatedNode(World(gpus=4, seed=7, allocator=ALLOCATORS["hami"](seed=7)))
    node.has_device_checkpoint = True
    await node.start()
    try:
        collected = await collected_of(node)
    finally:
        await node.stop()
    (moment,) = collected.moments
    assert collected.report.works()
    pods = json.loads(the_answer(moment, "WatchPods").body)["items"]
    held = {key for pod in pods for key in pod["metadata"].get("annotations", {})}
    assert held <= ANNOTATIONS | {"kubernetes.io/config.source"}
    assert held & ANNOTATIONS
    entries = device_checkpoint.parse(moment.files["kubelet/device-plugins/kubelet_internal_checkpoint"])
    assert {entry.pod_uid for entry in entries} == {pod.uid for pod in node.world.pods if pod.devices}
    assert entries
    assert all(entry.given is not None for entry in entries)


@pytest.fixture
def moments_made(monkeypatch: pytest.MonkeyPatch) -> MomentsMade:
    return MomentsMade(monkeypatch)


async def test_what_changes_is_in_the_next_moment(mixed: SimulatedNode, moments_made: MomentsMade) -> None:
    """A pod goes while it looks."""
    over = asyncio.Event()
    how = {"for_seconds": 600.0, "is_over": over, "kubelet_max_age": "100ms"}
    looking = asyncio.create_task(collected_of(mixed, labels_pod_uid="on", **how))
    await moments_made.more(1)
    gone = mixed.world.pods[0]
    mixed.world.remove(gone)
    await moments_made.more(5)
    moments_made.end(over)
    collected = await looking
    first, *_, last = collected.moments
    assert gone.name.encode() in the_answer(first, "/List").body
    assert gone.name.encode() not in the_answer(last, "/List").body
    assert gone.name.encode() not in the_answer(last, "WatchPods").body
    times = [moment.at_seconds for moment in collected.moments]
    assert times == sorted(times)
    # what has not changed takes memory once
    version = "root/proc/driver/nvidia/version"
    assert first.files[version] is last.files[version]
    assert {id(moment.files["root/proc/driver/nvidia-caps/mig-minors"]) for moment in collected.moments} == {
        id(first.files["root/proc/driver/nvidia-caps/mig-minors"])
    }


async def test_the_page_of_a_pod_that_has_gone_is_in_no_later_moment(
    mixed: SimulatedNode, moments_made: MomentsMade
) -> None:
    page_pod = mixed.world.make.pod("gpu-operator", "dcgm-exporter", (Container(name="main"),), kind="DaemonSet")
    page_pod = replace(page_pod, ip="127.0.0.1")
    mixed.world.pods += (page_pod,)
    config = config_of_node(mixed, dcgm_url=[], dcgm_selector="auto", kubelet_max_age="100ms")
    config = replace(config, dcgm=replace(config.dcgm, port=urlsplit(mixed.url).port or 0))
    over = asyncio.Event()
    looking = asyncio.create_task(collect(config, for_seconds=600.0, every_seconds=0.2, is_over=over))
    await moments_made.more(1)
    mixed.world.remove(page_pod)
    await moments_made.more(5)
    moments_made.end(over)
    first, *_, last = (await looking).moments
    assert [answer.peer for answer in first.answers].count("page") == 1
    assert not [answer for answer in last.answers if answer.peer == "page"]


async def test_looks_that_take_long_are_fewer(mixed: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(*of_look: Any) -> Any:
        await asyncio.sleep(0.5)
        return await look_at_now(*of_look)

    monkeypatch.setattr(looking_at, "look_at_now", slow)
    collected = await collected_of(mixed, for_seconds=1.0)
    assert 1 <= len(collected.moments) <= 3


async def test_what_takes_too_much_ends_it(mixed: SimulatedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking_at, "budget_bytes", lambda _: 1_500_000)
    collected = await collected_of(mixed, for_seconds=600.0)
    assert len(collected.moments) > 1
    (lack,) = [absence for absence in collected.absences if absence.what == "later moments"]
    assert "reached 1 MiB of memory -> take the bundle with a shorter --for" in str(lack.why)


async def test_no_exporter_that_serves_has_a_listener(mixed: SimulatedNode) -> None:
    await collected_of(mixed)
    assert LISTENER.get() is None
