"""Recorded streams of a real Kubernetes (1.36.2), played into the sources with their own clock."""

import base64
import gzip
import json
from typing import Any

import pytest

from exporter._gen import pods_pb2 as messages
from exporter.model.devices import Assignment, Claim
from exporter.model.pods import Owner, PodContainer
from exporter.sources.kubelet.kubelet_pods import CONFIG_SOURCE, PodsApi, parse_pod
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.kubernetes.node_objects import ApiSlices
from tests.support.clock import Clock
from tests.support.places import DATA

RECORDINGS = DATA / "kubernetes-1.36"


def pods_events(name: str) -> list[dict[str, Any]]:
    with gzip.open(RECORDINGS / f"watchpods-{name}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


# issue 7, lines 2 and 42
@pytest.mark.parametrize(
    ("name", "restarts", "longest_silence"), [("kubelet-restart", 2, 1.0), ("api-server-down", 1, 46.0)]
)
async def test_no_pod_is_lost_over_a_recorded_restart(name: str, restarts: int, longest_silence: float) -> None:
    silence, streams = 0.0, 0
    clock = Clock(lambda: 0.0)
    running: dict[str, dict[str, str]] = {}
    source = PodsApi(socket="/nowhere", on_health=lambda *_: None, clock=clock)
    silent_since: float | None = None
    sources: set[str | None] = set()
    for event in pods_events(name):
        now = clock.ahead = event["t"]
        if event["event"] == "stream":
            streams += 1
            source._table.open_stream()
            continue
        if "body" not in event:
            continue
        body = base64.b64decode(event["body"])
        source._take(body)
        if event["event"] == "INITIAL_SYNC_COMPLETE":
            silent_since = now
        elif silent_since is not None:
            silence, silent_since = max(silence, now - silent_since), None
        if event["event"] in ("ADDED", "MODIFIED"):
            pod = parse_pod(messages.WatchPodsEvent.FromString(body).pod)
            metadata = messages.Pod.FromString(messages.WatchPodsEvent.FromString(body).pod).metadata
            sources.add(metadata.annotations.get(CONFIG_SOURCE))
            assert not pod.is_static
            if pod.phase == "Running":
                running[pod.uid] = dict(pod.labels)
            else:
                running.pop(pod.uid, None)
        known = {pod.uid: dict(pod.labels) for pod in source.pods.values()}
        assert running.items() <= known.items()
    assert streams == 1 + restarts
    assert longest_silence - 0.5 < silence < longest_silence
    assert len(running) > 10
    assert "api" in sources, "the kubelet's note of where it has a pod from"


# issue 24, part 2
def test_recorded_pods_have_their_init_containers_before_their_containers() -> None:
    pods = (
        parse_pod(messages.WatchPodsEvent.FromString(base64.b64decode(event["body"])).pod)
        for event in pods_events("kubelet-restart")
        if event["event"] == "ADDED"
    )
    (containers,) = {pod.containers for pod in pods if pod.name == "init-handover"}
    gpu = frozenset({"nvidia.com/gpu"})
    assert containers == (
        PodContainer(name="warm", is_init=True, resources=gpu),
        PodContainer(name="main", resources=gpu),
    )


# issue 7, line 42
def test_a_recorded_deletion_carries_a_name_and_a_uid_alone() -> None:
    deleted = [
        parse_pod(messages.WatchPodsEvent.FromString(base64.b64decode(event["body"])).pod)
        for event in pods_events("kubelet-restart")
        if event["event"] == "DELETED"
    ]
    assert deleted
    for pod in deleted:
        assert pod.uid
        assert (pod.labels, pod.phase) == ({}, "")


# issue 7, line 1
async def test_no_device_is_lost_while_a_recorded_kubelet_wipes_the_slices() -> None:
    first, *events = map(json.loads, (RECORDINGS / "resourceslices-kubelet-restart.jsonl").read_text().splitlines())
    api = KubernetesApi(url="http://x", token_file="/x", ca_file="/x")
    source = ApiSlices(api=api, node_name="node1", on_health=lambda *_: None)
    source._replace([source._read(item) for item in first["list"]["items"]])
    before = dict(source.devices_for(()))
    assert len(before) == 5
    held = frozenset(
        Assignment(
            owner=Owner(namespace="ml", pod=f"pod-{device}", container="main"),
            resource=driver,
            device_id=f"{driver}/{pool}/{device}",
            claim=Claim(namespace="ml", name=device, driver=driver, pool=pool, device=device),
        )
        for driver, pool, device in before
    )
    counts = []
    for event in events:
        source._take(event)
        counts.append(source.bounds["resourceslices"].used())
        assert source.devices_for(held) == before
    assert counts == [1, 0, 1, 2, 2]
    assert source.bounds["resourceslice_devices_kept"].used() == 0
