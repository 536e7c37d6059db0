"""The simulated node over its sockets: dcgm-exporter that starts again, and a GPU that is cut anew while it runs."""

import json
import re

import aiohttp
import pytest

from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until

ENERGY = re.compile(r'^DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION\{gpu="0".*\} (\d+)$', re.MULTILINE)


async def page(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


async def test_dcgm_exporter_starts_again_where_it_was_and_the_driver_goes_on() -> None:
    node = SimulatedNode(World(gpus=2, mig=1, seed=3))
    await node.start()
    try:
        node.world.machine.add_xid(node.world.gpus[0].uuid, 79)
        before = await page(node.url)
        assert 'err_code="79",err_msg="GPU has fallen off the bus"} 79' in before
        await node.dcgm.stop()
        with pytest.raises(aiohttp.ClientConnectionError):
            await page(node.url)
        await node.restart_dcgm()
        after = await page(node.url)
    finally:
        await node.stop()
    assert node.dcgm.fetches == 2
    assert 'err_code="79"' not in after
    assert ENERGY.findall(before) <= ENERGY.findall(after)


async def test_a_cut_is_in_the_inventory() -> None:
    node = SimulatedNode(World(gpus=2, seed=3))
    await node.start()
    try:
        new = node.recut(node.world.gpus[1], ("3g.40gb", "4g.40gb"))
        inventory = json.loads(node.inventory_file.read_text())
        assert [(mig["uuid"], mig["instance_id"], mig["profile"]) for mig in inventory["gpus"][1]["mig"]] == [
            (mig.device_id, mig.instance_id, mig.profile) for mig in new.instances
        ]
        assert 'GPU_I_PROFILE="4g.40gb",GPU_I_ID="2"' in await page(node.url)
    finally:
        await node.stop()


# issue 9, A: the demo may run life faster; owners stay readable
async def test_life_goes_on_by_itself() -> None:
    node = SimulatedNode(World(gpus=4, seed=3, speed=60))
    before = node.world.pods
    await node.start(step_seconds=0.01)
    try:
        for _ in range(500):
            if node.world.pods != before:
                break
            await page(node.url)
    finally:
        await node.stop()
    assert node.world.pods != before


async def test_between_two_reads_of_its_gpus_dcgm_exporter_says_the_same() -> None:
    node = SimulatedNode(World(gpus=1, seed=3), collect_seconds=2.0)
    await node.start()
    try:
        first = await page(node.url)
        node.world.machine.add_xid(node.world.gpus[0].uuid, 79)
        assert [await page(node.url), await page(node.url)] == [first, first]

        async def read_again() -> str:
            text = await page(node.url)
            return text if 'err_code="79"' in text else ""

        later = await until(read_again)
        assert ENERGY.findall(first) < ENERGY.findall(later)
        node.world.machine.add_xid(node.world.gpus[0].uuid, 31)
        await node.restart_dcgm()  # a new process reads at once
        assert ENERGY.findall(later) <= ENERGY.findall(await page(node.url))
    finally:
        await node.stop()
    read_by = node.dcgm._collecting
    assert read_by is not None
    assert read_by.cancelling()
