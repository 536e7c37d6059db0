"""What a simulated node consists of: GPUs with their MIG instances, and pods with their containers."""

from dataclasses import dataclass

from exporter.accounting.units import CORES
from exporter.model.devices import Claim
from exporter.simulator.profiles import H100, PROFILES, SMALLEST, Card, resource_of

REPLICAS = 4
GPU_RESOURCE = "nvidia.com/gpu"
SHARED_RESOURCE = "nvidia.com/gpu.shared"
DRA_DRIVER = "gpu.nvidia.com"
DRA_POOL = "gpu-node-1"


def bus_id(index: int) -> str:
    """Where a GPU is on the PCI bus, as NVML and DCGM write it."""
    return f"00000000:{0x19 + index * 0x12:02X}:00.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A MIG instance: the id that the kubelet hands out, and the GPU_I_ID that samples carry."""

    device_id: str
    instance_id: int
    profile: str = SMALLEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that is handed out whole, in shares, by DRA claims, as MIG instances, or in units by gpu-manager.

    `units` are the ids, each as (resource, id), that stand for each quarter of it. They do not tell that.
    """

    index: int
    uuid: str
    shared: bool = False
    claimed: bool = False
    instances: tuple[Instance, ...] = ()
    units: tuple[tuple[tuple[str, str], ...], ...] = ()

    @property
    def card(self) -> Card:
        """The model whose profiles it is cut by; an H100 where it is whole."""
        return PROFILES[self.instances[0].profile].card if self.instances else H100

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
            return tuple((resource_of(instance.profile), instance.device_id) for instance in self.instances)
        if self.units:
            return tuple((CORES, f"{self.uuid}::{part}") for part in range(len(self.units)))
        if self.shared:
            return tuple((SHARED_RESOURCE, f"{self.uuid}::{share}") for share in range(REPLICAS))
        return ((GPU_RESOURCE, self.uuid),)

    @property
    def offers(self) -> tuple[tuple[str, str], ...]:
        """What its device plugin offers the kubelet, each as (resource, device id)."""
        if self.claimed:
            return ()
        return tuple(unit for part in self.units for unit in part) or self.slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container with its devices, each as (resource, device id), and its devices of DRA claims.

    `chosen` are the parts of GPUs in units that gpu-manager chose for it: the kubelet does not know them. `running` is
    off while the container waits for its next start, as in a crash loop.
    """

    name: str
    devices: tuple[tuple[str, str], ...] = ()
    claims: tuple[Claim, ...] = ()
    chosen: tuple[str, ...] = ()
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

    @property
    def devices(self) -> tuple[str, ...]:
        """The ids of the devices that its containers hold; of a claim, the device's name in its pool."""
        return tuple(
            device_id
            for container in self.containers
            for device_id in (
                *(held for _, held in container.devices),
                *(claim.device for claim in container.claims),
                *container.chosen,
            )
        )
