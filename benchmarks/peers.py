"""The other processes of a measurement: a simulated node that costs little, and a bare proxy.

python -m benchmarks.peers node SOCKET [mig]
                                           page on a free port (printed), a kubelet on SOCKET; SIGUSR1: all pods change;
                                           mig: 16 GPUs in 112 instances and 60 families instead of 8 GPUs and 25
python -m benchmarks.peers proxy URL       passes URL's page on, on a free port (printed)
"""

import asyncio
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import aiohttp
from aiohttp import web

from exporter.simulator.dcgm_pages import FAMILIES, SimulatedFamily, page
from tests.support.made_pages import copies, made_row
from tests.support.simulated import SimulatedKubelet, World


async def serve(app: web.Application) -> None:
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def page_of(world: World, families: Sequence[SimulatedFamily], seconds: int) -> str:
    """A page with a value for every family and device, whatever the family's name is."""
    chance = random.Random(seconds)
    rows = [
        made_row(
            gpu.index, gpu.uuid, chance.random(), families, seconds=seconds, profile=profile, instance_id=instance_id
        )
        for gpu in world.gpus
        for profile, instance_id in (("", None), *((mig.profile, mig.instance_id) for mig in gpu.instances))
    ]
    return page(rows, families, generation="3", host_name="gpu-node-1")


async def node(socket: Path, *, mig: bool) -> None:
    world = World(gpus=16, mig=16, seed=1) if mig else World(gpus=8, seed=1)
    families = (*FAMILIES, *copies(FAMILIES, 2))[:60] if mig else FAMILIES
    # the pages are made beforehand, so that making them is not measured
    pages = [page_of(world, families, seconds).encode() for seconds in range(20)]
    kubelet = SimulatedKubelet(socket, lambda: world.pods)
    await kubelet.start()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, world.replace_all)

    async def answer(_: web.Request) -> web.Response:
        pages.append(pages.pop(0))
        return web.Response(body=pages[0])

    app = web.Application()
    app.router.add_get("/metrics", answer)
    await serve(app)


async def proxy(url: str) -> None:
    app = web.Application()
    async with aiohttp.ClientSession() as session:

        async def answer(_: web.Request) -> web.Response:
            async with session.get(url) as response:
                return web.Response(body=await response.read(), headers={"Content-Type": "text/plain; version=0.0.4"})

        app.router.add_get("/gpu/metrics", answer)
        await serve(app)


if __name__ == "__main__":
    asyncio.run(node(Path(sys.argv[2]), mig="mig" in sys.argv) if sys.argv[1] == "node" else proxy(sys.argv[2]))
