"""What is collected of a node: the peers' answers as they came, the files, and what the exporter says of them."""

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from exporter._gen import podresources_v1_pb2 as v1
from exporter.bundle.collecting.looking import CollectedMoments, collect
from exporter.bundle.recording import PeerAnswer, RecordedMoment
from exporter.sources.hearing import LISTENER
from tests.support.exporter import config_of
from tests.support.simulated import SimulatedNode, World


@pytest.fixture
async def mixed() -> AsyncIterator[SimulatedNode]:
    """Eight GPUs: whole ones, shares, MIG instances and claims."""
    simulated = SimulatedNode(World(gpus=8, mig=1, shared=2, claims=2, dynamic=1, seed=7))
    await simulated.start()
    yield simulated
    await simulated.stop()


async def collected_of(node: SimulatedNode, **settings: Any) -> CollectedMoments:
    seconds = {"for_seconds": settings.pop("for_seconds", 0.0), "every_seconds": 0.2}
    places = {
        "kubelet_socket": str(node.socket),
        "dcgm_url": node.url,
        "kubelet_pods_socket": str(node.pods_socket),
        "kubernetes_url": node.api_url,
        "kernel_log_mode": "on",
        "root": str(node.root),
    }
    return await collect(config_of(**{**places, **settings}), **seconds)


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
