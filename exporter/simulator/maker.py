"""New pods, GPUs' UUIDs and MIG instances for a simulated node, all drawn from one source of chance."""

import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.accounting.units import CORES, CORES_OF_GPU, MEMORY, MEMORY_MIB
from exporter.model.devices import Claim
from exporter.simulator.parts import DRA_DRIVER, DRA_POOL, GPU_RESOURCE, REPLICAS, Container, Instance, Pod
from exporter.simulator.profiles import instance_ids

# how many of a resource pods often have, at most
_WANTED = {GPU_RESOURCE: (1, 1, 2), CORES: (1, 2, 3, REPLICAS)}
_MEMORY_UNITS = 318  # of a GPU
# these start again after a crash
SERVICES = ("serve-embeddings", "jupyter")
_NAMES = uuid.UUID(int=0)
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Teams:
    """Whose pods come to a node: the namespaces, and the workloads, each with the name of its pods' first container."""

    namespaces: Sequence[str] = ("ml-research", "serving", "team-vision", "notebooks")
    workloads: Mapping[str, str]


TEAMS = Teams(
    workloads={
        "train-resnet": "trainer",
        "finetune-llm": "worker",
        "serve-embeddings": "server",
        "render": "main",
        "jupyter": "notebook",
        "eval-nightly": "eval",
    }
)


class Maker:
    """Makes what comes to a node. The same `chance` makes the same."""

    def __init__(self, chance: random.Random, teams: Teams = TEAMS) -> None:
        self._chance = chance
        self._teams = teams
        self._pods_made = 0
        self._units: dict[str, tuple[tuple[str, str], ...]] = {}  # by the part of a GPU that they stand for

    def pod_with(self, free: Sequence[tuple[str, str]]) -> Pod | None:
        """A pod that holds something of what is free, each as (resource, device id); None where nothing is."""
        if not free:
            return None
        resource = self._chance.choice(free)[0]
        choices = [slot for slot in free if slot[0] == resource]
        if resource == CORES:
            # gpu-manager puts less than a whole GPU on one
            gpu = self._chance.choice(choices)[1].partition("::")[0]
            choices = [slot for slot in choices if slot[1].startswith(gpu)]
        # pods often have several whole GPUs, but hardly ever several shares
        wanted = self._chance.choice(_WANTED.get(resource, (1,)))
        devices = tuple(self._chance.sample(choices, min(wanted, len(choices))))
        workload = self._chance.choice(sorted(self._teams.workloads))
        namespace = self._chance.choice(self._teams.namespaces)
        container = self._teams.workloads[workload]
        first = Container(name=container, devices=devices)
        if resource == DRA_DRIVER:
            first = Container(name=container, claims=tuple(self._claim(namespace, device) for _, device in devices))
        if resource == CORES:
            chosen = tuple(part for _, part in devices)
            units = tuple(unit for part in chosen for unit in self._units[part])
            first = Container(name=container, devices=units, chosen=chosen)
        return self.pod(namespace, workload, (first, Container(name="log-shipper")))

    def units(self, uuids: Sequence[str]) -> dict[str, tuple[tuple[tuple[str, str], ...], ...]]:
        """The ids of gpu-manager by GPU, for each part of it: any of the node's, since ids tell no GPU."""
        parts = [f"{gpu}::{part}" for gpu in uuids for part in range(REPLICAS)]
        cores = [f"{CORES}-{number}" for number in range(CORES_OF_GPU * len(uuids))]
        memory = [f"{MEMORY}-{MEMORY_MIB * 2**20}-{number}" for number in range(_MEMORY_UNITS * len(uuids))]
        self._chance.shuffle(cores)
        self._chance.shuffle(memory)
        for at, part in enumerate(parts):
            self._units[part] = (
                *((CORES, one) for one in cores[at :: len(parts)]),
                *((MEMORY, one) for one in memory[at :: len(parts)]),
            )
        return {gpu: tuple(self._units[f"{gpu}::{part}"] for part in range(REPLICAS)) for gpu in uuids}

    def pod(self, namespace: str, workload: str, containers: tuple[Container, ...], kind: str = "ReplicaSet") -> Pod:
        """A pod of a workload, with a name of its own."""
        name = f"{workload}-{''.join(self._chance.choices(_ALPHABET, k=5))}"
        return Pod(
            namespace=namespace,
            name=name,
            containers=containers,
            uid=self.uid(namespace, name),
            labels=(("app.kubernetes.io/name", workload), ("team", namespace)),
            owner=(kind, workload),
        )

    def uid(self, namespace: str, name: str) -> str:
        """The UID of a new pod."""
        self._pods_made += 1
        return str(uuid.uuid5(_NAMES, f"{namespace}/{name} {self._pods_made}"))

    def uuid(self) -> str:
        """The UUID of a new device, without its prefix."""
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def instances(self, cut: Sequence[str]) -> tuple[Instance, ...]:
        """New MIG instances.

        Raises:
            ValueError: no GPU can be cut like this.
        """
        return tuple(
            Instance(device_id=f"MIG-{self.uuid()}", instance_id=number, profile=profile)
            for number, profile in zip(instance_ids(cut), cut, strict=True)
        )

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
