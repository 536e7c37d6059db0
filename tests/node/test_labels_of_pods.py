"""Labels, UIDs, claims and MIG instances through the whole node role, over real sockets."""

import asyncio
import json
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web

from exporter.simulator.dcgm import SimulatedDcgm
from tests.support.exporter import Exporter, Start, config_of, running
from tests.support.simulated import SimulatedNode, World
from tests.support.simulated_api import SimulatedApi

FAMILY = "DCGM_FI_DEV_GPU_TEMP"
BUSY_SECONDS = 4.0  # what the rest of the tests may take of the machine meanwhile


def rows(page: str, family: str = FAMILY) -> list[dict[str, str]]:
    return [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in page.splitlines() if line.startswith(family + "{")]


def expected(simulated: SimulatedNode) -> dict[str, tuple[str, str]]:
    """UID and team by pod, as the world has them."""
    return {
        pod.name: (pod.uid, dict(pod.labels)["team"])
        for pod in simulated.world.pods
        if any(container.devices for container in pod.containers)
    }


def shown(page: str) -> dict[str, tuple[str, str]]:
    return {row["pod"]: (row.get("pod_uid", ""), row.get("label_team", "")) for row in rows(page) if row["pod"]}


@pytest.fixture
async def labelled(simulated: SimulatedNode, start: Start) -> Exporter:
    # MIG ids resolve by the inventory, so that every pod is somewhere in the page
    return await start(
        kubelet_pods_socket=str(simulated.pods_socket),
        inventory_file=str(simulated.inventory_file),
        labels_pod_uid="on",
        labels_pod_labels="team",
        kubelet_max_age="0s",
    )


async def test_the_very_first_page_has_them(labelled: Exporter, simulated: SimulatedNode) -> None:
    assert shown(await labelled.page()) == expected(simulated)
    assert 'pod_gpu_exporter_source_up{source="pods"} 1' in await labelled.page()


async def test_they_follow_within_a_second_and_are_never_wrong(labelled: Exporter, simulated: SimulatedNode) -> None:
    """Pods come, go, are relabelled and made anew under their names, the stream breaks, the kubelet restarts."""
    world = simulated.world
    ever: dict[str, set[tuple[str, str]]] = {}

    async def settled(within_seconds: float = 1.0 + BUSY_SECONDS) -> None:
        for name, found in expected(simulated).items():
            ever.setdefault(name, set()).add(found)
        async with asyncio.timeout(within_seconds):
            while True:
                page = shown(await labelled.page())
                for name, found in page.items():
                    # not told yet is possible for a moment, another pod's word never is
                    assert found == ("", "") or found in ever[name]
                if page == expected(simulated):
                    # from here on the old word is wrong
                    ever.update({name: {found} for name, found in page.items()})
                    return

    await settled()
    for round_number in range(6):
        holders = [pod for pod in world.pods if pod.containers[0].devices]
        world.relabel(holders[0], team=f"team-{round_number}")
        await settled()
        world.recreate(world.pods[-1])
        await settled()
        world.step()
        await settled()
        if round_number % 2:
            simulated.pods_api.break_streams()
        else:
            await simulated.pods_api.stop()
            await asyncio.sleep(0.05)
            await simulated.pods_api.start()
        # what is known stays while the stream is opened again
        assert shown(await labelled.page()) == expected(simulated)
        await settled(3.0 + BUSY_SECONDS)


async def test_the_kubernetes_api_as_the_source_and_a_403_costs_only_the_labels(
    simulated: SimulatedNode, start: Start
) -> None:
    api = SimulatedApi(simulated.world)
    url = await api.start()
    try:
        api.failure = (403, {})
        exporter = await start(
            kubernetes_url=url,
            pods_source="api",
            inventory_file=str(simulated.inventory_file),
            labels_pod_uid="on",
            labels_pod_labels="team",
        )
        page = await exporter.page()
        assert shown(page) == dict.fromkeys(expected(simulated), ("", ""))
        assert 'source_up{source="pods"} 0' in page
        assert "deploy/rbac.yaml" in (await exporter.get("/metrics"))[1]
        assert (await exporter.get("/-/ready"))[0] == 200
        api.failure = None
        await exporter.until_page(lambda page: shown(page) == expected(simulated))
        assert api.lists <= 6
        before = api.lists + api.watches
        for _ in range(20):
            await exporter.page()
        assert api.lists + api.watches == before
    finally:
        await api.stop()


async def test_without_any_source_of_pods_only_the_labels_are_missing(simulated: SimulatedNode, start: Start) -> None:
    exporter = await start(kubelet_pods_socket="/nowhere/pods.sock", labels_pod_labels=".*")
    page = await exporter.page()
    assert any(row["pod"] for row in rows(page))
    assert "label_" not in page
    assert 'source_up{source="pods"} 0' in page
    assert "neither /nowhere/pods.sock" in (await exporter.get("/metrics"))[1]


async def test_labels_that_came_in_are_replaced_as_one_set(
    simulated: SimulatedNode, start: Start, tmp_path: Path
) -> None:
    gpu = simulated.world.gpus[0]
    held_by = next(pod for pod in simulated.world.pods if ("nvidia.com/gpu", gpu.uuid) in pod.containers[0].devices)
    file = tmp_path / "page.prom"
    came = f'x{{UUID="{gpu.uuid}",pod="came",label_team="came",label_more="1"}} 1'
    file.write_text(f'{came}\nx{{UUID="GPU-9",label_team="a"}} 1\n')
    os.utime(file, (time.time() - 5, time.time() - 5))
    exporter = await start(
        kubelet_pods_socket=str(simulated.pods_socket), labels_pod_labels="team", dcgm_file=str(file), dcgm_url=[]
    )
    first, second = rows(await exporter.page(), "x")
    assert first == {
        "UUID": gpu.uuid, "pod": held_by.name, "namespace": held_by.namespace,
        "container": held_by.containers[0].name, "label_team": dict(held_by.labels)["team"],
    }  # fmt: skip
    assert second == {"UUID": "GPU-9", "pod": "", "namespace": "", "container": "", "label_team": "a"}


@pytest.fixture
async def claimed() -> AsyncIterator[SimulatedNode]:
    node = SimulatedNode(World(gpus=4, claims=4, seed=7))
    await node.start()
    yield node
    await node.stop()


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_claims_find_their_gpus_through_resource_slices(claimed: SimulatedNode, version: str) -> None:
    api = SimulatedApi(claimed.world, slice_version=version)
    settings = {"kubelet_socket": str(claimed.socket), "dcgm_url": claimed.url, "kubernetes_url": await api.start()}
    async with AsyncExitStack() as stack:
        stack.push_async_callback(api.stop)
        on = await stack.enter_async_context(running(config_of(**settings, dra="on")))
        off = await stack.enter_async_context(running(config_of(**settings, dra="off")))
        held = {
            (claimed.world.gpus[int(claim.device.removeprefix("gpu-"))].uuid, pod.name, claim.name, claim.device)
            for pod in claimed.world.pods
            for container in pod.containers
            for claim in container.claims
        }
        assert held
        found = {
            (row["UUID"], row["pod"], row["dra_claim_name"], row["dra_device_name"])
            for row in rows(await on.page())
            if row["pod"]
        }
        assert found == held
        assert not any(row["pod"] for row in rows(await off.page()))
        mapping = json.loads((await on.get("/debug/mapping"))[1])
        assert {row["matched"] for row in mapping["assigned"]} == {True}
        # without the slices' word there is only the claim's own UUID in the names of CDI devices
        await api.stop()
        alone = await stack.enter_async_context(running(config_of(**settings, dra="on")))
        mapping = json.loads((await alone.get("/debug/mapping"))[1])
        assert {row["reason"] for row in mapping["assigned"]} == {"claim_unresolved"}


async def test_mig_instances_by_the_inventory_and_a_new_one_while_it_runs(
    simulated: SimulatedNode, start: Start
) -> None:
    with_parents = SimulatedDcgm(simulated.world, with_parents=True).page()
    simulated.dcgm.failure = lambda _: web.Response(text=with_parents)
    exporter = await start(inventory_file=str(simulated.inventory_file))
    instances = {
        instance.device_id: (gpu.uuid, str(instance.instance_id))
        for gpu in simulated.world.gpus
        for instance in gpu.instances
    }
    held = {
        (*instances[device_id], pod.name)
        for pod in simulated.world.pods
        for container in pod.containers
        for _, device_id in container.devices
        if device_id in instances
    }

    def found(page: str) -> set[tuple[str, str, str]]:
        return {(row["UUID"], row["GPU_I_ID"], row["pod"]) for row in rows(page) if row.get("GPU_I_ID") and row["pod"]}

    page = await exporter.page()
    assert held
    assert found(page) == held
    parents = [row for row in rows(page) if row["UUID"] in {uuid for uuid, _, _ in held} and not row.get("GPU_I_ID")]
    assert {row["pod"] for row in parents} == {""}
    # a bad new file is refused, the last good one stays
    good = simulated.inventory_file.read_text()
    simulated.inventory_file.write_text('{"gpus": [{"uuid": 5}]}')
    page = await exporter.page()
    assert found(page) == held
    assert f'source_up{{source="file:{simulated.inventory_file}"}} 0' in page
    simulated.inventory_file.write_text('{"gpus": []}')
    assert found(await exporter.page()) == set()
    simulated.inventory_file.write_text(good)
    assert found(await exporter.page()) == held
