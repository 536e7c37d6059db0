"""A made-up GPU node: GPUs, MIG instances and shares, and pods that come and go on them.

Everything is drawn from one seed, so that a run can be repeated. Nothing here talks: the simulated kubelet and the
simulated dcgm-exporter show this world to whoever asks.
"""

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

REPLICAS = 4
MIG_INSTANCES = 7
MIG_PROFILE = "1g.10gb"
MODEL = "NVIDIA H100 80GB HBM3"
GPU_RESOURCE = "nvidia.com/gpu"
SHARED_RESOURCE = "nvidia.com/gpu.shared"
MIG_RESOURCE = f"nvidia.com/mig-{MIG_PROFILE}"
_NAMESPACES = ("ml-research", "serving", "team-vision", "notebooks")
_WORKLOADS = {
    "train-resnet": "trainer",
    "finetune-llm": "worker",
    "serve-embeddings": "server",
    "render": "main",
    "jupyter": "notebook",
    "eval-nightly": "eval",
}
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A MIG instance: the id the kubelet hands out, and the GPU_I_ID that samples carry."""

    device_id: str
    instance_id: int
    profile: str = MIG_PROFILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, whole, in shares, or cut into MIG instances."""

    index: int
    uuid: str
    shared: bool = False
    instances: tuple[Instance, ...] = ()

    @property
    def slots(self) -> tuple[tuple[str, str], ...]:
        """What the kubelet can hand out of it: resource and device id."""
        if self.instances:
            return tuple((MIG_RESOURCE, instance.device_id) for instance in self.instances)
        if self.shared:
            return tuple((SHARED_RESOURCE, f"{self.uuid}::{share}") for share in range(REPLICAS))
        return ((GPU_RESOURCE, self.uuid),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container and the devices it was given: resource and device id."""

    name: str
    devices: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod as the kubelet lists it."""

    namespace: str
    name: str
    containers: tuple[Container, ...]


class World:
    """The node. `step` lets time pass for the pods; who reads it meanwhile sees a whole state."""

    def __init__(self, *, gpus: int = 8, shared: int = 0, mig: int = 0, seed: int = 1) -> None:
        """`shared` GPUs are time-sliced into 4 shares, `mig` GPUs cut into 7 instances; the others are whole."""
        self._random = random.Random(seed)
        self.gpus = tuple(
            Gpu(
                index=index,
                uuid=f"GPU-{self._uuid()}",
                shared=gpus - mig - shared <= index < gpus - mig,
                instances=tuple(
                    # Instance ids start at 7 on real GPUs with seven small instances
                    Instance(device_id=f"MIG-{self._uuid()}", instance_id=7 + number)
                    for number in range(MIG_INSTANCES)
                )
                if index >= gpus - mig
                else (),
            )
            for index in range(gpus)
        )
        self.pods: tuple[Pod, ...] = (
            Pod(namespace="kube-system", name="node-agent-x2k4d", containers=(Container(name="agent"),)),
        )
        while self.used_share < 0.6:  # noqa: PLR2004 - a node that is worth looking at from the start
            self._add_pod()

    @property
    def used_share(self) -> float:
        """The share of the node's slots that pods hold, 0 to 1."""
        slots = sum(len(gpu.slots) for gpu in self.gpus)
        return sum(1 for _ in self._held()) / slots if slots else 1.0

    def holds(self, device_id: str) -> bool:
        """Whether a pod holds this device, or a share of it."""
        return any(held == device_id or held.startswith(f"{device_id}::") for held in self._held())

    def step(self) -> None:
        """A pod goes, or one comes, as it happens."""
        owners = [pod for pod in self.pods if any(container.devices for container in pod.containers)]
        if owners and (self.used_share > 0.9 or self._random.random() < 0.5):  # noqa: PLR2004
            self.remove(self._random.choice(owners))
        else:
            self._add_pod()

    def replace_all(self) -> None:
        """Every pod with a device goes and another takes its devices."""
        self.pods = tuple(
            Pod(namespace=pod.namespace, name=self._name(pod.name.rpartition("-")[0]), containers=pod.containers)
            for pod in self.pods
        )

    def remove(self, gone: Pod) -> None:
        """A pod goes."""
        self.pods = tuple(pod for pod in self.pods if pod is not gone)

    def _held(self) -> Iterator[str]:
        for pod in self.pods:
            for container in pod.containers:
                for _, device_id in container.devices:
                    yield device_id

    def _add_pod(self) -> None:
        held = set(self._held())
        free = [slot for gpu in self.gpus for slot in gpu.slots if slot[1] not in held]
        if not free:
            return
        resource = self._random.choice(free)[0]
        choices = [slot for slot in free if slot[0] == resource]
        # several whole GPUs for one pod are common, several shares are not
        wanted = self._random.choice((1, 1, 2)) if resource == GPU_RESOURCE else 1
        devices = tuple(self._random.sample(choices, min(wanted, len(choices))))
        workload = self._random.choice(sorted(_WORKLOADS))
        self.pods += (
            Pod(
                namespace=self._random.choice(_NAMESPACES),
                name=self._name(workload),
                containers=(Container(name=_WORKLOADS[workload], devices=devices), Container(name="log-shipper")),
            ),
        )

    def _name(self, workload: str) -> str:
        return f"{workload}-{''.join(self._random.choices(_ALPHABET, k=5))}"

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))
