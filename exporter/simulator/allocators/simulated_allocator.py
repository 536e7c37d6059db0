"""What simulated allocators have in common: seats on GPUs, tokens, the shapes of pods, and faults in what they write.

An allocator divides each GPU into seats. A pod takes free seats, which are the allocator's own bookkeeping: the kubelet
knows nothing of them. A container with two of four seats may have up to half of the GPU's memory and cores. So no GPU
is promised twice, unless the allocator promises more than there is (`scaling`).

Tests: tests/simulator/test_allocators.py.
"""

import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from exporter.simulator.parts import H100, Container, Note, Part, Pod, SimulatedGpu, Slot

Annotations = dict[str, str]
PodsNow = Callable[[], Sequence[Pod]]
SEATS = 4
# how much of its seats a container asks for
_LEAST_MEMORY = 0.5
_CORES = (0.0, 0.5, 0.8, 1.0)
# how often a pod has such containers
_TWO_WITH_GPUS = 0.25
_SIDECAR = 0.2
_INIT = 0.3
_INIT_WITH_GPU = 0.1
_HELPER_FIRST = 0.3
# the second container of a pod, with GPUs and without
HELPERS = "helper", "log-shipper"
_SEVERAL_GPUS = 0.15
_OTHER_INDEX = 99
BROKEN, FOREIGN, WRONG = "broken", "foreign", "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unkindness:
    """What goes wrong with an allocator's word. A number n stands for one pod of n; 0 stands for none.

    Attributes:
        late_seconds: the word comes up to so many seconds after the kubelet has begun to list the pod.
        broken: the word cannot be read.
        foreign: the word names a device that the node lacks.
        wrong: the word names another device of the node than the pod really has (gpushare-scheduler-extender 220).
    """

    late_seconds: float = 0.0
    broken: int = 0
    foreign: int = 0
    wrong: int = 0


KIND = Unkindness()
Given = Mapping[tuple[str, str, str], tuple[Part, ...]]


def given(pods: Iterable[Pod]) -> Given:
    """What each container really has, by namespace, pod and container: the truth that no source may contradict."""
    return {
        (pod.namespace, pod.name, container.name): container.parts
        for pod in pods
        for container in pod.running
        if container.parts
    }


class SimulatedAllocator:
    """A scheduler and its device plugin. The same seed makes the same choices.

    Attributes:
        name: its name in the exporter's table of allocators. The seats' resource has this name, too.
        resource: the kubelet's resource, which its tokens have; "" if it has no device plugin.
        takes_one_gpu: a pod has parts of one GPU only.
        takes_one_container: one container of a pod has GPUs.
        counts_init_containers: init containers, sidecars among them, may have GPUs.
        has_nvidia: its devices are NVIDIA's, and the node has NVIDIA's driver.
        settings: what an exporter on such a node has to be told, by the names of its flags.
    """

    name: ClassVar[str]
    resource: ClassVar[str] = ""
    takes_one_gpu: ClassVar[bool] = False
    takes_one_container: ClassVar[bool] = False
    counts_init_containers: bool = False
    has_nvidia: ClassVar[bool] = True
    settings: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self, *, unkindness: Unkindness = KIND, seats: int = SEATS, scaling: float = 1.0, seed: int = 1
    ) -> None:
        """Divide each GPU into `seats`; the memory of all of them together is `scaling` times that of the GPU."""
        self.unkindness = unkindness
        self.seats = seats
        self.scaling = scaling
        self.gpus: tuple[SimulatedGpu, ...] = ()
        self.random = random.Random(f"{self.name} {seed}")
        self._pods: PodsNow = tuple
        self._clock: Callable[[], int] = int

    def begin(self, gpus: Sequence[SimulatedGpu], pods: PodsNow, clock: Callable[[], int]) -> tuple[SimulatedGpu, ...]:
        """Take over these GPUs. Returns them with their seats and tokens. `pods` returns all pods of the node."""
        self._pods = pods
        self._clock = clock
        self.gpus = tuple(
            replace(
                gpu,
                seats=tuple((self.name, f"{gpu.uuid}::{number}") for number in range(self.seats)),
                tokens=tuple((resource, token) for resource, token in self.tokens(gpu)),
            )
            for gpu in gpus
        )
        return self.gpus

    # What each allocator has of its own.

    def tokens(self, gpu: SimulatedGpu) -> Iterable[Slot]:
        """The device ids that the plugin registers for a GPU."""
        raise NotImplementedError

    def words(self, pod: Pod, named: "Named") -> Note:
        """What the allocator writes on a pod. `named` are the parts that it writes of each container."""
        raise NotImplementedError

    def asks(self, parts: Sequence[Part]) -> dict[str, int]:
        """The numbers of resources that a container with these parts has in its limits."""
        raise NotImplementedError

    def environment(self, parts: Sequence[Part]) -> dict[str, str]:
        """The variables that the plugin sets in a container with these parts."""
        raise NotImplementedError

    def part(self, gpu: str, memory_mib: int, cores_percent: int, seats: int) -> Part:
        """A part of a GPU of which the container has so many `seats`, and asks for so much; 0 for no limit of cores."""
        del seats
        return Part(uuid=gpu, memory_mib=memory_mib, cores_percent=cores_percent or None)

    def chosen(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """The annotations that a pod of this allocator has before it is bound."""
        del pod
        return ()

    def attended(self, pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
        """These pods with those that the allocator itself adds, and without its own that are no longer needed."""
        return pods

    # What all do alike.

    def some_of(self, free: Sequence[Slot]) -> tuple[Slot, ...]:
        """The seats that a pod takes of the free ones: some of one GPU, or one of each of several GPUs."""
        by_gpu: dict[str, list[Slot]] = {}
        for seat in free:
            by_gpu.setdefault(gpu_of(seat), []).append(seat)
        gpus = sorted(by_gpu)
        if not self.takes_one_gpu and len(gpus) > 1 and self.random.random() < _SEVERAL_GPUS:
            return tuple(by_gpu[gpu][0] for gpu in self.random.sample(gpus, min(len(gpus), self.random.choice((2, 3)))))
        seats = by_gpu[self.random.choice(gpus)]
        wanted = self.random.choice((1, 1, 2, self.seats))
        return tuple(self.random.sample(seats, min(wanted, len(seats))))

    def containers(self, name: str, seats: Sequence[Slot]) -> tuple[Container, ...]:
        """The containers of a pod with these seats. The one of this name has GPUs, others may have some, too."""
        is_alone = self.takes_one_container or len(seats) < 2 or self.random.random() >= _TWO_WITH_GPUS  # noqa: PLR2004
        taken = set[Slot]()
        first = self._container(name, seats if is_alone else seats[:-1], taken)
        helper = Container(name=HELPERS[1])
        if not is_alone:
            helper = self._container(HELPERS[0], seats[-1:], taken)
        if self.random.random() < _SIDECAR and (self.counts_init_containers or not helper.parts):
            helper = replace(helper, is_sidecar=True)
        return (helper, first) if self.random.random() < _HELPER_FIRST else (first, helper)

    def _container(self, name: str, seats: Sequence[Slot], taken: set[Slot]) -> Container:
        """A container with these seats. Its tokens are none of `taken`, and are added to it."""
        count = Counter(gpu_of(seat) for seat in seats)
        least = min(count.values())
        share = least / self.seats
        memory = int(H100.memory * self.scaling * share * self.random.uniform(_LEAST_MEMORY, 1.0))
        cores = int(100 * share * self.random.choice(_CORES))
        parts = tuple(self.part(gpu, memory, cores, least) for gpu in sorted(count))
        return self._with(Container(name=name, chosen=tuple(seat for _, seat in seats)), parts, taken)

    def _with(self, container: Container, parts: tuple[Part, ...], taken: set[Slot]) -> Container:
        """The container with these parts, and with what the kubelet and the plugin give it for them."""
        devices = self.picked(parts, taken)
        taken.update(devices)
        asks = self.asks(parts)
        return replace(
            container,
            parts=parts,
            devices=devices,
            asks=tuple(asks.items()),
            environment=tuple(self.environment(parts).items()),
        )

    def picked(self, parts: Sequence[Part], taken: set[Slot]) -> tuple[Slot, ...]:
        """The ids that the kubelet picks for a container: any free ones."""
        asked = self.asks(parts)
        free = self.free_tokens(taken)
        picked: list[Slot] = []
        for resource in dict.fromkeys(resource for resource, _ in free):
            tokens = [token for token in free if token[0] == resource]
            picked += self.random.sample(tokens, min(asked.get(resource, 0), len(tokens)))
        return tuple(picked)

    def free_tokens(self, taken: set[Slot]) -> list[Slot]:
        """The ids that no container has."""
        held = {
            device
            for pod in self._pods()
            if not pod.has_ended
            for container in pod.containers
            for device in container.devices
        }
        return [token for gpu in self.gpus for token in gpu.tokens if token not in held and token not in taken]

    def bound(self, pod: Pod) -> Pod:
        """The pod as the scheduler binds it: with init containers, and with the allocator's word."""
        pod = replace(pod, init_containers=self._init_containers(pod))
        pod = replace(pod, annotations=(*pod.annotations, *self.chosen(pod)))
        fault = self._fault()
        named = {container.name: container.parts for group in pod.in_spec for container in group}
        if fault in (FOREIGN, WRONG):
            others = self._others(pod, is_foreign=fault == FOREIGN)
            if not others:
                fault = ""
            named = {name: tuple(_renamed(part, others) for part in parts) for name, parts in named.items()}
        note = self.words(pod, named)
        if fault == BROKEN:
            note = self.broken(note)
        late_ns = int(self.random.uniform(0.0, self.unkindness.late_seconds) * 1e9)
        return replace(pod, note=replace(note, at_ns=self.now_ns() + late_ns, fault=fault))

    def _init_containers(self, pod: Pod) -> tuple[Container, ...]:
        """The init containers of a pod. One with a GPU has any GPU of the node, and the ids of a container after it."""
        chance = self.random.random()
        if chance >= _INIT or self.takes_one_container:
            return ()
        init = Container(name="prepare")
        first = next(container for container in pod.containers if container.parts)
        if chance >= _INIT_WITH_GPU or len(first.parts) > 1 or not self.counts_init_containers:
            return (init,)
        part = replace(first.parts[0], uuid=self.random.choice(self.gpus).uuid)
        return (init, replace(first, name="warm-up", parts=(part,), chosen=(), is_sidecar=False))

    def _fault(self) -> str:
        unkind = self.unkindness
        for fault, count in ((BROKEN, unkind.broken), (FOREIGN, unkind.foreign), (WRONG, unkind.wrong)):
            if count and self.random.random() * count < 1.0:
                return fault
        return ""

    def _others(self, pod: Pod, *, is_foreign: bool) -> dict[str, str]:
        """Another GPU for each GPU of the pod: one that the node lacks, or one of the node's other GPUs."""
        had = [part.uuid for group in pod.in_spec for container in group for part in container.parts]
        if is_foreign:
            return {gpu: f"GPU-{uuid.UUID(int=self.random.getrandbits(128), version=4)}" for gpu in had}
        others = [gpu.uuid for gpu in self.gpus if gpu.uuid not in had]
        if len(others) < len(set(had)):
            return {}
        return dict(zip(dict.fromkeys(had), self.random.sample(others, len(set(had))), strict=True))

    def broken(self, note: Note) -> Note:
        """The word, so that nobody can read it."""
        spoil = self.random.choice((_with_an_end, _without_commas, _emptied))
        return replace(note, annotations=tuple((name, spoil(text)) for name, text in note.annotations))

    def index(self, gpu: str) -> int:
        """The index of a GPU; one that the node lacks has a high one."""
        return next((its.index for its in self.gpus if its.uuid == gpu), _OTHER_INDEX)

    def now_ns(self) -> int:
        """The present time of the node's clock."""
        return self._clock()

    def seconds(self) -> int:
        """The present time, in seconds since 1970 as allocators write it."""
        return 1_764_300_000 + self._clock() // 1_000_000_000


Named = Mapping[str, Sequence[Part]]


def gpu_of(seat: Slot) -> str:
    """The GPU that a seat is on."""
    return seat[1].partition("::")[0]


def _renamed(part: Part, others: Mapping[str, str]) -> Part:
    return replace(part, uuid=others.get(part.uuid, part.uuid))


def _with_an_end(text: str) -> str:
    return f"{text}?"


def _without_commas(text: str) -> str:
    return f"no {text.replace(',', ' ').replace(':', ' ')}"


def _emptied(_: str) -> str:
    return ""
