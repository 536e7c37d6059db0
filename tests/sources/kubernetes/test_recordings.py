"""Recorded streams of a real Kubernetes (1.36.2), played into the sources with their own clock."""

import base64
import gzip
import json
from datetime import datetime
from typing import Any

import pytest

from exporter._gen import pods_pb2 as messages
from exporter.model.devices import Assignment, Claim
from exporter.model.pods import ContainerEnd, Owner, PodContainer
from exporter.sources.kubelet.kubelet_pods import CONFIG_SOURCE, PodsApi, parse_pod
from exporter.sources.kubernetes.api import KubernetesApi
from exporter.sources.kubernetes.node_objects import ApiSlices, read_pod
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


# issue 26, part 4
def test_recorded_ends_of_containers() -> None:
    ends: dict[str, ContainerEnd] = {}
    for event in pods_events("kubelet-restart"):
        if event["event"] in ("ADDED", "MODIFIED"):
            pod = parse_pod(messages.WatchPodsEvent.FromString(base64.b64decode(event["body"])).pod)
            ends |= {end.id: end for end in pod.ends.values()}
            if pod.name == "crash-loop":
                (end,) = pod.ends.values()
                assert (end.exit_code, end.reason, end.is_ordered) == (1, "Error", False)
    assert {(end.exit_code, end.reason) for end in ends.values()} >= {(0, "Completed"), (1, "Error"), (3, "Error")}
    assert all(end.at_seconds > 1_795_302_000 and end.id.startswith("containerd://") for end in ends.values())


# a status of 1.36, whose pod somebody deletes with a grace period of 30 s, asked for at 12:00:00
_TERMINATED = {"exitCode": 1, "reason": "Error", "finishedAt": "2026-11-21T12:00:10Z", "containerID": "containerd://a"}


@pytest.mark.parametrize(
    ("metadata", "reason", "is_ordered"),
    [
        ({}, "", False),
        ({"deletionTimestamp": "2026-11-21T12:00:40Z", "deletionGracePeriodSeconds": 30}, "", True),
        ({"deletionTimestamp": "2026-11-21T12:00:41Z", "deletionGracePeriodSeconds": 30}, "", False),  # after its end
        ({"deletionTimestamp": "2026-11-21T12:00:10Z", "deletionGracePeriodSeconds": 0}, "", True),
        ({}, "Evicted", True),
        ({}, "Preempting", True),
    ],
)
@pytest.mark.parametrize("place", ["state", "lastState"])
def test_the_end_of_a_container(place: str, metadata: dict[str, Any], reason: str, is_ordered: bool) -> None:
    status = {"name": "main", "state": {"running": {}}, "lastState": {}, place: {"terminated": _TERMINATED}}
    pod = {"metadata": metadata, "status": {"reason": reason, "containerStatuses": [status]}}
    expected = ContainerEnd(
        id="containerd://a",
        exit_code=1,
        reason="Error",
        at_seconds=_seconds("2026-11-21T12:00:10Z"),
        is_ordered=is_ordered,
    )
    assert read_pod(pod).ends == {"main": expected}
    assert parse_pod(of_kubelet(metadata, reason, place).SerializeToString()).ends == {"main": expected}


def of_kubelet(metadata: dict[str, Any], reason: str, place: str) -> messages.Pod:
    """The same pod as the kubelet sends it."""
    pod = messages.Pod()
    if metadata:
        pod.metadata.deletionTimestamp.seconds = _seconds(metadata["deletionTimestamp"])
        pod.metadata.deletionGracePeriodSeconds = metadata["deletionGracePeriodSeconds"]
    pod.status.reason = reason
    status = pod.status.containerStatuses.add(name="main")
    terminated = getattr(status, place).terminated
    terminated.exitCode = 1
    terminated.reason = "Error"
    terminated.containerID = "containerd://a"
    terminated.finishedAt.seconds = _seconds("2026-11-21T12:00:10Z")
    return pod


def _seconds(time: str) -> int:
    return round(datetime.fromisoformat(time).timestamp())


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
