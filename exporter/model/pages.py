"""Pages of samples, before and after they are joined with owners; and their subjects, which have an order.

Tests: tests/ownership/test_many_devices.py.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from exporter.model.devices import NVIDIA_UUIDS, AddedLabels, Claim, DeviceKey, Inventory, Owners, bare
from exporter.model.name_order import as_people_count
from exporter.model.pods import Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The device that a sample is about, read from its labels; a text is "" if no label says it.

    Attributes:
        uuid: from the label UUID, uuid or gpu_uuid.
        instance: from GPU_I_ID, as `profile` is from GPU_I_PROFILE.
        index: from gpu.
        host: from Hostname or hostname.
        address: from pci_bus_id, as that label writes it.
        driver: the driver's version, as `serial` from the label that dcgm-exporter makes of this field.
        came_with: the owner that the page already names (dcgm-exporter with -k, virtual GPUs).
        came_extra: the page's other labels of that owner (of the pod, of a claim).
        exported: the owner that a Prometheus on the way moved to exported_pod, exported_namespace and
            exported_container.
        has_gpu_label: `uuid` has not NVIDIA's form, but another label is one that only GPUs have. Without a `uuid`,
            this label is the one with the number or the name.
        is_unread: the subject stands for all devices beyond the number that a page's readers distinguish.
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
    address: str = ""
    driver: str = ""
    serial: str = ""
    exported: Owner | None = None
    has_gpu_label: bool = False
    is_unread: bool = False

    @property
    def is_device(self) -> bool:
        """Whether the labels show a GPU or MIG instance by its UUID. A label `uuid` is not enough: volumes have one."""
        return self.uuid.startswith(NVIDIA_UUIDS) or (bool(self.uuid) and self.has_gpu_label)

    @property
    def gpu(self) -> str:
        """The GPU's UUID, or else its name, or else its number; "" if no label has any of them."""
        return self.uuid or self.device or self.index

    @property
    def key(self) -> DeviceKey:
        """The key under which the device's holders are found."""
        return DeviceKey(uuid=self.gpu, instance=self.instance)


Subjects = Mapping[Subject, int]  # the number of samples of each subject
UNREAD = Subject(is_unread=True)


def merged(device: Subject | None, other: Subject) -> Subject:
    """Two subjects of one device, put together. A field that `device` lacks comes from `other`."""
    if device is None:
        return other
    return replace(
        device,
        index=device.index or other.index,
        device=device.device or other.device,
        model=device.model or other.model,
        profile=device.profile or other.profile,
        host=device.host or other.host,
        address=device.address or other.address,
        driver=device.driver or other.driver,
        serial=device.serial or other.serial,
    )


UNREAD_OWNED = Subject(is_unread=True, came_with=Owner(namespace="", pod="", container=""))
ShareValues = Callable[[bytes, bytes], Sequence[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    """A row that goes out for a sample: its owner, and the labels that it gains.

    `owner` is None for a row of nobody, and for a row of several owners together (`--sharing device`). `shared`: the
    owner has a share of the device, or others hold it too. `uid` and `pod_labels` (label_…) belong to the owner's pod,
    if the user asks for them. `claim` is the claim that gave the owner the device. `labels` has all of these as labels,
    under the names that the label flags choose; to learn the owner, read `owner`.
    """

    labels: AddedLabels
    owner: Owner | None = None
    shared: bool = False
    uid: str = ""
    pod_labels: AddedLabels = ()
    claim: Claim | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows that go out for a sample, at least one.

    Without `values` every row has the sample's value. `values` (`--sharing split`) takes the series' identity and the
    sample's value, or a MIG instance's part of it, and returns the text of a value for each row. If `values` advances
    counters, `peek` returns the same texts without advancing them, for readers of a page that has already been written.
    """

    each: tuple[Row, ...]
    values: ShareValues | None = None
    peek: ShareValues | None = None


SubjectsOfFamilies = Sequence[tuple[bytes, Subject]]  # of samples: the family's name, and the subject
Attribute = Callable[[SubjectsOfFamilies], Sequence[Rows]]


def nobodys(samples: SubjectsOfFamilies) -> Sequence[Rows]:
    """An `Attribute` for which no device has an owner: one row without added labels for each sample."""
    return [Rows((Row(labels=()),))] * len(samples)


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Page:
    """A page of a GPU metrics source: whole Prometheus text as it came, with at least one valid sample.

    `moment` orders the reads (seconds of a clock that never steps back). `read_at_seconds` (since 1970) is for people.
    `as_it_came` is the text before a name in it was replaced by one that tells the unit; mostly it is `body` itself.
    """

    source: str
    body: bytes
    read_at_seconds: float
    moment: float
    as_it_came: bytes | None = None


class Cell(NamedTuple):
    """A value on a page that goes out: its family, the sample's subject, the row with the owner, and the text."""

    family: bytes
    subject: Subject
    row: Row
    value: bytes


Cells = Callable[[frozenset[bytes]], Iterable[Cell]]


class Sampled(Protocol):
    """A series of a page. It stays the same object as long as pages have the series, so that readers recognise it."""

    @property
    def name(self) -> bytes:
        """The family's name."""

    @property
    def subject(self) -> Subject:
        """The device that the series' samples are about."""

    @property
    def own_labels(self) -> tuple[str, ...]:
        """The values of the labels that tell a device's samples of this family apart (`DcgmField.labels`)."""

    @property
    def identity(self) -> bytes:
        """A text that two series share only if they are the same series, whatever owners they came with."""


Reading = tuple[Sampled, bytes]  # a sample as it came in: its series and its value
Readings = Callable[[frozenset[bytes]], Iterable[Reading]]


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class JoinedPage:
    """The page that goes out, and its samples. It is valid until a page or the owners change.

    `pieces` are its text, `size` bytes in all. A small page has many pieces, which the answer joins; a large page
    has few, and nobody copies it whole. `subjects` counts the samples that came in, by subject. `unread` is the
    number of samples of devices that the readers do not distinguish any more: these samples are only in the text.
    `rejected` has the numbers of lines and parts of lines that were left out, by reason. `cells(families)` gives
    the values of these families in the page's order. `readings(families)` gives their samples as they were before
    `--sharing`.
    """

    pieces: Sequence[bytes]
    size: int
    subjects: Mapping[Subject, int]
    sample_count: int
    rejected: Mapping[str, int]
    unread: int = 0
    cells: Cells = field(default=lambda _: (), compare=False, repr=False)
    readings: Readings = field(default=lambda _: (), compare=False, repr=False)

    @property
    def body(self) -> bytes:
        """The whole text."""
        return b"".join(self.pieces)


def gpus_among(subjects: Iterable[Subject], owners: Owners, inventory: Inventory) -> list[Subject]:
    """The GPUs and MIG instances among subjects: labels, the kubelet or the inventory tell that they are.

    Disks and machines have UUIDs, names and numbers, too. A subject without a UUID is a GPU if it has a label that only
    GPUs have, with two exceptions: other samples have this GPU's UUID, or the kubelet has names that the samples lack,
    which may be names of the same GPU. Names in `Owners.unnamed` are no exception: they are known to be names of these
    GPUs.
    """
    subjects = tuple(subjects)
    named = owners.named
    uuids = {gpu.uuid for gpu in inventory.gpus}
    uuids.update(bare(gpu.uuid) for gpu in inventory.gpus)
    gpus: list[Subject] = []
    labelled: list[Subject] = []
    for subject in subjects:
        if subject.is_device or subject.key in named or subject.uuid in uuids:
            gpus.append(subject)
        elif subject.has_gpu_label and not subject.uuid:
            labelled.append(subject)
    if labelled and (owners.unnamed or named <= {subject.key for subject in subjects}):
        gpus += _beside([gpu for gpu in gpus if gpu.uuid], labelled)
    return gpus


def _beside(gpus: Sequence[Subject], labelled: Iterable[Subject]) -> list[Subject]:
    """The labelled subjects whose number and name no GPU among `gpus` has."""
    taken = {gpu.index for gpu in gpus}.union(gpu.device for gpu in gpus) - {""}
    return [subject for subject in labelled if taken.isdisjoint((subject.index, subject.device))]


def cut_gpus(devices: Iterable[Subject]) -> frozenset[str]:
    """The GPUs that are cut into MIG instances: the `uuid` of their keys."""
    return frozenset(device.key.uuid for device in devices if device.instance)


def entity_of(device: Subject, cut: Container[str]) -> str:
    """`mig` for a MIG instance, `mig-parent` for a GPU that is cut into some (`cut_gpus`), `gpu` for any other."""
    if device.instance or device.key.uuid.startswith("MIG-"):
        return "mig"
    return "mig-parent" if device.key.uuid in cut else "gpu"


def object_of(device: Subject, cut: Container[str]) -> dict[str, str]:
    """The fields of an object of /container/metrics that name the device."""
    entity = entity_of(device, cut)
    # an instance has no number if nothing resolves its id
    of_mig = {"mig_profile": device.profile, "mig_instance_id": device.instance} if entity == "mig" else {}
    return {
        "model_name": device.model,
        "device": device.device,
        "device_id": device.index,
        "device_uuid": device.uuid,
        "entity": entity,
        **{name: text for name, text in of_mig.items() if text},
    }


def in_order(subject: Subject) -> tuple[object, ...]:
    """The key that sorts devices: by GPU index, then by MIG instance."""
    # a GPU goes before its instances, and a GPU without an index after all others
    return (not subject.index, as_people_count(subject.index), as_people_count(subject.instance), subject.key)
