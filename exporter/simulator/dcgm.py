"""dcgm-exporter on a loopback port, of any generation, with values that move."""

import random
import time
from collections.abc import Callable, Sequence

from aiohttp import web

from exporter.simulator.families import FAMILIES, Family
from exporter.simulator.pages import Row, page
from exporter.simulator.world import Gpu, World


class SimulatedDcgm:
    """Serves the page of a world at /metrics, or calls `failure` for the answer where that is set.

    `fetches` counts the requests.
    """

    def __init__(
        self,
        world: World,
        *,
        host_name: str = "gpu-node-1",
        generation: str = "3",
        families: Sequence[Family] = FAMILIES,
        seed: int = 1,
    ) -> None:
        self.fetches = 0
        self.failure: Callable[[web.Request], web.StreamResponse] | None = None
        self._world = world
        self._host_name = host_name
        self._generation = generation
        self._families = families
        self._random = random.Random(seed)
        self._started = time.monotonic()
        self._busy: dict[str, float] = {}
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.5)

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen, on a free port for port 0. Returns the page's URL."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}/metrics"

    async def stop(self) -> None:
        """Stop listening; requests in flight have half a second to end."""
        await self._runner.cleanup()

    def page(self) -> str:
        """The page of this moment. The values change with every call, by the seed."""
        return page(
            [row for gpu in self._world.gpus for row in self._rows(gpu)],
            self._families,
            generation=self._generation,
            host_name=self._host_name,
            seconds=time.monotonic() - self._started,
        )

    def _rows(self, gpu: Gpu) -> list[Row]:
        """A row for the GPU, then one for each of its MIG instances."""
        return [Row(index=gpu.index, uuid=gpu.uuid, busy=self._how_busy(gpu.uuid))] + [
            Row(
                index=gpu.index,
                uuid=gpu.uuid,
                busy=self._how_busy(instance.device_id),
                profile=instance.profile,
                instance_id=instance.instance_id,
            )
            for instance in gpu.instances
        ]

    def _how_busy(self, device_id: str) -> float:
        """How busy a device is: a random walk from 0.05 to 1 while a pod holds it, 0 while none does."""
        if not self._world.holds(device_id):
            self._busy[device_id] = 0.0
            return 0.0
        moved = self._busy.get(device_id, 0.5) + self._random.uniform(-0.1, 0.1)
        self._busy[device_id] = min(1.0, max(0.05, moved))
        return self._busy[device_id]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.fetches += 1
        if self.failure:
            return self.failure(request)
        return web.Response(body=self.page().encode())
