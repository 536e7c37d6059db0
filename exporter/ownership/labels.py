"""The labels of a sample that name its device and its owner, and the labels that samples gain.

The labels of an owner are one set under many names: pod, namespace and container, their legacy names, the names of
`--labels.names`, pod_uid, and gpu_shared. A page may arrive with them (dcgm-exporter with -k, virtual GPUs). The
exporter takes them off every sample and writes them anew as one set. So no label is there twice, and the labels of two
owners never mix.

A pod's label `app.kubernetes.io/name` becomes `label_app_kubernetes_io_name`, as kube-state-metrics writes it. The
prefix keeps a tenant's label `job` or `instance` from taking the place of Prometheus' own.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from types import MappingProxyType

from exporter.dcgm.fields import ADDITIVE
from exporter.dcgm.table import Additive
from exporter.exposition.vendor_pages import Naming
from exporter.model.devices import NVIDIA_UUIDS, AddedLabels, Claim
from exporter.model.pages import Row, Rows, Subject
from exporter.model.pods import Owner, PodInfo

SHARED_LABEL = "gpu_shared"
UID_LABEL = "pod_uid"
# a label of pod_gpu_info if samples name no owners: only then rules and the cluster role take the owners from there
WITHOUT_OWNERS = ("samples", "without_owners")
# dcgm-exporter's own names for the labels of a claim
CLAIM_LABELS = ("dra_claim_name", "dra_claim_namespace", "dra_driver_name", "dra_pool_name", "dra_device_name")
POD_LABEL_PREFIX = "label_"
STANDARD_NAMES = ("pod", "namespace", "container")
LEGACY_NAMES = ("pod_name", "pod_namespace", "container_name")
HOST_LABELS = ("Hostname", "hostname")  # dcgm-exporter writes the second since 4.8.3
COPY = "copy"
SPLIT = "split"
DEVICE = "device"

_NOT_ONLY_GPUS = ("uuid", "device")  # labels that samples of disks have, too


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLabels:
    """The labels of a sample that name its device: for each part of a name the labels that may have it, best first."""

    uuid: tuple[str, ...] = ("UUID", "uuid", "gpu_uuid")
    index: tuple[str, ...] = ("gpu",)
    device: tuple[str, ...] = ("device",)
    instance: tuple[str, ...] = ("GPU_I_ID",)
    profile: tuple[str, ...] = ("GPU_I_PROFILE",)
    model: tuple[str, ...] = ("modelName", "model_name")
    address: tuple[str, ...] = ("pci_bus_id",)
    driver: tuple[str, ...] = ("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION")
    serial: tuple[str, ...] = ("DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_BOARD_SERIAL")

    @property
    def all(self) -> frozenset[str]:
        """All labels that may name a part of a device."""
        return frozenset(chain.from_iterable(getattr(self, part.name) for part in fields(self)))

    @property
    def naming(self) -> Naming:
        """The labels by DCGM's names for them."""
        return (
            ("gpu", self.index),
            ("UUID", self.uuid),
            ("device", self.device),
            ("modelName", self.model),
            ("Hostname", HOST_LABELS),
            ("GPU_I_ID", self.instance),
            ("GPU_I_PROFILE", self.profile),
        )

    @property
    def of_gpus(self) -> tuple[str, ...]:
        """The labels that only samples of GPUs have."""
        names = [name for name in (*self.uuid, *self.model) if name not in _NOT_ONLY_GPUS]
        return (*names, *self.names_of_gpus)

    @property
    def names_of_gpus(self) -> tuple[str, ...]:
        """The labels among `of_gpus` that have a GPU's number or name."""
        return tuple(name for name in (*self.index, *self.device) if name not in _NOT_ONLY_GPUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPolicy:
    """The label flags. `names` are the labels for pod, namespace and container, in that order.

    `names_owners` is off if samples go out without owners (`nobodys`); subjects and rows stay the same. `sharing` is
    copy, split or device. `additive` has the families that split divides. `divides_counters` is off if nobody sees a
    second page (`textfile --once`). `has_pod_labels` and `has_claims`: label_… and dra_… labels are among the labels
    that name an owner.
    """

    names: tuple[str, str, str] = STANDARD_NAMES
    names_owners: bool = True
    incoming_wins: bool = False
    idle_labels: bool = True
    sharing: str = COPY
    additive: Mapping[str, Additive] = field(default_factory=lambda: ADDITIVE)
    divides_counters: bool = True
    has_pod_labels: bool = False
    has_claims: bool = False
    sample_labels: SampleLabels = field(default_factory=SampleLabels)

    def is_owner_label(self, name: str) -> bool:
        """Whether the exporter takes this label off a sample before it writes the owner's set."""
        is_left_out = not self.names_owners and (name.startswith(POD_LABEL_PREFIX) or name in CLAIM_LABELS)
        return name in self.names or name in OWNER_LABELS or self._is_extra(name) or is_left_out

    def read_subject(self, labels: Mapping[str, str]) -> Subject:
        """The device that a sample is about, from its labels' names and (unescaped) values."""

        def first(names: Sequence[str]) -> str:
            return next((labels[name] for name in names if labels.get(name)), "")

        pod, namespace, container = map(first, zip(self.names, STANDARD_NAMES, LEGACY_NAMES, strict=True))
        uid = labels.get(UID_LABEL, "")
        has_owner = pod or namespace or container or uid
        exported = {name: labels.get(f"exported_{name}", "") for name in STANDARD_NAMES}
        labels_of = self.sample_labels
        uuid = first(labels_of.uuid)
        return Subject(
            uuid=uuid,
            instance=first(labels_of.instance),
            profile=first(labels_of.profile),
            index=first(labels_of.index),
            device=first(labels_of.device),
            model=first(labels_of.model),
            vgpu=labels.get("vgpu", ""),
            came_with=Owner(namespace=namespace, pod=pod, container=container) if has_owner else None,
            came_with_uid=uid,
            came_extra=tuple((name, value) for name, value in labels.items() if value and self._is_extra(name)),
            came_shared=bool(labels.get(SHARED_LABEL)),
            host=first(HOST_LABELS),
            address=first(labels_of.address),
            driver=first(labels_of.driver),
            serial=first(labels_of.serial),
            exported=Owner(**exported) if exported["pod"] else None,
            has_gpu_label=not uuid.startswith(NVIDIA_UUIDS)
            and bool(first(labels_of.of_gpus if uuid else labels_of.names_of_gpus)),
        )

    @property
    def idle(self) -> AddedLabels:
        """The labels that a sample of nobody gains.

        They are empty, so that the target's own pod does not take their place.
        """
        return tuple((name, "") for name in self.names) if self.idle_labels else ()

    @property
    def nobodys(self) -> Rows | None:
        """The row of every sample if `names_owners` is off; None if it is on."""
        return None if self.names_owners else Rows((Row(labels=self.idle),))

    def labels_of(self, owner: Owner, *, uid: str = "", shared: bool = False) -> AddedLabels:
        """The labels that name an owner; `shared` marks that others may have a part of the device."""
        values = (owner.pod, owner.namespace, owner.container)
        labels = tuple(zip(self.names, values, strict=True)) + labels_of_uid(uid)
        return (*labels, (SHARED_LABEL, "true")) if shared else labels

    def _is_extra(self, name: str) -> bool:
        if name.startswith(POD_LABEL_PREFIX):
            return self.has_pod_labels
        return self.has_claims and name in CLAIM_LABELS


OWNER_LABELS = frozenset((*STANDARD_NAMES, *LEGACY_NAMES, UID_LABEL, SHARED_LABEL))


def labels_of_uid(uid: str) -> AddedLabels:
    """The label of a pod's UID; none if the UID is empty."""
    return ((UID_LABEL, uid),) if uid else ()


def labels_of_claim(claim: Claim | None) -> AddedLabels:
    """The labels of a claim, as dcgm-exporter names them."""
    if claim is None:
        return ()
    return tuple(zip(CLAIM_LABELS, (claim.name, claim.namespace, *claim.slice_name), strict=True))


def pod_labels_among(labels: Iterable[tuple[str, str]]) -> AddedLabels:
    """The labels of pods (label_…) among these labels."""
    return tuple(label for label in labels if label[0].startswith(POD_LABEL_PREFIX))


COLLISION = "collision"
LIMIT = "limit"
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAdditions:
    """The labels that a pod's samples gain beside its names: its UID and its labels (label_…), if asked for."""

    uid: str = ""
    labels: AddedLabels = ()

    @property
    def added(self) -> AddedLabels:
        """The UID and the pod's labels together, pod_uid first."""
        return labels_of_uid(self.uid) + self.labels


NOTHING = PodAdditions()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLabelPolicy:
    """The flags about pod labels: `with_uid` is --labels.pod-uid, `patterns` are --labels.pod-labels (whole names).

    `limit` (--labels.pod-labels-limit) is the largest number of labels of one pod that go out: the first by name.
    """

    with_uid: bool = False
    patterns: tuple[re.Pattern[str], ...] = ()
    limit: int = 32

    def labels_of(self, pod: PodInfo) -> tuple[PodAdditions, Mapping[str, int]]:
        """The labels that a pod's samples gain.

        And the number of pod labels renamed (collision) or left out (limit).
        """
        wanted = sorted(filter(self._is_wanted, pod.labels))
        kept = wanted[: self.limit]
        names = _names(kept)
        added = tuple((names[name], pod.labels[name]) for name in kept)
        problems = {
            COLLISION: sum(names[name] != _sanitised(name) for name in kept),
            LIMIT: len(wanted) - len(kept),
        }
        of_pod = PodAdditions(uid=pod.uid if self.with_uid else "", labels=added)
        return of_pod, {reason: count for reason, count in problems.items() if count}

    def _is_wanted(self, name: str) -> bool:
        return any(pattern.fullmatch(name) for pattern in self.patterns)


def _sanitised(name: str) -> str:
    """The Prometheus label name of a pod's label, as kube-state-metrics writes it.

    Several labels may get the same name.
    """
    return POD_LABEL_PREFIX + _NOT_IN_A_NAME.sub("_", name)


def _names(labels: Sequence[str]) -> Mapping[str, str]:
    """A Prometheus label name for each of these sorted labels.

    If several get the same name, it ends in _conflict1 and on.
    """
    counts = Counter(map(_sanitised, labels))
    taken = {name for name, count in counts.items() if count == 1}
    names = {}
    for label in labels:
        name = _sanitised(label)
        if counts[name] > 1:
            number = 1
            while f"{name}_conflict{number}" in taken:
                number += 1
            name = f"{name}_conflict{number}"
            taken.add(name)
        names[label] = name
    return MappingProxyType(names)
