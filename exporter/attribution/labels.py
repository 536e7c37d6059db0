"""Which labels a sample gains: the policy of the label flags, applied to samples and owners.

The labels that say who owns a device are one set under many names: pod, namespace and container, their legacy names,
the names of `--labels.names`, pod_uid, and gpu_shared. A page may arrive with them (dcgm-exporter with -k, virtual
GPUs). They are taken off every sample and written anew as one set, so that no label is ever there twice and no half of
one owner is mixed with half of another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.model import DeviceKey, Holder, Owner, Owners, Subject

AddedLabels = tuple[tuple[str, str], ...]

SHARED_LABEL = "gpu_shared"
UID_LABEL = "pod_uid"
STANDARD_NAMES = ("pod", "namespace", "container")
LEGACY_NAMES = ("pod_name", "pod_namespace", "container_name")
UUID_LABELS = ("UUID", "uuid", "gpu_uuid")
MODEL_LABELS = ("modelName", "model_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPolicy:
    """The label flags. `names` are the labels for pod, namespace and container, in that order."""

    names: tuple[str, str, str] = STANDARD_NAMES
    incoming_wins: bool = False
    idle_labels: bool = True
    copy_shared: bool = True

    @property
    def owner_labels(self) -> frozenset[str]:
        """Every label that is taken off a sample before the owner's set is written."""
        return frozenset((*self.names, *STANDARD_NAMES, *LEGACY_NAMES, UID_LABEL, SHARED_LABEL))

    def read_subject(self, labels: Mapping[str, str]) -> Subject:
        """What a sample is about, from its labels' names and (unescaped) values."""

        def first(names: Sequence[str]) -> str:
            return next((labels[name] for name in names if labels.get(name)), "")

        pod, namespace, container = (
            first(roles) for roles in zip(self.names, STANDARD_NAMES, LEGACY_NAMES, strict=True)
        )
        uid = labels.get(UID_LABEL, "")
        has_owner = pod or namespace or container or uid
        return Subject(
            uuid=first(UUID_LABELS),
            instance=labels.get("GPU_I_ID", ""),
            profile=labels.get("GPU_I_PROFILE", ""),
            index=labels.get("gpu", ""),
            device=labels.get("device", ""),
            model=first(MODEL_LABELS),
            vgpu=labels.get("vgpu", ""),
            came_with=Owner(namespace=namespace, pod=pod, container=container) if has_owner else None,
            came_with_uid=uid,
            came_shared=bool(labels.get(SHARED_LABEL)),
        )


class Attribution:
    """The kubelet's word applied to whole pages. One object for one state of owners."""

    def __init__(self, owners: Owners, policy: LabelPolicy) -> None:
        self._owners = owners
        self._policy = policy
        self._idle: AddedLabels = tuple((name, "") for name in policy.names) if policy.idle_labels else ()

    def __call__(self, samples: Sequence[tuple[bytes, Subject]], /) -> list[tuple[AddedLabels, ...]]:
        """For each sample (family name and subject), one tuple of added labels for every row that goes out.

        Subjects are compared by identity first: callers pass one object for all samples of a device.
        """
        split = _already_per_owner(samples)
        worked_out: dict[tuple[int, bool], tuple[AddedLabels, ...]] = {}
        rows = []
        for name, subject in samples:
            per_owner = bool(subject.vgpu) or (name, subject.key) in split if split else bool(subject.vgpu)
            memo = (id(subject), per_owner)
            found = worked_out.get(memo)
            if found is None:
                found = worked_out[memo] = self._rows(subject, per_owner=per_owner)
            rows.append(found)
        return rows

    def _rows(self, subject: Subject, *, per_owner: bool) -> tuple[AddedLabels, ...]:
        holders = self._owners.of(subject.uuid, subject.instance) if subject.uuid else ()
        if subject.came_with and (
            not holders or self._policy.incoming_wins or (per_owner and (len(holders) > 1 or not subject.vgpu))
        ):
            return (self._incoming(subject, subject.came_with, holders),)
        if not holders or (len(holders) > 1 and (per_owner or not self._policy.copy_shared)):
            return (self._idle,)
        if per_owner and not subject.vgpu:
            # The rows beside this one carry the owners; this one is what nobody of them holds.
            return (self._idle,)
        return tuple(self._owner(holder.owner, shared=holder.shared) for holder in holders)

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
        return self._owner(owner, shared=holds_share or subject.came_shared, uid=subject.came_with_uid)


def _already_per_owner(samples: Sequence[tuple[bytes, Subject]]) -> set[tuple[bytes, DeviceKey]]:
    """The (family, device) pairs that come as several rows with different owners: each row is one owner's part."""
    if not any(subject.came_with for _, subject in samples):
        return set()
    owners: dict[tuple[bytes, DeviceKey], set[tuple[Owner | None, str]]] = {}
    for name, subject in samples:
        if subject.uuid:
            owners.setdefault((name, subject.key), set()).add((subject.came_with, subject.came_with_uid))
    return {family_and_device for family_and_device, found in owners.items() if len(found) > 1}
