"""A kubelet that restarts, lists nothing, then a part: what a scraper sees meanwhile."""

import asyncio
import json
import time

import pytest

from exporter.ownership import retention
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import Container, Pod, SimulatedNode, World
from tests.support.waiting import until


def owners_in(page: str) -> set[tuple[str, ...]]:
    """Every (UUID, pod) of one family's samples that have an owner."""
    return {
        (line.split('UUID="')[1].partition('"')[0], line.split('pod="')[1].partition('"')[0])
        for line in page.splitlines()
        if line.startswith("DCGM_FI_DEV_POWER_USAGE{") and 'pod=""' not in line
    }


async def scrape_until(exporter: Exporter, stop: asyncio.Event, seen: list[set[tuple[str, ...]]]) -> None:
    while not stop.is_set():
        seen.append(owners_in(await exporter.page()))
        await asyncio.sleep(0.005)


async def until_owners_are(exporter: Exporter, expected: set[tuple[str, ...]], before: set[tuple[str, ...]]) -> None:
    """Until these are the owners. Up to then they are those of before: nobody else loses a label."""

    def are_they(page: str) -> bool:
        assert owners_in(page) in (before, expected)
        return owners_in(page) == expected

    await exporter.until_page(are_they)


@pytest.mark.usefixtures("half_a_second")
async def test_no_running_pod_loses_its_labels_in_any_scrape() -> None:
    """Four nodes side by side: most of it is waiting."""
    cases = ((max_age, down_seconds) for max_age in ("0s", "1s") for down_seconds in (0.0, 1.0))
    await asyncio.gather(*(scraped_through_a_restart(*case) for case in cases))


async def scraped_through_a_restart(max_age: str, down_seconds: float) -> None:
    simulated = SimulatedNode(World(gpus=8, shared=2, seed=5))
    await simulated.start()
    config = config_of(kubelet_socket=str(simulated.socket), dcgm_url=simulated.url, kubelet_max_age=max_age)
    async with running(config) as exporter:
        before = owners_in(await exporter.page())
        assert len(before) > 4
        stop, seen = asyncio.Event(), list[set[tuple[str, ...]]]()
        scraping = asyncio.create_task(scrape_until(exporter, stop, seen))
        calls = simulated.kubelet.calls
        await simulated.kubelet.restart(down_seconds=down_seconds, partial_seconds=0.3)
        await asyncio.sleep(3.0)
        await until(lambda: len(seen) > 30)
        stop.set()
        await scraping
        assert [owners for owners in seen if owners != before] == []
        assert simulated.kubelet.calls > calls

        # a pod that really went loses its labels, and nobody else does
        gone = next(pod for pod in simulated.world.pods if any(container.devices for container in pod.containers))
        simulated.world.remove(gone)
        expected = {owner for owner in before if owner[1] != gone.name}
        await until_owners_are(exporter, expected, before)
    await simulated.stop()


# issue 7, line 3
async def test_a_kubelet_that_starts_without_its_api_server_keeps_its_owners(
    simulated: SimulatedNode,
) -> None:
    static = Pod(namespace="kube-system", name="kube-proxy-gpu-node-1", containers=(), owner=("Node", "gpu-node-1"))
    simulated.world.pods += (static,)
    config = config_of(kubelet_socket=str(simulated.socket), dcgm_url=simulated.url, kubelet_max_age="0s")
    async with running(config) as exporter:
        before = owners_in(await exporter.page())
        simulated.kubelet.api_away = True
        await simulated.kubelet.restart(down_seconds=0.2, empty_seconds=0.0, partial_seconds=0.0)
        for _ in range(20):
            await asyncio.sleep(0.05)
            page = await exporter.page()
            assert owners_in(page) == before
        assert 'source_up{source="kubelet"} 1\n' in page
        assert float(page.rpartition("assignments_age_seconds ")[2]) > 0.9
        says = "the kubelet lists no pod, static ones aside"
        assert says in (await exporter.get("/"))[1]
        assert f"# kubelet answers, but (no_pods): {says}" in (await exporter.get("/metrics"))[1]
        mapping = json.loads((await exporter.get("/debug/mapping"))[1])
        assert mapping["sources"]["kubelet"]["up"] is True
        assert mapping["sources"]["kubelet"]["reason"] == "no_pods"
        assert says in mapping["sources"]["kubelet"]["message"]
        assert (await exporter.get("/-/ready"))[0] == 200

        simulated.kubelet.api_away = False
        page = await exporter.page()
        assert owners_in(page) == before
        assert "no_pods" not in (await exporter.get("/metrics"))[1]


# issue 7, line 42
async def test_a_kubelet_without_its_device_plugin_takes_no_kept_devices_away(
    simulated: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "GRACE_SECONDS", 2.0)
    simulated.world.pods = tuple(pod for pod in simulated.world.pods if pod.namespace != "serving")
    uuid = next(
        gpu.uuid
        for gpu in simulated.world.gpus
        if not gpu.shared and not gpu.instances and not simulated.world.holds(gpu.uuid)
    )
    device = (("nvidia.com/gpu", uuid),)
    handed_over = Pod(
        namespace="ml",
        name="handed-over",
        uid="handed-over",
        containers=(Container(name="main", devices=device),),
        init_containers=(Container(name="warm", devices=device),),
    )
    simulated.world.pods += (handed_over,)
    config = config_of(kubelet_socket=str(simulated.socket), dcgm_url=simulated.url, kubelet_max_age="0s")
    async with running(config) as exporter:
        before = owners_in(await exporter.page())
        # its init container may still run: the one after it is listed with its device all the same
        assert (uuid, "handed-over") in before
        await simulated.kubelet.restart(down_seconds=0.1, empty_seconds=0.3, partial_seconds=0.0, plugin=False)
        await until_owners_are(exporter, before - {(uuid, "handed-over")}, before)


async def test_a_kubelet_that_is_down_keeps_its_owners_and_says_how_old_they_are() -> None:
    simulated = SimulatedNode(World(gpus=4, seed=5))
    await simulated.start()
    config = config_of(kubelet_socket=str(simulated.socket), dcgm_url=simulated.url, kubelet_max_age="0s")
    async with running(config) as exporter:
        before = owners_in(await exporter.page())
        await simulated.kubelet.stop()
        await asyncio.sleep(0.3)
        page = await exporter.until_page(lambda page: 'source_up{source="kubelet"} 0\n' in page)
        assert owners_in(page) == before
        age = float(page.rpartition("assignments_age_seconds ")[2])
        assert age > 0.3
    await simulated.stop()


async def test_owners_past_their_time_are_dropped() -> None:
    simulated = SimulatedNode(World(gpus=4, seed=5))
    await simulated.start()
    config = config_of(
        kubelet_socket=str(simulated.socket), dcgm_url=simulated.url, kubelet_max_age="0s", kubelet_max_stale="300ms"
    )
    async with running(config) as exporter:
        began = time.monotonic()
        assert owners_in(await exporter.page())
        await simulated.kubelet.stop()
        await exporter.until_page(lambda page: not owners_in(page))
        assert time.monotonic() - began > 0.3
    await simulated.stop()
