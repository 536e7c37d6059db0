"""Which labels a sample gains: the policy of the label flags, applied to samples and owners.

The labels that say who owns a device are one set under many names: pod, namespace and container, their legacy names,
the names of `--labels.names`, pod_uid, and gpu_shared. A page may arrive with them (dcgm-exporter with -k, virtual
GPUs). They are taken off every sample and written anew as one set, so that no label is ever there twice and no half of
one owner is mixed with half of another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.attribution.fields import ADDITIVE, Additive
from exporter.attribution.sharing import CounterBook, split_gauge
from exporter.model.devices import NVIDIA_UUIDS, AddedLabels, Claim, DeviceKey, Holder, Owners
from exporter.model.pages import Rows, ShareValues, Subject
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
        return tuple(name for name in (*self.uuid, *self.index, *self.device, *self.model) if name not in _ANYBODYS)


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
            has_gpu_label=bool(uuid) and not uuid.startswith(NVIDIA_UUIDS) and bool(first(says.of_gpus)),
        )

    def _is_extra(self, name: str) -> bool:
        return (self.has_pod_labels and name.startswith(POD_LABEL_PREFIX)) or (self.has_claims and name in CLAIM_LABELS)


_OWNER_LABELS = frozenset((*STANDARD_NAMES, *LEGACY_NAMES, UID_LABEL, SHARED_LABEL))


def _exported(labels: Mapping[str, str]) -> Owner | None:
    pod, namespace, container = (labels.get(f"exported_{name}", "") for name in STANDARD_NAMES)
    return Owner(namespace=namespace, pod=pod, container=container) if pod else None


class Attribution:
    """Says which labels the samples of whole pages gain. One object for one state of owners."""

    def __init__(
        self,
        owners: Owners,
        policy: LabelPolicy,
        *,
        of_pods: Mapping[tuple[str, str], AddedLabels] = MappingProxyType({}),
        book: CounterBook | None = None,
    ) -> None:
        """`of_pods`: what a pod's owners gain beside their names, by (namespace, pod). `book` outlives this object."""
        self._owners = owners
        self._policy = policy
        self._of_pods = of_pods
        self._book = book or CounterBook()
        self._idle: AddedLabels = tuple((name, "") for name in policy.names) if policy.idle_labels else ()
        self._nobody = Rows((self._idle,))  # one object for all that nobody holds
        self._additive = (
            {name.encode(): kind for name, kind in policy.additive.items()} if policy.sharing == SPLIT else {}
        )

    @property
    def looks_at_families(self) -> bool:
        """Whether a sample's family makes a difference even where no sample came with an owner."""
        return bool(self._additive)

    def __call__(self, samples: Sequence[tuple[bytes, Subject]], /) -> list[Rows]:
        """For each sample (family name and subject) the rows that go out.

        Subjects are compared by identity first: callers pass one object for all samples of a device.
        """
        device_of = _device_numbers(samples) if any(subject.came_with for _, subject in samples) else {}
        per_owner_rows = _already_per_owner(samples, device_of)
        if not per_owner_rows and not self._additive:
            return self._by_subject_alone(samples)
        worked_out: dict[tuple[int, bool, Additive | None], Rows] = {}
        rows = []
        for name, subject in samples:
            is_one_of_several = bool(per_owner_rows) and (name, device_of[id(subject)]) in per_owner_rows
            per_owner = bool(subject.vgpu) or is_one_of_several
            kind = self._additive.get(name)
            memo = (id(subject), per_owner, kind)
            found = worked_out.get(memo)
            if found is None:
                found = worked_out[memo] = self._rows(subject, kind, per_owner=per_owner)
            rows.append(found)
        return rows

    def _by_subject_alone(self, samples: Sequence[tuple[bytes, Subject]]) -> list[Rows]:
        """The usual page: a sample's family makes no difference."""
        worked_out: dict[int, Rows] = {}
        rows = []
        for _, subject in samples:
            found = worked_out.get(id(subject))
            if found is None:
                found = worked_out[id(subject)] = self._rows(subject, None, per_owner=bool(subject.vgpu))
            rows.append(found)
        return rows

    def _rows(self, subject: Subject, kind: Additive | None, *, per_owner: bool) -> Rows:
        key = subject.key
        holders = self._owners.of(key) if key.uuid else ()
        is_counter = kind is Additive.COUNTER and not per_owner and bool(key.uuid)
        if subject.came_with and (
            not holders or self._policy.incoming_wins or (per_owner and (len(holders) > 1 or not subject.vgpu))
        ):
            incoming = self._incoming(subject, subject.came_with, holders)
            return self._counter((incoming,), (subject.came_with,)) if is_counter else Rows((incoming,))
        nobody = Rows(((*self._idle, *subject.came_extra),)) if subject.came_extra else self._nobody
        if per_owner and (not subject.vgpu or len(holders) > 1):
            # Other rows of this family carry the owners; this row is the part that none of them holds.
            return nobody
        labels = tuple(self._holder(holder, subject) for holder in holders)
        if is_counter:
            return self._counter(labels, tuple(holder.owner for holder in holders))
        if not holders:
            return nobody
        if len(holders) > 1 and self._policy.sharing == DEVICE:
            return Rows((self._idle,))
        gauge = kind is Additive.GAUGE and len(holders) > 1
        return Rows(labels, _gauge_values(len(holders)) if gauge else None)

    def _counter(self, labels: tuple[AddedLabels, ...], owners: tuple[Owner, ...]) -> Rows:
        """A counter's rows: the owners' and the one without owner, or that alone where there is no second page."""
        if not self._policy.divides_counters:
            return Rows((self._idle,))

        def values(series: bytes, value: bytes) -> list[bytes]:
            return self._book.advance(series, owners, value)

        def peek(series: bytes, value: bytes) -> list[bytes]:
            return self._book.peek(series, owners, value)

        return Rows((*labels, self._idle), values, peek)

    def _holder(self, holder: Holder, subject: Subject) -> AddedLabels:
        """The labels of a holder. Of the same pod, the page's uid and pod labels stay where the exporter has none."""
        own = self._of_pods.get((holder.owner.namespace, holder.owner.pod), ()) + _claim_labels(holder.claim)
        labels = self._owner(holder.owner, shared=holder.shared)
        came_with = subject.came_with
        if came_with is None or (came_with.namespace, came_with.pod) != (holder.owner.namespace, holder.owner.pod):
            return (*labels, *own)
        uid = ((UID_LABEL, subject.came_with_uid),) if subject.came_with_uid else ()
        said = {name for name, _ in own}
        return (*labels, *(label for label in (*uid, *subject.came_extra) if label[0] not in said), *own)

    def _owner(self, owner: Owner, *, shared: bool, uid: str = "") -> AddedLabels:
        values = (owner.pod, owner.namespace, owner.container)
        labels = tuple(zip(self._policy.names, values, strict=True))
        if uid:
            labels += ((UID_LABEL, uid),)
        if shared:
            labels += ((SHARED_LABEL, "true"),)
        return labels

    def _incoming(self, subject: Subject, owner: Owner, holders: Sequence[Holder]) -> AddedLabels:
        holds_share = any(holder.shared and holder.owner == owner for holder in holders)
        labels = self._owner(owner, shared=holds_share or subject.came_shared, uid=subject.came_with_uid)
        return (*labels, *subject.came_extra)


def _gauge_values(parts: int) -> ShareValues:
    def values(_: bytes, value: bytes) -> list[bytes]:
        return split_gauge(value, parts)

    return values


def _claim_labels(claim: Claim | None) -> AddedLabels:
    if claim is None:
        return ()
    return tuple(zip(CLAIM_LABELS, (claim.name, claim.namespace, claim.driver, claim.pool, claim.device), strict=True))


def _device_numbers(samples: Sequence[tuple[bytes, Subject]]) -> dict[int, int]:
    """A number for each device, by the subjects' own ids: on a large page a key for each sample costs 100 ms."""
    numbers: dict[DeviceKey, int] = {}
    found: dict[int, int] = {}
    for _, subject in samples:
        if id(subject) not in found:
            found[id(subject)] = numbers.setdefault(subject.key, len(numbers))
    return found


def _already_per_owner(
    samples: Sequence[tuple[bytes, Subject]], device_of: Mapping[int, int]
) -> set[tuple[bytes, int]]:
    """The (family, device's number) pairs that come as several rows with different owners: each is one owner's part.

    A row without owner beside one with an owner is another upstream's word on the same GPU, unless the one is a virtual
    GPU: then it is the device's own.
    """
    if not device_of:
        return set()
    first: dict[tuple[bytes, int], Subject] = {}
    per_owner: set[tuple[bytes, int]] = set()
    for name, subject in samples:
        if subject.came_with is None:
            continue
        family_and_device = (name, device_of[id(subject)])
        one = first.setdefault(family_and_device, subject)
        is_another = one is not subject and (
            subject.came_with != one.came_with or _differ(subject.came_with_uid, one.came_with_uid)
        )
        if (subject.vgpu or is_another) and subject.key.uuid:
            per_owner.add(family_and_device)
    return per_owner


def _differ(uid: str, other: str) -> bool:
    return bool(uid and other) and uid != other
