"""HAMi and Volcano's vGPU, which is made of it: memory in MiB, and cores in percent.

The forms are those of HAMi's pkg/device/devices.go (EncodePodSingleDevice) and of Volcano's
pkg/scheduler/api/devices/nvidia/vgpu/utils.go (encodePodDevices, resourcereqs), the variables those of `Allocate` in
both plugins' server.go, the ids those of HAMi's pkg/device-plugin/nvidiadevice/nvinternal/rm and of
volcano-vgpu-device-plugin's pkg/plugin/server.go.

Tests: tests/simulator/test_allocators.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from exporter.simulator.allocators.simulated_allocator import Annotations, Named, SimulatedAllocator
from exporter.simulator.parts import GPU_RESOURCE, H100, Container, Note, Part, Pod, SimulatedGpu, Slot

_SHARES = 10  # HAMi's deviceSplitCount
_TYPE = "NVIDIA"
_NODE = "gpu-node-1"


class Hami(SimulatedAllocator):
    """HAMi. With `is_aligned` the kubelet is told to pick ids of the chosen GPUs (enablegetpreferredallocation).

    Then the ids are true, and a word that differs (`Unkindness.wrong`) is only what was planned. Before 2.9 it did not
    count init containers.
    """

    name = "HAMi"
    resource = GPU_RESOURCE

    def __init__(
        self,
        *,
        is_aligned: bool = False,
        counts_init_containers: bool = True,
        **more: Any,  # noqa: ANN401 - see below
    ) -> None:
        """`more` are the arguments of SimulatedAllocator."""
        self.counts_init_containers = counts_init_containers
        self._is_aligned = is_aligned
        super().__init__(**more)

    def tokens(self, gpu: SimulatedGpu) -> Iterable[Slot]:
        """The device ids that the plugin registers for a GPU."""
        for number in range(_SHARES):
            yield self.resource, f"{gpu.uuid}-{number}"

    def picked(self, parts: Sequence[Part], taken: set[Slot]) -> tuple[Slot, ...]:
        """The ids that the kubelet picks."""
        if not self._is_aligned:
            return super().picked(parts, taken)
        free = self.free_tokens(taken)
        return tuple(self.random.choice(_of_gpu(free, part.uuid)) for part in parts)

    def words(self, pod: Pod, named: Named) -> Note:
        """What the allocator writes on a pod."""
        places = [named.get(container.name, ()) for container in self.with_places(pod)]
        text = self.joined([self._of_container(parts) for parts in places])
        return Note(annotations=tuple(self.annotations(text, len(places)).items()))

    def with_places(self, pod: Pod) -> Sequence[Container]:
        """The containers that have a place in the annotation, in order."""
        init_containers, containers = pod.in_spec
        return (*init_containers, *containers) if self.counts_init_containers else containers

    def joined(self, places: Sequence[str]) -> str:
        """The annotation with the texts of these places."""
        return "".join(f"{place};" for place in places)

    def _of_container(self, parts: Sequence[Part]) -> str:
        devices = (f"{part.uuid},{_TYPE},{self.units_of(part)},{part.cores_percent or 0}:" for part in parts)
        return "".join(devices)

    def units_of(self, part: Part) -> int:
        """The memory of a part as the annotation has it."""
        return part.memory_mib or 0

    def annotations(self, text: str, containers: int) -> Annotations:
        """The annotations of a pod whose devices are `text`, after the plugin has answered for all its containers."""
        return {
            "hami.io/bind-phase": "success",
            "hami.io/bind-time": f"{self.seconds()}",
            "hami.io/vgpu-devices-allocated": text,
            "hami.io/vgpu-devices-to-allocate": ";" * containers,
            "hami.io/vgpu-node": _NODE,
            "hami.io/vgpu-time": f"{self.seconds()}",
        }

    def asks(self, parts: Sequence[Part]) -> dict[str, int]:
        """The numbers of resources in the limits of a container with these parts."""
        cores = parts[0].cores_percent
        asked = {self.resource: len(parts), "nvidia.com/gpumem": parts[0].memory_mib or 0}
        return {**asked, "nvidia.com/gpucores": cores} if cores else asked

    def environment(self, parts: Sequence[Part]) -> dict[str, str]:
        """The variables that the plugin sets."""
        return {
            "NVIDIA_VISIBLE_DEVICES": ",".join(part.uuid for part in parts),
            **{f"CUDA_DEVICE_MEMORY_LIMIT_{number}": f"{part.memory_mib}m" for number, part in enumerate(parts)},
            "CUDA_DEVICE_SM_LIMIT": f"{parts[0].cores_percent or 0}",
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/usr/local/vgpu/0f6e.cache",
            **({"CUDA_OVERSUBSCRIBE": "true"} if self.scaling > 1 else {}),
        }


class OlderHami(Hami):
    """HAMi 2.0 to 2.2 (k8s-vgpu-scheduler), which counts no init containers, and only separates the places."""

    def __init__(self, **more: Any) -> None:  # noqa: ANN401 - the arguments of SimulatedAllocator
        """`more` are the arguments of SimulatedAllocator."""
        super().__init__(**more, counts_init_containers=False)

    def joined(self, places: Sequence[str]) -> str:
        """The annotation with the texts of these places."""
        return ";".join(places)

    def annotations(self, text: str, containers: int) -> Annotations:
        """The annotations, in which `text` has the devices."""
        return {
            "4pd.io/bind-phase": "success",
            "4pd.io/devices-to-allocate": ";" * containers,
            "4pd.io/vgpu-ids-new": text,
            "4pd.io/vgpu-node": _NODE,
            "4pd.io/vgpu-time": f"{self.seconds()}",
        }


class Volcano(OlderHami):
    """Volcano's vGPU. A container without GPUs has no place in its annotation.

    Its ids of memory and cores count, and name nothing; at a `memory_unit_mib` of 0 there are none. The annotation
    counts memory in this unit, too (the plugin's --gpu-memory-factor).
    """

    name = "Volcano"
    resource = "volcano.sh/vgpu-number"
    settings: ClassVar[Mapping[str, str]] = {"resources": resource}
    _memory: ClassVar[str] = "volcano.sh/vgpu-memory"
    _cores: ClassVar[str] = "volcano.sh/vgpu-cores"

    def __init__(self, *, memory_unit_mib: int = 0, **more: Any) -> None:  # noqa: ANN401 - the arguments of SimulatedAllocator
        """`more` are the arguments of SimulatedAllocator."""
        self._memory_unit_mib = memory_unit_mib
        super().__init__(**more)

    def with_places(self, pod: Pod) -> Sequence[Container]:
        """The containers that have a place in the annotation, in order."""
        return [container for container in super().with_places(pod) if container.parts]

    def tokens(self, gpu: SimulatedGpu) -> Iterable[Slot]:
        """The device ids that the plugin registers for a GPU."""
        yield from super().tokens(gpu)
        if self._memory_unit_mib:
            for number in range(int(H100.memory * self.scaling) // self._memory_unit_mib):
                yield self._memory, f"{gpu.uuid}-memory-{number}"
            for number in range(100):
                yield self._cores, f"{gpu.uuid}-core-{number}"

    def annotations(self, text: str, containers: int) -> Annotations:
        """The annotations, in which `text` has the devices."""
        return {
            "volcano.sh/bind-phase": "success",
            "volcano.sh/devices-to-allocate": ";" * containers,
            "volcano.sh/vgpu-ids-new": text,
            "volcano.sh/vgpu-node": _NODE,
            "volcano.sh/vgpu-time": f"{self.seconds()}",
        }

    def part(self, gpu: str, memory_mib: int, cores_percent: int, seats: int) -> Part:
        """A part of a GPU, as this allocator counts it."""
        unit = self._memory_unit_mib or 1
        return super().part(gpu, memory_mib // unit * unit, cores_percent, seats)

    def units_of(self, part: Part) -> int:
        """The memory of a part as the annotation has it."""
        return super().units_of(part) // (self._memory_unit_mib or 1)

    def asks(self, parts: Sequence[Part]) -> dict[str, int]:
        """The numbers of resources in the limits of a container with these parts."""
        asked = {self.resource: len(parts), self._memory: self.units_of(parts[0])}
        cores = parts[0].cores_percent
        return {**asked, self._cores: cores} if cores else asked


def _of_gpu(tokens: Iterable[Slot], gpu: str) -> list[Slot]:
    return [token for token in tokens if token[1].startswith(f"{gpu}-")]
