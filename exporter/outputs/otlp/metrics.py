"""A look at the node as OpenTelemetry's metrics: names, units and attributes are those of its semantic conventions.

https://opentelemetry.io/docs/specs/semconv/hardware/ has hw.*, https://opentelemetry.io/docs/specs/semconv/registry/
k8s.*. What the accounts count has no name there: it is called pod_gpu.* here. Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple

from exporter.accounts.amounts import AMOUNTS
from exporter.accounts.entries import AmountFamily
from exporter.dcgm.fields import OTEL
from exporter.dividing.decimals import number
from exporter.model.accounts import Account
from exporter.model.devices import NVIDIA_UUIDS, AddedLabels, DeviceKey
from exporter.model.pages import Row, Subject
from exporter.model.pods import Owner
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.model.snapshot import Snapshot, known_devices
from exporter.ownership.current import same

Attributes = tuple[tuple[str, str], ...]
Number = int | float
# a gauge, a sum that goes up and down, and one that only grows
Kind = Literal["gauge", "updowncounter", "counter"]


@dataclass(frozen=True, slots=True, eq=False)
class PointSubject:
    """What points are of: a device, and the container that holds it. Equal ones are one object, from look to look."""

    attributes: Attributes


Values = dict[PointSubject, Number]


class Instrument(NamedTuple):
    """A metric's name, kind and unit (UCUM), and whether its values are whole numbers."""

    name: str
    kind: Kind
    unit: str
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class MetricPoints:
    """The points of one metric that share the attributes `also`, by what they are of.

    `began_ns` says since when a counter counts, in nanoseconds since 1970, where that is known.
    """

    instrument: Instrument
    also: Attributes
    values: Values = field(default_factory=dict)
    began_ns: dict[PointSubject, int] = field(default_factory=dict)


# dcgm-exporter shows a rate, and the conventions have a counter alone
_IO = "hw.gpu.io"
INSTRUMENTS = {
    each.name: each
    for each in (
        Instrument("hw.gpu.utilization", "gauge", "1"),
        Instrument("hw.gpu.memory.usage", "updowncounter", "By", is_whole=True),
        Instrument("hw.gpu.memory.limit", "updowncounter", "By", is_whole=True),
        Instrument("hw.gpu.memory.utilization", "gauge", "1"),
        Instrument(_IO, "counter", "By", is_whole=True),
        Instrument("hw.temperature", "gauge", "Cel"),
        Instrument("hw.power", "gauge", "W"),
        Instrument("hw.energy", "counter", "J"),
        Instrument("hw.errors", "counter", "{error}", is_whole=True),
        Instrument("hw.status", "updowncounter", "1", is_whole=True),
    )
}
_USAGE, _LIMIT, _STATUS = ("hw.gpu.memory.usage", "", ""), ("hw.gpu.memory.limit", "", ""), "hw.status"
# A GPU that has failed has no samples.
_STATES = ("ok", "degraded", "failed", "predicted_failure")
_FAMILIES = {name.encode(): field for name, field in OTEL.items()}
_ASKED = frozenset(_FAMILIES)
_IN_ORDER = tuple(dict.fromkeys(field.name for field in OTEL.values()))
_METRIC_OF = {field.name: field.otel for field in OTEL.values() if field.otel}
_UNITS = {"seconds": "s", "joules": "J"}
_ACCOUNTS_A_SLICE = ITEMS_A_SLICE // len(AMOUNTS)
_LABEL_AS = {"xid": "error.type", "reason": "pod_gpu.reason"}
_NAMES = ("k8s.namespace.name", "k8s.pod.name", "k8s.container.name")
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob")
_WORKLOAD_AS = {kind: f"k8s.{kind.lower()}.name" for kind in _WORKLOADS}


def _instrument_of(family: AmountFamily) -> Instrument:
    """`pod_gpu_energy_joules_total` is `pod_gpu.energy` in J: Prometheus makes the same name of that again."""
    stem = family.name.removeprefix("pod_gpu_").removesuffix("_total")
    rest, _, last = stem.rpartition("_")
    if last in _UNITS:
        return Instrument(f"pod_gpu.{rest}", "counter", _UNITS[last])
    return Instrument(f"pod_gpu.{stem}", "counter", f"{{{last.removesuffix('s')}}}")


ACCOUNTED = {family: _instrument_of(family) for family in chain.from_iterable(amount.families for amount in AMOUNTS)}
_ACCOUNTED_AS = {family.amount: family for family in ACCOUNTED}
_ALLOCATED = Instrument("pod_gpu.allocated.ratio", "gauge", "1")


class Metrics:
    """Makes metrics of looks, one after the other."""

    def __init__(self) -> None:
        self._subjects = _Subjects()
        self._made_from: tuple[object, ...] = ()
        self._totals: dict[Attributes, dict[PointSubject, tuple[float, int]]] = {}
        self._moment = 0.0

    def work_for(self, snapshot: Snapshot, *, moment: float, now_ns: int) -> Work[list[MetricPoints]]:
        """The metrics of the joined page and of the accounts, in stable order.

        `moment` is in seconds of a clock that never steps back, `now_ns` in nanoseconds since 1970.
        """
        subjects = self._subjects_of(snapshot)
        yield
        of_page = yield from _of_page(snapshot, subjects)
        of_accounts = yield from _of_accounts(snapshot, subjects)
        rates = [each for each in of_page if each.instrument.name == _IO]
        self._totals = {each.also: self._add_up(each, moment - self._moment, now_ns) for each in rates}
        self._moment = moment
        return [*of_page, *of_accounts]

    def _subjects_of(self, snapshot: Snapshot) -> "_Subjects":
        """Those of the last look, unless devices, holders or workloads are others."""
        subjects, context = snapshot.joined and snapshot.joined.subjects, snapshot.context
        made_from = (subjects, snapshot.owners, snapshot.inventory, snapshot.attribute, context.names_owners)
        if not same(made_from, self._made_from) or snapshot.workloads != self._subjects.workloads:
            self._made_from = made_from
            devices = {device.key: device for device in known_devices(snapshot)}
            before = self._subjects.used
            self._subjects = _Subjects(devices, snapshot.workloads, context.names_owners, before)
        return self._subjects

    def _add_up(self, rates: MetricPoints, seconds: float, now_ns: int) -> dict[PointSubject, tuple[float, int]]:
        """Make totals of rates, from when each was seen first. A rate holds for the time since the last look."""
        before, totals = self._totals.get(rates.also, {}), {}
        for of, rate in rates.values.items():
            total, began_ns = before.get(of, (0.0, now_ns))
            totals[of] = (total + max(rate, 0) * seconds if of in before else total, began_ns)
            rates.values[of], rates.began_ns[of] = totals[of]
        return totals


def _of_page(snapshot: Snapshot, subjects: "_Subjects") -> Work[list[MetricPoints]]:
    by_field: dict[str, Values] = {name: {} for name in _IN_ORDER}
    for count, (family, subject, row, text) in enumerate(snapshot.joined.cells(_ASKED) if snapshot.joined else (), 1):
        if not count % ITEMS_A_SLICE:
            yield
        of = subjects.of_row(subject, row)
        dcgm = _FAMILIES[family]
        values = by_field[dcgm.name]
        # of a device that two upstreams or two generations describe, the first word counts
        if of is not None and of not in values and (value := number(text, dcgm)) is not None:
            values[of] = value
    points: dict[tuple[str, str, str], Values] = {}
    for name, values in by_field.items():
        before = points.get(_METRIC_OF[name])
        points[_METRIC_OF[name]] = {**values, **before} if before else values
    yield
    usages, limits = points[_USAGE].items(), points[_LIMIT]
    points["hw.gpu.memory.utilization", "", ""] = {of: usage / limits[of] for of, usage in usages if limits.get(of)}
    points |= _status({metric[2]: points.pop(metric) for metric in tuple(points) if metric[0] == _STATUS})
    return [
        MetricPoints(INSTRUMENTS[name], ((key, text),) if key else (), values)
        for (name, key, text), values in points.items()
        if values
    ]


def _status(signs: Mapping[str, Values]) -> dict[tuple[str, str, str], Values]:
    """1 for the state of each GPU that any of these signs speaks of, and 0 for all others."""
    seen = dict.fromkeys(chain.from_iterable(signs.values()), "ok")
    by_state: dict[str, Values] = {state: dict.fromkeys(seen, 0) for state in _STATES}
    # the worst state that a sign says counts
    worst = seen | {of: state for state in _STATES for of, value in signs.get(state, {}).items() if value}
    for of, state in worst.items():
        by_state[state][of] = 1
    return {(_STATUS, "hw.state", state): values for state, values in by_state.items()}


def _of_accounts(snapshot: Snapshot, subjects: "_Subjects") -> Work[list[MetricPoints]]:
    allocated = MetricPoints(_ALLOCATED, ())
    counters: dict[tuple[str, str], MetricPoints] = {}
    for count, account in enumerate(snapshot.accounts.rows if snapshot.accounts else (), 1):
        if not count % _ACCOUNTS_A_SLICE:
            yield
        of = subjects.of_account(account.owner, account.device, account.labels)
        began_ns = account.began_ns
        if account.allocated_ratio is not None:
            allocated.values[of] = account.allocated_ratio
        for family, text, units in _amounts(account):
            points = counters.get((family.amount, text))
            if points is None:
                also = ((_LABEL_AS[family.label], text),) if family.label else ()
                points = counters[family.amount, text] = MetricPoints(ACCOUNTED[family], also)
            points.values[of] = units / 10**family.power
            if began_ns is not None:
                points.began_ns[of] = began_ns
    return [*([allocated] if allocated.values else []), *(counters[key] for key in sorted(counters))]


def _amounts(account: Account) -> Iterator[tuple[AmountFamily, str, int]]:
    """What it has counted: the family, the value of the family's label, and the amount."""
    for name, units in account.amounts.items():
        if (family := _ACCOUNTED_AS.get(name)) is not None:
            yield family, "", units
    for name, by_label in account.by_label.items():
        if (family := _ACCOUNTED_AS.get(name)) is not None:
            for text, units in by_label.items():
                yield family, text, units


@dataclass(slots=True, eq=False)
class _Subjects:
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
