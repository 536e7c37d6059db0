"""Alibaba's gpushare: a pod has GiB of one GPU, and as many ids of any GPUs.

The ids and variables are those of gpushare-device-plugin (pkg/gpu/nvidia/nvidia.go, allocate.go), the annotations those
of gpushare-scheduler-extender (pkg/utils/pod.go, GetUpdatedPodAnnotationSpec). ACK's own scheduler writes JSON.

Tests: tests/simulator/test_allocators.py.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from exporter.simulator.allocators.simulated_allocator import Named, SimulatedAllocator
from exporter.simulator.parts import H100, Note, Part, Pod, SimulatedGpu, Slot

_GIB_MIB = 1024


class Gpushare(SimulatedAllocator):
    """The scheduler extender. `unit_mib` is what one id stands for: 1024 or, with --memory-unit=MiB, 1."""

    name = "gpushare"
    resource = "aliyun.com/gpu-mem"
    settings: ClassVar[Mapping[str, str]] = {"resources": resource}
    takes_one_gpu = True

    def __init__(self, *, unit_mib: int = _GIB_MIB, **more: Any) -> None:  # noqa: ANN401 - the arguments of SimulatedAllocator
        """`more` are the arguments of SimulatedAllocator."""
        self._unit_mib = unit_mib
        super().__init__(**more)

    def tokens(self, gpu: SimulatedGpu) -> Iterable[Slot]:
        """The device ids that the plugin registers for a GPU."""
        for number in range(H100.memory // self._unit_mib):
            yield self.resource, f"{gpu.uuid}-_-{number}"

    def part(self, gpu: str, memory_mib: int, cores_percent: int, seats: int) -> Part:
        """A part of a GPU, as this allocator counts it."""
        del cores_percent, seats
        return Part(uuid=gpu, memory_mib=max(1, memory_mib // self._unit_mib) * self._unit_mib)

    def units(self, parts: Sequence[Part]) -> int:
        """The memory of these parts, as the allocator counts it."""
        return sum((part.memory_mib or 0) // self._unit_mib for part in parts)

    def asks(self, parts: Sequence[Part]) -> dict[str, int]:
        """The numbers of resources in the limits of a container with these parts."""
        return {self.resource: self.units(parts)}

    def environment(self, parts: Sequence[Part]) -> dict[str, str]:
        """The variables that the plugin sets."""
        index = self.index(parts[0].uuid)
        return {
            "NVIDIA_VISIBLE_DEVICES": f"{index}",
            "ALIYUN_COM_GPU_MEM_IDX": f"{index}",
            "ALIYUN_COM_GPU_MEM_CONTAINER": f"{self.units(parts)}",
            "ALIYUN_COM_GPU_MEM_DEV": f"{H100.memory // self._unit_mib}",
        }

    def words(self, pod: Pod, named: Named) -> Note:
        """What the allocator writes on a pod."""
        del pod
        parts = [part for of_container in named.values() for part in of_container]
        written = {
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": f"{self.seconds()}000000000",
            "ALIYUN_COM_GPU_MEM_DEV": f"{H100.memory // self._unit_mib}",
            "ALIYUN_COM_GPU_MEM_IDX": f"{self.index(parts[0].uuid)}",
            "ALIYUN_COM_GPU_MEM_POD": f"{self.units(parts)}",
        }
        return Note(annotations=tuple(written.items()))


class AckGpushare(Gpushare):
    """ACK's scheduler. Its JSON has the position of a container, the index of its GPU and the amount."""

    def words(self, pod: Pod, named: Named) -> Note:
        """What the allocator writes on a pod."""
        allocation: dict[str, dict[str, int]] = {}
        for position, container in enumerate(pod.in_spec[1]):
            parts = named.get(container.name, ())
            if parts:
                allocation[f"{position}"] = {f"{self.index(parts[0].uuid)}": self.units(parts)}
        written = {
            "scheduler.framework.gpushare.allocation": json.dumps(allocation, separators=(",", ":")),
            "scheduler.framework.gpushare.assigned": "true",
            "scheduler.framework.gpushare.assume-time": f"{self.seconds()}000000000",
        }
        return Note(annotations=tuple(written.items()))
