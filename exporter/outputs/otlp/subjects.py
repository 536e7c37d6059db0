"""The subjects of points: devices and the containers that hold them, by OpenTelemetry's names. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from exporter.model.devices import NVIDIA_UUIDS, AddedLabels, DeviceKey
from exporter.model.health import DeviceVerdicts
from exporter.model.memo import Memo
from exporter.model.pages import Row, Subject, merged
from exporter.model.pods import Owner
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.model.snapshot import Snapshot
from exporter.outputs.otlp.points import Attributes, PointSubject

_NAMES = ("k8s.namespace.name", "k8s.pod.name", "k8s.container.name")
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob")
_DEVICES_A_SLICE = ITEMS_A_SLICE // 4
_WORKLOAD_AS = {kind: f"k8s.{kind.lower()}.name" for kind in _WORKLOADS}


@dataclass(slots=True, eq=False)
class Subjects:
    """The subjects of points, for one state of devices, holders and workloads.

    Attributes:
        devices: the devices. A device that no source names any more but that has a verdict is here as it was last seen.
        driver: the version of NVIDIA's driver, for GPUs whose page does not say it.
        workloads: name and kind, by namespace and pod.
        names_owners: whether subjects have the attributes of containers.
        before: the subjects of the last state. Equal subjects of this state are the same objects.
        used: the subjects of this state, by their attributes.
    """

    devices: Mapping[DeviceKey, Subject] = field(default_factory=dict)
    driver: str = ""
    workloads: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    names_owners: bool = True
    before: Mapping[Attributes, PointSubject] = field(default_factory=dict)
    used: dict[Attributes, PointSubject] = field(default_factory=dict)
    _of_device: dict[DeviceKey, Attributes] = field(default_factory=dict)
    # by id(subject) and id(row); both are kept alive here
    _of_rows: dict[tuple[int, int], tuple[PointSubject | None, Subject, Row]] = field(default_factory=dict)
    _of_accounts: dict[tuple[Owner | None, DeviceKey, AddedLabels], PointSubject] = field(default_factory=dict)
    _of_verdicts: Memo[Mapping[DeviceKey, Iterable[PointSubject]]] = field(default_factory=lambda: Memo({}))

    def after(
        self,
        devices: Mapping[DeviceKey, Subject],
        driver: str,
        verdicts: DeviceVerdicts,
        workloads: Mapping[tuple[str, str], tuple[str, str]],
        names_owners: bool,
    ) -> "Subjects":
        """The subjects of the next state. A device that no page describes any more keeps what a page said of it."""
        lost = {key: device for key, device in self.devices.items() if key in verdicts and key not in devices}
        unread = (key for key, device in devices.items() if not device.model and key in self.devices)
        remembered = {key: merged(devices[key], self.devices[key]) for key in unread}
        return Subjects({**lost, **devices, **remembered}, driver, workloads, names_owners, self.used)

    def of_row(self, subject: Subject, row: Row) -> PointSubject | None:
        """The subject of a row of the page; None if the row describes no GPU."""
        by = (id(subject), id(row))
        of = self._of_rows.get(by)
        if of is None:
            of = self._of_rows[by] = (self._of_row(subject, row), subject, row)
        return of[0]

    def of_account(self, owner: Owner | None, device: DeviceKey, labels: AddedLabels) -> PointSubject:
        """The subject of an account, whose device may be gone."""
        by = (owner, device, labels)
        of = self._of_accounts.get(by)
        if of is None:
            of = self._of_accounts[by] = self._one(self._device(device) + self._container(owner, labels))
        return of

    def of_devices(self, snapshot: Snapshot) -> Work[Mapping[DeviceKey, Iterable[PointSubject]]]:
        """For each device with a verdict, a subject for each container that holds it, or one for the idle device."""
        if not self._of_verdicts.is_of(snapshot.verdicts):
            self._of_verdicts.keep((yield from self._of_devices(snapshot)), snapshot.verdicts)
        return self._of_verdicts.value

    def _of_devices(self, snapshot: Snapshot) -> Work[Mapping[DeviceKey, Iterable[PointSubject]]]:
        on_page: dict[DeviceKey, list[Subject]] = {}
        for subject in snapshot.joined.subjects if snapshot.joined else ():
            on_page.setdefault(subject.key, []).append(subject)
        subjects: list[Subject] = []
        for key in snapshot.verdicts:
            rows = on_page.get(key) or [self.devices.get(key, Subject(uuid=key.uuid, instance=key.instance))]
            # beside rows that came with owners, a row without an owner says nothing new of the device
            subjects += [row for row in rows if row.came_with] or rows
        yield
        of_devices: dict[DeviceKey, dict[PointSubject, None]] = {key: {} for key in snapshot.verdicts}
        # if rows came with owners, all rows are needed at once, to see which owner is named several times
        size = len(subjects) if any(subject.came_with for subject in subjects) else _DEVICES_A_SLICE
        for start in range(0, len(subjects), size or 1):
            some = subjects[start : start + size]
            attributed = snapshot.attribute([(b"", subject) for subject in some])
            for subject, of_subject in zip(some, attributed, strict=True):
                of_devices[subject.key].update(dict.fromkeys(self._of(subject, row) for row in of_subject.each))
            yield
        return of_devices

    def _of_row(self, subject: Subject, row: Row) -> PointSubject | None:
        return self._of(subject, row) if subject.key in self.devices else None

    def _of(self, subject: Subject, row: Row) -> PointSubject:
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
            of = self._of_device[key] = _device_attributes(key, self.devices.get(key, Subject()), self.driver)
        return of

    def _container(self, owner: Owner | None, labels: AddedLabels) -> Attributes:
        if owner is None or not owner.pod:
            return ()
        names = zip(_NAMES, (owner.namespace, owner.pod, owner.container), strict=True)
        name, kind = self.workloads.get(owner.pod_key, ("", ""))
        workload = ((_WORKLOAD_AS[kind], name),) if kind in _WORKLOAD_AS else ()
        return (*names, *workload, *_pod_attributes(labels))


def _device_attributes(key: DeviceKey, device: Subject, driver: str) -> Attributes:
    name, is_nvidias = device.device or device.index, key.uuid.startswith(NVIDIA_UUIDS)
    named = {
        "hw.id": f"{key.uuid}/{key.instance}" if key.instance else key.uuid,
        "hw.name": f"{name} {device.profile or key.instance}".rstrip() if key.instance and name else name,
        "hw.model": device.model,
        "hw.vendor": "NVIDIA" if is_nvidias else "",
        "hw.type": "gpu",
        "hw.parent": key.uuid if key.instance else "",
        "hw.driver_version": device.driver or (driver if is_nvidias else ""),
        "hw.serial_number": device.serial,
    }
    return tuple((name, text) for name, text in named.items() if text)


def _pod_attributes(labels: AddedLabels) -> Attributes:
    uid = [("k8s.pod.uid", text) for name, text in labels if name == "pod_uid"]
    of_pod = ((name.removeprefix("label_"), text) for name, text in labels if name.startswith("label_"))
    return (*uid, *((f"k8s.pod.label.{name}", text) for name, text in of_pod))
