"""GetAllocatableResources: a real kubelet's answers, and a simulated kubelet on a real socket."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest

from exporter._gen import podresources_v1_pb2 as v1
from exporter.config.node_settings import KubeletSettings
from exporter.errors import Malformed
from exporter.model.devices import DeviceKey
from exporter.ownership.retention import Retained
from exporter.simulator.kubelet import allocatable_response
from exporter.sources.kubelet import pod_resources
from exporter.sources.kubelet.allocatable import KubeletAllocatable, parse
from exporter.sources.kubelet.assignments import KeptAssignments
from exporter.sources.kubelet.pod_resources import MOST_ASSIGNMENTS
from tests.support.clock import Clock
from tests.support.owners import build_owners
from tests.support.places import DATA
from tests.support.simulated import SHARED_RESOURCE, SimulatedKubelet, World
from tests.support.waiting import PATIENCE_SECONDS

RECORDED = DATA / "kubelet-1.36.2"
GLOBS = ("nvidia.com/*",)
GPU = "GPU-076cc9f9-24d6-5a22-9dc8-fa05ce1f2d54"


def recorded(name: str) -> bytes:
    return (RECORDED / f"{name}.pb").read_bytes()


@pytest.mark.parametrize("name", ["allocatable", "allocatable-while-down", "allocatable-plugin-back"])
def test_a_real_kubelet_names_whole_gpus_and_every_share(name: str) -> None:
    offers = parse(recorded(name), GLOBS)
    assert {resource: len(ids) for resource, ids in offers.items()} == {"nvidia.com/gpu": 8, SHARED_RESOURCE: 4}
    assert parse(recorded(name), ("nvidia.com/gpu.*",)) == {SHARED_RESOURCE: {f"{GPU}::{n}": 1 for n in range(4)}}


def test_a_simulated_kubelet_answers_as_the_recorded_one() -> None:
    offers = parse(recorded("allocatable"), GLOBS)
    devices = [(resource, one) for resource, ids in offers.items() for one in sorted(ids)]
    assert parse(allocatable_response(devices), GLOBS) == offers
    assert allocatable_response(()) == recorded("allocatable-plugin-gone")


@pytest.mark.parametrize("body", [b"\xff\xff\xff", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_garbage_is_no_answer(body: bytes) -> None:
    with pytest.raises(Malformed, match="no AllocatableResourcesResponse"):
        parse(body, GLOBS)


def test_more_ids_than_a_node_can_have_are_refused_at_once() -> None:
    ids = [f"{GPU}::{number}" for number in range(MOST_ASSIGNMENTS + 1)]
    huge = v1.AllocatableResourcesResponse(
        devices=[v1.ContainerDevices(resource_name=SHARED_RESOURCE, device_ids=ids)]
    ).SerializeToString()
    with pytest.raises(Malformed) as raised:
        parse(huge, GLOBS)
    assert raised.value.reason == "oversize"
    assert parse(huge, ("amd.com/*",)) == {}


class Kubelet(SimulatedKubelet):
    """One that answers GetAllocatableResources with given bytes."""

    answer = b""

    async def answer_allocatable(self, *_: object) -> bytes:
        self.calls_of_allocatable += 1
        return self.answer


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[Kubelet]:
    simulated = Kubelet(tmp_path / "kubelet.sock", tuple)
    await simulated.start()
    yield simulated
    await simulated.stop()


def source_of(socket: Path, kept: KeptAssignments | None = None, clock: Clock | None = None) -> KubeletAllocatable:
    return KubeletAllocatable(
        settings=KubeletSettings(socket=str(socket), max_age_seconds=1.0, timeout_seconds=2.0, max_stale_seconds=None),
        resources=GLOBS,
        kept=kept or KeptAssignments(),
        on_health=lambda *_: None,
        clock=clock or Clock(),
    )


async def ask(source: KubeletAllocatable, clock: Clock) -> None:
    clock.ahead += 10.0
    asked = source.begin()
    assert asked
    await asked


def kept_with(list_name: str) -> KeptAssignments:
    listed = pod_resources.parse(recorded(list_name), resources=GLOBS)
    return KeptAssignments(retained=Retained(assignments=listed.assignments))


async def test_a_plugin_that_is_gone_makes_no_share_the_whole_gpu(kubelet: Kubelet, tmp_path: Path) -> None:
    clock, kept = Clock(), kept_with("before")
    source = source_of(tmp_path / "kubelet.sock", kept, clock)
    seen = []
    try:
        for name in (
            "allocatable",
            "allocatable-plugin-gone",
            "allocatable-plugin-gone-kubelet-restarted",
            "allocatable-plugin-back",
        ):
            kubelet.answer = recorded(name)
            await ask(source, clock)
            owners = build_owners(kept.retained.assignments, {}, None, source.allocatable)
            seen.append(owners.offered[SHARED_RESOURCE, DeviceKey(uuid=GPU)])
        assert seen == [4, 4, 4, 4]
        assert len(owners.holders[DeviceKey(uuid=GPU)]) == 3
        # what was known outlives this source, as the assignments do
        assert source_of(tmp_path / "kubelet.sock", kept).allocatable is source.allocatable
    finally:
        await source.close()


async def test_it_is_asked_no_more_often_than_the_kubelets_list(kubelet: Kubelet, tmp_path: Path) -> None:
    clock = Clock()
    source = source_of(tmp_path / "kubelet.sock", clock=clock)
    kubelet.answer = recorded("allocatable")
    try:
        await ask(source, clock)
        assert source.begin() is None
        known = source.allocatable
        await ask(source, clock)
        assert kubelet.calls_of_allocatable == 2
        assert source.allocatable is known
    finally:
        await source.close()


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("failing", ["gone", "failure", "garbage", "down"])
async def test_nothing_fails_where_the_kubelet_does_not_say(tmp_path: Path, failing: str, *, known: bool) -> None:
    world = World(gpus=2, shared=1, seed=3)
    kubelet = SimulatedKubelet(
        tmp_path / "kubelet.sock",
        lambda: world.listed,
        offers=lambda: [slot for gpu in world.gpus for slot in gpu.slots],
    )
    clock = Clock()
    source = source_of(tmp_path / "kubelet.sock", clock=clock)
    try:
        await kubelet.start()
        if known:
            await ask(source, clock)
            assert len(source.allocatable[SHARED_RESOURCE]) == 4
        before = source.allocatable
        match failing:
            case "gone":
                kubelet.gone = frozenset({"v1"})
            case "failure":
                kubelet.failure = (grpc.StatusCode.UNKNOWN, "Pod Resources API GetAllocatableResources disabled")
            case "garbage":
                kubelet.answer_allocatable = _garbage  # type: ignore[method-assign, assignment]
                await kubelet.restart(down_seconds=0.0, empty_seconds=0.0)
            case _:
                await kubelet.stop()
        await ask(source, clock)
        assert source.allocatable is before
        assert bool(before) is known
    finally:
        await source.close()
        await kubelet.stop()


async def _garbage(_: bytes, __: object) -> bytes:
    return b"\xff\xff\xff"


async def test_a_kubelet_of_1_20_says_nothing_and_that_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    versions: Sequence[str] = ("v1alpha1",)
    old = SimulatedKubelet(tmp_path / "kubelet.sock", tuple, versions=versions)
    await old.start()
    clock = Clock()
    source = source_of(tmp_path / "kubelet.sock", clock=clock)
    try:
        with caplog.at_level("INFO", "pod_gpu_exporter"):
            for _ in range(3):
                await asyncio.wait_for(ask(source, clock), PATIENCE_SECONDS)
        assert source.allocatable == {}
        assert caplog.text.count("does not say how many shares") == 1
    finally:
        await source.close()
        await old.stop()


def test_ids_that_count_units_offer_no_device() -> None:
    """A node of eight GPUs has some thousand of them: nothing is made of any."""
    devices = [("tencent.com/vcuda-core", f"tencent.com/vcuda-core-{number}") for number in range(800)]
    body = allocatable_response([*devices, ("nvidia.com/gpu", GPU)])
    assert parse(body, ("nvidia.com/*", "tencent.com/vcuda-*")) == {"nvidia.com/gpu": {GPU: 1}}
