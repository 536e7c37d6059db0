"""The series of all nodes, answer by answer → the view of each node, like its /container/metrics. Pure.

Tests: tests/cluster/prometheus/test_nodes.py.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from exporter.cluster.prometheus import queries
from exporter.cluster.prometheus.queries import KNOWN, MEASURED, OWN_PAGE, PAGES, SAMPLES_PAGE
from exporter.cluster.prometheus.query_answer import REMEDY, VectorSeries, garbage
from exporter.cluster.prometheus.targets import Target, Targets
from exporter.dcgm.xids import error_on_page
from exporter.dividing.decimals import number
from exporter.errors import Trouble
from exporter.lenient import AnyObject
from exporter.model.cluster_view import OWNERS_UNKNOWN, HeldDevice, NodeView
from exporter.model.device_row import DeviceRow, DeviceUser, OwnUse, in_its_state
from exporter.model.device_row_json import as_json
from exporter.model.devices import DeviceKey
from exporter.model.health import VERDICTS
from exporter.model.name_order import as_people_count
from exporter.model.pages import Subject, cut_gpus, in_order, merged, object_of
from exporter.model.pods import Owner
from exporter.model.slices import Work
from exporter.model.states import rfc3339
from exporter.ownership.explain import what_hides_owners
from exporter.ownership.labels import SHARED_LABEL, STANDARD_NAMES, UID_LABEL, WITHOUT_OWNERS, LabelPolicy
from exporter.ownership.queues import QUEUE_LABEL

MOST_ROWS = 1_000
NOBODY = Owner(namespace="", pod="", container="")
_RANK = {name: rank for rank, name in enumerate(KNOWN)}


@dataclass(slots=True)
class HolderSamples:
    """A device in one container.

    `ranks` has, by field, the rank of the family that gave the value: the first name in the table wins. `is_sampled`
    says whether a sample names this container, or nobody, as the holder of the device.
    """

    shared: bool = False
    uid: str = ""
    is_sampled: bool = False
    metrics: dict[str, Any] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class NodeRows:
    """The facts about one node, while the answers come in.

    Attributes:
        devices: the devices by their keys.
        held: the devices in each container.
        owners: the number of containers that hold a device.
        measured: a container's use of a device that it holds, by family.
        verdicts: a device's verdict, and the code of its reason.
        idle_since: the time since when a device is idle in a container (RFC 3339).
        strangers: a container's use of a device that its pod does not hold, by family.
        workloads: the name and the kind of a pod's workload, by namespace and pod.
        queues: a pod's queue, by namespace and pod.
        unmatched: the reasons why devices that were handed out have no samples.
        is_without_kubelet: whether the node's exporter has no answer of its kubelet.
        names_owners: whether the samples name owners; they do not with `--labels.owners off`.
    """

    devices: dict[DeviceKey, Subject] = field(default_factory=dict)
    held: dict[DeviceKey, dict[Owner, HolderSamples]] = field(default_factory=dict)
    owners: dict[DeviceKey, float] = field(default_factory=dict)
    measured: dict[tuple[DeviceKey, Owner], dict[str, float]] = field(default_factory=dict)
    verdicts: dict[DeviceKey, tuple[str, str]] = field(default_factory=dict)
    idle_since: dict[tuple[DeviceKey, Owner], str | None] = field(default_factory=dict)
    strangers: dict[DeviceKey, dict[Owner, dict[str, float]]] = field(default_factory=dict)
    workloads: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    queues: dict[tuple[str, str], str] = field(default_factory=dict)
    unmatched: set[str] = field(default_factory=set)
    is_without_kubelet: bool = False
    names_owners: bool = True

    @property
    def is_too_large(self) -> bool:
        """Whether this is more than any node has."""
        holders = sum(map(len, self.held.values()))
        strangers = sum(map(len, self.strangers.values()))
        by_holder: tuple[Sized, ...] = (self.measured, self.verdicts, self.idle_since, self.workloads, self.queues)
        return max(len(self.devices), holders, strangers, *map(len, by_holder)) > MOST_ROWS

    def add_device(self, subject: Subject) -> dict[Owner, HolderSamples]:
        """Add a device, together with the facts of other series about it. Return its holders."""
        key = subject.key
        if self.devices.get(key) is not subject:
            self.devices[key] = merged(self.devices.get(key), subject)
        return self.held.setdefault(key, {})

    def add(self, subject: Subject, owner: Owner) -> HolderSamples:
        """Add a device in a container. Return its entry."""
        holders = self.add_device(subject)
        entry = holders.get(owner)
        if entry is None:
            entry = holders[owner] = HolderSamples()
        return entry


def set_metric(entry: HolderSamples, family: str, value: str) -> None:
    """Note a sample's value, unless it is NaN or one of DCGM's values for "not supported"."""
    field = KNOWN[family]
    rank = _RANK[family]
    before = entry.ranks.get(field.json)
    value_read = number(value.encode(), field)
    if value_read is None or (before is not None and before < rank):
        return
    entry.metrics[field.json] = max(value_read, entry.metrics[field.json]) if before == rank else value_read
    entry.ranks[field.json] = rank


def held_devices(rows: NodeRows, node: str, read_at_seconds: float, *, samples_are_newer: bool) -> Iterable[HeldDevice]:
    """The rows in stable order, one by one. `samples_are_newer`: the samples are newer than the exporter's /metrics.

    If newer samples of a device do not name a container that /metrics names, the container holds it no more.
    """
    cut = cut_gpus(rows.devices.values())
    for device in sorted(rows.devices.values(), key=in_order):
        holders = _holders(rows, device.key, samples_are_newer=samples_are_newer)
        why_unknown = what_hides_owners(rows.unmatched, device)
        of_device: dict[str, Any] = {
            "node_name": node,
            **object_of(device, cut),
            "timestamp": rfc3339(read_at_seconds),
            **_said_of(rows, device.key),
        }
        for owner, entry in sorted(holders.items()) or [(NOBODY, HolderSamples())]:
            row = DeviceRow(**of_device, **_of_holder(rows, device.key, owner, entry), **entry.metrics)
            row = in_its_state(row, why_unknown=why_unknown)
            yield HeldDevice(row, as_json([row])[1:-1])


def _holders(rows: NodeRows, key: DeviceKey, *, samples_are_newer: bool) -> dict[Owner, HolderSamples]:
    """The holders of a device; NOBODY if there is none, or if the page has values of its own for nobody."""
    holders = dict(rows.held.get(key, {}))
    nobodys = holders.get(NOBODY)
    if nobodys and not rows.names_owners:
        # every holder of the device has its values
        holders = {owner: replace(entry, metrics=nobodys.metrics) for owner, entry in holders.items()}
    elif samples_are_newer and any(entry.is_sampled for entry in holders.values()):
        holders = {owner: entry for owner, entry in holders.items() if entry.is_sampled}
        nobodys = holders.get(NOBODY)
    if nobodys is None or len(holders) == 1:
        return holders
    others_have_values = any(entry.metrics for owner, entry in holders.items() if owner != NOBODY)
    if others_have_values or not nobodys.metrics:
        # a device with a holder is not free any more
        del holders[NOBODY]
    return holders


def _said_of(rows: NodeRows, key: DeviceKey) -> AnyObject:
    """The fields of a row about the device, which do not depend on the holder."""
    verdict, reason = rows.verdicts.get(key, ("", ""))
    strangers = sorted(rows.strangers.get(key, {}).items())
    return {
        "health": verdict if verdict in VERDICTS else "",
        "health_reasons": (reason,) if reason else (),
        "used_by": tuple(DeviceUser(**asdict(stranger), **_measured(use)) for stranger, use in strangers),
    }


def _of_holder(rows: NodeRows, key: DeviceKey, owner: Owner, entry: HolderSamples) -> AnyObject:
    """The fields of a row about the holder. No series tells since when it holds the device."""
    name, kind = rows.workloads.get(owner.pod_key, ("", ""))
    measured = rows.measured.get((key, owner))
    return {
        **asdict(owner),
        "workload_name": name,
        "workload_kind": kind if name else "",
        "queue": rows.queues.get(owner.pod_key, ""),
        "pod_uid": entry.uid,
        "gpu_shared": entry.shared or rows.owners.get(key, 0) > 1,
        "measured": OwnUse(**_measured(measured)) if measured else None,
        "last_xid": error_on_page(entry.metrics.get("xid_errors")),
        "idle_since": rows.idle_since.get((key, owner)),
    }


def _measured(by_family: Mapping[str, float]) -> dict[str, Any]:
    """The measured values of a container, by their names in an object."""
    return {MEASURED[family]: value for family, value in by_family.items()}


_NAME = "__name__"
_INSTANCE = "instance"
_NO_LABELS = Target("", {})
_MOST_MEASURED = 1e300
_MOST_SECONDS = 1e11
_DEVICE_NAME = re.compile(r"(?:nvidia)?[0-9]+")
_TOO_LARGE = Trouble("oversize", f"it has more than {MOST_ROWS} devices and containers that hold them", REMEDY)
_TWICE = Trouble(
    "garbage",
    "another node's exporter is scraped at the same address, so nobody can say whose series are whose",
    "of several clusters in one Prometheus choose one with --cluster.prometheus-matchers 'cluster=\"…\"'",
)


class Collected:
    """Nodes whose series come in: first those of the exporters' own /metrics, then the samples."""

    def __init__(self, targets: Mapping[str, Targets], owner_labels: tuple[str, str, str]) -> None:
        """`owner_labels` are the samples' labels for pod, namespace and container (--labels.names of the nodes)."""
        self._targets = targets
        self._policy = LabelPolicy(names=owner_labels)
        self._rows: dict[str, NodeRows] = {}
        self._pages: dict[str, dict[str, tuple[NodeRows, Target]]] = {path: {} for path in PAGES}
        self._entries: dict[tuple[tuple[str, str], ...], HolderSamples | None] = {}
        # addresses of several nodes, as in clusters whose pods have the same networks
        seen: dict[str, str] = {}
        shared = frozenset(
            page.instance
            for node, targets_of_node in targets.items()
            for page in targets_of_node.pages.values()
            if seen.setdefault(page.instance, node) != node
        )
        self._troubles: dict[str, Trouble] = {}
        for node, targets_of_node in targets.items():
            trouble = targets_of_node.trouble
            if any(page.instance in shared for page in targets_of_node.pages.values()):
                trouble = trouble or _TWICE
            if trouble:
                self._troubles[node] = trouble
                continue
            rows = self._rows[node] = NodeRows()
            for path, page in targets_of_node.pages.items():
                self._pages[path][page.instance] = (rows, page)

    def take_own(self, series: VectorSeries) -> None:
        """Add a series of /metrics."""
        labels, _, value = series
        rows, page = self._pages[OWN_PAGE].get(labels.get(_INSTANCE, ""), (None, _NO_LABELS))
        if rows is None or rows.is_too_large:
            return
        owner = _owner(labels, STANDARD_NAMES, page)
        name = labels.get(_NAME, "")
        if name == queries.SOURCE_UP:
            rows.is_without_kubelet |= labels.get(queries.SOURCE) == queries.KUBELET and not float(value)
        elif name == queries.UNMATCHED:
            if float(value) > 0:
                rows.unmatched.add(labels.get(queries.REASON, ""))
        elif name == queries.OWNERS:
            subject = self._named(labels)
            rows.add_device(subject)
            rows.owners[subject.key] = float(value)
        elif name == queries.VERDICT:
            rows.verdicts[self._named(labels).key] = (labels.get(queries.WORD, ""), labels.get(queries.REASON, ""))
        elif name not in (queries.INFO, queries.ALLOCATED, queries.IDLE_SINCE, *MEASURED):
            raise garbage(f"it was not asked for {name[:99]!r}")
        elif owner != NOBODY:
            self._take_owners(rows, owner, labels, value)

    def _take_owners(self, rows: NodeRows, owner: Owner, labels: Mapping[str, str], value: str) -> None:
        """Keep the fact of an owner that a series has: the device, the workload, the idle time or the measured use."""
        match labels[_NAME]:
            case queries.INFO:
                entry = rows.add(self._policy.read_subject(labels), owner)
                if labels.get(QUEUE_LABEL):
                    rows.queues[owner.pod_key] = labels[QUEUE_LABEL]
                if WITHOUT_OWNERS in labels.items():
                    rows.names_owners = False
                    entry.shared |= bool(labels.get(SHARED_LABEL))
                    entry.uid = entry.uid or labels.get(UID_LABEL, "")
            case queries.ALLOCATED:
                if labels.get("workload_name"):
                    workload = (labels["workload_name"], labels.get("workload_kind", ""))
                    rows.workloads[owner.pod_key] = workload
            case queries.IDLE_SINCE:
                if 0 <= (seconds := float(value)) < _MOST_SECONDS:
                    rows.idle_since[self._named(labels).key, owner] = rfc3339(seconds)
            case name:
                use = float(value)
                if 0 <= use < _MOST_MEASURED:
                    key = self._named(labels).key
                    if labels.get(queries.HOLDS) == "false":
                        of_owner = rows.strangers.setdefault(key, {}).setdefault(owner, {})
                    else:
                        of_owner = rows.measured.setdefault((key, owner), {})
                    of_owner[name] = int(use) if use.is_integer() else use

    def take_sample(self, series: VectorSeries) -> None:
        """Add a series of /gpu/metrics."""
        labels = dict(series.labels)
        name = labels.pop(_NAME, "")
        if name not in KNOWN:
            raise garbage(f"it was not asked for {name[:99]!r}")
        identity = tuple(labels.items())
        if identity in self._entries:
            entry = self._entries[identity]
        else:
            entry = self._entries[identity] = self._entry(labels)
        if entry is not None:
            set_metric(entry, name, series.value)

    def views(self) -> Work[dict[str, NodeView]]:
        """The nodes in the order of their names. The view of a node without trouble has the time of its scrape."""
        self._entries.clear()
        views = {}
        for name in sorted(self._targets, key=as_people_count):
            targets = self._targets[name]
            rows = self._rows.get(name)
            trouble = self._troubles.get(name)
            if rows is not None and rows.is_too_large:
                trouble = _TOO_LARGE
            if rows is None or trouble is not None:
                views[name] = NodeView(name=name, trouble=trouble)
                continue
            devices = []
            of_samples, of_own = (targets.pages[path].scraped_at_seconds for path in (SAMPLES_PAGE, OWN_PAGE))
            for device in held_devices(rows, name, of_samples, samples_are_newer=of_samples > of_own):
                devices.append(device)
                yield
            if rows.is_without_kubelet and not any(held.row.pod for held in devices):
                views[name] = NodeView(name=name, trouble=OWNERS_UNKNOWN)
            else:
                at_seconds = targets.scraped_at_seconds
                views[name] = NodeView(name=name, devices=tuple(devices), answered_at_seconds=at_seconds)
            # the rows of which it was made are not needed any more
            del self._rows[name]
        return views

    def _entry(self, labels: dict[str, str]) -> HolderSamples | None:
        rows, page = self._pages[SAMPLES_PAGE].get(labels.get(_INSTANCE, ""), (None, _NO_LABELS))
        if rows is None or rows.is_too_large:
            return None
        subject = self._policy.read_subject(labels)
        if not (subject.is_device or subject.key in rows.devices):
            return None
        entry = rows.add(subject, _owner(labels, self._policy.names, page))
        entry.is_sampled = True
        entry.shared = entry.shared or labels.get("gpu_shared") == "true"
        entry.uid = entry.uid or labels.get("pod_uid", "")
        return entry

    def _named(self, labels: Mapping[str, str]) -> Subject:
        """The device of a series of /metrics. There, a device without a UUID has its name or number as UUID."""
        subject = self._policy.read_subject(labels)
        name = subject.uuid
        if not _DEVICE_NAME.fullmatch(name):
            return subject
        return replace(
            subject, uuid="", device="" if name.isdigit() else name, index=subject.index or name.removeprefix("nvidia")
        )


def _owner(labels: Mapping[str, str], names: Sequence[str], page: Target) -> Owner:
    """The owner of a series; NOBODY if only the target's own labels (those of the exporter's pod) name a pod.

    If the target has such labels, they collide with the samples' labels. With honor_labels the samples' labels win, and
    if these are empty, Prometheus leaves out the target's. Without it the samples' labels are called exported_pod and
    so on, and the target's stay.
    """
    pod, namespace, container = (labels.get(f"exported_{name}") or labels.get(name, "") for name in names)
    if not pod or (not labels.get(f"exported_{names[0]}") and pod == page.labels.get(names[0])):
        return NOBODY
    return Owner(namespace=namespace, pod=pod, container=container)
