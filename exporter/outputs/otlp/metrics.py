"""A look at the node as OpenTelemetry's metrics, with names, units and attributes of its semantic conventions. Pure.

https://opentelemetry.io/docs/specs/semconv/hardware/ has hw.*, https://opentelemetry.io/docs/specs/semconv/registry/
has k8s.*. The conventions have no names for the accounts, which are called pod_gpu.* here.

Tests: tests/outputs/test_otlp.py.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from exporter.accounts.amounts import AMOUNTS
from exporter.accounts.entries import AmountFamily
from exporter.dcgm.fields import OTEL
from exporter.dividing.decimals import number
from exporter.model.accounts import Account
from exporter.model.memo import Memo
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.model.snapshot import Snapshot, known_devices
from exporter.outputs.otlp.hardware_status import STATUS, status_of
from exporter.outputs.otlp.points import Attributes, Instrument, MetricPoints, PointSubject, Values
from exporter.outputs.otlp.starts import Starts
from exporter.outputs.otlp.subjects import Subjects

# dcgm-exporter shows a rate, and the conventions have only a counter
_IO = "hw.gpu.io"
INSTRUMENTS = {
    instrument.name: instrument
    for instrument in (
        Instrument("hw.gpu.utilization", "gauge", "1"),
        Instrument("hw.gpu.memory.usage", "updowncounter", "By", is_whole=True),
        Instrument("hw.gpu.memory.limit", "updowncounter", "By", is_whole=True),
        Instrument("hw.gpu.memory.utilization", "gauge", "1"),
        Instrument(_IO, "counter", "By", is_whole=True),
        Instrument("hw.temperature", "gauge", "Cel"),
        Instrument("hw.power", "gauge", "W"),
        Instrument("hw.energy", "counter", "J"),
        Instrument("hw.errors", "counter", "{error}", is_whole=True),
        STATUS,
    )
}
_USAGE = ("hw.gpu.memory.usage", "", "")
_LIMIT = ("hw.gpu.memory.limit", "", "")
_FAMILIES = {name.encode(): field for name, field in OTEL.items()}
_ASKED = frozenset(_FAMILIES)
_IN_ORDER = tuple(dict.fromkeys(field.name for field in OTEL.values()))
_METRIC_OF = {field.name: field.otel for field in OTEL.values() if field.otel}
_UNITS = {"seconds": "s", "joules": "J"}
_COUNTED = {"memory": "end"}  # of the families whose last word does not say what they count
_ACCOUNTS_A_SLICE = ITEMS_A_SLICE // len(AMOUNTS)
_LABEL_AS = {
    "xid": "error.type",
    "kind": "error.type",
    "reason": "pod_gpu.reason",
    "suspicion": "pod_gpu.suspicion",
    "link": "pod_gpu.link",
}


def _instrument_of(family: AmountFamily) -> Instrument:
    """The instrument of an account's family: `pod_gpu_energy_joules_total` is `pod_gpu.energy` in J.

    Prometheus turns that back into the family's name.
    """
    stem = family.name.removeprefix("pod_gpu_").removesuffix("_total")
    rest, _, last = stem.rpartition("_")
    if last in _UNITS:
        return Instrument(f"pod_gpu.{rest}", "counter", _UNITS[last])
    return Instrument(f"pod_gpu.{stem}", "counter", f"{{{_COUNTED.get(last, last.removesuffix('s'))}}}")


ACCOUNTED = {family: _instrument_of(family) for family in chain.from_iterable(amount.families for amount in AMOUNTS)}
_ACCOUNTED_AS = {family.amount: family for family in ACCOUNTED}
_ALLOCATED = Instrument("pod_gpu.allocated.ratio", "gauge", "1")


class Metrics:
    """Makes metrics of each look. It remembers the look before, for totals of rates and for the starts of sums."""

    def __init__(self) -> None:
        self._subjects = Memo(Subjects())
        self._totals: dict[Attributes, dict[PointSubject, tuple[float, int]]] = {}
        self._moment = 0.0
        self._starts = Starts()

    def work_for(self, snapshot: Snapshot, *, moment: float, now_ns: int) -> Work[list[MetricPoints]]:
        """The metrics of the joined page, of the verdicts and of the accounts, in stable order.

        Args:
            snapshot: the look.
            moment: the time of the look, in seconds of a clock that never steps back.
            now_ns: the same time in nanoseconds since 1970.
        """
        subjects = self._subjects_of(snapshot)
        yield
        of_page = yield from _of_page(snapshot, subjects)
        status = yield from status_of(snapshot, subjects)
        of_accounts = yield from _of_accounts(snapshot, subjects)
        rates = [points for points in of_page if points.instrument.name == _IO]
        self._totals = {points.also: self._add_up(points, moment - self._moment, now_ns) for points in rates}
        self._moment = moment
        metrics = [*of_page, *status, *of_accounts]
        yield from self._starts.work_for(metrics, now_ns)
        return metrics

    def _subjects_of(self, snapshot: Snapshot) -> Subjects:
        """The subjects of this look: the last look's, unless devices, holders or workloads have changed."""
        host = snapshot.host
        names_owners = snapshot.context.names_owners
        made_of = (
            snapshot.joined and snapshot.joined.subjects,
            snapshot.owners,
            snapshot.inventory,
            host,
            snapshot.attribute,
            names_owners,
        )
        before = self._subjects.value
        if self._subjects.is_of(*made_of) and snapshot.workloads == before.workloads:
            return before
        devices = {device.key: device for device in known_devices(snapshot)}
        driver = host.driver_version if host else ""
        now = before.after(devices, driver, snapshot.verdicts, snapshot.workloads, names_owners)
        self._subjects.keep(now, *made_of)
        return now

    def _add_up(self, rates: MetricPoints, seconds: float, now_ns: int) -> dict[PointSubject, tuple[float, int]]:
        """Replace each rate by its total since the rate was first seen. Returns the totals, each with its start.

        A rate counts for the `seconds` since the last look.
        """
        before = self._totals.get(rates.also, {})
        totals: dict[PointSubject, tuple[float, int]] = {}
        for point, rate in rates.values.items():
            total, began_ns = before.get(point, (0.0, now_ns))
            if point in before:
                total += max(rate, 0) * seconds
            totals[point] = (total, began_ns)
            rates.values[point] = total
            rates.began_ns[point] = began_ns
        return totals


def _of_page(snapshot: Snapshot, subjects: Subjects) -> Work[list[MetricPoints]]:
    """The metrics of the joined page; a field's first name that gives a metric counts."""
    by_field = yield from _values_by_field(snapshot, subjects)
    points: dict[tuple[str, str, str], Values] = {}
    for name, values in by_field.items():
        before = points.get(_METRIC_OF[name])
        points[_METRIC_OF[name]] = {**values, **before} if before else values
    yield
    limits = points[_LIMIT]
    used: Values = {point: usage / limits[point] for point, usage in points[_USAGE].items() if limits.get(point)}
    points["hw.gpu.memory.utilization", "", ""] = used
    metrics: list[MetricPoints] = []
    for (name, key, text), values in points.items():
        if values:
            metrics.append(MetricPoints(INSTRUMENTS[name], ((key, text),) if key else (), values))
    return metrics


def _values_by_field(snapshot: Snapshot, subjects: Subjects) -> Work[Mapping[str, Values]]:
    """The page's values of each field for which there is a metric."""
    by_field: dict[str, Values] = {name: {} for name in _IN_ORDER}
    cells = snapshot.joined.cells(_ASKED) if snapshot.joined else ()
    for count, (family, subject, row, text) in enumerate(cells, 1):
        if not count % ITEMS_A_SLICE:
            yield
        point = subjects.of_row(subject, row)
        field = _FAMILIES[family]
        values = by_field[field.name]
        # if two upstreams or two generations describe a device, the first value counts
        if point is None or point in values:
            continue
        value = number(text, field)
        if value is not None:
            values[point] = value
    return by_field


def _of_accounts(snapshot: Snapshot, subjects: Subjects) -> Work[list[MetricPoints]]:
    """The metrics of accounts: allocation as a gauge, then the counters by name, each a sum since its account began."""
    allocated = MetricPoints(_ALLOCATED, ())
    counters: dict[tuple[str, str], MetricPoints] = {}
    for count, account in enumerate(snapshot.accounts.rows if snapshot.accounts else (), 1):
        if not count % _ACCOUNTS_A_SLICE:
            yield
        point = subjects.of_account(account.owner, account.device, account.labels)
        began_ns = account.began_ns
        if account.allocated_ratio is not None:
            allocated.values[point] = account.allocated_ratio
        for family, text, units in _amounts(account):
            points = counters.get((family.amount, text))
            if points is None:
                also = _attributes(family, text)
                points = counters[family.amount, text] = MetricPoints(ACCOUNTED[family], also)
            points.values[point] = units / 10**family.power
            if began_ns is not None:
                points.began_ns[point] = began_ns
    metrics = [counters[key] for key in sorted(counters)]
    return [allocated, *metrics] if allocated.values else metrics


def _attributes(family: AmountFamily, text: str) -> tuple[tuple[str, str], ...]:
    """The attributes that divide an account's family, without empty ones."""
    if not family.labels:
        return ()
    return tuple((_LABEL_AS[name], value) for name, value in family.labelled(text) if value)


def _amounts(account: Account) -> Iterator[tuple[AmountFamily, str, int]]:
    """The amounts of an account: the family, the values of the family's labels, and the amount."""
    for name, units in account.amounts.items():
        if name in _ACCOUNTED_AS:
            yield _ACCOUNTED_AS[name], "", units
    for name, by_label in account.by_label.items():
        if name in _ACCOUNTED_AS:
            for text, units in by_label.items():
                yield _ACCOUNTED_AS[name], text, units
