"""Devices as the kubelet hands them out and as an inventory knows them, and the containers that hold them.

Tests: tests/ownership/test_owners.py.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.errors import Trouble
from exporter.model.device_ref import DeviceRef
from exporter.model.grants import Grant, Word
from exporter.model.nothing import NOTHING, nothing
from exporter.model.pods import Owner

AddedLabels = tuple[tuple[str, str], ...]
NVIDIA_UUIDS = ("GPU-", "MIG-")


def bare(uuid: str) -> str:
    """A GPU's UUID without its prefix, as some samples have it."""
    return uuid.removeprefix("GPU-")


# gpu-manager's resources (github.com/tkestack/gpu-manager), whose device ids count units of GPUs and name no GPU. It
# offers 100 ids of tencent.com/vcuda-core for each GPU (tencent.com/vcuda-core-<n>), and an id of
# tencent.com/vcuda-memory for each 256 MiB of all GPUs together (tencent.com/vcuda-memory-268435456-<n>). The numbers
# <n> run on over all GPUs, the kubelet hands out any of the ids, and gpu-manager chooses the GPU afterwards (its
# pkg/services/allocator/nvidia/allocator.go). So a container's ids show its request, and only its processes show its
# GPU.
CORES = "tencent.com/vcuda-core"
MEMORY = "tencent.com/vcuda-memory"
GPU_MANAGER_RESOURCES = frozenset({CORES, MEMORY})
CORES_OF_GPU = 100
MEMORY_MIB = 256


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Claim:
    """A device that came through Dynamic Resource Allocation: DynamicResource and one of its ClaimResources.

    `cdi_names` are the names of its CDI devices, `share` its share_id ("" if the device is not shared that way).
    """

    namespace: str
    name: str
    driver: str
    pool: str
    device: str
    cdi_names: tuple[str, ...] = ()
    share: str = ""

    @property
    def device_id(self) -> str:
        """driver/pool/device, as Kubernetes writes a claim's device."""
        return f"{self.driver}/{self.pool}/{self.device}"

    @property
    def slice_name(self) -> "SliceDeviceName":
        """Driver, pool and device, by which ResourceSlices name it."""
        return self.driver, self.pool, self.device

    @property
    def status_names(self) -> tuple[str, ...]:
        """Its names in a container's status: its CDI devices, or `device_id` if it has none (measured)."""
        return (*self.cdi_names, self.device_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One device id in one container: ContainerDevices.resource_name and one of its .device_ids.

    For a device of a `claim`, the resource is the claim's driver and the id is driver/pool/device. If a resource's ids
    count units of GPUs, one assignment stands for all of a container's ids of that resource: `units` is their number
    (otherwise 0), and `device_id` the first of them. `count` is the number of ids for which the assignment stands,
    where each id is a share of one device. A `word` tells the device in place of the id. An allocator may give a
    container a device of which the kubelet knows nothing: then there is a word, and `device_id` is only a name.
    """

    owner: Owner
    resource: str
    device_id: str
    claim: Claim | None = None
    units: int = 0
    count: int = 1
    word: Word | None = None

    @property
    def order(self) -> tuple[object, ...]:
        """The key that sorts assignments."""
        return (self.owner, self.resource, self.device_id, self.claim is not None, self.claim)


def cdi_names_among(assignments: Iterable[Assignment]) -> AbstractSet[str]:
    """The names of the CDI devices of all claims."""
    return {name for assignment in assignments if assignment.claim for name in assignment.claim.cdi_names}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """One answer of the kubelet's List.

    `listed` has every pod of the answer as (namespace, name), with or without devices. A listed pod holds exactly the
    devices of the answer. A pod that is not listed may be missing for a moment only. `outside` are some of the
    assignments whose resources `--resources` leaves out, in stable order.
    """

    assignments: frozenset[Assignment]
    listed: frozenset[tuple[str, str]]
    outside: tuple[Assignment, ...] = ()


# All device ids that the kubelet has, handed out or not, by resource, each with the number of ids that it stands for.
Allocatable = Mapping[str, Mapping[str, int]]
NONE_ALLOCATABLE: Allocatable = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DeviceKey:
    """A GPU or a MIG instance as samples name it: the UUID label and GPU_I_ID ("" for a whole GPU)."""

    uuid: str
    instance: str = ""


# Moments by device and holder; None stands for nobody.
Since = Mapping[tuple[DeviceKey, Owner | None], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """A MIG instance of an inventory: its UUID, its GPU instance id (GPU_I_ID of samples) and its profile (1g.10gb).

    `sources` are the names of the inventory's sources that have it, if several were asked.
    """

    uuid: str
    instance_id: str
    profile: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryGpu:
    """A GPU of an inventory. `device` is its name in device ids; `device` and `index` are "" if not given.

    `uuid` is "" if a source has only the `device`. The node's inventory, put together from all sources, has no GPU
    without a UUID. `sources` are as in MigInstance. `slices` is the number of compute slices that the GPU can be cut
    into, if NVML says it. `address` is its address on PCI (0000:65:00.0), if the driver says it. `serial` is the serial
    number of its board, if NVML says it.
    """

    uuid: str
    index: str = ""
    device: str = ""
    mig: tuple[MigInstance, ...] = ()
    slices: int | None = None
    sources: tuple[str, ...] = ()
    address: str = ""
    serial: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The GPU's names in samples and device ids: its UUID with and without GPU-, its name, its number."""
        return tuple(name for name in (self.uuid, bare(self.uuid), self.device, self.index) if name)

    def uuid_among(self, uuids: Container[str]) -> str:
        """Its UUID as samples with these UUIDs write it: without GPU- if only so it is among them."""
        return bare(self.uuid) if bare(self.uuid) in uuids else self.uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryDoubt:
    """A gap in an inventory: two sources contradict each other or, without `is_contradiction`, a source is missing.

    `leaves_out` are the UUIDs of the MIG instances that the inventory leaves out for this reason: no owner is better
    than a wrong owner.
    """

    trouble: Trouble
    leaves_out: frozenset[str] = frozenset()
    is_contradiction: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CdiPlace:
    """The GPU to which a CDI device's nodes lead: N of /dev/nvidia<N>, and the GPU_I_ID ("" for the whole GPU).

    `minor` is "" for a device without such a node: a network device, or a GPU that a virtual machine has by vfio.
    """

    minor: str
    instance: str = ""

    def __str__(self) -> str:
        if not self.minor:
            return "no GPU of this node"
        return f"GPU instance {self.instance} of nvidia{self.minor}" if self.instance else f"nvidia{self.minor}"


# By a CDI device's qualified name: k8s.gpu.nvidia.com/claim=<claim's UID>-gpu-3. None: its place is not known.
CdiPlaces = Mapping[str, CdiPlace | None]
NO_PLACES: CdiPlaces = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The GPUs of the node and the MIG instances they are cut into, by one source or by all together.

    `places` has the CDI devices whose names have no UUID: those of the DRA driver, which names them by a claim.
    """

    gpus: tuple[InventoryGpu, ...] = ()
    doubts: tuple[InventoryDoubt, ...] = ()
    places: CdiPlaces = field(default_factory=nothing)


class Taint(NamedTuple):
    """A taint that a DRA driver gives a device (KEP-5055). `added_at` is in seconds since 1970; 0 if it is not known.

    The API server dates every taint. The effect is the word None, NoSchedule or NoExecute.
    """

    effect: str
    key: str
    value: str = ""
    added_at: float = 0.0

    def __str__(self) -> str:
        return f"{self.key}={self.value}" if self.value else self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceDevice:
    """A device of a ResourceSlice: its attributes type, uuid, parentUUID and profile.

    "" for an attribute that it lacks.
    """

    uuid: str = ""
    kind: str = ""
    parent_uuid: str = ""
    profile: str = ""
    taints: tuple[Taint, ...] = ()


# driver, pool and name of a device of a ResourceSlice
SliceDeviceName = tuple[str, str, str]
SliceDevices = Mapping[SliceDeviceName, SliceDevice]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSlice:
    """A ResourceSlice: spec.driver, spec.pool (name, generation, resourceSliceCount) and its devices by name."""

    driver: str
    pool: str
    generation: int
    slice_count: int
    devices: Mapping[str, SliceDevice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """An owner of a device. `shared`: it has a share of the device (time slicing, MPS), or others hold it too.

    `grant` is its part, where an allocator says it: that of all its shares of the device together.
    """

    owner: Owner
    resource: str
    shared: bool
    claim: Claim | None = None
    grant: Grant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """The kubelet's report on a device: Healthy, Unhealthy or Unknown, and a message, which may be ""."""

    word: str
    message: str = ""


DeviceHealths = Mapping[tuple[DeviceKey, Owner], DeviceHealth]
NO_HEALTHS: DeviceHealths = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The device of one assignment, or the reason why none was found.

    `ref` is None for an id of unknown form. `key` is None for such an id, and for one that fits several devices.
    `samples` counts the device's samples that came in. If there are none, `reason` says why (`Unmatched`); otherwise it
    is "".
    """

    assignment: Assignment
    ref: DeviceRef | None
    key: DeviceKey | None
    samples: int = 0
    reason: str = ""

    @property
    def is_token(self) -> bool:
        """Whether an allocator has chosen the device, and the id does not say which one it is."""
        return self.key is None and self.ref is not None and bool(self.ref.allocator)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Owners:
    """The holders of devices. A new state is a new object, so that callers compare by identity.

    Attributes:
        holders: the holders of each device.
        matches: one for each assignment of the kubelet but those in `units` and `looks`.
        units: the assignments that count units of GPUs, in stable order. Their GPU is not known.
        looks: the assignments that only let a container look at a device.
        offered: by resource and device, the number of device ids, handed out or not: the shares of a shared GPU. Empty
            if the kubelet does not say it.
        unnamed: devices by the kubelet's names, if no sample has these names. Each is one of the devices that samples
            have, but it is not known which. So they are not counted as further devices.
    """

    holders: Mapping[DeviceKey, tuple[Holder, ...]] = field(default_factory=nothing)
    matches: tuple[Match, ...] = ()
    units: tuple[Assignment, ...] = ()
    looks: tuple[Match, ...] = ()
    offered: Mapping[tuple[str, DeviceKey], int] = field(default_factory=nothing)
    unnamed: frozenset[DeviceKey] = frozenset()

    @property
    def unplaced(self) -> frozenset[Owner]:
        """The containers that hold devices which the kubelet does not name: units, and tokens of allocators."""
        of_tokens = (match.assignment.owner for match in self.matches if match.is_token)
        return frozenset((*(assignment.owner for assignment in self.units), *of_tokens))

    @property
    def contradictions(self) -> Iterator[tuple[Match, Trouble]]:
        """The assignments for which the node shows another device than an allocator wrote, and what contradicts it."""
        for match in self.matches:
            word = match.assignment.word
            if word is not None and word.names_device and word.trouble is not None:
                yield match, word.trouble

    @property
    def named(self) -> set[DeviceKey]:
        """The devices that the kubelet names, held or on offer, except those in `unnamed`."""
        return {*self.holders, *(key for _, key in self.offered)} - self.unnamed

    def of(self, device: DeviceKey) -> tuple[Holder, ...]:
        """The holders of a device, in stable order; () for a device that nobody holds.

        The holder of a whole GPU holds its MIG instances, too, unless they have holders of their own. The holder of an
        instance does not hold the GPU.
        """
        holders = self.holders.get(device, ())
        if not holders and device.instance:
            holders = self.holders.get(DeviceKey(uuid=device.uuid), ())
        return holders
