"""The failure of `demo --fail link`: an NVLink of a GPU goes bad while a pod holds it.

From then on it has 200 replays an hour, twice as many after each hour. It recovers every ten minutes, and after each
hundred replays. The pods go on. Nobody mends it, and its GPU is handed out again, as happens where nobody looks.

Tests: tests/simulator/test_links.py.
"""

from exporter.simulator.parts import SimulatedGpu
from exporter.simulator.simulated_links import BadLink
from exporter.simulator.world import World, ids_of

LINK = 5
_PER_HOUR = 200.0
_DOUBLES_SECONDS = 3600.0
_FLAPS_SECONDS = 600.0


class LinkFailure:
    """A link of the `world` goes bad, `after_seconds` of its clock: of the first held GPU that is whole.

    If possible it is a GPU whose pod has others, too, and talks to them. Once the link is bad, `gpu` is the GPU's UUID.
    """

    def __init__(self, world: World, *, after_seconds: float) -> None:
        self.gpu = ""
        self._world = world
        self._due = world.machine.clock() + after_seconds * 1e9

    def look(self) -> None:
        """Let the link go bad if it is time and a pod holds a GPU."""
        if self.gpu or self._world.machine.clock() < self._due:
            return
        whole = [gpu for gpu in self._world.gpus if not gpu.instances and not gpu.is_lost]
        held = [gpu for gpu in whole if self._most_devices(gpu)]
        if not held:
            return
        gpu = max(held, key=lambda gpu: min(2, self._most_devices(gpu)))
        self.gpu = gpu.uuid
        machine = self._world.machine
        machine.advance()
        machine.links[gpu.uuid].bad[LINK] = BadLink(
            machine.seconds, per_hour=_PER_HOUR, doubles_seconds=_DOUBLES_SECONDS, flaps_seconds=_FLAPS_SECONDS
        )

    def _most_devices(self, gpu: SimulatedGpu) -> int:
        """How many devices the pod has that holds this GPU; 0 if none does, and of several holders the most."""
        ids = ids_of(gpu)
        pods = [pod for pod in self._world.pods if not pod.has_ended and not ids.isdisjoint(pod.devices)]
        return max((len(pod.devices) for pod in pods), default=0)
