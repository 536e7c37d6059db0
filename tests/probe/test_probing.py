"""What the CUDA probe counts, made the containers' own: beside the looks, and on the pages of a node."""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from exporter.model.cuda import CudaCounts, CudaDevice, CudaProcess, CudaReading, CudaUses, ProcessId, SeenProcess
from exporter.model.devices import DeviceKey, Holder, Inventory, InventoryGpu, Owners
from exporter.model.measured import ProcessPlace
from exporter.model.pods import Owner, PodInfo
from exporter.model.snapshot import Health, Snapshot
from exporter.node.role import NODE
from exporter.probe import probe_source
from exporter.probe.cuda_ledger import CudaTotals
from exporter.probe.probing import Probing
from exporter.service import Service
from exporter.simulator.pods_api import container_id
from exporter.sources.source import Attempt, Bound
from tests.support.exporter import config_of, running
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until

SECOND = 1_000_000_000
A = Owner(namespace="ml", pod="a", container="main")
GPU = DeviceKey(uuid="GPU-1")
ID, UID = "aa" * 32, "0f5b2c31-7d0e-4a52-9c7e-5d1f0a9b8c7d"
PLACE = ProcessPlace(container_id=ID, pod_uid=UID)
HELD = Owners(holders={GPU: (Holder(owner=A, resource="nvidia.com/gpu", shared=False),)})
NOBODYS = Owners()
GPUS = Inventory(gpus=(InventoryGpu(uuid=GPU.uuid, index="0"),))
PODS = {
    ("ml", "a"): PodInfo(namespace="ml", name="a", uid=UID, labels={}, container_ids={"main": f"containerd://{ID}"})
}
FOLDER = f"var/log/pods/ml_a_{UID}/main"
LOG = f"a_ml_main-{ID}.log"


@dataclass
class SaidTurn:
    """A turn, in which processes of places have launched so many kernels, by pid."""

    at: int
    launches: Mapping[int, int]
    places: Mapping[int, ProcessPlace | None] = field(default_factory=dict)
    ended: frozenset[int] = frozenset()
    programs: int = 2
    failures: Mapping[str, int] = field(default_factory=lambda: {"attach": 1})
    unreadable: int = 5
    map_entries: Mapping[str, tuple[int, int]] = field(default_factory=lambda: {"devices": (1, 64)})

    @property
    def reading(self) -> CudaReading:
        return CudaReading(
            read_at_ns=self.at * SECOND,
            processes={id_: CudaProcess(id=id_, ended_ns=9 if id_.pid in self.ended else None) for id_ in self.ids},
            counts={CudaDevice(id_, 0): CudaCounts(launches=self.launches[id_.pid]) for id_ in self.ids},
            lost={"spans": 3},
        )

    @property
    def ids(self) -> list[ProcessId]:
        return [ProcessId(pid, pid * SECOND) for pid in self.launches]

    @property
    def seen(self) -> Mapping[ProcessId, SeenProcess]:
        return {id_: SeenProcess(id=id_, place=self.places.get(id_.pid, PLACE)) for id_ in self.ids}


class SaidProbe:
    """A probe that turns when a test says so. `made` are all, in the order in which a node made them."""

    made: ClassVar[list["SaidProbe"]] = []
    name = "probe"
    patience_seconds = 0.0
    health = Health(up=True)
    bounds: Mapping[str, Bound] = {"probed_programs": Bound(64, lambda: 2)}

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.turn: SaidTurn | None = None
        self.opened = 1
        self.begun = 0
        self.is_closed = False
        self.followers: list[Callable[[Any], None]] = []
        self.made.append(self)

    def begin(self) -> Attempt | None:
        self.begun += 1
        return None

    async def close(self) -> None:
        self.is_closed = True

    def say(self, turn: SaidTurn) -> None:
        self.turn = turn
        for hears in tuple(self.followers):
            hears(turn)


class Told(dict[str, Health]):
    """What was told of healths."""

    def __call__(self, name: str, health: Health) -> None:
        self[name] = health


def made_by(probe: SaidProbe, root: Path, totals: CudaTotals | None = None, **more: Any) -> Probing:
    settings = {"keep_seconds": 300.0, "on_health": Told(), **more}
    part = Probing(probe=cast(probe_source.CudaProbe, probe), totals=totals or CudaTotals(), root=str(root), **settings)
    for _ in range(2):  # once is enough
        part.follow()
    return part


def launches(cuda: CudaUses | None) -> dict[tuple[str, str], int]:
    """By pod and UUID."""
    assert cuda is not None
    return {(owner.pod if owner else "", key.uuid): use.counts.launches for (owner, key), use in cuda.uses.items()}


async def test_a_look_takes_what_the_last_turn_counted(tmp_path: Path) -> None:
    probe = SaidProbe()
    part = made_by(probe, tmp_path)
    assert part.cuda_for(HELD, PODS, GPUS) is None, "nobody has counted yet"
    assert (part.begin(), probe.begun) == (None, 1)
    probe.say(SaidTurn(1, {7: 3, 8: 1}, {8: None}))
    found = part.cuda_for(HELD, PODS, GPUS)
    assert launches(found) == {("a", "GPU-1"): 3, ("", "GPU-1"): 1}
    assert found is not None
    assert (found.programs, found.failures, found.map_entries) == (2, {"attach": 1}, {"devices": (1, 64)})
    assert found.unreadable == 5
    assert found.lost == {"spans": 3, "waiting": 0, "rows": 0}
    probe.say(SaidTurn(2, {7: 5}))
    assert launches(part.cuda_for(HELD, PODS, GPUS)) == {("a", "GPU-1"): 5, ("", "GPU-1"): 1}
    probe.turn = None
    assert part.cuda_for(HELD, PODS, GPUS) is None, "it fails"
    assert {name: used() for name, (_, used) in part.bounds.items()} == {
        "cuda_rows": 2,
        "cuda_processes_waiting": 0,
        "cuda_cgroups": 0,
        "cuda_container_logs": 0,
    }
    await part.close()
    assert not probe.followers


async def test_a_container_that_nobody_knows_is_looked_for_among_the_logs(tmp_path: Path) -> None:
    probe = SaidProbe()
    part = made_by(probe, tmp_path)
    part.cuda_for(HELD, {}, GPUS)
    (tmp_path / "var/log/containers").mkdir(parents=True)
    (tmp_path / "var/log/containers" / LOG).symlink_to(f"/{FOLDER}/0.log")
    probe.say(SaidTurn(1, {7: 3}))
    assert launches(part.cuda_for(HELD, {}, GPUS)) == {}, "its counts wait"
    await until(lambda: launches(part.cuda_for(HELD, {}, GPUS)))
    assert launches(part.cuda_for(HELD, {}, GPUS)) == {("a", "GPU-1"): 3}
    await part.close()


async def test_missing_logs_are_reported_unless_pods_name_their_containers(tmp_path: Path) -> None:
    for pods, is_told in ((PODS, False), ({}, True)):
        probe, told = SaidProbe(), Told()
        part = made_by(probe, tmp_path, on_health=told)
        part.cuda_for(HELD, pods, GPUS)
        assert [source.name for source in part.shown] == ["probe"], "they were never looked for"
        probe.say(SaidTurn(1, {7: 3}, {7: ProcessPlace(container_id="bb" * 32, pod_uid=UID)}))
        await until(partial(lambda part: part._logs.health.up is not None, part))
        assert part._logs.health.reason == "missing"
        assert [source.name for source in part.shown] == ["probe", *(["container-logs"] if is_told else [])]
        assert list(told) == (["container-logs"] if is_told else [])
        await part.close()


async def test_who_holds_what_may_be_told_later_than_the_first_call(tmp_path: Path) -> None:
    probe = SaidProbe()
    part = made_by(probe, tmp_path)
    part.cuda_for(NOBODYS, PODS, GPUS)
    probe.say(SaidTurn(1, {7: 3}))
    assert launches(part.cuda_for(NOBODYS, PODS, GPUS)) == {}
    assert launches(part.cuda_for(HELD, PODS, GPUS)) == {("a", "GPU-1"): 3}
    # what it did is on the GPU that it held, also when the kubelet tells of it no more
    probe.say(SaidTurn(2, {7: 4}, ended=frozenset({7})))
    assert launches(part.cuda_for(NOBODYS, PODS, GPUS)) == {("a", "GPU-1"): 4}
    await part.close()


async def test_rows_of_containers_that_hold_nothing_any_more_go_after_a_while(tmp_path: Path) -> None:
    probe = SaidProbe()
    part = made_by(probe, tmp_path, keep_seconds=10.0)
    part.cuda_for(HELD, PODS, GPUS)
    probe.say(SaidTurn(1, {7: 3}))
    for at in (2, 100):
        probe.say(SaidTurn(at, {}))
        assert launches(part.cuda_for(HELD, PODS, GPUS)) == {("a", "GPU-1"): 3}
    part.cuda_for(NOBODYS, PODS, GPUS)
    for at, left in ((101, 1), (110, 1), (111, 0)):
        probe.say(SaidTurn(at, {}))
        assert len(launches(part.cuda_for(NOBODYS, PODS, GPUS))) == left
    await part.close()


async def test_a_probe_that_was_loaded_anew_begins_at_nothing(tmp_path: Path) -> None:
    probe = SaidProbe()
    part = made_by(probe, tmp_path)
    part.cuda_for(HELD, PODS, GPUS)
    probe.say(SaidTurn(1, {7: 3}))
    probe.opened += 1
    probe.say(SaidTurn(60, {7: 5}))
    assert launches(part.cuda_for(HELD, PODS, GPUS)) == {("a", "GPU-1"): 8}
    await part.close()


async def test_totals_go_on_with_another_probe_and_the_one_before_counts_no_more(tmp_path: Path) -> None:
    totals, before, after = CudaTotals(), SaidProbe(), SaidProbe()
    one = made_by(before, tmp_path, totals)
    one.cuda_for(HELD, PODS, GPUS)
    before.say(SaidTurn(1, {7: 3}))
    two = made_by(after, tmp_path, totals)
    before.say(SaidTurn(2, {7: 4}))
    assert launches(one.cuda_for(HELD, PODS, GPUS)) == {("a", "GPU-1"): 4}, "the new one has not begun"
    after.say(SaidTurn(3, {7: 1}))
    before.say(SaidTurn(4, {7: 9}))
    assert launches(two.cuda_for(HELD, PODS, GPUS)) == {("a", "GPU-1"): 5}
    assert launches(one.cuda_for(HELD, PODS, GPUS)) == {("a", "GPU-1"): 5}, "for a scrape that began before"
    await one.close()
    await two.close()


async def test_one_probe_counts_on_for_other_settings(tmp_path: Path) -> None:
    totals, probe = CudaTotals(), SaidProbe()
    one = made_by(probe, tmp_path, totals)
    one.cuda_for(HELD, PODS, GPUS)
    probe.say(SaidTurn(1, {7: 3}))
    two = made_by(probe, tmp_path, totals, keep_seconds=10.0)
    assert launches(two.cuda_for(HELD, PODS, GPUS)) == {("a", "GPU-1"): 3}, "no scrape misses them meanwhile"
    probe.say(SaidTurn(2, {7: 4}))  # both hear it
    await one.close()
    probe.say(SaidTurn(3, {7: 6}))
    assert launches(two.cuda_for(HELD, PODS, GPUS)) == {("a", "GPU-1"): 6}
    await two.close()


# --- through a node


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedNode]:
    monkeypatch.setattr(probe_source, "CudaProbe", SaidProbe)
    monkeypatch.setattr(SaidProbe, "made", [])
    simulated = SimulatedNode(World(gpus=4, seed=7))
    await simulated.start()
    yield simulated
    await simulated.stop()


def of_node(node: SimulatedNode, **more: str) -> Any:
    places = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "root": str(node.root)}
    files = {"inventory_file": str(node.inventory_file)}
    return config_of(**{**places, **files, "probe_mode": "on", **more})


def of_pods(node: SimulatedNode) -> tuple[dict[int, ProcessPlace], dict[int, tuple[str, str]]]:
    """A process for each container that holds one GPU: its place, and the pod and the GPU that it is to count for."""
    places, expected = {}, {}
    for pid, pod in enumerate((pod for pod in node.world.listed if len(pod.devices) == 1), 100):
        container = next(each.name for each in pod.containers if each.devices)
        container_at = container_id(pod, container).removeprefix("containerd://")
        places[pid] = ProcessPlace(container_id=container_at, pod_uid=pod.uid)
        expected[pid] = pod.name, next(iter(pod.devices))
    return places, expected


def rows_of(metrics: str) -> dict[tuple[str, str], float]:
    found = re.findall(r"^pod_gpu_cuda_kernel_launches_total\{(.*)\} (\S+)$", metrics, re.MULTILINE)
    labels = [(dict(re.findall(r'(\w+)="([^"]*)"', text)), float(value)) for text, value in found]
    return {(of["pod"], of["UUID"]): value for of, value in labels}


# issue 13, "Must show" 4
async def test_pods_show_what_their_programs_asked_of_their_gpus(node: SimulatedNode) -> None:
    places, expected = of_pods(node)
    assert expected
    wanted = {of: float(pid) for pid, of in expected.items()}
    async with running(of_node(node)) as exporter:
        await exporter.get("/metrics")
        (probe,) = SaidProbe.made
        assert probe.begun
        probe.say(SaidTurn(1, {pid: pid for pid in places}, places))
        metrics = await exporter.until("/metrics", lambda text: rows_of(text) == wanted)
        devices = json.loads((await exporter.get("/container/metrics"))[1])
    assert {(of["pod"], of["device_uuid"]): of["cuda"]["kernel_launches"] for of in devices if "cuda" in of} == wanted
    assert "pod_gpu_exporter_probe_programs 2" in metrics
    assert 'pod_gpu_exporter_source_up{source="probe"} 1' in metrics
    for of in ("cuda_rows", "cuda_processes_waiting", "cuda_cgroups", "cuda_container_logs", "probed_programs"):
        assert f'pod_gpu_exporter_bound_limit{{of="{of}"}}' in metrics
    assert probe.is_closed


async def test_totals_outlive_a_reload_and_the_probe_goes_with_its_setting(node: SimulatedNode) -> None:
    places, expected = of_pods(node)
    (pid, *_) = places
    configs = iter(
        (
            of_node(node, probe_max_programs="32"),
            of_node(node, probe_mode="off"),
            of_node(node, probe_max_programs="32"),
        )
    )
    service = Service(of_node(node), NODE, lambda: next(configs))
    try:

        async def are_closed(*expected: bool) -> None:
            """The node until now is closed once nobody looks any more."""
            await until(lambda: [probe.is_closed for probe in SaidProbe.made] == [*expected])

        async def launched(launches: int) -> int:
            """What a look says once it knows of a turn of the last probe."""
            await service.collect(None)
            SaidProbe.made[-1].say(SaidTurn(1, {pid: launches}, places))

            async def counted() -> int:
                snapshot: Snapshot = await service.collect(None)
                assert snapshot.cuda is not None
                found = (
                    use.counts.launches
                    for (owner, key), use in snapshot.cuda.uses.items()
                    if owner and (owner.pod, key.uuid) == expected[pid]
                )
                return next(found, 0)

            return await until(counted)

        assert await launched(10) == 10
        await service.reload()
        await are_closed(True, False)
        assert SaidProbe.made[1].settings["max_programs"] == 32
        assert await launched(5) == 15
        await service.reload()
        await are_closed(True, True)
        assert (await service.collect(None)).cuda is None
        await service.reload()
        assert await launched(2) == 17
    finally:
        await service.close()


async def test_a_refused_reload_leaves_the_totals_to_the_node_that_goes_on(node: SimulatedNode, tmp_path: Path) -> None:
    places, expected = of_pods(node)
    (pid, *_) = places
    bad = tmp_path / "inventory.json"
    bad.write_text("{")
    refused = of_node(node, accounting_keep="1m", inventory_file=str(bad))
    service = Service(of_node(node), NODE, lambda: refused)
    try:
        await service.collect(None)
        await service.reload()
        (probe,) = SaidProbe.made
        assert len(probe.followers) == 1
        wanted = {expected[pid]: 7}
        probe.say(SaidTurn(1, {pid: 7}, places))

        async def are_counted() -> bool:
            return launches((await service.collect(None)).cuda) == wanted

        await until(are_counted)
    finally:
        await service.close()


async def test_without_the_setting_nothing_of_it_is_made(node: SimulatedNode) -> None:
    async with running(of_node(node, probe_mode="off")) as exporter:
        metrics = (await exporter.get("/metrics"))[1]
    assert SaidProbe.made == []
    assert "cuda" not in metrics
    assert "probe" not in metrics, "neither a family of it, nor a bound, nor a source"
