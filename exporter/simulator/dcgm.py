"""A simulated dcgm-exporter of any generation, on a loopback port, in front of a simulated node's GPUs.

Tests: tests/simulator/test_node.py.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from aiohttp import web

from exporter.dcgm.health_watches import FAMILY as HEALTH_STATUS
from exporter.dcgm.xids import OTHER_XID, XIDS
from exporter.simulator.dcgm_health import rows_of_watches
from exporter.simulator.dcgm_pages import NVLINK, SimulatedRow, families_of, families_of_links, page
from exporter.simulator.machine import Xid
from exporter.simulator.npu_page import npu_page
from exporter.simulator.parts import SimulatedGpu
from exporter.simulator.readings import Labels, Reading, of_gpu, of_instance, of_links, of_whole
from exporter.simulator.serving import Serving
from exporter.simulator.world import World

# generations, as of pages.py
_SHELL = "1"
_OLDER = "3"
XID_WINDOW_MS = 300_000


class SimulatedDcgm:
    """Serves the page of a world at /metrics; of a world with NPUs that of npu-exporter.

    It reads its GPUs every `collect_seconds`, as with `--collect-interval`; with 0 it reads them for every request.
    """

    def __init__(
        self,
        world: World,
        *,
        host_name: str = "gpu-node-1",
        generation: str = "3",
        counters: str = "default",
        with_parents: bool = False,
        collect_seconds: float = 0.0,
        with_links: bool = False,
    ) -> None:
        """The page comes from the GPUs of `world`.

        Args:
            world: the node.
            host_name: the node's name in samples.
            generation: a generation of dcgm_pages.py.
            counters: a counters file of dcgm_pages.py.
            with_parents: a MIG GPU has a row, too (`-d g,i`). The shell version has only rows of GPUs.
            collect_seconds: see the class.
            with_links: the counters file asks for each link's errors, too.
        """
        self.collect_seconds = collect_seconds
        self._world = world
        self._host_name = host_name
        self._generation = generation
        self._with_links = with_links
        self.families = families_of(generation, counters)
        if with_links:
            self.families += families_of_links(world.machine.nvlink, generation)
        self._with_parents = with_parents or generation == _SHELL
        # a counter may not fall, but this family is a rate; if it is typed a counter, the GPUs send nothing over NVLink
        self._no_links = any(family.name == NVLINK and family.kind == "counter" for family in self.families)
        self._began_ns = 0
        self._events: dict[str, dict[str, int]] = {}
        self.begin_anew()
        self._serving: Serving | None = None
        self._collected = b""
        self._collecting: asyncio.Task[None] | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; port 0 is any free port. Returns the page's URL."""
        if self.collect_seconds:
            self._collected = self.page().encode()
            self._collecting = asyncio.create_task(self._collect())
        app = web.Application()
        app.router.add_get("/metrics", self.answer)
        self._serving = Serving(app, drain_seconds=0.5)
        await self._serving.start(host, port)
        host, port = self._serving.address
        return f"http://{host}:{port}/metrics"

    async def stop(self) -> None:
        """Stop listening; requests in flight have half a second to end."""
        if self._collecting:
            self._collecting.cancel()
        if self._serving:
            await self._serving.stop()

    def begin_anew(self) -> None:
        """Forget, as a new process of dcgm-exporter does, earlier XIDs (its issue 500) and its own counts."""
        machine = self._world.machine
        machine.advance()
        self._began_ns = machine.clock()
        self._events = {uuid: dict(board.events) for uuid, board in machine.boards.items()}

    def page(self) -> str:
        """The present page."""
        machine = self._world.machine
        later_ns = machine.advance()
        if self._world.allocator and not self._world.allocator.has_nvidia:
            return npu_page(machine, self._world.gpus, self._world.pods, time.time_ns() // 1_000_000)
        return page(
            [row for gpu in self._world.gpus for row in self._rows(gpu, later_ns)],
            self.families,
            generation=self._generation,
            host_name=self._host_name,
        )

    def _rows(self, gpu: SimulatedGpu, later_ns: int) -> list[SimulatedRow]:
        """A row for each MIG instance of a GPU, and a row for the GPU.

        The row of a MIG GPU has only the health watches, unless `with_parents` is on.
        """
        machine = self._world.machine
        own = self._own(gpu.uuid)
        links = of_links(machine, gpu) if self._with_links else {}
        readings: dict[str, Reading] = {HEALTH_STATUS: self._of_watches(gpu), **links}
        if self._with_parents or not gpu.instances:
            readings = {**of_whole(machine, gpu, later_ns), **own, **readings}
        row = SimulatedRow(index=gpu.index, uuid=gpu.uuid, model=gpu.card.model, readings=readings)
        rows = [row]
        if gpu.instances:
            shared = {**of_gpu(machine, gpu, later_ns), **own}
            for instance in gpu.instances:
                readings = {**shared, **of_instance(machine, instance)}
                row = replace(row, readings=readings, profile=instance.profile, instance_id=instance.instance_id)
                rows.append(row)
        if gpu.is_lost:
            return [replace(row, readings=_left_of(row.readings)) for row in rows]
        return rows

    def _of_watches(self, gpu: SimulatedGpu) -> Reading:
        machine = self._world.machine
        return rows_of_watches(
            [error.xid for error in self._errors(gpu.uuid)],
            machine.boards[gpu.uuid].reasons,
            is_lost=gpu.is_lost,
            has_whole_gpu=self._generation != _OLDER,
        )

    def _errors(self, uuid: str) -> list[Xid]:
        """The errors of a GPU since this process' start."""
        return [error for error in self._world.machine.xids.get(uuid, ()) if error.at_ns >= self._began_ns]

    def _own(self, uuid: str) -> Mapping[str, Reading]:
        """The families that dcgm-exporter counts itself since its start: the last XID, errors and events."""
        machine = self._world.machine
        own_errors = self._errors(uuid)
        last = own_errors[-1].xid if own_errors else 0
        window_ns = machine.clock() - XID_WINDOW_MS * 1_000_000
        recent = [error for error in own_errors if error.at_ns >= window_ns]
        window = ("window_size_in_ms", str(XID_WINDOW_MS))
        labels = (("err_code", str(last)), ("err_msg", XIDS.get(last, OTHER_XID).name))
        # without events that have not been there since
        events = Counter(machine.boards[uuid].events) - Counter(self._events.get(uuid, {}))
        own: dict[str, Reading] = {
            "DCGM_FI_DEV_XID_ERRORS": [(() if self._generation == _SHELL else labels, last)],
            "DCGM_EXP_XID_ERRORS_TOTAL": _counted(own_errors),
            "DCGM_EXP_XID_ERRORS_COUNT": _counted(recent, window) or [((window,), 0)],
            "DCGM_EXP_CLOCK_EVENTS_TOTAL": [((("clock_event", name),), events[name]) for name in sorted(events)],
        }
        if self._no_links:
            own[NVLINK] = 0
        return own

    async def answer(self, _: web.Request) -> web.StreamResponse:
        """Answer with the present page, or with the page of the last read."""
        return web.Response(body=self._collected if self.collect_seconds else self.page().encode())

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(self.collect_seconds)
            self._collected = self.page().encode()


def _left_of(readings: Mapping[str, Reading]) -> Mapping[str, Reading]:
    """What there still is of a lost GPU."""
    return {name: reading for name, reading in readings.items() if name == HEALTH_STATUS or "XID" in name}


def _counted(errors: Iterable[Xid], *labels: tuple[str, str]) -> Sequence[tuple[Labels, float]]:
    """How often there was each XID."""
    counts = Counter(error.xid for error in errors)
    return [((*labels, ("xid", str(xid))), counts[xid]) for xid in sorted(counts)]
