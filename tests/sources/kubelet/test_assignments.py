"""The kubelet source against a simulated kubelet on a real socket."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from exporter.config.node_settings import KubeletSettings
from exporter.model.snapshot import Health
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.telemetry import Telemetry
from tests.support.clock import Clock
from tests.support.simulated import Container, Pod, SimulatedKubelet, World
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def world() -> World:
    return World(gpus=4, seed=3)


@pytest.fixture
async def kubelet(tmp_path: Path, world: World) -> AsyncIterator[SimulatedKubelet]:
    simulated = SimulatedKubelet(tmp_path / "kubelet.sock", lambda: world.pods)
    yield simulated
    await simulated.stop()


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Callable[..., KubeletSource]]:
    sources: list[KubeletSource] = []

    def build(**settings: Any) -> KubeletSource:
        of_the_kubelet: dict[str, Any] = {
            "socket": str(tmp_path / "kubelet.sock"),
            "timeout_seconds": 2.0,
            "max_age_seconds": 0.0,
            "max_stale_seconds": None,
        }
        for name in of_the_kubelet.keys() & settings.keys():
            of_the_kubelet[name] = settings.pop(name)
        others = {"resources": ("nvidia.com/*",), "on_health": lambda _name, _health: None, **settings}
        source = KubeletSource(settings=KubeletSettings(**of_the_kubelet), **others)
        sources.append(source)
        return source

    yield build
    for source in sources:
        await source.close()


Make = Callable[..., KubeletSource]


async def ask(source: KubeletSource) -> None:
    """Wait for the source's own word, however it turns out."""
    call = source.begin()
    if call is not None:
        await call


def pods_of(source: KubeletSource) -> set[str]:
    return {assignment.owner.pod for assignment in source.assignments}


def owners_in(world: World) -> set[str]:
    return {pod.name for pod in world.pods if any(container.devices for container in pod.containers)}


async def test_reads_who_holds_what(kubelet: SimulatedKubelet, make: Make, world: World) -> None:
    await kubelet.start()
    source = make()
    await ask(source)
    assert source.health.up is True
    assert pods_of(source) == owners_in(world)
    assert source.age_seconds is not None


async def test_only_the_resources_asked_for(kubelet: SimulatedKubelet, make: Make) -> None:
    await kubelet.start()
    source = make(resources=("amd.com/*",))
    await ask(source)
    assert source.assignments == frozenset()
    assert source.health.up is True


async def test_v1alpha1_where_v1_is_not_known(tmp_path: Path, make: Make, world: World) -> None:
    old = SimulatedKubelet(tmp_path / "kubelet.sock", lambda: world.pods, versions=("v1alpha1",))
    await old.start()
    source = make()
    await ask(source)
    await ask(source)
    assert pods_of(source) == owners_in(world)
    assert old.calls == 2
    await old.stop()


async def test_no_such_service(tmp_path: Path, make: Make) -> None:
    other = SimulatedKubelet(tmp_path / "kubelet.sock", list, versions=())
    await other.start()
    source = make()
    await ask(source)
    assert (source.health.up, source.health.reason) == (False, "unimplemented")
    await other.stop()


async def test_a_socket_that_is_not_there(make: Make) -> None:
    source = make()
    await ask(source)
    assert source.assignments == frozenset()
    assert (source.health.up, source.health.reason) == (False, "missing")
    assert "no socket in it" in source.health.message
    assert "--kubelet.socket" in source.health.remedy
    assert source.age_seconds is None


async def test_a_dead_socket(kubelet: SimulatedKubelet, make: Make, world: World) -> None:
    await kubelet.start()
    source = make()
    await ask(source)
    await kubelet.stop()
    async with asyncio.timeout(PATIENCE_SECONDS):
        # a call that meets the connection while it is being closed ends as unreachable; the next one is refused
        while source.health.reason != "refused":
            await ask(source)
            assert pods_of(source) == owners_in(world)
    assert source.health.up is False


@pytest.mark.parametrize(
    ("code", "details", "reason"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit", "rate_limited"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 4)", "oversize"),
        (grpc.StatusCode.INTERNAL, "oops", "garbage"),
        (grpc.StatusCode.UNAVAILABLE, "Permission denied", "permission"),
        (grpc.StatusCode.UNAVAILABLE, "Stream removed (Connection reset by peer)", "unreachable"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", "deadline"),
    ],
)
async def test_reasons(kubelet: SimulatedKubelet, make: Make, code: grpc.StatusCode, details: str, reason: str) -> None:
    await kubelet.start()
    kubelet.failure = (code, details)
    source = make()
    await ask(source)
    assert (source.health.up, source.health.reason) == (False, reason)


async def test_an_answer_past_the_receive_limit(kubelet: SimulatedKubelet, make: Make) -> None:
    await kubelet.start()
    kubelet.raw_answer = b"\n" * (65 * 1024 * 1024)
    source = make(timeout_seconds=10.0)
    await ask(source)
    assert (source.health.up, source.health.reason) == (False, "oversize")


async def test_an_answer_past_grpcs_own_limit_is_read(kubelet: SimulatedKubelet, make: Make, world: World) -> None:
    world.pods += tuple(
        Pod(namespace="n" * 200, name=f"{number}" + "p" * 200, containers=()) for number in range(12_000)
    )
    await kubelet.start()
    source = make(timeout_seconds=10.0)
    await ask(source)
    assert source.health.up is True, source.health
    assert pods_of(source) == owners_in(world)


async def test_garbage_instead_of_a_message(kubelet: SimulatedKubelet, make: Make, world: World) -> None:
    await kubelet.start()
    source = make()
    await ask(source)
    kubelet.raw_answer = b"\xff\xff"
    await ask(source)
    assert (source.health.up, source.health.reason) == (False, "garbage")
    assert pods_of(source) == owners_in(world)


async def test_something_else_on_the_socket(tmp_path: Path, make: Make) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)
            await writer.drain()
            # a client that still writes when its peer is gone sees a broken connection, as of a kubelet that restarts
            await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(answer, tmp_path / "kubelet.sock"):
        source = make(timeout_seconds=3.0)
        await ask(source)
    assert source.health.up is False
    assert source.health.reason in ("unreachable", "garbage", "deadline")
    if source.health.reason != "deadline":
        assert source.health.remedy.startswith("is this the kubelet's pod-resources socket?")


async def test_permission(kubelet: SimulatedKubelet, make: Make, tmp_path: Path) -> None:
    await kubelet.start()
    source = make()
    root = os.geteuid() == 0
    tmp_path.chmod(0)  # as the kubelet's folder is to everyone but root
    if root:
        os.seteuid(65534)
    try:
        await ask(source)
    finally:
        if root:
            os.seteuid(0)
        tmp_path.chmod(0o700)
    assert (source.health.up, source.health.reason) == (False, "permission")
    assert "run as uid 0" in source.health.remedy


async def test_a_fresh_answer_is_not_asked_for_again(kubelet: SimulatedKubelet, make: Make) -> None:
    await kubelet.start()
    clock = Clock()
    source = make(max_age_seconds=1.0, clock=clock)
    for _ in range(5):
        await ask(source)
    assert kubelet.calls == 1
    clock.ahead += 1.0
    await ask(source)
    assert kubelet.calls == 2


async def test_concurrent_readers_share_a_call(kubelet: SimulatedKubelet, make: Make) -> None:
    await kubelet.start()
    source = make()
    await asyncio.gather(*(ask(source) for _ in range(50)))
    assert kubelet.calls == 1


async def test_a_crowd_does_not_storm_a_failing_kubelet(kubelet: SimulatedKubelet, make: Make) -> None:
    await kubelet.start()
    kubelet.failure = (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    clock = Clock()
    source = make(max_age_seconds=1.0, clock=clock)
    for _ in range(100):
        await ask(source)
        clock.ahead += 0.01
    assert kubelet.calls <= 2


async def test_the_call_in_flight_outlives_the_reader_who_could_not_wait(
    kubelet: SimulatedKubelet, make: Make, world: World
) -> None:
    await kubelet.start()
    kubelet.stall()
    source = make()
    call = source.begin()
    assert call is not None
    await asyncio.wait((call,), timeout=0.05)
    assert not call.done()
    kubelet.resume()
    await ask(source)
    assert pods_of(source) == owners_in(world)
    assert kubelet.calls == 1


async def test_a_hanging_kubelet_is_given_up_after_the_timeout(kubelet: SimulatedKubelet, make: Make) -> None:
    await kubelet.start()
    source = make(timeout_seconds=0.2)
    kubelet.stall()
    await ask(source)
    assert source.health.reason == "deadline"


async def test_health_is_told(kubelet: SimulatedKubelet, make: Make) -> None:
    heard: list[tuple[str, Health]] = []
    source = make(on_health=lambda name, health: heard.append((name, health)))
    await ask(source)
    assert [(name, health.up, health.reason) for name, health in heard] == [("kubelet", False, "missing")]


@pytest.mark.parametrize(
    ("failure", "max_stale", "holds_for"),
    [
        ((grpc.StatusCode.UNAVAILABLE, "Connection refused"), None, 600.0),
        ((grpc.StatusCode.INTERNAL, "oops"), None, 60.0),
        ((grpc.StatusCode.UNAVAILABLE, "Connection refused"), 5.0, 5.0),
    ],
)
async def test_owners_hold_while_the_kubelet_fails_and_then_are_dropped(
    kubelet: SimulatedKubelet,
    make: Make,
    failure: tuple[grpc.StatusCode, str],
    max_stale: float | None,
    holds_for: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await kubelet.start()
    clock = Clock()
    source = make(clock=clock, max_stale_seconds=max_stale)
    await ask(source)
    held = source.assignments
    assert held
    kubelet.failure = failure
    clock.ahead += holds_for
    await ask(source)
    assert source.assignments is held
    clock.ahead += 0.1
    await ask(source)
    assert source.assignments == frozenset()
    assert [record.getMessage() for record in caplog.records] == ["owners dropped"]


async def test_a_restart_between_two_calls_is_noticed_on_the_socket_file(
    kubelet: SimulatedKubelet, make: Make, world: World
) -> None:
    await kubelet.start()
    source = make()
    await ask(source)
    held = pods_of(source)
    # nobody asked while it was down: no failure was seen, and List is empty now
    await kubelet.restart(down_seconds=0.0, empty_seconds=60.0, partial_seconds=0.0)
    while not source.health.up or kubelet.calls < 2:
        await ask(source)
        await asyncio.sleep(0.05)
    assert pods_of(source) == held == owners_in(world)


def texts_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


async def restart(kubelet: SimulatedKubelet, source: KubeletSource, *, empty_seconds: float = 0.0) -> None:
    """A restart between two calls of the source, which then asks until it is answered again."""
    await kubelet.restart(down_seconds=0.0, empty_seconds=empty_seconds, partial_seconds=0.0)
    calls = kubelet.calls
    async with asyncio.timeout(PATIENCE_SECONDS):
        while kubelet.calls == calls:
            await ask(source)
            await asyncio.sleep(0.02)
    assert source.health.up is True


# issue 7, line 3
async def test_the_last_word_of_a_kubelet_without_its_api_server_holds(
    kubelet: SimulatedKubelet, make: Make, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await kubelet.start()
    clock = Clock()
    source = make(clock=clock, on_health=Telemetry().note_health)
    await ask(source)
    assert (source.health.reason, source.health.message, source.unlisted) == ("", "", frozenset())
    held = source.assignments
    kubelet.api_away = True
    await restart(kubelet, source)
    for _ in range(59):
        clock.ahead += 10.0
        await ask(source)
        assert source.assignments is held
    assert (source.health.up, source.health.reason) == (True, "no_pods")
    assert "cannot reach the API server; the last known owners are kept" in source.health.message
    # so that an alert on the age of what owners are taken from says it, too
    assert source.age_seconds == 590.0
    assert {pod for _, pod in source.unlisted} == owners_in(world)
    kubelet.api_away = False
    await ask(source)
    assert source.assignments is held
    assert (source.health.reason, source.health.message, source.unlisted) == ("", "", frozenset())
    assert source.age_seconds == 0.0
    assert texts_of(caplog)[-1] == "source answers, but"
    assert "owners dropped" not in texts_of(caplog)


# issue 7, line 3
@pytest.mark.parametrize(("max_stale", "holds_for"), [(None, 600.0), (30.0, 30.0)])
async def test_the_log_says_when_the_owners_of_an_old_answer_are_dropped(
    kubelet: SimulatedKubelet,
    make: Make,
    max_stale: float | None,
    holds_for: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await kubelet.start()
    clock = Clock()
    source = make(clock=clock, max_stale_seconds=max_stale)
    await ask(source)
    kubelet.api_away = True
    await restart(kubelet, source)
    clock.ahead += holds_for
    await ask(source)
    assert source.assignments
    clock.ahead += 0.1
    await ask(source)
    assert source.assignments == frozenset()
    assert [(record.getMessage(), record.fields["older_than_seconds"]) for record in caplog.records] == [  # type: ignore[attr-defined] # what telemetry.log adds
        ("owners dropped", holds_for)
    ]
    assert (source.health.up, source.health.reason) == (True, "no_pods")
    assert "kept" not in source.health.message


# issue 7, line 3
async def test_a_kubelet_with_only_static_pods_has_not_reached_its_api_server(
    kubelet: SimulatedKubelet, make: Make, world: World
) -> None:
    await kubelet.start()
    clock = Clock()
    source = make(clock=clock, node="gpu-node-1")
    await ask(source)
    held, pods = source.assignments, world.pods
    world.pods = (Pod(namespace="kube-system", name="kube-proxy-gpu-node-1", containers=()),)
    await restart(kubelet, source)
    clock.ahead += 60.0
    await ask(source)
    assert source.assignments is held
    assert source.health.reason == "no_pods"
    world.pods = pods
    await ask(source)
    assert (source.assignments is held, source.health.reason) == (True, "")


async def test_a_node_that_never_had_a_pod_is_no_failure(kubelet: SimulatedKubelet, make: Make, world: World) -> None:
    world.pods = ()
    await kubelet.start()
    source = make()
    await ask(source)
    assert (source.health.up, source.health.reason) == (True, "no_pods")
    assert "or the node has none" in source.health.message
    assert source.age_seconds is not None


# issue 7, line 4
@pytest.mark.parametrize(("ago", "is_kept"), [(4.0, True), (11.0, False)])
async def test_a_pod_that_went_with_the_kubelet_down_is_shown_for_the_grace(
    kubelet: SimulatedKubelet, make: Make, world: World, ago: float, is_kept: bool
) -> None:
    await kubelet.start()
    clock = Clock()
    wall_clock = Clock(time.time)
    source = make(clock=clock, wall_clock=wall_clock)
    await ask(source)
    gone = next(pod for pod in world.pods if any(container.devices for container in pod.containers))
    world.remove(gone)
    clock.ahead += 60.0
    wall_clock.ahead = ago
    await restart(kubelet, source)
    assert (gone.name in pods_of(source)) is is_kept
    assert ((gone.namespace, gone.name) in source.unlisted) is is_kept
    clock.ahead += 10.0 - ago
    await ask(source)
    assert gone.name not in pods_of(source)
    assert pods_of(source) == owners_in(world)


# issue 7, line 4
async def test_restart_after_restart_a_pod_that_went_is_not_shown_anew(
    kubelet: SimulatedKubelet, make: Make, world: World
) -> None:
    await kubelet.start()
    clock = Clock()
    source = make(clock=clock)
    await ask(source)
    gone = next(pod for pod in world.pods if any(container.devices for container in pod.containers))
    world.remove(gone)
    shown = 0.0
    for _ in range(5):
        await restart(kubelet, source, empty_seconds=0.1)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while source.health.reason:
                await ask(source)
        for _ in range(4):
            shown += 1.0 if gone.name in pods_of(source) else 0.0
            clock.ahead += 1.0
            await ask(source)
    assert shown == 10.0
    assert pods_of(source) == owners_in(world)


async def test_the_end_of_the_last_pod_is_no_loss_to_be_logged(
    kubelet: SimulatedKubelet, make: Make, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await kubelet.start()
    source = make()
    await ask(source)
    world.pods = ()
    await ask(source)
    assert (source.assignments, texts_of(caplog)) == (frozenset(), [])


# issue 7, line 42
async def test_the_same_answer_in_another_order_changes_nothing(
    kubelet: SimulatedKubelet, make: Make, world: World
) -> None:
    nics = tuple(("example.com/nic", f"eth{number}") for number in range(4))
    world.pods += (Pod(namespace="net", name="router", containers=(Container(name="main", devices=nics),)),)
    await kubelet.start()
    source = make()
    await ask(source)
    held, outside = source.assignments, source.outside
    assert len(outside) == 4
    for _ in range(5):
        await ask(source)
        assert source.assignments is held
        assert source.outside is outside


async def test_while_the_kubelet_is_down_all_owners_are_only_kept(
    kubelet: SimulatedKubelet, make: Make, world: World
) -> None:
    await kubelet.start()
    source = make()
    await ask(source)
    assert source.unlisted == frozenset()
    await kubelet.stop()
    await ask(source)
    assert {pod for _, pod in source.unlisted} == owners_in(world)


async def test_a_lost_connection_is_a_reconnect_even_with_the_same_socket_file(
    kubelet: SimulatedKubelet, make: Make, world: World
) -> None:
    await kubelet.start()
    source = make()
    await ask(source)
    kubelet.failure = (grpc.StatusCode.UNAVAILABLE, "Stream removed")
    await ask(source)
    kubelet.failure, kubelet.raw_answer = None, b""
    await ask(source)
    assert source.health.up is True
    assert pods_of(source) == owners_in(world)


async def test_a_kubelet_that_was_only_rate_limiting_has_not_restarted(kubelet: SimulatedKubelet, make: Make) -> None:
    await kubelet.start()
    source = make()
    await ask(source)
    kubelet.failure = (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    await ask(source)
    kubelet.failure, kubelet.raw_answer = None, b""
    await ask(source)
    assert source.assignments == frozenset()
