"""What the labels of a sample say, of which device it is and whose, and the policy of the label flags.

The labels that say who owns a device are one set under many names: pod, namespace and container, their legacy names,
the names of `--labels.names`, pod_uid, and gpu_shared. A page may arrive with them (dcgm-exporter with -k, virtual
GPUs). They are taken off every sample and written anew as one set, so that no label is ever there twice and no half of
one owner is mixed with half of another. The rows that go out are made in rows.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from exporter.accounting.fields import ADDITIVE, Additive
from exporter.model.devices import NVIDIA_UUIDS, AddedLabels, Claim
from exporter.model.pages import Subject
from exporter.model.pods import Owner

SHARED_LABEL = "gpu_shared"
UID_LABEL = "pod_uid"
# dcgm-exporter's own names for the labels of a claim
CLAIM_LABELS = ("dra_claim_name", "dra_claim_namespace", "dra_driver_name", "dra_pool_name", "dra_device_name")
POD_LABEL_PREFIX = "label_"
STANDARD_NAMES = ("pod", "namespace", "container")
LEGACY_NAMES = ("pod_name", "pod_namespace", "container_name")
HOST_LABELS = ("Hostname", "hostname")  # the second since dcgm-exporter 4.8.3
COPY, SPLIT, DEVICE = "copy", "split", "device"

_ANYBODYS = ("uuid", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLabels:
    """Which labels of a sample say which device it is of: for each part the labels that may hold it, best first."""

    uuid: tuple[str, ...] = ("UUID", "uuid", "gpu_uuid")
    index: tuple[str, ...] = ("gpu",)
    device: tuple[str, ...] = ("device",)
    instance: tuple[str, ...] = ("GPU_I_ID",)
    profile: tuple[str, ...] = ("GPU_I_PROFILE",)
    model: tuple[str, ...] = ("modelName", "model_name")

    @property
    def all(self) -> frozenset[str]:
        """Every label that may say something of a device."""
        return frozenset((*self.uuid, *self.index, *self.device, *self.instance, *self.profile, *self.model))

    @property
    def of_gpus(self) -> tuple[str, ...]:
        """The labels that only samples of GPUs have: samples of disks have a uuid or a device, too."""
        return (*(name for name in (*self.uuid, *self.model) if name not in _ANYBODYS), *self.names_of_gpus)

    @property
    def names_of_gpus(self) -> tuple[str, ...]:
        """Of these, those that hold a GPU's number or name."""
        return tuple(name for name in (*self.index, *self.device) if name not in _ANYBODYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPolicy:
    """The label flags. `names` are the labels for pod, namespace and container, in that order.

    `sharing` is copy, split or device. `additive` says by family what split divides; `divides_counters` is off where
    nobody sees a second page (`textfile --once`). `has_pod_labels` and `has_claims` say that label_… and dra_… labels
    are among those that say who owns a device.
    """

    names: tuple[str, str, str] = STANDARD_NAMES
    incoming_wins: bool = False
    idle_labels: bool = True
    sharing: str = COPY
    additive: Mapping[str, Additive] = field(default_factory=lambda: ADDITIVE)
    divides_counters: bool = True
    has_pod_labels: bool = False
    has_claims: bool = False
    sample_labels: SampleLabels = field(default_factory=SampleLabels)

    def is_owner_label(self, name: str) -> bool:
        """Whether a label is taken off a sample before the owner's set is written."""
        return name in self.names or name in _OWNER_LABELS or self._is_extra(name)

    def read_subject(self, labels: Mapping[str, str]) -> Subject:
        """What a sample is about, from its labels' names and (unescaped) values."""

        def first(names: Sequence[str]) -> str:
            return next((labels[name] for name in names if labels.get(name)), "")

        pod, namespace, container = (
            first(roles) for roles in zip(self.names, STANDARD_NAMES, LEGACY_NAMES, strict=True)
        )
        uid = labels.get(UID_LABEL, "")
        has_owner = pod or namespace or container or uid
        says = self.sample_labels
        uuid = first(says.uuid)
        return Subject(
            uuid=uuid,
            instance=first(says.instance),
            profile=first(says.profile),
            index=first(says.index),
            device=first(says.device),
            model=first(says.model),
            vgpu=labels.get("vgpu", ""),
            came_with=Owner(namespace=namespace, pod=pod, container=container) if has_owner else None,
            came_with_uid=uid,
            came_extra=tuple((name, value) for name, value in labels.items() if value and self._is_extra(name)),
            came_shared=bool(labels.get(SHARED_LABEL)),
            host=first(HOST_LABELS),
            exported=_exported(labels),
            has_gpu_label=not uuid.startswith(NVIDIA_UUIDS)
            and bool(first(says.of_gpus if uuid else says.names_of_gpus)),
            xid=labels.get("xid", ""),
        )

    def labels_of(self, owner: Owner, *, uid: str = "", shared: bool = False) -> AddedLabels:
        """An owner as a sample's labels name it; `shared` marks that others may have a part of the device."""
        values = (owner.pod, owner.namespace, owner.container)
        labels = tuple(zip(self.names, values, strict=True)) + labels_of_uid(uid)
        return (*labels, (SHARED_LABEL, "true")) if shared else labels

    def _is_extra(self, name: str) -> bool:
        return (self.has_pod_labels and name.startswith(POD_LABEL_PREFIX)) or (self.has_claims and name in CLAIM_LABELS)


_OWNER_LABELS = frozenset((*STANDARD_NAMES, *LEGACY_NAMES, UID_LABEL, SHARED_LABEL))


def _exported(labels: Mapping[str, str]) -> Owner | None:
    pod, namespace, container = (labels.get(f"exported_{name}", "") for name in STANDARD_NAMES)
    return Owner(namespace=namespace, pod=pod, container=container) if pod else None


def labels_of_uid(uid: str) -> AddedLabels:
    """The label of a pod's UID; none of an empty one."""
    return ((UID_LABEL, uid),) if uid else ()


def labels_of_claim(claim: Claim | None) -> AddedLabels:
    """The labels of a claim, as dcgm-exporter names them."""
    if claim is None:
        return ()
    return tuple(zip(CLAIM_LABELS, (claim.name, claim.namespace, claim.driver, claim.pool, claim.device), strict=True))


def pod_labels_among(labels: Iterable[tuple[str, str]]) -> AddedLabels:
    """Those that are labels of a pod (label_…)."""
    return tuple(label for label in labels if label[0].startswith(POD_LABEL_PREFIX))
