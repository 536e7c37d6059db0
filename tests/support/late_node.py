"""A process of its own: a page at once, a kubelet a second later. Arguments: the socket, the page's port."""

import asyncio
import sys
from pathlib import Path

from exporter.simulator.dcgm import SimulatedDcgm
from tests.support.simulated import GPU_RESOURCE, Container, Pod, SimulatedKubelet, World


async def main(socket: Path, port: int) -> None:
    await asyncio.sleep(0.7)
    world = World(gpus=1)
    world.pods = (
        Pod(
            namespace="n",
            name="late",
            containers=(Container(name="c", devices=((GPU_RESOURCE, world.gpus[0].uuid),)),),
        ),
    )
    await SimulatedDcgm(world).start(port=port)
    await asyncio.sleep(1.0)
    kubelet = SimulatedKubelet(socket, lambda: world.pods)
    await kubelet.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
