"""The series of all nodes, as they come in answer by answer → the view of each node. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from exporter.attribution.labels import STANDARD_NAMES, LabelPolicy
from exporter.errors import Trouble
from exporter.model.cluster import OWNERS_UNKNOWN, NodeView
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.slices import Work
from exporter.sources.prometheus import queries
from exporter.sources.prometheus.answer import REMEDY, Series, garbage
from exporter.sources.prometheus.queries import KNOWN, MEASURED, OWN_PAGE, PAGES, SAMPLES_PAGE
from exporter.sources.prometheus.rows import MOST_ROWS, NOBODY, Held, NodeRows, held_devices, set_metric
from exporter.sources.prometheus.targets import Target, Targets

_NAME, _INSTANCE = "__name__", "instance"
_NO_LABELS = Target("", {})
_MOST_MEASURED = 1e300
_DEVICE_NAME = re.compile(r"(?:nvidia)?[0-9]+")
_TOO_LARGE = Trouble("oversize", f"it has more than {MOST_ROWS} devices and containers that hold them", REMEDY)
_TWICE = Trouble(
    "garbage",
    "another node's exporter is scraped at the same address, so nobody can say whose series are whose",
    "of several clusters in one Prometheus choose one with --cluster.prometheus-matchers 'cluster=\"…\"'",
)


class Collected:
    """Nodes whose series come in. First what the exporters say of themselves, then the samples."""

    def __init__(self, targets: Mapping[str, Targets], owner_labels: tuple[str, str, str]) -> None:
        """`owner_labels` are those of samples that name pod, namespace and container (--labels.names of the nodes)."""
        self._targets = targets
        self._policy = LabelPolicy(names=owner_labels)
        self._rows: dict[str, NodeRows] = {}
        self._pages: dict[str, dict[str, tuple[NodeRows, Target]]] = {path: {} for path in PAGES}
        self._entries: dict[tuple[tuple[str, str], ...], Held | None] = {}
        shared = self._shared_addresses()
        self._troubles: dict[str, Trouble] = {}
        for node, found in targets.items():
            trouble = found.trouble
            if any(page.instance in shared for page in found.pages.values()):
                trouble = trouble or _TWICE
            if trouble:
                self._troubles[node] = trouble
                continue
            rows = self._rows[node] = NodeRows()
            for path, page in found.pages.items():
                self._pages[path][page.instance] = (rows, page)

    def take_own(self, series: Series) -> None:
        """A series of /metrics."""
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
        elif name not in (queries.INFO, queries.ALLOCATED, *MEASURED):
            raise garbage(f"it was not asked for {name[:99]!r}")
        elif owner != NOBODY:
            self._take_owners(rows, owner, labels, value)

    def _take_owners(self, rows: NodeRows, owner: Owner, labels: Mapping[str, str], value: str) -> None:
        match labels[_NAME]:
            case queries.INFO:
                rows.add(self._policy.read_subject(labels), owner)
            case queries.ALLOCATED:
                if labels.get("workload_name"):
                    workload = (labels["workload_name"], labels.get("workload_kind", ""))
                    rows.workloads[owner.namespace, owner.pod] = workload
            case name:
                use = float(value)
                if 0 <= use < _MOST_MEASURED:
                    of_owner = rows.measured.setdefault((self._named(labels).key, owner), {})
                    of_owner[name] = int(use) if use.is_integer() else use

    def take_sample(self, series: Series) -> None:
        """A series of /gpu/metrics."""
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
        """The nodes in the order of their names. A node without trouble was scraped when its view says."""
        self._entries.clear()
        found = {}
        for name, targets in sorted(self._targets.items()):
            rows, trouble = self._rows.get(name), self._troubles.get(name)
            if rows is not None and rows.is_too_large:
                trouble = _TOO_LARGE
            if rows is None or trouble is not None:
                found[name] = NodeView(name=name, trouble=trouble)
                continue
            devices = []
            of_samples, of_own = (targets.pages[path].scraped_at_seconds for path in (SAMPLES_PAGE, OWN_PAGE))
            for device in held_devices(rows, name, of_samples, samples_are_newer=of_samples > of_own):
                devices.append(device)
                yield
            if rows.is_without_kubelet and not any(device.pod for device in devices):
                found[name] = NodeView(name=name, trouble=OWNERS_UNKNOWN)
            else:
                at_seconds = targets.scraped_at_seconds
                found[name] = NodeView(name=name, devices=tuple(devices), answered_at_seconds=at_seconds)
            # what it was made of is not needed any more
            del self._rows[name]
        return found

    def _entry(self, labels: dict[str, str]) -> Held | None:
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
        """A device by families in which one that has no UUID goes by its name, or by its number."""
        subject = self._policy.read_subject(labels)
        name = subject.uuid
        if not _DEVICE_NAME.fullmatch(name):
            return subject
        return replace(
            subject, uuid="", device="" if name.isdigit() else name, index=subject.index or name.removeprefix("nvidia")
        )

    def _shared_addresses(self) -> frozenset[str]:
        """The addresses that are several nodes' at a time: of clusters whose pods have the same networks."""
        seen: dict[str, str] = {}
        return frozenset(
            page.instance
            for node, found in self._targets.items()
            for page in found.pages.values()
            if seen.setdefault(page.instance, node) != node
        )


def _owner(labels: Mapping[str, str], names: Sequence[str], page: Target) -> Owner:
    """Whose it is. The labels of the target itself (the exporter's own pod) name nobody.

    Where the target has such labels, they are in the way: with honor_labels the samples' own win, and the target's are
    taken off where those are empty. Without it the samples' are called exported_pod and so on, and the target's stay.
    """
    pod, namespace, container = (labels.get(f"exported_{name}") or labels.get(name, "") for name in names)
    if not pod or (not labels.get(f"exported_{names[0]}") and pod == page.labels.get(names[0])):
        return NOBODY
    return Owner(namespace=namespace, pod=pod, container=container)
