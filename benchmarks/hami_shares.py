"""The cost of an allocator's words for a steady scrape: 112 HAMi shares beside 112 shares by time slicing.

python -m benchmarks.hami_shares
"""

import asyncio
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.claims import asked, watching
from benchmarks.stops import Served
from benchmarks.table import Row, at_most, rounds, show
from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.parts import GPU_RESOURCE
from exporter.simulator.pods_api import SimulatedPodsApi
from tests.support.simulated import Container, Pod, SimulatedKubelet, World

GPUS, SHARES_A_GPU, SCRAPES = 8, 14, 300
_ANNOTATION = "hami.io/vgpu-devices-allocated"


class _Node:
    """A node each of whose GPUs is shared by as many pods, by HAMi or by time slicing. Its files are below `root`."""

    def __init__(self, root: Path, *, is_hami: bool) -> None:
        world = World(gpus=GPUS, clock=lambda: 0)
        uuids = [gpu.uuid for gpu in world.gpus]
        self.pods = [
            _hami(number, uuids) if is_hami else _sliced(number, uuids) for number in range(GPUS * SHARES_A_GPU)
        ]
        root.mkdir()
        self.page = root / "page.prom"
        self.page.write_text(SimulatedDcgm(world).page())
        os.utime(self.page, (time.time() - 5, time.time() - 5))  # old enough to count as whole
        self.kubelet = SimulatedKubelet(root / "kubelet.sock", lambda: self.pods)
        self.pods_api = SimulatedPodsApi(root / "pods-api.sock", lambda: self.pods)
        self.settings = (
            f"kubelet.socket={root}/kubelet.sock",
            f"kubelet.pods-socket={root}/pods-api.sock",
            "kubelet.max-age=0s",
            "accounting.mode=off",
        )

    async def start(self) -> Served:
        """Start to answer, and an exporter that asks."""
        await self.kubelet.start()
        await self.pods_api.start()
        return await asyncio.to_thread(Served, self.page, *self.settings)

    async def stop(self) -> None:
        await self.kubelet.stop()
        await self.pods_api.stop()


def _sliced(number: int, uuids: list[str]) -> Pod:
    uuid, share = uuids[number % GPUS], number // GPUS
    return _pod(number, f"{uuid}::{share}")


def _hami(number: int, uuids: list[str]) -> Pod:
    """The kubelet picked a share of the next GPU, not of the one that HAMi chose."""
    picked, share = uuids[(number + 1) % GPUS], number // GPUS
    word = f"{uuids[number % GPUS]},NVIDIA,4096,7:;"
    return replace(_pod(number, f"{picked}-{share}"), annotations=((_ANNOTATION, word),))


def _pod(number: int, device_id: str) -> Pod:
    container = Container(name="main", devices=((GPU_RESOURCE, device_id),), asks=((GPU_RESOURCE, 1),))
    name = f"train-{number}"
    return Pod(namespace="ml", name=name, uid=name, containers=(container,))


async def measure(scrapes: int) -> tuple[float, float]:
    """The event loop's CPU of a steady scrape in seconds (median): by time slicing, and by HAMi, in turns."""
    with tempfile.TemporaryDirectory() as made:
        nodes = [_Node(Path(made) / name, is_hami=name == "hami") for name in ("sliced", "hami")]
        exporters = [await node.start() for node in nodes]
        took: list[list[float]] = [[], []]
        try:
            for exporter in exporters:
                for _ in range(20):
                    await asyncio.to_thread(exporter.ask, "/gpu/metrics")
                unmatched = await asyncio.to_thread(exporter.body, "/metrics")
                if b"pod_gpu_exporter_unmatched_devices{" in unmatched:
                    raise RuntimeError("some shares have no owner")
            idle = [await asyncio.to_thread(watching, exporter) for exporter in exporters]
            for _ in range(scrapes):
                for number, exporter in enumerate(exporters):
                    stop = await asyncio.to_thread(asked, exporter, idle[number])
                    took[number].append(stop.total)
        finally:
            for exporter in exporters:
                await asyncio.to_thread(exporter.end)
            for node in nodes:
                await node.stop()
    return statistics.median(took[0]), statistics.median(took[1])


def run(effort: float) -> list[Row]:
    """The row on 112 shares."""
    sliced, hami = asyncio.run(measure(rounds(SCRAPES, effort)))
    figure = f"{hami / sliced:.2f} times ({hami * 1e3:.2f} ms and {sliced * 1e3:.2f} ms)"
    return [Row("112 HAMi shares / 112 by time slicing, a steady scrape", figure, at_most(1.1, "times"), hami / sliced)]


if __name__ == "__main__":
    print(show(run(1.0)))
