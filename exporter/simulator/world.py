"""A made-up GPU node: GPUs, MIG instances and shares, and pods that come and go on them.

Everything is drawn from a seed, so that a run can be repeated. No I/O: the simulated servers show the node to clients.

Tests: tests/simulator/test_node.py.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from exporter.model.devices import CORES, CORES_OF_GPU, MEMORY, MEMORY_MIB, Claim
from exporter.simulator.allocators import SimulatedAllocator
from exporter.simulator.job_phases import STUCK, serves
from exporter.simulator.machine import Machine
from exporter.simulator.parts import (
    DRA_DRIVER,
    DRA_POOL,
    GPU_RESOURCE,
    PROFILES,
    REPLICAS,
    Container,
    Instance,
    Pod,
    SimulatedEnd,
    SimulatedGpu,
    Slot,
)

# an application's errors (13, 31, 43), and an uncorrected memory error that was contained (94)
XIDS = (13, 31, 31, 43, 94)
# the usual numbers of a resource that pods have
_WANTED = {GPU_RESOURCE: (1, 1, 2), CORES: (1, 2, 3, REPLICAS)}
_MEMORY_UNITS = 318  # of a GPU
_GPUS_OF_STUCK = 2
_NAMES = uuid.UUID(int=0)
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
Slots = tuple[Slot, ...]


class Maker:
    """Makes pods and devices. The same `chance` makes the same ones."""

    def __init__(self, chance: random.Random, allocator: SimulatedAllocator | None = None) -> None:
        self._chance = chance
        self._allocator = allocator
        self._pods_made = 0
        self._units: dict[str, Slots] = {}  # by the part of a GPU for which they stand

    def some_of(self, free: Sequence[Slot]) -> Slots:
        """The devices that a pod takes of the free ones, all of the same resource."""
        resource = self._chance.choice(free)[0]
        choices = [slot for slot in free if slot[0] == resource]
        if self._allocator and resource == self._allocator.name:
            return self._allocator.some_of(choices)
        if resource == CORES:
            # gpu-manager puts a part of a GPU on a single GPU
            gpu = self._chance.choice(choices)[1].partition("::")[0]
            choices = [slot for slot in choices if slot[1].startswith(gpu)]
        # pods often have several whole GPUs, but hardly ever several shares
        wanted = self._chance.choice(_WANTED.get(resource, (1,)))
        return tuple(self._chance.sample(choices, min(wanted, len(choices))))

    def containers(self, namespace: str, name: str, devices: Sequence[Slot]) -> tuple[Container, ...]:
        """The containers of a pod. The first, of this name, holds these devices."""
        resource = devices[0][0]
        if self._allocator and resource == self._allocator.name:
            return self._allocator.containers(name, devices)
        first = Container(name=name, devices=tuple(devices))
        if resource == DRA_DRIVER:
            first = Container(name=name, claims=tuple(self._claim(namespace, device) for _, device in devices))
        if resource == CORES:
            chosen = tuple(part for _, part in devices)
            units = tuple(unit for part in chosen for unit in self._units[part])
            first = Container(name=name, devices=units, chosen=chosen)
        return first, Container(name="log-shipper")

    def units(self, uuids: Sequence[str]) -> dict[str, tuple[Slots, ...]]:
        """The ids of gpu-manager by GPU, for each part of it. They are any ids of the node, since ids name no GPU."""
        cores = [(CORES, f"{CORES}-{number}") for number in range(CORES_OF_GPU * len(uuids))]
        memory = [(MEMORY, f"{MEMORY}-{MEMORY_MIB * 2**20}-{number}") for number in range(_MEMORY_UNITS * len(uuids))]
        self._chance.shuffle(cores)
        self._chance.shuffle(memory)
        parts = len(uuids) * REPLICAS
        units: dict[str, tuple[Slots, ...]] = {}
        for number in range(parts):
            gpu = uuids[number // REPLICAS]
            of_part = (*cores[number::parts], *memory[number::parts])
            units[gpu] = (*units.get(gpu, ()), of_part)
            self._units[f"{gpu}::{number % REPLICAS}"] = of_part
        return units

    def pod(self, namespace: str, workload: str, containers: tuple[Container, ...], kind: str = "ReplicaSet") -> Pod:
        """A pod of a workload, with a name of its own."""
        name = f"{workload}-{''.join(self._chance.choices(_ALPHABET, k=5))}"
        pod = Pod(
            namespace=namespace,
            name=name,
            containers=containers,
            uid=self.uid(namespace, name),
            labels=(("app.kubernetes.io/name", workload), ("team", namespace)),
            owner=(kind, workload),
        )
        return self.bound(pod)

    def bound(self, pod: Pod) -> Pod:
        """The pod with what the node's allocator writes on it, if it gave the pod something."""
        is_given = any(container.parts for container in pod.containers)
        return self._allocator.bound(pod) if self._allocator and is_given else pod

    def uid(self, namespace: str, name: str) -> str:
        """The UID of a new pod."""
        self._pods_made += 1
        return str(uuid.uuid5(_NAMES, f"{namespace}/{name} {self._pods_made}"))

    def uuid(self) -> str:
        """The UUID of a new device, without its prefix."""
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def _claim(self, namespace: str, device: str) -> Claim:
        claim_uid = uuid.uuid5(_NAMES, f"claim {self._pods_made}")
        return Claim(
            namespace=namespace,
            name=f"gpu-{str(claim_uid)[:5]}",
            driver=DRA_DRIVER,
            pool=DRA_POOL,
            device=device,
            # NVIDIA's driver names them so: the UUID in the name is the claim's, not the GPU's
            cdi_names=(f"k8s.{DRA_DRIVER}/claim={claim_uid}-{device}",),
        )


class World:
    """The node. A change replaces all `pods` or all `gpus`, so that a reader never sees half of it.

    `machine` is the hardware. `clock` has real time, in nanoseconds; the pods live `speed` times as fast. The kubelet
    answers while `kubelet_is_up`.
    """

    kubelet_is_up = True

    def __init__(
        self,
        *,
        gpus: int = 8,
        shared: int = 0,
        mig: int = 0,
        claims: int = 0,
        dynamic: int = 0,
        units: int = 0,
        strangers: int = 0,
        seed: int = 1,
        speed: float = 1.0,
        clock: Callable[[], int] = time.monotonic_ns,
        allocator: SimulatedAllocator | None = None,
        whole: int = 0,
    ) -> None:
        """The node has `gpus` GPUs.

        Args:
            gpus: the number of GPUs.
            shared: how many are time-sliced into 4 shares.
            mig: how many are cut into MIG instances.
            claims: how many of the whole GPUs go out by DRA.
            dynamic: how many of these are cut for each claim.
            units: how many of the whole GPUs go out by gpu-manager.
            strangers: see `add_strangers`.
            seed: all is drawn from it.
            speed: the pods live so many times as fast as real time.
            clock: real time, in nanoseconds.
            allocator: hands out all other GPUs.
            whole: how many of these nevertheless go out whole, by their own ids.
        """
        self._random = random.Random(seed)
        self.allocator = allocator
        self.make = Maker(self._random, allocator)
        self.machine = Machine(seed=seed, speed=speed, clock=clock)
        self._pods: tuple[Pod, ...] = ()
        self._gpus = self._make_gpus(gpus, shared=shared, mig=mig, claims=claims, dynamic=dynamic, units=units)
        self._hand_over(claims + units + whole, gpus - mig - shared)
        self._begin(strangers)

    def _begin(self, strangers: int) -> None:
        """Add the first pods. They came before the machine, which sees all of them at once."""
        self._pods = (self.make.pod("kube-system", "node-agent", (Container(name="agent"),), kind="DaemonSet"),)
        self._fill()
        self.add_strangers(strangers)

    def _make_gpus(
        self, count: int, *, shared: int, mig: int, claims: int, dynamic: int, units: int
    ) -> tuple[SimulatedGpu, ...]:
        """The GPUs, as the arguments of `__init__` say."""
        uuids = [f"GPU-{self.make.uuid()}" for _ in range(count)] if units else []
        in_units = self.make.units(uuids[claims : claims + units])
        first_cut = count - mig
        gpus = []
        for index in range(count):
            uuid_of_gpu = uuids[index] if uuids else f"GPU-{self.make.uuid()}"
            gpu = SimulatedGpu(
                index=index,
                uuid=uuid_of_gpu,
                units=in_units.get(uuid_of_gpu, ()),
                shared=first_cut - shared <= index < first_cut,
                claimed=index < claims,
                dynamic=claims - dynamic <= index < claims,
                instances=self._instances() if index >= first_cut else (),
            )
            gpus.append(gpu)
        return tuple(gpus)

    def _hand_over(self, first: int, end: int) -> None:
        """Hand the GPUs from `first` to before `end` over to the allocator, if there is one."""
        if self.allocator:
            gpus = self._gpus
            taken = self.allocator.begin(gpus[first:end], lambda: self._pods, self.machine.clock)
            self._gpus = (*gpus[:first], *taken, *gpus[end:])

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods of the node."""
        return self._pods

    @pods.setter
    def pods(self, pods: tuple[Pod, ...]) -> None:
        self._pods = self.allocator.attended(pods) if self.allocator else pods
        pods = self._pods
        if any(gpu.dynamic for gpu in self._gpus):
            self._gpus = tuple(self._cut(gpu) if gpu.dynamic else gpu for gpu in self._gpus)
        self.machine.change(self._gpus, pods)

    @property
    def gpus(self) -> tuple[SimulatedGpu, ...]:
        """All GPUs of the node."""
        return self._gpus

    @gpus.setter
    def gpus(self, gpus: tuple[SimulatedGpu, ...]) -> None:
        self._gpus = gpus
        self.machine.change(gpus, self._pods)

    @property
    def seen(self) -> tuple[Pod, ...]:
        """All pods as the API server shows them now: with what allocators have written on them by now."""
        if not self.allocator:
            return self._pods
        now_ns = self.machine.clock()
        return tuple(pod.seen_at(now_ns) for pod in self._pods)

    @property
    def of_kubelet(self) -> tuple[Pod, ...]:
        """The pods that the kubelet knows, ended pods included until they are removed."""
        return tuple(pod for pod in self.seen if pod.is_acknowledged)

    @property
    def listed(self) -> tuple[Pod, ...]:
        """The pods that the kubelet's List names."""
        return tuple(pod for pod in self.of_kubelet if not pod.has_ended)

    @property
    def used_share(self) -> float:
        """The part of the node's GPUs that pods hold, 0 to 1. A divided GPU counts by its held parts."""
        free = dict(self.free())
        parts = [len(free.get(gpu.uuid, ())) / len(gpu.slots) for gpu in self._gpus]
        return 1.0 - sum(parts) / len(parts) if parts else 1.0

    def add_strangers(self, count: int) -> None:
        """Add pods that stay, and use a GPU each that they do not hold: if possible, one that another pod holds."""
        held = set(self.held())
        uncut = [gpu for gpu in self._gpus if not gpu.instances and not gpu.dynamic]
        uncut.sort(key=lambda gpu: gpu.uuid not in held)
        shells = [Container(name="shell", uses=(gpu.uuid,)) for gpu in uncut[:count]]
        self.pods += tuple(self.make.pod("research", "debug", (shell,)) for shell in shells)

    def add_stuck(self, count: int) -> None:
        """Add so many pods with two whole GPUs that will hang, and as many that will wait for data, if they fit."""
        for does in STUCK * count:
            whole = [slots[0] for _, slots in self.free() if len(slots) == 1 and slots[0][0] == GPU_RESOURCE]
            if len(whole) < _GPUS_OF_STUCK:
                return
            container = Container(name="trainer", devices=tuple(whole[:_GPUS_OF_STUCK]))
            pod = self.make.pod("research", f"{does}-job", (container,), kind="Job")
            self.pods += (replace(pod, work=(does, pod.name), began=self.machine.life),)

    def recover(self) -> None:
        """Remove pods that have ended, and start crashed services again."""
        pods = tuple(_running(pod) for pod in self.pods if not pod.has_ended)
        if pods != self.pods:
            self.pods = pods

    def crash(self, pod: Pod, xid: int) -> Pod:
        """Let a pod's application die, and its first GPU report the XID. Returns the pod's new state.

        A service keeps its devices and waits for its next start; any other pod has failed, and gives them back.
        """
        crashed, device = next((gpu, device) for gpu in self.gpus for device in pod.devices if device in ids_of(gpu))
        is_instance = any(mig.device_id == device for mig in crashed.instances)
        self.machine.add_xid(crashed.uuid, xid, (pod.uid, device if is_instance else crashed.uuid))
        return self.fall(pod)

    def fall(self, pod: Pod, exit_code: int = 1, reason: str = "Error") -> Pod:
        """Let a pod's containers end by themselves, with this exit code and the kubelet's reason: see `crash`."""
        if not serves(pod.work[0] if pod.work else pod.owner[1]):
            return self.end(pod, "Failed", exit_code, reason)
        waiting = _ended(pod, exit_code, reason)
        return self.change(pod, replace(waiting, containers=tuple(map(_stopped, waiting.containers))))

    def end(self, pod: Pod, phase: str = "Succeeded", exit_code: int = 1, reason: str = "Error") -> Pod:
        """End a pod, which gives its devices back but stays until it is removed. Returns the pod's new state.

        `exit_code` and `reason` are those of a pod that has failed.
        """
        has_failed = phase == "Failed"
        ended = _ended(pod, exit_code, reason) if has_failed else _ended(pod, 0, "Completed")
        return self.change(pod, replace(ended, phase=phase))

    def change(self, old: Pod, new: Pod) -> Pod:
        """Replace a pod by its new state, which it returns."""
        self.pods = tuple(new if pod is old else pod for pod in self.pods)
        return new

    def inventory(self) -> dict[str, object]:
        """The GPUs and their MIG instances, in the form of --inventory.file, without instances that come and go."""
        gpus = []
        for gpu in self.gpus:
            instances = [
                {"uuid": mig.device_id, "instance_id": mig.instance_id, "profile": mig.profile}
                for mig in (() if gpu.dynamic else gpu.instances)
            ]
            gpus.append({"uuid": gpu.uuid, "index": gpu.index, "mig": instances})
        return {"gpus": gpus}

    def remove(self, gone: Pod) -> None:
        """Remove a pod. The same object must be in `pods`."""
        self.pods = tuple(pod for pod in self.pods if pod is not gone)

    def held(self) -> Iterator[str]:
        """The ids of the devices that pods hold; for claims, their names in the ResourceSlice."""
        for pod in self.pods:
            if not pod.has_ended:
                yield from pod.devices

    def free(self) -> Iterator[tuple[str, list[Slot]]]:
        """The slots that a pod could have, by GPU."""
        held = set(self.held())
        for gpu in self._gpus:
            # the memory slices that each device of a dynamic GPU takes
            memory = {device: parts for device, (_, parts) in gpu.placements.items()}
            taken = set(chain.from_iterable(memory[device] for device in held & memory.keys()))
            free = [slot for slot in gpu.slots if slot[1] not in held]
            slots = [slot for slot in free if taken.isdisjoint(memory.get(slot[1], ()))]
            if slots and not gpu.is_lost:
                yield gpu.uuid, slots

    def _instances(self) -> tuple[Instance, ...]:
        """The instances of a GPU that is cut from the start, of the smallest profile."""
        return tuple(Instance(device_id=f"MIG-{self.make.uuid()}", instance_id=number) for number in range(7, 14))

    def _cut(self, gpu: SimulatedGpu) -> SimulatedGpu:
        """The GPU as the driver cuts it for the claims of its pods. A free id (GPU_I_ID) is used again."""
        claims: dict[str, str] = {}  # the device of each, by its CDI name
        for container in (container for pod in self._pods for container in pod.running):
            for claim in container.claims:
                if claim.device != gpu.claim_device and claim.device in gpu.placements:
                    claims |= dict.fromkeys(claim.cdi_names, claim.device)
        instances = [mig for mig in gpu.instances if mig.cdi_name in claims]
        already_cut = {mig.cdi_name for mig in instances}
        for name, device in claims.items():
            if name in already_cut:
                continue
            profile = gpu.placements[device][0]
            taken = {mig.instance_id for mig in instances}
            free_ids = (number for number in range(PROFILES[profile].first_id, 99) if number not in taken)
            instances.append(
                Instance(
                    device_id=f"MIG-{self.make.uuid()}",
                    instance_id=next(free_ids),
                    profile=profile,
                    claim_device=device,
                    cdi_name=name,
                )
            )
        if tuple(instances) == gpu.instances:
            return gpu
        return replace(gpu, instances=tuple(instances))

    def _fill(self) -> None:
        """Add the pods that were there before the machine."""


def ids_of(gpu: SimulatedGpu) -> set[str]:
    """The ids of a GPU and of its parts, which pods may hold."""
    return {gpu.uuid, *(device_id for _, device_id in gpu.slots)}


def _running(pod: Pod) -> Pod:
    """The pod, whose kubelet starts its containers anew."""
    if all(container.running for container in pod.containers):
        return pod
    return replace(pod, containers=tuple(map(_started, pod.containers)))


def _started(container: Container) -> Container:
    return container if container.running else replace(container, running=True, starts=container.starts + 1)


def _stopped(container: Container) -> Container:
    return replace(container, running=False)


def _ended(pod: Pod, exit_code: int, reason: str) -> Pod:
    """The pod, whose running containers have ended now."""
    now = int(time.time())
    containers = []
    for container in pod.containers:
        end = SimulatedEnd(exit_code=exit_code, reason=reason, at_seconds=now, start=container.starts)
        containers.append(replace(container, end=end) if container.running else container)
    return replace(pod, containers=tuple(containers))
