"""Nodes on which an allocator is not alone, or is told otherwise: by the user's rules, or by ids that it aligned."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from exporter.simulator.allocators import Hami, Kai, Unkindness
from exporter.sources.nvml import nvml_source
from tests.support.allocators import allocated_node, faults_of, given_to
from tests.support.components import real
from tests.support.exporter import Exporter, config_of, running
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.same_answer import Held, Told, told_by
from tests.support.simulated import Container, Pod, SimulatedNode, World
from tests.support.waiting import until


def settings(node: SimulatedNode, **more: str) -> dict[str, str]:
    """An exporter's settings on this node, by default with the kubelet's Pods API."""
    return {
        "kubelet_socket": str(node.socket),
        "kubelet_pods_socket": str(node.pods_socket),
        "kubelet_max_age": "0s",
        "dcgm_url": node.url,
        "root": str(node.root),
        "accounting_interval": "100ms",
        **more,
    }


@asynccontextmanager
async def running_on(node: SimulatedNode, **more: str) -> AsyncIterator[Exporter]:
    await node.start()
    try:
        async with running(config_of(**settings(node, **more))) as exporter:
            yield exporter
    finally:
        await until_nobody_uses_it()
        await node.stop()


async def once(exporter: Exporter, is_settled: Callable[[Told], object]) -> Told:
    """What an exporter tells once it is settled."""
    told: Told | None = None

    async def settled() -> bool:
        nonlocal told
        told = await told_by(exporter, with_counters=False)
        return bool(is_settled(told))

    await until(settled, why=lambda: told)
    assert told is not None
    return told


def truth_of(world: World) -> frozenset[Held]:
    """Who has which GPU, or an instance of it."""
    gpu_of = {mig.device_id: gpu.uuid for gpu in world.gpus for mig in gpu.instances}
    of_allocator = given_to(world)
    held = {
        (owner.namespace, owner.pod, owner.container, part.uuid)
        for owner, parts in of_allocator.items()
        for part in parts
    }
    for pod in world.listed:
        for container in pod.running:
            if not container.parts and not container.is_reservation:
                ids = [device_id.partition("::")[0] for _, device_id in container.devices]
                held |= {(pod.namespace, pod.name, container.name, gpu_of.get(one, one)) for one in ids}
    return frozenset(held)


def fill(world: World) -> None:
    """Let pods come and go, until they hold something of every GPU."""
    for _ in range(40):
        world.live()
    for gpu in world.gpus:
        slots = dict(world.free()).get(gpu.uuid, [])
        pod = world.pod_with(slots) if len(slots) == len(gpu.slots) else None
        world.pods += (pod,) if pod else ()


# issue 24, "Must show" 3
@pytest.mark.parametrize("steps", [1, 4])
async def test_whole_gpus_and_instances_beside_hami_keep_their_owners(steps: int) -> None:
    node = allocated_node(Hami(), gpus=6, mig=1, shared=1, whole=2)
    fill(node.world)
    async with running_on(node) as exporter:
        for step in range(steps):
            if step:
                node.world.live()
            truth = truth_of(node.world)
            told = await once(exporter, lambda told, truth=truth: all(of == truth for of in told.held.values()))  # type: ignore[misc]
            assert told.unmatched == []
            # the ids of NVIDIA's plugin are nobody's tokens
            said = {entry["device_id"]: entry["said_by"] for entry in told.assigned}
            assert {bool(by) for device_id, by in said.items() if device_id.startswith("MIG-")} == {False}
            whole = {gpu.uuid for gpu in node.world.gpus if gpu.slots[0][1] == gpu.uuid}
            assert whole & said.keys() or steps > 1
            assert not any(said[uuid] for uuid in whole & said.keys())
            assert any(said.values())


# issue 24, "Must show" 3
async def test_whole_gpus_beside_hami_have_owners_where_nobody_reads_pods() -> None:
    node = allocated_node(Hami(), gpus=4, mig=1, whole=1)
    fill(node.world)
    async with running_on(node, kubelet_pods_socket="/nonexistent") as exporter:
        of_hami = {(owner.namespace, owner.pod, owner.container) for owner in given_to(node.world)}
        truth = frozenset(held for held in truth_of(node.world) if held[:3] not in of_hami)
        assert truth
        told = await once(exporter, lambda told: all(held == truth for held in told.held.values()))
        assert {entry["reason"] for entry in told.unmatched} == {"allocator"}
        assert "free" not in told.states.values()


def planned_on(world: World) -> frozenset[Held]:
    """Who has what by HAMi's annotations."""
    held: set[Held] = set()
    for pod in world.listed:
        text = dict(pod.annotations).get("hami.io/vgpu-devices-allocated", "")
        init_containers, containers = pod.in_spec
        running = {container.name for container in pod.running}
        for container, place in zip((*init_containers, *containers), text.split(";"), strict=False):
            uuids = [device.partition(",")[0] for device in place.split(":") if device]
            if container.name in running:
                held |= {(pod.namespace, pod.name, container.name, uuid) for uuid in uuids}
    return frozenset(held)


def aligned(seed: int = 5) -> SimulatedNode:
    """A node whose HAMi aligns ids. Some pods really have another GPU than was planned for them."""
    node = allocated_node(Hami(is_aligned=True, unkindness=Unkindness(wrong=2)), seed=seed)
    fill(node.world)
    assert "wrong" in faults_of(node.world).values()
    assert planned_on(node.world) != truth_of(node.world)
    return node


def finding(told: Told, about: str) -> Mapping[str, Any]:
    (found,) = (each for each in told.findings if each["about"] == about)
    return found


# issue 24, part 2 and "Must show" 3
@pytest.mark.parametrize("counts", ["annotation", "id"])
async def test_if_hami_aligns_ids_the_user_says_which_counts(counts: str) -> None:
    node = aligned()
    truth, planned = truth_of(node.world), planned_on(node.world)
    async with running_on(node, allocators_hami=counts) as exporter:
        wanted = truth if counts == "id" else planned
        told = await once(exporter, lambda told: all(held == wanted for held in told.held.values()))
        others = len(planned - truth)
        says = finding(told, "HAMi")["says"]
        those = "annotations" if counts == "id" else "the kubelet's ids"
        assert says.endswith(f"; {those} name another device for {others} of them")


# issue 24, part 4 and "Must show" 3
@pytest.mark.parametrize("counts", ["annotation", "id"])
@pytest.mark.parametrize("shows", ["the kubelet's checkpoint", "the environment", "NVML"])
async def test_if_hami_aligns_ids_evidence_decides(shows: str, counts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = aligned()
    node.has_device_checkpoint = shows == "the kubelet's checkpoint"
    more = {"allocators_environ": "on"} if shows == "the environment" else {}
    if shows == "NVML":
        real("gcc")
        assert node.nvml.build()
        loads(monkeypatch, node.nvml)
        monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.1)
        more = {"nvml_mode": "on", "processes_expose": "on"}
    truth = truth_of(node.world)
    async with running_on(node, allocators_hami=counts, **more) as exporter:
        told = await once(
            exporter,
            lambda told: all(held == truth for held in told.held.values()) and (shows != "NVML" or not told.strangers),
        )
        contradicted = {each["about"] for each in told.problems if f"{shows} shows" in each["says"]}
        wrong = {name for name, fault in faults_of(node.world).items() if fault == "wrong"}
        holders = {held[:3] for held in truth if held[:2] in wrong}
        assert contradicted == ({"/".join(names) for names in holders} if counts == "annotation" else set())


# issue 24, "Must show" 3
async def test_time_sliced_gpus_beside_kai_keep_their_owners() -> None:
    node = allocated_node(Kai(), gpus=5, shared=2)
    fill(node.world)
    async with running_on(node) as exporter:
        for _ in range(4):
            node.world.live()
            truth = truth_of(node.world)
            told = await once(exporter, lambda told, truth=truth: all(of == truth for of in told.held.values()))  # type: ignore[misc]
            assert told.unmatched == []
            assert any(gpu.shared and gpu.uuid in {uuid for *_, uuid in truth} for gpu in node.world.gpus)
            assert given_to(node.world)


# issue 24, "Must show" 3
async def test_time_sliced_gpus_beside_kai_have_owners_where_nobody_reads_pods() -> None:
    node = allocated_node(Kai(), gpus=5, shared=2)
    fill(node.world)
    async with running_on(node, kubelet_pods_socket="/nonexistent") as exporter:
        of_kai = {(owner.namespace, owner.pod, owner.container) for owner in given_to(node.world)}
        truth = frozenset(held for held in truth_of(node.world) if held[:3] not in of_kai)
        assert truth
        told = await once(exporter, lambda told: all(held == truth for held in told.held.values()))
        assert {entry["reason"] for entry in told.unmatched} == {"allocator"}
        assert "free" not in told.states.values()


RULES = """
devices: []
allocators:
- name: Per container
  resource: example.com/slice
  annotation: example.com/slices
  containers: ';'
  devices: '|'
  device: '(?P<index>[0-9]+)/(?P<memory_mib>[0-9]+)/(?P<cores_percent>[0-9]+)'
- name: Per pod
  resource: example.com/card
  annotation: example.com/cards
  devices: ','
  device: '(?P<uuid>GPU-[0-9a-f-]+)'
"""


# issue 24, part 2 and "Must show" 3
@pytest.mark.parametrize("reads_pods", [True, False])
async def test_a_users_own_allocator_by_a_rule_file(tmp_path: Path, *, reads_pods: bool) -> None:
    node = SimulatedNode(World(gpus=4, seed=5))
    uuids = [gpu.uuid for gpu in node.world.gpus]
    slices, cards = "example.com/slice", "example.com/card"
    node.kubelet.offers = lambda: [(name, f"t-{n}") for name in (slices, cards) for n in range(8)]
    node.world.pods = (
        Pod(
            namespace="ml",
            name="sliced",
            uid="6d7e2c43-0a5b-4f21-9f77-8f3f0d6a1c01",
            annotations=(("example.com/slices", "3/1024/10;;0/2048/20|2/512/5;"),),
            init_containers=(Container(name="warm-up", devices=((slices, "t-1"),)),),
            containers=(
                Container(name="log-shipper"),
                Container(name="main", devices=((slices, "t-1"), (slices, "t-4"))),
            ),
        ),
        Pod(
            namespace="ml",
            name="carded",
            uid="6d7e2c43-0a5b-4f21-9f77-8f3f0d6a1c02",
            annotations=(("example.com/cards", f"{uuids[1]},{uuids[2]}"),),
            containers=(Container(name="main", devices=((cards, "t-0"), (cards, "t-7"))),),
        ),
    )
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    more = {"device_rules": str(rules), "resources": "example.com/*"}
    if not reads_pods:
        more["kubelet_pods_socket"] = "/nonexistent"
    async with running_on(node, **more) as exporter:
        if not reads_pods:
            told = await told_by(exporter)
            assert not any(told.held.values())
            assert {entry["reason"] for entry in told.assigned} == {"allocator"}
            assert {entry["allocator"] for entry in told.assigned} == {"Per container", "Per pod"}
            assert set(told.states.values()) == {"unknown"}
            return
        wanted = {("ml", "sliced", "main", uuids[0]), ("ml", "sliced", "main", uuids[2])}
        wanted |= {("ml", "carded", "main", uuids[1]), ("ml", "carded", "main", uuids[2])}
        told = await once(exporter, lambda told: all(held == wanted for held in told.held.values()))
        assert told.states[uuids[3]] == "free", "its init container has ended"
        parts = {entry["uuid"]: entry["requested_memory_mib"] for entry in told.assigned if entry["pod"] == "sliced"}
        assert parts == {uuids[0]: 2048, uuids[2]: 512}
        assert told.problems == []
