"""The kubelet's Pods API against a simulated kubelet on a real socket."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from exporter._gen import pods_pb2 as messages
from exporter.errors import Malformed, Trouble
from exporter.model.pods import OwnerReference
from exporter.model.snapshot import Health
from exporter.simulator.pods_api import container_id, pod_message
from exporter.sources.kubelet.kubelet_pods import VERSIONS, PodsApi, parse_pod
from tests.support.clock import Clock
from tests.support.simulated import Pod, SimulatedPodsApi, World
from tests.support.waiting import until


@pytest.fixture
def world() -> World:
    return World(gpus=4, seed=3)


@pytest.fixture
async def kubelet(tmp_path: Path, world: World) -> AsyncIterator[SimulatedPodsApi]:
    simulated = SimulatedPodsApi(tmp_path / "pods.sock", lambda: world.pods)
    yield simulated
    await simulated.stop()


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[PodsApi]:
    made = PodsApi(socket=str(tmp_path / "pods.sock"), on_health=lambda _name, _health: None)
    yield made
    await made.close()


async def settle(source: PodsApi) -> Health:
    waiting = source.begin()
    if waiting is not None:
        await waiting
    return source.health


def uids(source: PodsApi) -> set[str]:
    return {pod.uid for pod in source.pods.values()}


def test_a_pod_is_read_as_far_as_it_is_needed(world: World) -> None:
    pod = world.pods[1]
    info = parse_pod(pod_message(pod))
    assert (info.namespace, info.name, info.uid, info.phase) == (pod.namespace, pod.name, pod.uid, "Running")
    assert dict(info.labels) == dict(pod.labels)
    assert info.owners == (
        OwnerReference(
            api_version="apps/v1",
            kind=pod.owner[0],
            name=pod.owner[1],
            uid=f"uid-of-{pod.owner[1]}",
            is_controller=True,
        ),
    )
    assert info.container_ids == {container.name: container_id(pod, container.name) for container in pod.containers}
    with pytest.raises(Malformed):
        parse_pod(b"\xff\xff\xff")


async def test_pods_are_added_changed_and_deleted(kubelet: SimulatedPodsApi, source: PodsApi, world: World) -> None:
    await kubelet.start()
    assert (await settle(source)).up
    assert uids(source) == {pod.uid for pod in world.pods}
    pod = world.pods[1]
    key = (pod.namespace, pod.name)
    world.relabel(pod, team="other")
    await until(lambda: source.pods[key].labels["team"] == "other")
    world.remove(world.pods[1])
    await until(lambda: key not in source.pods)
    unchanged = source.pods
    await asyncio.sleep(0.1)
    assert source.pods is unchanged
    assert source.begin() is None


async def test_a_pod_that_is_made_anew_under_its_name_is_the_new_one(
    kubelet: SimulatedPodsApi, source: PodsApi, world: World
) -> None:
    await kubelet.start()
    await settle(source)
    old = world.pods[1]
    new = world.recreate(old)
    await until(lambda: new.uid in uids(source))
    assert [named.pod.uid for named in source.pods_of_names[new.namespace, new.name]] == [old.uid, new.uid]
    assert old.uid not in uids(source)


# issue 7, line 2
async def test_a_starting_kubelet_that_has_sent_no_pod_yet_removes_none(
    kubelet: SimulatedPodsApi, source: PodsApi, world: World
) -> None:
    await kubelet.start()
    await settle(source)
    everything = uids(source)
    await kubelet.stop()
    await until(lambda: source.health.up is False)
    world.remove(world.pods[1])
    await kubelet.start(empty_seconds=0.3)
    await until(lambda: bool(source.health.up))
    assert uids(source) == everything, "INITIAL_SYNC_COMPLETE with no pod before it says nothing"
    world.relabel(world.pods[-1], team="other")
    changed = (world.pods[-1].namespace, world.pods[-1].name)
    await until(lambda: source.pods[changed].labels["team"] == "other")
    assert uids(source) == everything, "the one that is not told of has ten seconds"


# issue 22, line 8
async def test_each_remedy_while_the_kubelet_restarts_speaks_of_the_kubelet(
    kubelet: SimulatedPodsApi, tmp_path: Path
) -> None:
    troubles: list[Trouble] = []

    def note(_: str, health: Health) -> None:
        if health.trouble:
            troubles.append(health.trouble)

    source = PodsApi(socket=str(tmp_path / "pods.sock"), on_health=note)
    await kubelet.start()
    await settle(source)
    for _ in range(5):
        await kubelet.stop()
        await until(lambda: source.health.reason == "refused")
        await kubelet.start()
        await until(lambda: bool(source.health.up))
    await source.close()
    assert {trouble.reason for trouble in troubles} == {"unreachable", "refused"}
    assert all("restarting" in trouble.remedy for trouble in troubles), troubles
    assert not any("socket?" in trouble.remedy for trouble in troubles)


# issue 7, line 2
async def test_a_kubelet_started_without_the_api_server_tells_of_static_pods(
    kubelet: SimulatedPodsApi, source: PodsApi, world: World
) -> None:
    world.pods = (*world.pods, Pod(namespace="kube-system", name="etcd-n", uid="static", containers=(), is_static=True))
    await kubelet.start()
    await settle(source)
    everything = uids(source)
    clock = Clock(time.monotonic)
    source._clock = clock
    await kubelet.stop()
    kubelet.api_away = True
    await until(lambda: source.health.up is False)
    await kubelet.start()
    await until(lambda: bool(source.health.up))
    clock.ahead = 590.0
    assert uids(source) == everything
    clock.ahead = 610.0
    assert uids(source) == {"static"}
    kubelet.api_away = False
    await until(lambda: uids(source) == everything)


# issue 7, line 42
async def test_a_pod_that_has_ended_is_deleted_here_a_while_later(
    tmp_path: Path, source: PodsApi, world: World
) -> None:
    kubelet = SimulatedPodsApi(tmp_path / "pods.sock", lambda: world.pods, deleted_after_seconds=0.1)
    await kubelet.start()
    try:
        await settle(source)
        ended = world.end(world.pods[1])
        key = (ended.namespace, ended.name)
        await until(lambda: source.pods[key].phase == "Succeeded")
        await until(lambda: key not in source.pods)
        assert [named.pod.uid for named in source.pods_of_names[key]] == [ended.uid]
        kubelet.break_streams()
        await until(lambda: key in source.pods)
        assert source.pods[key].phase == "Succeeded"
        # a restarted kubelet tells of it, and that it is gone
        await kubelet.stop()
        await until(lambda: source.health.up is False)
        kubelet.api_away = True
        await kubelet.start()
        await until(lambda: bool(source.health.up))
        kubelet.api_away = False
        await until(lambda: key not in source.pods)
        assert uids(source) == {pod.uid for pod in world.listed}
    finally:
        await kubelet.stop()


async def test_a_stream_that_ends_is_opened_again(kubelet: SimulatedPodsApi, source: PodsApi, world: World) -> None:
    await kubelet.start()
    await settle(source)
    for _ in range(3):
        kubelet.break_streams()
        await until(lambda: source.health.up is False)
        await until(lambda: bool(source.health.up))
    world.step()
    await until(lambda: uids(source) == {pod.uid for pod in world.pods})


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_of_the_package_is_understood(
    tmp_path: Path, world: World, source: PodsApi, version: str
) -> None:
    kubelet = SimulatedPodsApi(tmp_path / "pods.sock", lambda: world.pods, version=version)
    await kubelet.start()
    try:
        assert (await settle(source)).up
        assert uids(source) == {pod.uid for pod in world.pods}
    finally:
        await kubelet.stop()


async def test_why_it_fails(tmp_path: Path, world: World, source: PodsApi) -> None:
    health = await settle(source)
    assert (health.up, health.reason) == (False, "missing")
    assert "--kubelet.pods-socket" in health.remedy
    kubelet = SimulatedPodsApi(tmp_path / "pods.sock", lambda: world.pods, version="v9")
    await kubelet.start()
    try:
        await until(lambda: source.health.reason == "unimplemented")
        assert "serves no Pods API that is known (v1, v1beta1, v1alpha1)" in source.health.message
    finally:
        await kubelet.stop()


async def test_a_fault_of_our_own_is_logged_and_costs_this_source_alone(
    kubelet: SimulatedPodsApi, source: PodsApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await kubelet.start()
    monkeypatch.setattr(source, "_take", lambda _: 1 / 0)
    health = await settle(source)
    assert (health.up, health.reason) == (False, "garbage")
    assert "a fault of the exporter itself: ZeroDivisionError" in health.message
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    await until(lambda: bool(source.health.up))


async def test_noise_on_the_stream(tmp_path: Path, source: PodsApi, monkeypatch: pytest.MonkeyPatch) -> None:
    event = messages.WatchPodsEvent(type=messages.ADDED, pod=b"\xff\xff\xff").SerializeToString()
    kubelet = SimulatedPodsApi(tmp_path / "pods.sock", tuple)

    async def noise(_request: bytes, _context: object) -> AsyncIterator[bytes]:
        yield event

    monkeypatch.setattr(kubelet, "watch", noise)
    await kubelet.start()
    try:
        assert ((await settle(source)).up, source.health.reason) == (False, "garbage")
    finally:
        await kubelet.stop()
