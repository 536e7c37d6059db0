"""What hangs on owners, on nodes with an allocator: pods' uids, health, parts of time; and GPU Aware Scheduling."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from shutil import copyfile
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest

from exporter.simulator.allocators import Hami, Kai, Koordinator, SimulatedAllocator
from tests.support.allocators import allocated_node, fill_with_all_shapes, given_to
from tests.support.exporter import Exporter, config_of, running
from tests.support.places import DATA
from tests.support.same_answer import Told, told_by
from tests.support.simulated import Container, Pod, SimulatedNode, World
from tests.support.waiting import until


@asynccontextmanager
async def running_on(node: SimulatedNode, **more: str) -> AsyncIterator[Exporter]:
    """An exporter with the kubelet's Pods API on a node."""
    await node.start()
    usual = {
        "kubelet_socket": str(node.socket),
        "kubelet_pods_socket": str(node.pods_socket),
        "kubelet_max_age": "0s",
        "dcgm_url": node.url,
        "root": str(node.root),
        "accounting_interval": "100ms",
    }
    if "dcgm_file" in more:
        del usual["dcgm_url"]
    if more.get("pods_source") == "api":
        usual["kubernetes_url"] = node.api_url
    try:
        async with running(config_of(**{**usual, **more})) as exporter:
            yield exporter
    finally:
        await node.stop()


# issue 24, "Must show" 1
@pytest.mark.parametrize("kind", [Hami, Kai, Koordinator])
async def test_samples_have_the_uid_of_the_pod_that_holds_the_gpu(kind: type[SimulatedAllocator]) -> None:
    node = allocated_node(kind())
    fill_with_all_shapes(node.world)
    uids = {pod.name: pod.uid for pod in node.world.pods}
    wanted = {owner.pod for owner in given_to(node.world)}
    async with running_on(node, labels_pod_uid="on", allocators_pods="on") as exporter:

        def has_uids(page: str) -> bool:
            uid_of = dict(re.findall(r'pod="([^"]+)".*pod_uid="([^"]+)"', page))
            return uid_of == {pod: uids[pod] for pod in wanted}

        await exporter.until_page(has_uids)


# issue 24, part 2
@pytest.mark.parametrize("kind", [Hami, Kai])
async def test_the_health_of_an_id_is_not_that_of_the_containers_real_gpu(
    kind: type[SimulatedAllocator],
) -> None:
    """Of a reservation pod the id is true, but who holds the GPU has no health of its own."""
    node = allocated_node(kind())
    fill_with_all_shapes(node.world)
    node.world.pods = tuple(
        replace(
            pod,
            containers=tuple(
                replace(container, ailing=tuple((device, "Unhealthy", "ECC") for _, device in container.devices))
                for container in pod.containers
            ),
        )
        for pod in node.world.pods
    )
    owners = len(given_to(node.world))
    async with running_on(node, labels_pod_uid="on") as exporter:

        def is_told(text: str) -> bool:
            return len({(row["pod"], row["container"]) for row in json.loads(text) if row["pod"]}) == owners

        rows = json.loads(await exporter.until("/container/metrics", is_told))
        # the health of the kubelet's word comes with the next look at the latest
        for _ in range(3):
            await exporter.page()
        assert "kubelet_health" not in json.dumps(rows)
        assert {row["state"] for row in rows} <= {"used", "held", "idle", "free"}
        assert re.findall(r"^pod_gpu_device_health\{.*", (await exporter.get("/metrics"))[1], re.MULTILINE) == []


# issue 24, "Must show" 1
@pytest.mark.parametrize("kind", [Hami, Kai, Koordinator])
async def test_time_and_parts_are_those_of_the_pods_that_work(kind: type[SimulatedAllocator]) -> None:
    node = allocated_node(kind(), speed=50)
    fill_with_all_shapes(node.world)
    parts = {(owner.pod, part.uuid) for owner, given in given_to(node.world).items() for part in given}
    families = ("pod_gpu_allocated_seconds_total", "pod_gpu_energy_joules_total", "pod_gpu_allocated_ratio")
    async with running_on(node, allocators_pods="on") as exporter:

        def grew(metrics: str) -> bool:
            for family in families:
                rows = re.findall(rf'^{family}{{.*pod="([^"]+)".*UUID="([^"]*)".*}} (\S+)$', metrics, re.MULTILINE)
                if {(pod, uuid) for pod, uuid, value in rows if float(value) > 0} != parts:
                    return False
            return True

        metrics = await exporter.until("/metrics", grew)
        assert "reservation" not in "".join(re.findall(r"^pod_gpu_\w+\{.*UUID.*", metrics, re.MULTILINE))


CARDS = "gas-container-cards"
I915 = "gpu.intel.com/i915"
CARD1, CARD2 = "00000000-0000-0000-1ddb-7c1aed80a2fd", "00000000-0000-0000-020a-000000290000"


def intels_pod(name: str, cards: str, *containers: Container) -> Pod:
    """A pod, with what GPU Aware Scheduling wrote on it; "" is nothing."""
    uid = str(uuid5(NAMESPACE_OID, name))
    annotations = ((CARDS, cards),) if cards else ()
    return Pod(namespace="ml", name=name, uid=uid, annotations=annotations, containers=containers)


def with_cards(name: str, *ids: str) -> Container:
    return Container(name=name, devices=tuple((I915, device_id) for device_id in ids))


# issue 24, "Must show" 1
@pytest.mark.parametrize("source", ["kubelet", "api", ""])
async def test_gpu_aware_scheduling_gives_other_cards_than_the_ids_name(tmp_path: Path, source: str) -> None:
    node = SimulatedNode(World(gpus=2, seed=5))
    node.kubelet.offers = lambda: [(I915, f"card{card}-{share}") for card in (1, 2) for share in range(5)]
    several = (with_cards("log"), with_cards("main", "card2-0"), with_cards("side", "card2-1", "card2-2"))
    node.world.pods = (
        intels_pod("one", "card2", with_cards("main", "card1-0")),
        intels_pod("several", "|card1|card1,card2", *several),
        # without that scheduler the ids are true
        intels_pod("plain", "", with_cards("main", "card1-3")),
    )
    page = tmp_path / "intel.prom"
    copyfile(DATA / "vendors" / "intel.prom", page)
    more = {"root": "/nonexistent", "device_rules": "intel", "resources": "gpu.intel.com/*", "dcgm_file": str(page)}
    if source:
        wanted = {("one", "main", CARD2), ("several", "main", CARD1), ("plain", "main", CARD1)}
        wanted |= {("several", "side", CARD1), ("several", "side", CARD2)}
        more["pods_source"] = source
    else:
        # Intel has taken that scheduler's part out of its plugin: ids count where nobody reads pods
        wanted = {("one", "main", CARD1), ("several", "main", CARD2), ("plain", "main", CARD1)}
        wanted |= {("several", "side", CARD2)}
        more |= {"allocators_pods": "off", "kubelet_pods_socket": "/nonexistent"}
    held = {("ml", *names) for names in wanted}
    async with running_on(node, **more) as exporter:

        async def are_right() -> Told | None:
            answers = await told_by(exporter)
            return answers if all(of == held for of in answers.held.values()) else None

        answers: Any = await until(are_right)
        assert answers.unmatched == []
        assert set(answers.states.values()) <= {"used", "idle", "held"}
        assert [finding for finding in answers.problems if finding["level"] == "problem"] == []
