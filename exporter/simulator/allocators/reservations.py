"""Allocators whose pods hold GPUs of which the kubelet lists nothing: KAI Scheduler, Run:ai, Koordinator.

Labels, annotations and reservation pods are those of KAI-Scheduler (pkg/common/constants/constants.go,
pkg/binder/binding/resourcereservation/resource_reservation.go, pkg/resourcereservation/patcher/pod_patcher.go),
Koordinator's annotation that of its apis/extension/device_share.go.

Tests: tests/simulator/test_allocators.py.
"""

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from exporter.simulator.allocators.simulated_allocator import Named, SimulatedAllocator
from exporter.simulator.parts import GPU_RESOURCE, Container, Note, Part, Pod, SimulatedGpu, Slot

_GROUP = "runai-gpu-group"
_NODE = "gpu-node-1"
_BY_MEMORY = 3  # one of so many pods asks for memory, not for a fraction


class Kai(SimulatedAllocator):
    """KAI Scheduler. A pod of its own holds each GPU whose parts others have, as long as there are such pods."""

    name = "KAI"
    takes_one_container = True
    namespace: ClassVar[str] = "kai-resource-reservation"

    def __init__(self, **more: Any) -> None:  # noqa: ANN401 - the arguments of SimulatedAllocator
        """`more` are the arguments of SimulatedAllocator."""
        super().__init__(**more)
        self._groups: dict[str, str] = {}  # by GPU

    def tokens(self, gpu: SimulatedGpu) -> Iterable[Slot]:
        """The device ids that the plugin registers for a GPU."""
        yield GPU_RESOURCE, gpu.uuid

    def part(self, gpu: str, memory_mib: int, cores_percent: int, seats: int) -> Part:
        """A part of a GPU, as this allocator counts it."""
        del cores_percent
        if memory_mib % _BY_MEMORY == 0:
            return Part(uuid=gpu, memory_mib=memory_mib)
        # KAI gives a whole GPU as such, and takes no fraction of 1
        return Part(uuid=gpu, fraction=min(seats, self.seats - 1) / self.seats)

    def asks(self, parts: Sequence[Part]) -> dict[str, int]:
        """The numbers of resources in the limits of a container with these parts."""
        del parts
        return {}

    def environment(self, parts: Sequence[Part]) -> dict[str, str]:
        """The variables that the plugin sets."""
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(part.uuid for part in parts)}

    def chosen(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """The annotations that are there before the pod is bound."""
        worker = next(container for container in pod.containers if container.parts)
        part = worker.parts[0]
        size = ("gpu-fraction", f"{part.fraction}") if part.fraction else ("gpu-memory", f"{part.memory_mib}")
        asked = [size]
        if pod.in_spec[1][0] is not worker:
            asked.append(("gpu-fraction-container-name", worker.name))
        if len(worker.parts) > 1:
            asked.append(("gpu-fraction-num-devices", f"{len(worker.parts)}"))
        return tuple(asked)

    def words(self, pod: Pod, named: Named) -> Note:
        """What the allocator writes on a pod."""
        del pod
        groups = [self._group(part.uuid) for parts in named.values() for part in parts]
        labels = [(_GROUP, group) for group in groups]
        if len(groups) > 1:
            labels = [(f"{_GROUP}/{group}", group) for group in groups]
        return Note(annotations=(("received-resource-type", "Fraction"),), labels=tuple(labels))

    def broken(self, note: Note) -> Note:
        """The word, so that nobody can read it."""
        return replace(note, labels=tuple((name, "") for name, _ in note.labels))

    def _group(self, gpu: str) -> str:
        """The group of the pods with parts of a GPU."""
        group = self._groups.get(gpu)
        if group is None:
            group = self._groups[gpu] = f"{uuid.UUID(int=self.random.getrandbits(128), version=4)}"
        return group

    def attended(self, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
        """These pods with the reservation pods that they need."""
        wanted: dict[str, str] = {}  # groups, with their GPUs
        for pod in pods:
            for part in (part for container in pod.running for part in container.parts):
                wanted[self._group(part.uuid)] = part.uuid
        self._groups = {gpu: group for group, gpu in wanted.items()}
        kept = tuple(pod for pod in pods if pod.namespace != self.namespace or _group_of(pod) in wanted)
        present = {_group_of(pod) for pod in kept if pod.namespace == self.namespace}
        return (*kept, *(self._reservation(group, gpu) for group, gpu in wanted.items() if group not in present))

    def _reservation(self, group: str, gpu: str) -> Pod:
        """The pod that holds a GPU for a group. It has written the GPU on itself."""
        name = f"gpu-reservation-{_NODE}-{self.random.getrandbits(20):05x}"
        late_ns = int(self.random.uniform(0.0, self.unkindness.late_seconds) * 1e9)
        reserved = ("run.ai/reserve_for_gpu_index", gpu)
        container = Container(
            name="resource-reservation",
            devices=((GPU_RESOURCE, gpu),),
            environment=(("NVIDIA_VISIBLE_DEVICES", gpu),),
            is_reservation=True,
        )
        return Pod(
            namespace=self.namespace,
            name=name,
            uid=f"{uuid.UUID(int=self.random.getrandbits(128), version=4)}",
            labels=(("app", self.namespace), (_GROUP, group)),
            annotations=(("karpenter.sh/do-not-disrupt", "true"),),
            note=Note(annotations=(reserved,), at_ns=self.now_ns() + late_ns),
            containers=(container,),
        )


class RunAi(Kai):
    """Run:ai, whose scheduler KAI was."""

    name = "Run:ai"
    namespace = "runai-reservation"


class Koordinator(SimulatedAllocator):
    """Koordinator, without a device plugin: its annotation is of the pod, and names GPUs by their minor numbers."""

    name = "Koordinator"
    takes_one_container = True

    def tokens(self, gpu: SimulatedGpu) -> Iterable[Slot]:
        """The device ids that the plugin registers for a GPU."""
        del gpu
        return ()

    def part(self, gpu: str, memory_mib: int, cores_percent: int, seats: int) -> Part:
        """A part of a GPU, as this allocator counts it."""
        return Part(uuid=gpu, memory_mib=memory_mib, cores_percent=cores_percent or 100 * seats // self.seats)

    def asks(self, parts: Sequence[Part]) -> dict[str, int]:
        """The numbers of resources in the limits of a container with these parts."""
        part = parts[0]
        ratio = round(100 * part.of_memory)
        return {
            "koordinator.sh/gpu-core": len(parts) * (part.cores_percent or 0),
            "koordinator.sh/gpu-memory-ratio": len(parts) * ratio,
        }

    def environment(self, parts: Sequence[Part]) -> dict[str, str]:
        """The variables that the plugin sets."""
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(f"{self.index(part.uuid)}" for part in parts)}

    def words(self, pod: Pod, named: Named) -> Note:
        """What the allocator writes on a pod."""
        del pod
        gpus = [self._device(part) for parts in named.values() for part in parts]
        allocated = json.dumps({"gpu": gpus}, separators=(",", ":"))
        return Note(annotations=(("scheduling.koordinator.sh/device-allocated", allocated),))

    def _device(self, part: Part) -> dict[str, object]:
        resources = {
            "koordinator.sh/gpu-core": f"{part.cores_percent}",
            "koordinator.sh/gpu-memory": f"{part.memory_mib}Mi",
            "koordinator.sh/gpu-memory-ratio": f"{round(100 * part.of_memory)}",
        }
        return {"minor": self.index(part.uuid), "resources": resources}


def _group_of(pod: Pod) -> str:
    return dict(pod.labels).get(_GROUP, "")
