"""A kubelet that restarts as the recorded one did, through the whole node role: nothing that is known may flicker."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.node.test_labels_of_pods import FAMILY, rows
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import Pod, SimulatedNode, World

Row = tuple[str, str, str, str]


def shown(page: str) -> set[Row]:
    """GPU (or claimed GPU), pod, uid and team of every attributed row."""
    return {
        (row["UUID"], row["pod"], row.get("pod_uid", ""), row.get("label_team", ""))
        for row in rows(page, FAMILY)
        if row["pod"]
    }


@asynccontextmanager
async def node_of(world: World) -> AsyncIterator[SimulatedNode]:
    simulated = SimulatedNode(world)
    await simulated.start()
    try:
        yield simulated
    finally:
        await simulated.stop()


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as found:
        yield found


async def exporter_of(stack: AsyncExitStack, simulated: SimulatedNode, **settings: Any) -> Exporter:
    config = config_of(
        **{
            "kubelet_socket": str(simulated.socket),
            "kubelet_pods_socket": str(simulated.pods_socket),
            "kubernetes_url": simulated.api_url,
            "dcgm_url": simulated.url,
            "labels_pod_uid": "on",
            "labels_pod_labels": "team",
            "kubelet_max_age": "0s",
            "pods_source": "kubelet",
            **settings,
        }
    )
    return await stack.enter_async_context(running(config))


async def scraped_during(
    exporter: Exporter, happening: Awaitable[object], look: Callable[[], Awaitable[Any]]
) -> list[Any]:
    """What every scrape saw while something happened, and for a second after."""
    seen = [await look()]
    task = asyncio.ensure_future(happening)
    ends_at: float | None = None
    while ends_at is None or asyncio.get_running_loop().time() < ends_at:
        seen.append(await look())
        await asyncio.sleep(0.02)
        if task.done() and ends_at is None:
            ends_at = asyncio.get_running_loop().time() + 1.0
    await task
    return seen


# issue 7, line 1
async def test_a_kubelet_restart_costs_no_owner_of_a_claim(stack: AsyncExitStack) -> None:
    simulated = await stack.enter_async_context(node_of(World(gpus=4, claims=4, seed=7)))
    exporter = await exporter_of(stack, simulated, dra="on")
    before = shown(await exporter.page())
    assert before

    async def look() -> tuple[set[Row], bool]:
        mapping = json.loads((await exporter.get("/debug/mapping"))[1])
        return shown(await exporter.page()), all(row["matched"] for row in mapping["assigned"])

    async def restart() -> None:
        await simulated.restart_kubelet(empty_seconds=0.3, slices_away_seconds=1.0)
        await exporter.until("/metrics", lambda text: 'of="resourceslice_devices_kept"} 0' not in text)
        await asyncio.sleep(1.0)

    looks = await scraped_during(exporter, restart(), look)
    assert {frozenset(seen) for seen, _ in looks} == {frozenset(before)}
    assert all(matched for _, matched in looks)
    assert 'of="resourceslice_devices_kept"} 0' in (await exporter.get("/metrics"))[1]


# issue 15, line 21
async def test_a_claim_that_comes_after_the_wipe_has_its_owner_at_once(stack: AsyncExitStack) -> None:
    """A scrape falls between the wipe and the kubelet's first list: nobody names the device at that moment."""
    simulated = await stack.enter_async_context(node_of(World(gpus=2, claims=2, seed=7)))
    world = simulated.world
    coming = holder_of_claim(world)
    world.pods = tuple(pod for pod in world.pods if pod is not coming)
    exporter = await exporter_of(stack, simulated, dra="on")
    await exporter.until("/metrics", lambda text: 'of="resourceslices"} 2' in text)
    await exporter.page()
    simulated.api.wipe_slices(away_seconds=600.0)
    await exporter.until("/metrics", lambda text: 'of="resourceslices"} 0' in text)
    await exporter.page()
    world.pods += (coming,)
    await exporter.until_page(lambda page: f'pod="{coming.name}"' in page)
    assigned = json.loads((await exporter.get("/debug/mapping"))[1])["assigned"]
    assert all(row["matched"] for row in assigned)


def holder_of_claim(world: World) -> Pod:
    return next(pod for pod in world.pods if pod.containers[0].claims)


# issue 7, line 1
async def test_an_exporter_started_while_the_slices_are_away_advises_rightly(stack: AsyncExitStack) -> None:
    simulated = await stack.enter_async_context(node_of(World(gpus=4, claims=4, seed=7)))
    simulated.api.wipe_slices(away_seconds=600.0)
    exporter = await exporter_of(stack, simulated, dra="on")
    assigned = json.loads((await exporter.get("/debug/mapping"))[1])["assigned"]
    assert {row["reason"] for row in assigned} == {"claim_unresolved"}
    for row in assigned:
        assert "the driver publishes them again within a minute: wait a minute" in row["explanation"]
        assert "rbac" not in row["explanation"]
    simulated.api.wipe_slices(away_seconds=0.0)
    await exporter.until_page(shown)


# issue 7, line 2
@pytest.mark.parametrize("api_away", [False, True])
async def test_a_kubelet_restart_costs_no_label_of_a_pod(stack: AsyncExitStack, *, api_away: bool) -> None:
    simulated = await stack.enter_async_context(node_of(World(gpus=4, seed=7)))
    exporter = await exporter_of(stack, simulated)
    # on a late machine the first page may be made before the pods are there
    page = await exporter.until_page(lambda page: shown(page) and all(row[2] and row[3] for row in shown(page)))
    before = shown(page)

    async def look() -> set[Row]:
        return shown(await exporter.page())

    async def restart() -> None:
        simulated.pods_api.api_away = api_away
        await simulated.restart_kubelet(empty_seconds=0.7)
        await asyncio.sleep(1.5)
        simulated.pods_api.api_away = False

    assert {frozenset(seen) for seen in await scraped_during(exporter, restart(), look)} == {frozenset(before)}
    assert simulated.pods_api.streams >= 2


# issue 7, line 2
async def test_a_kubelet_restart_costs_no_page_of_a_discovered_dcgm_exporter(stack: AsyncExitStack) -> None:
    simulated = await stack.enter_async_context(node_of(World(gpus=4, seed=7)))
    ip, port = re.findall(r"//(.*):(\d+)/", simulated.url)[0]
    dcgm = Pod(
        namespace="gpu-operator", name="dcgm-1", uid="dcgm-1", containers=(), ip=ip,
        labels=(("app", "nvidia-dcgm-exporter"),),
    )  # fmt: skip
    simulated.world.pods += (dcgm,)
    config = config_of(
        kubelet_socket=str(simulated.socket),
        kubelet_pods_socket=str(simulated.pods_socket),
        pods_source="kubelet",
        dcgm_selector="auto",
    )
    exporter = await stack.enter_async_context(running(replace(config, dcgm=replace(config.dcgm, port=int(port)))))

    async def look() -> int:
        return (await exporter.get("/gpu/metrics"))[0]

    async def restart() -> None:
        await simulated.restart_kubelet(empty_seconds=1.0)
        await asyncio.sleep(1.5)

    assert set(await scraped_during(exporter, restart(), look)) == {200}


def holder(world: World) -> Pod:
    return next(pod for pod in world.pods if pod.containers and pod.containers[0].devices)


# issue 7, line 5
@pytest.mark.parametrize("source", ["kubelet", "api"])
async def test_a_successor_gives_a_pod_deleted_by_force_no_uid_and_no_labels(
    stack: AsyncExitStack, source: str
) -> None:
    """The kubelet is down, the API server has the successor already; then the kubelet starts, and hears of it late."""
    simulated = await stack.enter_async_context(node_of(World(gpus=4, seed=7)))
    world = simulated.world
    exporter = await exporter_of(stack, simulated, pods_source=source)
    old = holder(world)
    before = shown(await exporter.page())
    assert old.uid in {uid for _, _, uid, _ in before}

    async def look() -> set[Row]:
        return shown(await exporter.page())

    async def happening() -> None:
        await simulated.kubelet.stop()
        await simulated.pods_api.stop()
        new = world.recreate(old, is_acknowledged=False)
        world.relabel(new, team="of-the-successor")
        await asyncio.sleep(0.5)
        assert shown(await exporter.page()) == before, "the kubelet's word is about the old one"
        await simulated.kubelet.start(empty_seconds=600.0)
        await simulated.pods_api.start()
        world.acknowledge(next(pod for pod in world.pods if (pod.name, pod.is_acknowledged) == (old.name, False)))
        await asyncio.sleep(0.7)
        assert shown(await exporter.page()) == before, "the kubelet knows the new one, and has not listed it"
        simulated.kubelet._empty_until = 0.0

    looks = await scraped_during(exporter, happening(), look)
    of_old = (old.uid, dict(old.labels)["team"])
    of_new = (next(pod.uid for pod in world.pods if pod.name == old.name), "of-the-successor")
    seen = [{(uid, team) for _, pod, uid, team in found if pod == old.name} for found in looks]
    assert all(found in ({of_old}, {("", "")}, {of_new}) for found in seen)
    listed_at = seen.index({of_new})
    assert all(found == {of_new} for found in seen[listed_at:])
    assert {of_new} not in seen[:listed_at]


# issue 7, line 5
async def test_until_the_kubelet_knows_a_successor_the_name_has_no_uid_or_labels(stack: AsyncExitStack) -> None:
    """Deleted by force while the kubelet runs: it lists the old one for as long as that takes to end."""
    simulated = await stack.enter_async_context(node_of(World(gpus=4, seed=7)))
    world = simulated.world
    old = holder(world)
    listed_by_kubelet = world.listed
    simulated.kubelet._pods = lambda: listed_by_kubelet
    exporter = await exporter_of(stack, simulated, pods_source="api")

    def uids(page: str) -> set[str]:
        return {uid for _, pod, uid, _ in shown(page) if pod == old.name}

    assert old.uid in uids(await exporter.page())
    new = world.recreate(old, is_acknowledged=False)
    await exporter.until_page(lambda page: old.uid not in uids(page))
    for _ in range(10):
        assert {(uid, team) for _, pod, uid, team in shown(await exporter.page()) if pod == old.name} == {("", "")}
    world.acknowledge(new)
    await exporter.until_page(lambda page: uids(page) == {new.uid})


# issue 7, line 42
async def test_no_series_flickers_when_a_pod_is_deleted_here_first(
    stack: AsyncExitStack,
) -> None:
    """The kubelet's List lags behind its Pods API for a moment; both then restart with the ended pod still there."""
    simulated = await stack.enter_async_context(node_of(World(gpus=4, seed=7)))
    simulated.pods_api.deleted_after_seconds = 0.1
    world = simulated.world
    exporter = await exporter_of(stack, simulated, kubelet_max_age="2s")
    before = shown(await exporter.page())
    ending = holder(world)

    async def look() -> set[Row]:
        return shown(await exporter.page())

    async def happening() -> None:
        world.end(ending)
        await asyncio.sleep(2.5)
        await simulated.restart_kubelet(empty_seconds=0.3)

    without = {row for row in before if row[1] != ending.name}
    seen = [frozenset(found) for found in await scraped_during(exporter, happening(), look)]
    assert set(seen) == {frozenset(before), frozenset(without)}
    changes = sum(one != other for one, other in pairwise(seen))
    assert changes == 1


# issue 15, line 20
async def test_a_pod_made_anew_while_the_api_refuses_has_no_uid_and_labels(stack: AsyncExitStack) -> None:
    """A StatefulSet's name comes again, and what is known of it is not current; a generated name is one pod's alone."""
    simulated = await stack.enter_async_context(node_of(World(gpus=4, seed=7)))
    world = simulated.world
    held = [pod for pod in world.pods if pod.devices]
    old = replace(held[0], name="db-0", owner=("StatefulSet", "db"))
    world.pods = tuple(old if pod is held[0] else pod for pod in world.pods)
    exporter = await exporter_of(stack, simulated, pods_source="api")

    async def known() -> dict[str, tuple[str, str]]:
        return {pod: (uid, team) for _, pod, uid, team in shown(await exporter.page())}

    before = await known()
    assert before["db-0"] == (old.uid, dict(old.labels)["team"])
    simulated.api.failure = (403, {})
    simulated.api.break_watches()
    await exporter.until("/metrics", lambda text: 'source_up{source="pods"} 0' in text)
    new = world.recreate(old)
    without = {**before, "db-0": ("", "")}
    for _ in range(5):
        assert await known() == without
    await simulated.kubelet.stop()
    assert await known() == without, "nor is it known of which one the kubelet's last word was"
    await simulated.kubelet.start()
    assert await known() == without
    simulated.api.failure = None
    await exporter.until_page(lambda page: new.uid in page)
    assert await known() == {**before, "db-0": (new.uid, dict(new.labels)["team"])}


# issue 15, line 20
async def test_the_kubelets_word_from_before_the_refusal_still_counts(stack: AsyncExitStack) -> None:
    simulated = await stack.enter_async_context(node_of(World(gpus=4, seed=7)))
    world = simulated.world
    world.pods = tuple(replace(pod, owner=("StatefulSet", "db")) for pod in world.pods)
    exporter = await exporter_of(stack, simulated, pods_source="api")
    before = shown(await exporter.page())
    await simulated.kubelet.stop()
    simulated.api.failure = (403, {})
    simulated.api.break_watches()
    await exporter.until("/metrics", lambda text: 'source_up{source="pods"} 0' in text)
    assert shown(await exporter.page()) == before
    assert all(uid for _, _, uid, _ in before)
