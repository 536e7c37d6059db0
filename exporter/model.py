"""The types that travel between rooms: plain, frozen, without behaviour beyond reading themselves.

Units stand in names (`_seconds`). `None` is unknown, never 0. Tuples, not lists.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Owner:
    """A container, as the kubelet names it: PodResources.namespace and .name, ContainerResources.name."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Assignment:
    """One device id in one container: ContainerDevices.resource_name and one of its .device_ids."""

    owner: Owner
    resource: str
    device_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """One answer of the kubelet's List.

    `listed` names every pod in the answer as (namespace, name), with or without devices: a pod that is listed holds
    what the answer says and nothing else, one that is not listed may only be missing yet.
    """

    assignments: frozenset[Assignment]
    listed: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DeviceKey:
    """A GPU or a MIG instance as samples name it: the UUID label and GPU_I_ID ("" for a whole GPU)."""

    uuid: str
    instance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Holder:
    """An owner of a device. `shared` says that it holds a share (time slicing, MPS), not the device alone."""

    owner: Owner
    resource: str
    shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmatchedId:
    """An assignment whose device id says nothing this program can follow, and why (a closed set of reasons)."""

    assignment: Assignment
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Owners:
    """Who holds which device, ready to be asked. A new state is a new object: compare by identity."""

    holders: Mapping[DeviceKey, tuple[Holder, ...]] = field(default_factory=lambda: MappingProxyType({}))
    keys: Mapping[Assignment, DeviceKey] = field(default_factory=lambda: MappingProxyType({}))
    unmatched: tuple[UnmatchedId, ...] = ()

    def of(self, uuid: str, instance: str = "") -> tuple[Holder, ...]:
        """The holders of a device, in stable order.

        Whoever holds a whole GPU holds its MIG instances too; the holder of an instance never holds the GPU.
        """
        found = self.holders.get(DeviceKey(uuid=uuid, instance=instance), ())
        if not found and instance:
            found = self.holders.get(DeviceKey(uuid=uuid), ())
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a sample is about, read from its labels; every field "" where the sample says nothing.

    `uuid` comes from UUID, uuid or gpu_uuid, `index` from gpu, `instance` and `profile` from GPU_I_ID and
    GPU_I_PROFILE. `came_with` is the owner that the page already named (dcgm-exporter with -k, virtual GPUs).
    """

    uuid: str = ""
    instance: str = ""
    profile: str = ""
    index: str = ""
    device: str = ""
    model: str = ""
    vgpu: str = ""
    came_with: Owner | None = None
    came_with_uid: str = ""
    came_shared: bool = False

    @property
    def key(self) -> DeviceKey:
        """The device, as the kubelet's word is looked up."""
        return DeviceKey(uuid=self.uuid, instance=self.instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An answer of a GPU metrics source: Prometheus text as it came, whole and with at least one valid sample."""

    source: str
    body: bytes
    read_at_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the last attempt at a source went. Before the first attempt `up` is None."""

    up: bool | None = None
    reason: str = ""
    message: str = ""
    duration_seconds: float | None = None
    last_success_at_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedPage:
    """The rewritten page and what was learnt while reading it. Valid until a page or the owners change."""

    body: bytes
    subjects: tuple[Subject, ...]
    sample_count: int
    rejected: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One look at the node: what every output is made from.

    `joined` is None where every GPU source failed. `health` holds one entry a source, by its name.
    `assignments_age_seconds` is None as long as the kubelet has never answered.
    """

    node: str
    owners: Owners
    joined: JoinedPage | None
    health: Mapping[str, Health]
    assignments_age_seconds: float | None
