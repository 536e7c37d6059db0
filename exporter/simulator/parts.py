"""The parts of a simulated node: GPUs of two models with their MIG instances, and pods with their containers.

Tests: tests/simulator/test_allocators.py.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from exporter.model.devices import CORES, Claim

SMALLEST = "1g.10gb"


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A model of GPUs. `memory` is in MiB, as nvidia-smi shows it."""

    model: str
    slices: int
    memory_slices: int
    memory: int


H100 = GpuModel("NVIDIA H100 80GB HBM3", 7, 8, 81_559)
RTX_PRO_6000 = GpuModel("NVIDIA RTX PRO 6000 Blackwell Server Edition", 4, 4, 97_887)


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile of MIG instances, as `nvidia-smi mig -lgip` lists it.

    Attributes:
        slices: the compute slices of an instance.
        memory_slices: the memory slices of an instance.
        memory: its memory in MiB.
        first_id: the lowest GPU_I_ID of its instances.
        most: the most instances of a GPU.
        card: the model of the GPU.
        number: the profile's id; 0 if no claim here asks for it.
    """

    slices: int
    memory_slices: int
    memory: int
    first_id: int
    most: int
    card: GpuModel = H100
    number: int = 0


PROFILES = {
    "1g.10gb": Profile(1, 1, 9_984, 7, 7, number=19),
    "1g.10gb+me": Profile(1, 1, 9_984, 13, 1),
    "1g.20gb": Profile(1, 2, 19_968, 15, 4),
    "2g.20gb": Profile(2, 2, 19_968, 3, 3, number=14),
    "3g.40gb": Profile(3, 4, 40_192, 1, 2, number=9),
    "4g.40gb": Profile(4, 4, 40_192, 1, 1),
    "7g.80gb": Profile(7, 8, 80_896, 0, 1),
    "1g.24gb": Profile(1, 1, 24_192, 3, 4, RTX_PRO_6000),
    "2g.48gb": Profile(2, 2, 48_512, 1, 2, RTX_PRO_6000),
    "4g.96gb": Profile(4, 4, 97_280, 0, 1, RTX_PRO_6000),
}


def resource_of(profile: str) -> str:
    """The resource by which NVIDIA's device plugin hands out an instance of this profile: `+me` becomes `.me`."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"


# The places at which the driver cuts a GPU for a claim: the profile, and the first of its memory slices.
PLACEMENTS = tuple(
    (name, start * profile.memory_slices)
    for name, profile in PROFILES.items()
    if profile.number
    for start in range(profile.most)
)
REPLICAS = 4
Pids = Mapping[tuple[str, str], int]  # by the UID of the pod, and the device as the machine names it
Slot = tuple[str, str]  # a resource and one of its device ids; for claims the driver and the device
GPU_RESOURCE = "nvidia.com/gpu"
SHARED_RESOURCE = "nvidia.com/gpu.shared"
DRA_DRIVER = "gpu.nvidia.com"
DRA_POOL = "gpu-node-1"


def bus_id(index: int) -> str:
    """A GPU's place on the PCI bus, as NVML and DCGM write it. Linux leaves out the first four digits."""
    domain, bus = divmod(0x19 + index * 0x12, 256)
    return f"{domain:08X}:{bus:02X}:00.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A MIG instance: the id that the kubelet hands out, and the GPU_I_ID of samples.

    An instance that was cut for a claim has the name of its placement (`claim_device`), and the claim's CDI device.
    """

    device_id: str
    instance_id: int
    profile: str = SMALLEST
    claim_device: str = ""
    cdi_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGpu:
    """A GPU that is handed out whole, in shares, by DRA claims, as MIG instances, in units, or by an allocator.

    A `dynamic` GPU is claimed, too: whole, or in instances that the driver cuts for each claim. `units` has the ids
    (resource, id) of each quarter of the GPU; the ids themselves name no GPU. An allocator's GPU (allocators.py) has
    `seats`, and the ids that its device plugin registers for it (`tokens`). A GPU that `is_lost` has fallen off the
    bus.
    """

    index: int
    uuid: str
    shared: bool = False
    claimed: bool = False
    dynamic: bool = False
    instances: tuple[Instance, ...] = ()
    units: tuple[tuple[Slot, ...], ...] = ()
    seats: tuple[Slot, ...] = ()
    tokens: tuple[Slot, ...] = ()
    is_lost: bool = False

    @property
    def card(self) -> GpuModel:
        """Its model: that of its instances' profiles, or an H100 if it is whole."""
        return PROFILES[self.instances[0].profile].card if self.instances else H100

    @property
    def claim_device(self) -> str:
        """The GPU's name in the driver's ResourceSlice."""
        return f"gpu-{self.index}"

    @property
    def placements(self) -> dict[str, tuple[str, range]]:
        """The devices that claims can have of a dynamic GPU, by the driver's names: profiles, and their memory slices.

        The whole GPU has the profile "". A device that shares a slice with a held device cannot be had.
        """
        if not self.dynamic:
            return {}
        # the DRA driver's cmd/gpu-kubelet-plugin/mig.go names them so
        placements = {self.claim_device: ("", range(H100.memory_slices))}
        for name, start in PLACEMENTS:
            profile = PROFILES[name]
            device = f"{self.claim_device}-mig-{name.replace('.', '')}-{profile.number}-{start}"
            placements[device] = (name, range(start, start + profile.memory_slices))
        return placements

    @property
    def ids_of_claims(self) -> dict[str, str]:
        """The UUIDs of the GPU and of the instances that were cut for claims, by their names in the ResourceSlice."""
        cut = {mig.claim_device: mig.device_id for mig in self.instances if mig.claim_device}
        return {self.claim_device: self.uuid, **cut}

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The parts that pods can hold."""
        if self.claimed:
            return tuple((DRA_DRIVER, device) for device in self.placements or (self.claim_device,))
        if self.instances:
            return tuple((resource_of(instance.profile), instance.device_id) for instance in self.instances)
        if self.seats:
            return self.seats
        if self.units:
            return tuple((CORES, f"{self.uuid}::{part}") for part in range(len(self.units)))
        if self.shared:
            return tuple((SHARED_RESOURCE, f"{self.uuid}::{share}") for share in range(REPLICAS))
        return ((GPU_RESOURCE, self.uuid),)

    @property
    def offers(self) -> tuple[Slot, ...]:
        """The devices of the GPU that the kubelet can hand out."""
        if self.claimed or self.is_lost:
            return ()
        if self.seats:
            return self.tokens
        return tuple(chain.from_iterable(self.units)) or self.slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What an allocator really gave a container of one GPU. None: the container did not ask for so much of it.

    Attributes:
        uuid: the GPU.
        memory_mib: MiB of its memory.
        cores_percent: percent of its cores.
        fraction: the part of the GPU, of an allocator that counts in fractions.
    """

    uuid: str
    memory_mib: int | None = None
    cores_percent: int | None = None
    fraction: float | None = None

    @property
    def of_memory(self) -> float:
        """The part of the GPU's memory, 0 to 1 (more if the allocator promises more than there is)."""
        if self.memory_mib is not None:
            return self.memory_mib / H100.memory
        return 1.0 if self.fraction is None else self.fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEnd:
    """How a container ended: its exit code, the kubelet's reason, the second since 1970, and which start it was."""

    exit_code: int
    reason: str
    at_seconds: int
    start: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container.

    Attributes:
        name: its name.
        devices: its devices.
        claims: the devices of its DRA claims.
        looks: the devices of its claims with admin access, which it does not hold.
        chosen: the parts of GPUs that gpu-manager or another allocator chose, which the kubelet does not know.
        parts: what an allocator chose for it, by GPU. gpu-manager's are quarters, and are not here.
        asks: what it asks for in its limits (resource, number) beside its devices.
        environment: the variables that device plugins set.
        is_sidecar: it is one of the pod's init containers, and runs on.
        is_reservation: it holds its devices for others, and uses none of them.
        running: whether it runs; not in a crash loop.
        starts: how often the kubelet started it anew.
        end: its last end; None if it has run all the time.
        ailing: its devices (ids, CDI names) that are not healthy, each with its health and a message.
        uses: the GPUs (by UUID) that it uses although the kubelet did not give it them.
    """

    name: str
    devices: tuple[Slot, ...] = ()
    claims: tuple[Claim, ...] = ()
    looks: tuple[Claim, ...] = ()
    chosen: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    asks: tuple[tuple[str, int], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    is_sidecar: bool = False
    is_reservation: bool = False
    running: bool = True
    starts: int = 0
    end: SimulatedEnd | None = None
    ailing: tuple[tuple[str, str, str], ...] = ()
    uses: tuple[str, ...] = ()

    @property
    def all_claims(self) -> tuple[Claim, ...]:
        """The devices of its claims, with and without admin access."""
        return (*self.claims, *self.looks)

    @property
    def limits(self) -> dict[str, int]:
        """The numbers of extended resources in its spec."""
        return {**Counter(resource for resource, _ in self.devices), **dict(self.asks)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What an allocator writes on a pod, and from when on it is there (nanoseconds of the node's clock).

    `fault` says what is wrong with it: "broken" (it cannot be read), "foreign" (it names a device that the node
    lacks), "wrong" (it names another device than the pod really has), or "".
    """

    annotations: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    at_ns: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod as the kubelet knows it.

    Attributes:
        namespace, name, uid, ip, phase, labels, annotations: as in Kubernetes.
        note: what its allocator adds to labels and annotations.
        containers: its containers, those included that are init containers and run on (sidecars).
        init_containers: containers that end before the others start. A device of both is the same device.
        owner: the kind and the name of its controller.
        is_acknowledged: whether the kubelet knows it, and not only the API server.
        is_static: it comes from a file.
        created: when it was created, in whole seconds since 1970.
        work: its workload (job_phases.py) and the seed of it. The pods of a job share a seed, and so work in step.
            None: the controller's name says the workload.
        began: when it began, in seconds of its node's life, which may be below 0; None: when the node first has it.
        devices: the ids of the devices that its containers hold; for a claim, the device's name in its pool.
    """

    namespace: str
    name: str
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    uid: str = ""
    ip: str = ""
    phase: str = "Running"
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    note: Note | None = None
    owner: tuple[str, str] = ("", "")
    is_acknowledged: bool = True
    is_static: bool = False
    created: int = 1_700_000_000
    work: tuple[str, str] | None = None
    began: float | None = None
    devices: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        devices = list[str]()
        for container in self.containers:
            if not container.is_reservation:
                devices += (device_id for _, device_id in container.devices)
                devices += (claim.device for claim in container.claims)
                devices += container.chosen
        # a cluster's scheduler asks for them hundreds of times
        object.__setattr__(self, "devices", tuple(devices))

    @property
    def has_ended(self) -> bool:
        """Whether the pod's containers have ended for good."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def running(self) -> tuple[Container, ...]:
        """Its containers; none once it has ended."""
        return () if self.has_ended else self.containers

    @property
    def all_claims(self) -> tuple[Claim, ...]:
        """Those of its containers, with admin access or without."""
        return tuple(claim for container in self.containers for claim in container.all_claims)

    @property
    def in_spec(self) -> tuple[tuple[Container, ...], tuple[Container, ...]]:
        """The init containers and the containers of its spec, in their order. Sidecars come after an init container."""
        sidecars = [container for container in self.containers if container.is_sidecar]
        rest = tuple(container for container in self.containers if not container.is_sidecar)
        return (*self.init_containers[:1], *sidecars, *self.init_containers[1:]), rest

    def seen_at(self, now_ns: int) -> "Pod":
        """The pod as its API server shows it at a moment of the node's clock."""
        if self.note is None:
            return self
        if now_ns < self.note.at_ns:
            return replace(self, note=None)
        labels = (*self.labels, *self.note.labels)
        return replace(self, labels=labels, annotations=(*self.annotations, *self.note.annotations), note=None)
