"""GPUs that NVIDIA's DRA driver cuts into MIG instances for each claim, while pods come and go. No API is asked.

The instances have no UUID in any ResourceSlice, and their numbers (GPU_I_ID) come again. Page, spec, List and NVML each
follow in their own time.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import pytest
from aiohttp import web

from exporter.simulator.parts import PROFILES
from exporter.sources.nvml import nvml_reader, nvml_source
from tests.support.components import real
from tests.support.exporter import Exporter, config_of, running
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until

MEMORY, ACTIVITY = "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
OWN_MEMORY = "pod_gpu_memory_used_bytes"
SECOND = 1_000_000_000
SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
Device = tuple[str, str]  # UUID and GPU_I_ID


def rows(page: str, family: str) -> dict[Device, tuple[str, float]]:
    """The pod and the value of each row."""
    samples = [
        (dict(re.findall(r'(\w+)="([^"]*)"', text)), value)
        for name, text, value in SAMPLE.findall(page)
        if name == family
    ]
    devices = {(labels["UUID"], labels.get("GPU_I_ID", "")): (labels["pod"], float(value)) for labels, value in samples}
    assert len(devices) == len(samples)
    return devices


def holders(world: World) -> dict[Device, str]:
    """The pods that hold a GPU or an instance by a claim, or nothing of one."""
    names: dict[str, Device] = {}
    for gpu in world.gpus:
        names |= {gpu.claim_device: (gpu.uuid, "")}
        names |= {mig.claim_device: (gpu.uuid, str(mig.instance_id)) for mig in gpu.instances}
    return {names[device]: pod.name for pod in world.listed for device in pod.devices}


def expected(world: World, page: str) -> dict[Device, str]:
    """Of each row of a page, which may be of before the cut: whoever holds the device, or the whole of its GPU."""
    holds = holders(world)
    return {device: holds.get(device, holds.get((device[0], ""), "")) for device in rows(page, MEMORY)}


async def node_of(stack: AsyncExitStack, clock: Callable[[], int] = time.monotonic_ns) -> SimulatedNode:
    simulated = SimulatedNode(World(gpus=3, claims=3, dynamic=2, seed=11, clock=clock), with_parents=True)
    await simulated.start()
    stack.push_async_callback(simulated.stop)
    return simulated


async def exporter_of(stack: AsyncExitStack, node: SimulatedNode, **settings: str) -> Exporter:
    """It has no token for the Kubernetes API, and may not ask without one."""
    given = settings or {"dcgm_url": node.url}
    config = config_of(kubelet_socket=str(node.socket), kubelet_max_age="0s", **given)
    return await stack.enter_async_context(running(replace(config, root=str(node.root))))


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as made:
        yield made


async def is_right(node: SimulatedNode, exporter: Exporter) -> bool:
    page = await exporter.page()
    return {device: pod for device, (pod, _) in rows(page, MEMORY).items()} == expected(node.world, page)


# issue 18, line 3
@pytest.mark.parametrize("is_late", [False, True])
async def test_each_row_has_its_owner_as_gpus_are_cut_anew(stack: AsyncExitStack, *, is_late: bool) -> None:
    """A page that is late has rows of instances that are gone, and lacks those that were cut since."""
    node = await node_of(stack)
    exporter = await exporter_of(stack, node)
    world, seen, lacking = node.world, set[Device](), 0
    for number in range(12):
        if is_late and not number % 5:
            frozen = node.dcgm.page().encode()
            node.dcgm.failure = lambda _, body=frozen: web.Response(body=body)
        world.step()
        await until(lambda: is_right(node, exporter))
        page = await exporter.page()
        seen |= {device for device, pod in expected(world, page).items() if device[1] and pod}
        lacking += len(holders(world).keys() - rows(page, MEMORY).keys())
        reasons = {row["reason"] for row in json.loads((await exporter.get("/debug/mapping"))[1])["assigned"]}
        assert reasons <= ({"", "no_sample"} if is_late else {""})
    assert len(seen) > 5
    assert bool(lacking) is is_late
    assert (node.api.lists, node.api.watches) == (0, 0)


# issue 18, lines 2 and 3
async def test_an_instance_that_is_cut_during_a_restart_is_not_shown_as_shared(stack: AsyncExitStack) -> None:
    """The pod before is awaited until the kubelet has listed all; its instance's number is another one's by then."""
    node = await node_of(stack)
    exporter = await exporter_of(stack, node)
    world, came_again = node.world, 0
    for _ in range(4):
        await exporter.page()
        before = holders(world)
        restart = asyncio.create_task(node.restart_kubelet(down_seconds=0.1, empty_seconds=0.1, partial_seconds=0.1))
        for _ in range(4):
            world.step()
        now = holders(world)
        came_again += sum(device[1] != "" and pod != before.get(device, pod) for device, pod in now.items())
        calls = node.kubelet.calls
        while not restart.done() or node.kubelet.calls < calls + 4:
            rows(await exporter.page(), MEMORY)  # a device's row is there once
            await asyncio.sleep(0.01)
        await until(partial(lists_all, exporter, now))
    assert came_again > 1


async def lists_all(exporter: Exporter, holds: dict[Device, str]) -> bool:
    """Whether each pod that holds something is shown with it, beside pods that may still be awaited."""
    devices = rows(await exporter.page(), MEMORY)
    return all(devices[device][0] == pod for device, pod in holds.items())


# issue 18, line 3
async def test_memory_and_activity_of_instances_add_up_to_their_gpus(stack: AsyncExitStack) -> None:
    moments = [0]
    node = await node_of(stack, clock=lambda: moments[-1])
    exporter = await exporter_of(stack, node)
    world, compared = node.world, 0
    for number in range(12):
        moments.append(number * 100 * SECOND)
        world.step()
        await until(lambda: is_right(node, exporter))
        page = await exporter.page()
        memory, activity = rows(page, MEMORY), rows(page, ACTIVITY)
        for gpu in world.gpus:
            parts = {(gpu.uuid, str(mig.instance_id)): PROFILES[mig.profile].slices for mig in gpu.instances}
            if not parts:
                continue
            assert all(memory[device][0] and activity[device][0] == memory[device][0] for device in parts)
            assert memory[gpu.uuid, ""] == ("", sum(memory[device][1] for device in parts))
            of_parts = sum(activity[device][1] * slices / 7 for device, slices in parts.items())
            assert activity[gpu.uuid, ""][1] == pytest.approx(of_parts, abs=1e-5)
            compared += len(parts)
    assert compared > 20


# issue 18, line 3
async def test_nvml_lists_new_instances_and_their_processes_have_owners(
    stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await node_of(stack, clock=lambda: 0)
    real("gcc")
    assert node.nvml.build()
    loads(monkeypatch, node.nvml)
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.03)
    monkeypatch.setattr(nvml_reader, "UNTOLD_SECONDS", 0.1)
    stack.push_async_callback(until_nobody_uses_it)
    exporter = await exporter_of(stack, node, dcgm_mode="off", nvml_mode="on", processes_expose="on")

    def used() -> dict[Device, tuple[str, float]]:
        lines = [line.split() for line in node.write_processes() if line.startswith("process ")]
        places = {(str(gpu.index), "-1"): (gpu.uuid, "") for gpu in node.world.gpus}
        places |= {
            (str(gpu.index), str(mig.instance_id)): (gpu.uuid, str(mig.instance_id))
            for gpu in node.world.gpus
            for mig in gpu.instances
        }
        holds = holders(node.world)
        return {place: (holds[place], float(line[6])) for line in lines if (place := places[line[1], line[2]])}

    async def all_is_right() -> bool:
        page, metrics = await exporter.page(), (await exporter.get("/metrics"))[1]
        # for a moment a process is nobody's: its pod came, or went, between two readings
        own = "\n".join(line for line in metrics.splitlines() if 'pod=""' not in line and 'holds="false"' not in line)
        is_listed = rows(page, MEMORY).keys() >= holders(node.world).keys()
        return is_listed and await is_right(node, exporter) and rows(own, OWN_MEMORY) == used()

    for _ in range(8):
        node.world.step()
        node.write_processes()
        await until(all_is_right)
