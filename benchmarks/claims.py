"""The cost of a claim for the exporter's event loop, on a node of 8 GPUs in 56 MIG instances where claims come and go.

python -m benchmarks.claims    500 claims in a row, beside 55 others: each with a CDI spec, an entry in List, a scrape
"""

import asyncio
import os
import statistics
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path

from benchmarks.stops import Served, Stop
from benchmarks.table import Row, at_most, rounds, show
from exporter.model.devices import Claim
from exporter.simulator import driver_files
from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.parts import DRA_DRIVER
from tests.support.simulated import Container, Instance, Pod, SimulatedGpu, SimulatedKubelet, World

GPUS, CLAIMS = 8, 500
LIMIT_MS = 5.0
_CLAIM = f"k8s.{DRA_DRIVER}/claim"


class Claimed:
    """A node all of whose instances are held by claims, one pod each. Its files are below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.world = World(gpus=GPUS, mig=GPUS, clock=lambda: 0)
        self.places = [(gpu, mig) for gpu in self.world.gpus for mig in gpu.instances]
        self.held = {number: self._new(number) for number in range(len(self.places))}
        self._made = len(self.held)
        driver_files.write(root, self.world.gpus)
        self.write_specs()

    def pods(self) -> tuple[Pod, ...]:
        return tuple(pod for pod, _, _ in self.held.values())

    def write_specs(self) -> None:
        gpus = [SimulatedGpu(index=gpu.index, uuid=gpu.uuid, instances=(mig,)) for _, gpu, mig in self.held.values()]
        driver_files.write_claims(self.root, self.pods(), gpus)

    def replace_one(self) -> None:
        """Remove a claim, and give its instance to a new one."""
        self._made += 1
        self.held[self._made % len(self.held)] = self._new(self._made)
        self.write_specs()

    def _new(self, number: int) -> tuple[Pod, SimulatedGpu, Instance]:
        gpu, mig = self.places[number % len(self.places)]
        name = f"{_CLAIM}={uuid.uuid4()}-gpu-{gpu.index}-mig-1g10gb-19-{mig.instance_id - 7}"
        device = name.partition("-gpu-")[2]
        claim = Claim(
            namespace="ml",
            name=f"claim-{number}",
            driver=DRA_DRIVER,
            pool="n",
            device=f"gpu-{device}",
            cdi_names=(name,),
        )
        pod = Pod(namespace="ml", name=f"train-{number}", containers=(Container(name="main", claims=(claim,)),))
        return pod, gpu, Instance(device_id=mig.device_id, instance_id=mig.instance_id, cdi_name=name)


async def measure(claims: int) -> tuple[float, float, float]:
    """Milliseconds of the event loop that a claim takes on top of a scrape (median), the longest stop, and a scrape."""
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        node = Claimed(root)
        page = root / "page.prom"
        page.write_text(SimulatedDcgm(node.world).page())
        os.utime(page, (time.time() - 5, time.time() - 5))  # old enough to count as whole
        kubelet = SimulatedKubelet(root / "kubelet.sock", node.pods)
        await kubelet.start()
        settings = (f"kubelet.socket={root}/kubelet.sock", "kubelet.max-age=0s", f"root={root}", "accounting.mode=off")
        exporter = await asyncio.to_thread(Served, page, *settings)
        try:
            for _ in range(20):
                await asyncio.to_thread(exporter.ask, "/gpu/metrics")
            idle = await asyncio.to_thread(watching, exporter)
            without = [await asyncio.to_thread(asked, exporter, idle) for _ in range(claims)]
            each = []
            for _ in range(claims):
                node.replace_one()
                each.append(await asyncio.to_thread(asked, exporter, idle))
        finally:
            await asyncio.to_thread(exporter.end)
            await kubelet.stop()
    scrape = statistics.median(stop.total for stop in without) * 1e3
    return (
        statistics.median(stop.total for stop in each) * 1e3 - scrape,
        max(stop.longest for stop in each) * 1e3,
        scrape,
    )


def watching(exporter: Served) -> float:
    """The event loop's CPU in a second without a request, in which it only checks itself every millisecond."""
    exporter.mark()
    time.sleep(1.0)
    return exporter.mark().total


def asked(exporter: Served, idle: float) -> Stop:
    """The time of a scrape, without that of the loop's checks of itself."""
    began = time.monotonic()
    stop = exporter.ask("/gpu/metrics")
    return replace(stop, total=stop.total - idle * (time.monotonic() - began))


def run(effort: float) -> list[Row]:
    """The rows on a claim's cost."""
    took, longest, scrape = asyncio.run(measure(rounds(CLAIMS, effort)))
    figure = f"{took:.1f} ms beside {scrape:.1f} ms of a scrape; longest stop {longest:.0f} ms"
    return [
        Row(
            "a claim that comes for another one, 56 MIG instances: event loop's CPU",
            figure,
            at_most(LIMIT_MS, "ms"),
            took,
        )
    ]


if __name__ == "__main__":
    print(show(run(1.0)))
