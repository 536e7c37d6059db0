"""Schedulers of a simulated node that choose a GPU themselves, and write it on the pod.

Each has a device plugin, whose ids the kubelet hands out at random, and which gives a container the GPU that the
scheduler chose. They are as unkind as real ones (`Unkindness`).
"""

from exporter.simulator.allocators.ascend import Ascend
from exporter.simulator.allocators.gpushare import AckGpushare, Gpushare
from exporter.simulator.allocators.reservations import Kai, Koordinator, RunAi
from exporter.simulator.allocators.simulated_allocator import Given, SimulatedAllocator, Unkindness, given
from exporter.simulator.allocators.vgpu import Hami, OlderHami, Volcano

__all__ = [
    "ALLOCATORS",
    "AckGpushare",
    "Ascend",
    "Given",
    "Gpushare",
    "Hami",
    "Kai",
    "Koordinator",
    "OlderHami",
    "RunAi",
    "SimulatedAllocator",
    "Unkindness",
    "Volcano",
    "given",
]
ALLOCATORS: dict[str, type[SimulatedAllocator]] = {
    "hami": Hami,
    "volcano": Volcano,
    "gpushare": Gpushare,
    "kai": Kai,
    "ascend": Ascend,
}
"""Those of `demo --allocator`."""
