"""The types that travel between rooms: plain, frozen, without behaviour beyond reading themselves.

Units stand in names (`_seconds`). `None` is unknown, never 0. Tuples, not lists.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

AddedLabels = tuple[tuple[str, str], ...]
NVIDIA_UUIDS = ("GPU-", "MIG-")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Owner:
    """A container, as the kubelet names it: PodResources.namespace and .name, ContainerResources.name."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Claim:
    """A device that came through Dynamic Resource Allocation: DynamicResource and one of its ClaimResources.

    `cdi_names` are the names of its CDI devices, `share` its share_id ("" where the device is not shared that way).
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
        """The device as Kubernetes writes it."""
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One device id in one container: ContainerDevices.resource_name and one of its .device_ids.

    With a `claim`, the resource is the claim's driver and the id is driver/pool/device.
    """

    owner: Owner
    resource: str
    device_id: str
    claim: Claim | None = None

    @property
    def order(self) -> tuple[object, ...]:
        """What assignments are sorted by."""
        return (self.owner, self.resource, self.device_id, str(self.claim))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """What a pod belongs to: an entry of its metadata.ownerReferences."""

    api_version: str
    kind: str
    name: str
    uid: str
    is_controller: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PodInfo:
    """What is read of a Pod of core/v1: metadata and status. `container_ids` are by container name.

    `created_at_seconds` is metadata.creationTimestamp, in seconds since 1970. The API server sets it: whoever makes a
    pod cannot. `is_acknowledged` says that the pod's kubelet knows it: the kubelet itself told of it, or its status has
    what only a kubelet writes. `is_static` says that it comes from a file on the node: its kubelet needs no API server
    for it.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    owners: tuple[OwnerReference, ...] = ()
    phase: str = ""
    ip: str = ""
    created_at_seconds: float | None = None
    container_ids: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    is_acknowledged: bool = True
    is_static: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """A pod that bears a name (namespace and name), and for how long it has: pods made anew share one name in turn.

    `since` is when the source of pods knew that the kubelet knows the pod (infinity: not yet), `until` when the pod was
    gone (infinity: it is there), both in seconds of `time.monotonic`. `is_first` says that no other bearer of the name
    was known when this one came.
    """

    pod: PodInfo
    since: float
    until: float
    is_first: bool


Bearers = Mapping[tuple[str, str], tuple[Bearer, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """One answer of the kubelet's List.

    `listed` names every pod in the answer as (namespace, name), with or without devices: a pod that is listed holds
    what the answer says and nothing else, one that is not listed may only be missing yet. `outside` are assignments of
    resources that are none of this program's business (`--resources`): the first so many, in stable order.
    """

    assignments: frozenset[Assignment]
    listed: frozenset[tuple[str, str]]
    outside: tuple[Assignment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DeviceKey:
    """A GPU or a MIG instance as samples name it: the UUID label and GPU_I_ID ("" for a whole GPU)."""

    uuid: str
    instance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRef:
    """What a device id refers to, as far as the id itself says; every field "" where it says nothing.

    `uuid` is a GPU's, `mig` a MIG instance's own (its parent and GPU_I_ID are elsewhere), `device` and `index` are a
    GPU's name (nvidia3) and number. `parent` and `profile` narrow a MIG instance down. `form` names the rule.
    """

    form: str
    uuid: str = ""
    mig: str = ""
    device: str = ""
    index: str = ""
    instance: str = ""
    parent: str = ""
    profile: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """A MIG instance of an inventory: its UUID, its GPU instance id (GPU_I_ID of samples) and its profile (1g.10gb)."""

    uuid: str
    instance_id: str
    profile: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryGpu:
    """A GPU of an inventory. `index` is "" where it is not known, `device` where ids go by another name than this."""

    uuid: str
    index: str = ""
    device: str = ""
    mig: tuple[MigInstance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The GPUs of the node and how they are cut, as a file or the driver tells it."""

    gpus: tuple[InventoryGpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceDevice:
    """A device of a ResourceSlice: its attributes type, uuid, parentUUID and profile; "" where it has none."""

    uuid: str = ""
    kind: str = ""
    parent_uuid: str = ""
    profile: str = ""


# driver, pool and name of a device of a ResourceSlice
SliceDeviceName = tuple[str, str, str]


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
    """An owner of a device. `shared` says that it has a share of it (time slicing, MPS), or that others hold it too."""

    owner: Owner
    resource: str
    shared: bool
    claim: Claim | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """What became of one assignment.

    `ref` is None for an id of unknown form, `key` where no device could be made of it. `samples` counts the samples of
    that device that came in; where there are none, `reason` says why (a closed set), otherwise it is "".
    """

    assignment: Assignment
    ref: DeviceRef | None
    key: DeviceKey | None
    samples: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Owners:
    """Who holds which device, ready to be asked. A new state is a new object: compare by identity.

    `matches` says it from the kubelet's side, one entry an assignment.
    """

    holders: Mapping[DeviceKey, tuple[Holder, ...]] = field(default_factory=lambda: MappingProxyType({}))
    matches: tuple[Match, ...] = ()

    def of(self, device: DeviceKey) -> tuple[Holder, ...]:
        """The holders of a device, in stable order.

        Whoever holds a whole GPU holds its MIG instances too; the holder of an instance never holds the GPU.
        """
        found = self.holders.get(device, ())
        if not found and device.instance:
            found = self.holders.get(DeviceKey(uuid=device.uuid), ())
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a sample is about, read from its labels; every field "" where the sample says nothing.

    `uuid` comes from UUID, uuid or gpu_uuid, `index` from gpu, `instance` and `profile` from GPU_I_ID and
    GPU_I_PROFILE, `host` from Hostname or hostname. `came_with` is the owner that the page already named (dcgm-exporter
    with -k, virtual GPUs), `came_extra` what else it said of that owner (labels of the pod, a claim), `exported` the
    owner that a Prometheus on the way moved to exported_pod, exported_namespace and exported_container. `has_gpu_label`
    says that a `uuid` which is not in NVIDIA's form comes with a label that only samples of GPUs have.
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
    came_extra: AddedLabels = ()
    came_shared: bool = False
    host: str = ""
    exported: Owner | None = None
    has_gpu_label: bool = False

    @property
    def is_device(self) -> bool:
        """Whether it is a GPU or an instance by its own word: volumes and virtual machines have a label uuid, too."""
        return self.uuid.startswith(NVIDIA_UUIDS) or self.has_gpu_label

    @property
    def key(self) -> DeviceKey:
        """The device, as the kubelet's word is looked up. A device without a UUID goes by its name or index."""
        return DeviceKey(uuid=self.uuid or self.device or self.index, instance=self.instance)


ShareValues = Callable[[bytes, bytes], Sequence[bytes]]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What becomes of a sample: one outgoing row for each of `labels`, the labels it gains.

    `values`, where there is one, works out the rows' values (`--sharing split`): it is given the series' identity and
    the sample's value, and answers with one text a row. Otherwise every row has the value that came. Where that moves
    something, `peek` is for whoever looks at a page that was written: it moves nothing.
    """

    labels: tuple[AddedLabels, ...]
    values: ShareValues | None = None
    peek: ShareValues | None = None


Attribute = Callable[[Sequence[tuple[bytes, Subject]]], Sequence[Rows]]


def _nobodys(samples: Sequence[tuple[bytes, Subject]]) -> Sequence[Rows]:
    return [Rows(((),))] * len(samples)


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Page:
    """An answer of a GPU metrics source: Prometheus text as it came, whole and with at least one valid sample.

    `moment` says which of two reads was first: seconds of a clock that never steps back. `read_at_seconds` is for
    people, in seconds since 1970.
    """

    source: str
    body: bytes
    read_at_seconds: float
    moment: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the last attempt at a source went. Before the first attempt `up` is None.

    `reason` (of a closed set) and `message` say why it failed, or what is odd about an answer that came: a kubelet that
    lists no pod. `remedy` is what to do, where the source knows it and `message` does not say it.
    """

    up: bool | None = None
    reason: str = ""
    message: str = ""
    remedy: str = ""
    duration_seconds: float | None = None
    last_success_at_seconds: float | None = None


class Cell(NamedTuple):
    """A row that goes out, taken apart: the family, what the sample is about, the labels it gained and its value."""

    family: bytes
    subject: Subject
    labels: AddedLabels
    value: bytes


Cells = Callable[[Container[bytes]], Iterable[Cell]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedPage:
    """The rewritten page and what was learnt while reading it. Valid until a page or the owners change.

    `pieces` are its text, `size` bytes in all: many of a small page, which are joined when the answer is complete, few
    of a large one, which is never copied whole. `subjects` counts the samples that came in, by what they are about.
    `cells` takes its rows apart again, those of the families asked for.
    """

    pieces: Sequence[bytes]
    size: int
    subjects: Mapping[Subject, int]
    sample_count: int
    rejected: Mapping[str, int]
    cells: Cells = field(default=lambda _: (), compare=False, repr=False)

    @property
    def body(self) -> bytes:
        """The text as one."""
        return b"".join(self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What explanations need beside the devices: the settings that decide, and what lies outside them.

    `outside` are assignments of resources that `resources` (globs) leave out. `label_problems` counts the labels of
    pods that hold devices by what became of them: `collision` (renamed) or `limit` (left out). `label_names` are
    those of pod, namespace and container; `node_is_named` says that the node's name was given, not the machine's taken.
    `follows_claims` is off with `--dra off`.
    `slice_devices` are the devices that are known from ResourceSlices; `slices_up` says whether the source of
    ResourceSlices answers, None where there is none.
    """

    resources: tuple[str, ...] = ()
    outside: tuple[Assignment, ...] = ()
    incoming_wins: bool = False
    has_inventory: bool = False
    kubelet_version: str = ""
    label_problems: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    label_names: tuple[str, str, str] = ("pod", "namespace", "container")
    node_is_named: bool = True
    follows_claims: bool = True
    slice_devices: Mapping[SliceDeviceName, SliceDevice] = field(default_factory=lambda: MappingProxyType({}))
    slices_up: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One look at the node: what every output is made from.

    `joined` is None where every GPU source failed. `health` holds one entry a source, by its name; `page_sources` are
    the names of those of GPU samples.
    `assignments_age_seconds` is None as long as the kubelet has never answered; `read_at_seconds` is when the oldest of
    the pages was read, in seconds since 1970. `workloads` are names and kinds by namespace and pod, where they were
    asked for and are known. `attribute` says which labels the samples of a page gain, by family and subject: the very
    one that `joined` was made with.
    """

    node: str
    owners: Owners
    joined: JoinedPage | None
    health: Mapping[str, Health]
    assignments_age_seconds: float | None
    page_sources: tuple[str, ...] = ()
    facts: Facts = field(default_factory=Facts)
    read_at_seconds: float | None = None
    workloads: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    inventory: Inventory = field(default_factory=Inventory)
    attribute: Attribute = field(default=_nobodys, compare=False, repr=False)
