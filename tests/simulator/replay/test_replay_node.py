"""A node that is played back from a bundle: the exporter in front of it says what it said of the recorded one."""

import ctypes
import difflib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from exporter.bundle.collecting.looking import collect
from tests.support.bundles import (
    config_of_node,
    findings_in,
    in_recorded_words,
    recorded_moments,
    replay_of,
    without_times,
)
from tests.support.nvml import until_nobody_uses_it
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import until

REPORT = "/debug/mapping"
PAGES = ("/gpu/metrics", "/container/metrics", "/metrics/nodes", "/events", REPORT)


@asynccontextmanager
async def simulated(world: World) -> AsyncIterator[SimulatedNode]:
    """A node with NVML, which no other node of this process has meanwhile."""
    node = SimulatedNode(world)
    node.has_device_checkpoint = True
    try:
        await node.start()
        node.nvml.load()
        yield node
    finally:
        await node.stop()
        if node.nvml.loaded:
            await until_nobody_uses_it()
            ctypes.CDLL(None).dlclose(ctypes.c_void_p(node.nvml.loaded._handle))


async def test_pages_and_findings_come_back_at_each_moment() -> None:
    world = World(gpus=8, mig=1, shared=2, claims=2, dynamic=1, seed=7)
    async with simulated(world) as node:
        recording = await recorded_moments(node, config_of_node(node), (list, world.step, world.replace_all))
        root = str(node.root)
    async with replay_of(recording) as replayed:
        for number, moment in enumerate(recording.moments):
            await replayed.show(number)
            recorded = {path: moment.outputs[path].decode().replace(root, "") for path in PAGES}
            differences: dict[str, object] = {}

            async def is_as_recorded(
                recorded: Mapping[str, str] = recorded, differences: dict[str, object] = differences
            ) -> bool:
                (look,) = (await collect(replayed.config())).moments
                for path, text in recorded.items():
                    again = in_recorded_words(replayed, look.outputs[path])
                    is_report = path == REPORT
                    one, other = (findings_in(of) if is_report else without_times(of) for of in (text, again))
                    differences[path] = _difference(str(one), str(other))
                return not any(differences.values())

            await until(is_as_recorded, why=lambda differences=differences: differences)  # type: ignore[misc]


def _difference(recorded: str, replayed: str) -> list[str]:
    before, after = (text.replace(',"', ',\n"').split("\n") for text in (recorded, replayed))
    lines = difflib.unified_diff(before, after, lineterm="", n=0)
    return [line[:400] for line in lines if not line.startswith(("---", "+++", "@@"))][:20]
