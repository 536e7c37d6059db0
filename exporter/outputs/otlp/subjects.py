"""The subjects of points: devices and the containers that hold them, by OpenTelemetry's names. Pure.

Tests: tests/outputs/test_otlp.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from exporter.model.devices import NVIDIA_UUIDS, AddedLabels, DeviceKey
from exporter.model.health import DeviceVerdicts
from exporter.model.memo import Memo
from exporter.model.pages import Row, Subject, merged
from exporter.model.pods import Owner, PodName
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.model.snapshot import Snapshot, attributed
from exporter.outputs.otlp.points import Attributes, PointSubject
from exporter.ownership.labels import POD_LABEL_PREFIX, UID_LABEL, labels_of_uid

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
    workloads: Mapping[PodName, tuple[str, str]] = field(default_factory=dict)
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
        workloads: Mapping[PodName, tuple[str, str]],
        names_owners: bool,
    ) -> "Subjects":
        """The subjects of the next state. A device that no page describes any more keeps what a page said of it."""
        together = {key: device for key, device in self.devices.items() if key in verdicts and key not in devices}
        for key, device in devices.items():
            is_unread = not device.model and key in self.devices
            together[key] = merged(device, self.devices[key]) if is_unread else device
        return Subjects(together, driver, workloads, names_owners, self.used)

    def of_row(self, subject: Subject, row: Row) -> PointSubject | None:
        """The subject of a row of the page; None if the row describes no GPU."""
        ids = (id(subject), id(row))
        kept = self._of_rows.get(ids)
        if kept is None:
            kept = self._of_rows[ids] = (self._of_row(subject, row), subject, row)
        return kept[0]

    def of_account(self, owner: Owner | None, device: DeviceKey, labels: AddedLabels) -> PointSubject:
        """The subject of an account, whose device may be gone."""
        account = (owner, device, labels)
        point = self._of_accounts.get(account)
        if point is None:
            point = self._one(self._device(device) + self._container(owner, labels))
            self._of_accounts[account] = point
        return point

    def of_devices(self, snapshot: Snapshot) -> Work[Mapping[DeviceKey, Iterable[PointSubject]]]:
        """For each device with a verdict, a subject for each container that holds it, or one for the idle device."""
        if not self._of_verdicts.is_of(snapshot.verdicts):
            self._of_verdicts.keep((yield from self._of_devices(snapshot)), snapshot.verdicts)
        return self._of_verdicts.value

    def _of_devices(self, snapshot: Snapshot) -> Work[Mapping[DeviceKey, Iterable[PointSubject]]]:
        """The subjects of the points of each device that has a verdict: one for each owner of its rows."""
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
        for some in attributed(snapshot, subjects, _DEVICES_A_SLICE):
            for subject, of_subject in some:
                of_devices[subject.key].update(dict.fromkeys(self._of(subject, row) for row in of_subject.each))
            yield
        return of_devices

    def _of_row(self, subject: Subject, row: Row) -> PointSubject | None:
        return self._of(subject, row) if subject.key in self.devices else None

    def _of(self, subject: Subject, row: Row) -> PointSubject:
        if not self.names_owners:
            return self._one(self._device(subject.key))
        labels = labels_of_uid(row.uid) + row.pod_labels
        return self._one(self._device(subject.key) + self._container(row.owner or subject.exported, labels))

    def _one(self, attributes: Attributes) -> PointSubject:
        point = self.used.get(attributes)
        if point is None:
            point = self.used[attributes] = self.before.get(attributes) or PointSubject(attributes)
        return point

    def _device(self, key: DeviceKey) -> Attributes:
        attributes = self._of_device.get(key)
        if attributes is None:
            attributes = _device_attributes(key, self.devices.get(key, Subject()), self.driver)
            self._of_device[key] = attributes
        return attributes

    def _container(self, owner: Owner | None, labels: AddedLabels) -> Attributes:
        if owner is None or not owner.pod:
            return ()
        names = zip(_NAMES, (owner.namespace, owner.pod, owner.container), strict=True)
        name, kind = self.workloads.get(owner.pod_key, ("", ""))
        workload = ((_WORKLOAD_AS[kind], name),) if kind in _WORKLOAD_AS else ()
        return (*names, *workload, *_pod_attributes(labels))


def _device_attributes(key: DeviceKey, device: Subject, driver: str) -> Attributes:
    """What is known of a device, by OpenTelemetry's names."""
    attributes = {
        "hw.id": key.uuid,
        "hw.name": device.device or device.index,
        "hw.model": device.model,
        "hw.vendor": "",
        "hw.type": "gpu",
        "hw.parent": "",
        "hw.driver_version": device.driver,
        "hw.serial_number": device.serial,
    }
    if key.uuid.startswith(NVIDIA_UUIDS):
        attributes["hw.vendor"] = "NVIDIA"
        attributes["hw.driver_version"] = device.driver or driver
    if key.instance:
        attributes["hw.id"] = f"{key.uuid}/{key.instance}"
        attributes["hw.parent"] = key.uuid
        if attributes["hw.name"]:
            attributes["hw.name"] += f" {device.profile or key.instance}"
    return tuple((name, text) for name, text in attributes.items() if text)


def _pod_attributes(labels: AddedLabels) -> Attributes:
    """The pod's UID and labels, by OpenTelemetry's names."""
    uid = [("k8s.pod.uid", text) for name, text in labels if name == UID_LABEL]
    of_pod = [
        (f"k8s.pod.label.{name.removeprefix(POD_LABEL_PREFIX)}", text)
        for name, text in labels
        if name.startswith(POD_LABEL_PREFIX)
    ]
    return (*uid, *of_pod)
