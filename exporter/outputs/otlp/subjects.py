"""What points are of: devices and the containers that hold them, by OpenTelemetry's names. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.model.devices import NVIDIA_UUIDS, AddedLabels, DeviceKey
from exporter.model.pages import Row, Subject
from exporter.model.pods import Owner
from exporter.outputs.otlp.points import Attributes, PointSubject

_NAMES = ("k8s.namespace.name", "k8s.pod.name", "k8s.container.name")
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob")
_WORKLOAD_AS = {kind: f"k8s.{kind.lower()}.name" for kind in _WORKLOADS}


@dataclass(slots=True, eq=False)
class Subjects:
    """What points are of, for one state of devices, holders and workloads.

    Those that were `before` are the same objects; `used` are those of this state.
    """

    devices: Mapping[DeviceKey, Subject] = field(default_factory=dict)
    workloads: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    names_owners: bool = True
    before: Mapping[Attributes, PointSubject] = field(default_factory=dict)
    used: dict[Attributes, PointSubject] = field(default_factory=dict)
    _of_device: dict[DeviceKey, Attributes] = field(default_factory=dict)
    # by the subject's and the row's own ids; both are held, so that these stay theirs
    _of_rows: dict[tuple[int, int], tuple[PointSubject | None, Subject, Row]] = field(default_factory=dict)
    _of_accounts: dict[tuple[Owner | None, DeviceKey, AddedLabels], PointSubject] = field(default_factory=dict)

    def of_row(self, subject: Subject, row: Row) -> PointSubject | None:
        """Of a row of the page; None where it is of no GPU."""
        by = (id(subject), id(row))
        of = self._of_rows.get(by)
        if of is None:
            of = self._of_rows[by] = (self._of_row(subject, row), subject, row)
        return of[0]

    def of_account(self, owner: Owner | None, device: DeviceKey, labels: AddedLabels) -> PointSubject:
        """Of an account, whose device may be gone."""
        by = (owner, device, labels)
        of = self._of_accounts.get(by)
        if of is None:
            of = self._of_accounts[by] = self._one(self._device(device) + self._container(owner, labels))
        return of

    def _of_row(self, subject: Subject, row: Row) -> PointSubject | None:
        if subject.key not in self.devices:
            return None
        if not self.names_owners:
            return self._one(self._device(subject.key))
        owner = row.owner or subject.exported
        labels = (*((("pod_uid", row.uid),) if row.uid else ()), *row.pod_labels)
        return self._one(self._device(subject.key) + self._container(owner, labels))

    def _one(self, attributes: Attributes) -> PointSubject:
        of = self.used.get(attributes)
        if of is None:
            of = self.used[attributes] = self.before.get(attributes) or PointSubject(attributes)
        return of

    def _device(self, key: DeviceKey) -> Attributes:
        of = self._of_device.get(key)
        if of is None:
            of = self._of_device[key] = tuple(_device_attributes(key, self.devices.get(key)))
        return of

    def _container(self, owner: Owner | None, labels: AddedLabels) -> Attributes:
        if owner is None or not owner.pod:
            return ()
        names = zip(_NAMES, (owner.namespace, owner.pod, owner.container), strict=True)
        name, kind = self.workloads.get((owner.namespace, owner.pod), ("", ""))
        workload = ((_WORKLOAD_AS[kind], name),) if kind in _WORKLOAD_AS else ()
        return (*names, *workload, *_pod_attributes(labels))


def _device_attributes(key: DeviceKey, device: Subject | None) -> Attributes:
    device = device or Subject()
    name = device.device or device.index
    named = {
        "hw.id": f"{key.uuid}/{key.instance}" if key.instance else key.uuid,
        "hw.name": f"{name} {device.profile or key.instance}".rstrip() if key.instance and name else name,
        "hw.model": device.model,
        "hw.vendor": "NVIDIA" if key.uuid.startswith(NVIDIA_UUIDS) else "",
        "hw.type": "gpu",
        "hw.parent": key.uuid if key.instance else "",
    }
    return tuple((name, text) for name, text in named.items() if text)


def _pod_attributes(labels: AddedLabels) -> Attributes:
    uid = [("k8s.pod.uid", text) for name, text in labels if name == "pod_uid"]
    of_pod = ((name.removeprefix("label_"), text) for name, text in labels if name.startswith("label_"))
    return (*uid, *((f"k8s.pod.label.{name}", text) for name, text in of_pod))
