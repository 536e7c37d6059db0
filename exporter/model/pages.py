"""Pages of samples: as they came, and joined with owners."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.model.devices import NVIDIA_UUIDS, AddedLabels, DeviceKey
from exporter.model.pods import Owner


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


def nobodys(samples: Sequence[tuple[bytes, Subject]]) -> Sequence[Rows]:
    """An `Attribute` for which every device is nobody's."""
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
