"""A made-up GPU node: GPUs, MIG instances and shares, and pods that come and go on them.

Everything is drawn from one seed, so that a run can be repeated. Nothing here does I/O: the simulated kubelet, APIs and
dcgm-exporter show this world to their clients.
"""

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from exporter.model.devices import Claim

REPLICAS = 4
MIG_INSTANCES = 7
MIG_PROFILE = "1g.10gb"
MODEL = "NVIDIA H100 80GB HBM3"
GPU_RESOURCE = "nvidia.com/gpu"
SHARED_RESOURCE = "nvidia.com/gpu.shared"
MIG_RESOURCE = f"nvidia.com/mig-{MIG_PROFILE}"
DRA_DRIVER = "gpu.nvidia.com"
DRA_POOL = "gpu-node-1"
_NAMESPACES = ("ml-research", "serving", "team-vision", "notebooks")
_WORKLOADS = {
    "train-resnet": "trainer",
    "finetune-llm": "worker",
    "serve-embeddings": "server",
    "render": "main",
    "jupyter": "notebook",
    "eval-nightly": "eval",
}
_NAMES = uuid.UUID(int=0)
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A MIG instance: the id that the kubelet hands out, and the GPU_I_ID that samples carry."""

    device_id: str
    instance_id: int
    profile: str = MIG_PROFILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that is handed out whole, in shares, by DRA claims, or as MIG instances."""

    index: int
    uuid: str
    shared: bool = False
    claimed: bool = False
    instances: tuple[Instance, ...] = ()

    @property
    def claim_device(self) -> str:
        """Its name in the driver's ResourceSlice."""
        return f"gpu-{self.index}"

    @property
    def slots(self) -> tuple[tuple[str, str], ...]:
        """The parts that pods can hold, each as (resource, device id); for claims as (driver, device)."""
        if self.claimed:
            return ((DRA_DRIVER, self.claim_device),)
        if self.instances:
            return tuple((MIG_RESOURCE, instance.device_id) for instance in self.instances)
        if self.shared:
            return tuple((SHARED_RESOURCE, f"{self.uuid}::{share}") for share in range(REPLICAS))
        return ((GPU_RESOURCE, self.uuid),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container with its devices, each as (resource, device id), and its devices of DRA claims.

    `running` is off while the container waits for its next start, as in a crash loop.
    """

    name: str
    devices: tuple[tuple[str, str], ...] = ()
    claims: tuple[Claim, ...] = ()
    running: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod as the kubelet knows it. `owner` is the kind and the name of its controller.

    `init_containers` end before the `containers` start; where both have a device it is the same one. `is_acknowledged`
    is off as long as only the API server knows the pod. `is_static`: the pod comes from a file on the node. `created`
    is in whole seconds since 1970.
    """

    namespace: str
    name: str
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    uid: str = ""
    ip: str = ""
    phase: str = "Running"
    labels: tuple[tuple[str, str], ...] = ()
    owner: tuple[str, str] = ("", "")
    is_acknowledged: bool = True
    is_static: bool = False
    created: int = 1_700_000_000

    @property
    def has_ended(self) -> bool:
        """Whether the pod's containers have ended for good."""
        return self.phase in ("Succeeded", "Failed")


class World:
    """The node. `pods` is exchanged as a whole, so that a reader never sees half a change."""

    def __init__(self, *, gpus: int = 8, shared: int = 0, mig: int = 0, claims: int = 0, seed: int = 1) -> None:
        """Of the `gpus`, `shared` are time-sliced into 4 shares and `mig` are cut into 7 instances; the rest is whole.

        Of the whole GPUs the first `claims` are handed out by DRA.
        """
        self._random = random.Random(seed)
        self.gpus = tuple(
            Gpu(
                index=index,
                uuid=f"GPU-{self._uuid()}",
                shared=gpus - mig - shared <= index < gpus - mig,
                claimed=index < claims,
                instances=tuple(
                    # on real GPUs with seven small instances the instance ids start at 7
                    Instance(device_id=f"MIG-{self._uuid()}", instance_id=7 + number)
                    for number in range(MIG_INSTANCES)
                )
                if index >= gpus - mig
                else (),
            )
            for index in range(gpus)
        )
        self._pods_made = 0
        self.pods: tuple[Pod, ...] = (
            self._pod("kube-system", "node-agent", "x2k4d", (Container(name="agent"),), kind="DaemonSet"),
        )
        while self.used_share < 0.6:  # noqa: PLR2004 - a node that has something to show from the start
            self._add_pod()

    @property
    def of_kubelet(self) -> tuple[Pod, ...]:
        """The pods that the kubelet knows, ended pods included until they are removed."""
        return tuple(pod for pod in self.pods if pod.is_acknowledged)

    @property
    def listed(self) -> tuple[Pod, ...]:
        """The pods that the kubelet's List names."""
        return tuple(pod for pod in self.of_kubelet if not pod.has_ended)

    @property
    def used_share(self) -> float:
        """The share of the node's slots that pods hold, 0 to 1."""
        slots = sum(len(gpu.slots) for gpu in self.gpus)
        return sum(1 for _ in self._held()) / slots if slots else 1.0

    def holds(self, device_id: str) -> bool:
        """Whether a pod holds this device, or a share of it."""
        return any(held == device_id or held.startswith(f"{device_id}::") for held in self._held())

    def step(self) -> None:
        """A random pod with devices goes, or a new pod comes."""
        owners = [pod for pod in self.pods if any(container.devices for container in pod.containers)]
        if owners and (self.used_share > 0.9 or self._random.random() < 0.5):  # noqa: PLR2004
            self.remove(self._random.choice(owners))
        else:
            self._add_pod()

    def replace_all(self) -> None:
        """Every pod goes, and a pod of another name takes its devices."""
        self.pods = tuple(
            self._pod(pod.namespace, pod.name.rpartition("-")[0], self._suffix(), pod.containers) for pod in self.pods
        )

    def recreate(self, old: Pod, *, is_acknowledged: bool = True) -> Pod:
        """A pod is made anew under its old name, as a StatefulSet does. Returns the new pod.

        Without `is_acknowledged` the old pod was deleted by force, and the kubelet knows neither of that nor of the
        new pod.
        """
        self._pods_made += 1
        uid = self._uid(old.namespace, old.name)
        return self._change(old, replace(old, uid=uid, phase="Running", is_acknowledged=is_acknowledged))

    def acknowledge(self, pod: Pod) -> Pod:
        """The kubelet learns of a pod. Returns the pod's new state."""
        return self._change(pod, replace(pod, is_acknowledged=True))

    def end(self, pod: Pod, phase: str = "Succeeded") -> Pod:
        """A pod ends and gives its devices back, but stays until it is removed. Returns the pod's new state."""
        return self._change(pod, replace(pod, phase=phase))

    def _change(self, old: Pod, new: Pod) -> Pod:
        self.pods = tuple(new if pod is old else pod for pod in self.pods)
        return new

    def relabel(self, pod: Pod, **labels: str) -> None:
        """Add labels to a pod, or change those that it has."""
        self._change(pod, replace(pod, labels=tuple({**dict(pod.labels), **labels}.items())))

    def inventory(self) -> dict[str, object]:
        """The GPUs and their MIG instances, in the form of --inventory.file."""
        return {
            "gpus": [
                {
                    "uuid": gpu.uuid,
                    "index": gpu.index,
                    "mig": [
                        {"uuid": mig.device_id, "instance_id": mig.instance_id, "profile": mig.profile}
                        for mig in gpu.instances
                    ],
                }
                for gpu in self.gpus
            ]
        }

    def remove(self, gone: Pod) -> None:
        """A pod goes; the same object must be in `pods`."""
        self.pods = tuple(pod for pod in self.pods if pod is not gone)

    def _held(self) -> Iterator[str]:
        names = {gpu.claim_device: gpu.uuid for gpu in self.gpus}
        for pod in self.pods:
            for container in () if pod.has_ended else pod.containers:
                for _, device_id in container.devices:
                    yield device_id
                for claim in container.claims:
                    yield names[claim.device]

    def _add_pod(self) -> None:
        held = set(self._held())
        free = [
            slot
            for gpu in self.gpus
            for slot in gpu.slots
            if slot[1] not in held and not (gpu.claimed and gpu.uuid in held)
        ]
        if not free:
            return
        resource = self._random.choice(free)[0]
        choices = [slot for slot in free if slot[0] == resource]
        # pods often have several whole GPUs, but hardly ever several shares
        wanted = self._random.choice((1, 1, 2)) if resource == GPU_RESOURCE else 1
        devices = tuple(self._random.sample(choices, min(wanted, len(choices))))
        workload = self._random.choice(sorted(_WORKLOADS))
        namespace, suffix = self._random.choice(_NAMESPACES), self._suffix()
        first = Container(name=_WORKLOADS[workload], devices=devices)
        if resource == DRA_DRIVER:
            first = Container(
                name=_WORKLOADS[workload], claims=tuple(self._claim(namespace, device) for _, device in devices)
            )
        self.pods += (self._pod(namespace, workload, suffix, (first, Container(name="log-shipper"))),)

    def _claim(self, namespace: str, device: str) -> Claim:
        claim_uid = uuid.uuid5(_NAMES, f"claim {self._pods_made}")
        return Claim(
            namespace=namespace,
            name=f"gpu-{str(claim_uid)[:5]}",
            driver=DRA_DRIVER,
            pool=DRA_POOL,
            device=device,
            # as NVIDIA's driver names them: the UUID in the name is the claim's, not the GPU's
            cdi_names=(f"k8s.{DRA_DRIVER}/claim={claim_uid}-{device}",),
        )

    def _pod(
        self, namespace: str, workload: str, suffix: str, containers: tuple[Container, ...], kind: str = "ReplicaSet"
    ) -> Pod:
        self._pods_made += 1
        name = f"{workload}-{suffix}"
        return Pod(
            namespace=namespace,
            name=name,
            containers=containers,
            uid=self._uid(namespace, name),
            labels=(("app.kubernetes.io/name", workload), ("team", namespace)),
            owner=(kind, workload),
        )

    def _uid(self, namespace: str, name: str) -> str:
        return str(uuid.uuid5(_NAMES, f"{namespace}/{name} {self._pods_made}"))

    def _suffix(self) -> str:
        return "".join(self._random.choices(_ALPHABET, k=5))

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))
