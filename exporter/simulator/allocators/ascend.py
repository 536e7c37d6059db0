"""Huawei's Ascend device plugin with Volcano: whole NPUs, of which the scheduler chooses and the kubelet picks others.

The annotations are those of ascend-device-plugin (pkg/common/constants.go and the plugin's documentation).

Tests: tests/simulator/test_allocators.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from exporter.simulator.allocators.simulated_allocator import Named, PodsNow, SimulatedAllocator
from exporter.simulator.parts import Note, Part, Pod, SimulatedGpu, Slot

_CHIP = "Ascend910"


class Ascend(SimulatedAllocator):
    """The plugin with useVolcanoType. Volcano writes the NPUs that it chose before the pod is bound.

    The plugin writes what it gave (AscendReal) and what the kubelet had picked (kltDev), perhaps later.
    """

    name = "Ascend"
    resource = f"huawei.com/{_CHIP}"
    takes_one_container = True
    has_nvidia = False
    # the kernel's log has XIDs, which are NVIDIA's
    settings: ClassVar[Mapping[str, str]] = {
        "resources": resource,
        "device-rules": "huawei",
        "kernel-log.mode": "off",
    }

    def __init__(self, **more: Any) -> None:  # noqa: ANN401 - the arguments of SimulatedAllocator
        """`more` are the arguments of SimulatedAllocator, except `seats`: an NPU is one."""
        super().__init__(**more, seats=1)

    def begin(self, gpus: Sequence[SimulatedGpu], pods: PodsNow, clock: Callable[[], int]) -> tuple[SimulatedGpu, ...]:
        """Take over these devices, which are NPUs from now on."""
        return super().begin([replace(gpu, uuid=_vdie_id(gpu.uuid)) for gpu in gpus], pods, clock)

    def tokens(self, gpu: SimulatedGpu) -> Iterable[Slot]:
        """The device ids that the plugin registers for a GPU."""
        yield self.resource, f"{_CHIP}-{gpu.index}"

    def part(self, gpu: str, memory_mib: int, cores_percent: int, seats: int) -> Part:
        """A part of a GPU, as this allocator counts it."""
        del memory_mib, cores_percent, seats
        return Part(uuid=gpu)

    def asks(self, parts: Sequence[Part]) -> dict[str, int]:
        """The numbers of resources in the limits of a container with these parts."""
        return {self.resource: len(parts)}

    def environment(self, parts: Sequence[Part]) -> dict[str, str]:
        """The variables that the plugin sets."""
        return {"ASCEND_VISIBLE_DEVICES": ",".join(f"{self.index(part.uuid)}" for part in parts)}

    def chosen(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """The annotations that are there before the pod is bound."""
        names = self._names(part for container in pod.containers for part in container.parts)
        return (self.resource, names), ("predicate-time", f"{self.seconds()}000000000")

    def words(self, pod: Pod, named: Named) -> Note:
        """What the allocator writes on a pod."""
        picked = [token for container in pod.containers for _, token in container.devices]
        real = self._names(part for parts in named.values() for part in parts)
        return Note(annotations=(("huawei.com/AscendReal", real), ("huawei.com/kltDev", ",".join(picked))))

    def _names(self, parts: Iterable[Part]) -> str:
        return ",".join(f"{_CHIP}-{self.index(part.uuid)}" for part in parts)


def _vdie_id(gpu: str) -> str:
    """An NPU's id as npu-exporter writes it: five groups of eight digits."""
    digits = gpu.removeprefix("GPU-").replace("-", "").upper()
    return "-".join(f"{digits}95045100"[start : start + 8] for start in range(0, 40, 8))
