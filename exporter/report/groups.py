"""The ways in which a report groups rows of the accounts, and the names of the groups. Pure.

Tests: tests/report/test_report.py.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from exporter.report.rows import RowKey, place_of

Kind = Literal["namespace", "workload", "queue", "label", "model", "node", "pod", "cluster"]
KINDS: tuple[Kind, ...] = ("namespace", "workload", "queue", "model", "node", "pod", "cluster")
# The groups to which GPUs belong rather than their holders. Such a group has free hours of its own.
OF_GPUS: Final = frozenset({"model", "node", "cluster"})
_LABEL = "label:"
_QUEUE = "queue"
_WORKLOAD_LABELS = ("workload_name", "workload_kind")
# the prefix of kube-state-metrics, which --labels.pod-labels uses, too
_POD_LABEL_PREFIX = "label_"
# Controllers append to names: letters and digits that form no words (apimachinery's util/rand); a ReplicaSet the hash
# of its template, in the same letters; a CronJob minutes of Unix time; a StatefulSet an ordinal.
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_FORMS: Final = (
    ("CronJob", re.compile(rf"(.+)-[23][0-9]{{7}}-{_RANDOM}{{5}}")),
    ("Deployment", re.compile(rf"(.+)-{_RANDOM}{{8,10}}-{_RANDOM}{{5}}")),
    ("", re.compile(rf"(.+)-{_RANDOM}{{5}}")),  # a DaemonSet, a Job or a ReplicaSet
    ("StatefulSet", re.compile(r"(.+)-(?:0|[1-9][0-9]{0,4})")),
)


@dataclass(frozen=True, slots=True)
class GroupBy:
    """The way in which rows are grouped; `label` is the name of the pod's label if `kind` is "label"."""

    kind: Kind
    label: str = ""

    def __str__(self) -> str:
        return f"{_LABEL}{self.label}" if self.label else self.kind

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names that the pod's label may have on a series: the exporter's name for it, then its own."""
        name = re.sub(r"[^a-zA-Z0-9_]", "_", self.label)
        return (_POD_LABEL_PREFIX + name, name) if self.label else ()

    @property
    def wanted(self) -> frozenset[str]:
        """The labels of series that the names of groups are made of."""
        return frozenset((*_WORKLOAD_LABELS, *self.label_names, *((_QUEUE,) if self.kind == _QUEUE else ())))

    def name_of(self, key: RowKey, labels: Mapping[str, str], model: str, names: "GroupNames") -> str | None:
        """The group of a row; None if nobody held the device, or the group is unknown."""
        if self.kind in OF_GPUS:
            return self._group_of_gpus(key, model, names) or None
        return self._group_of_holder(key, labels, names)

    def _group_of_gpus(self, key: RowKey, model: str, names: "GroupNames") -> str:
        match self.kind:
            case "model":
                return model
            case "node" if not names.has_clusters:
                return key.node
            case "node":
                return key.place
        return key.cluster

    def _group_of_holder(self, key: RowKey, labels: Mapping[str, str], names: "GroupNames") -> str | None:
        cluster = names.cluster(key)
        match self.kind:
            case "workload":
                return names.name_of(key, labels)
            case "label":
                return next((labels[name] for name in self.label_names if labels.get(name)), None)
            case "queue" if labels.get(_QUEUE):
                return place_of(cluster, labels[_QUEUE])
            case "pod" if key.pod:
                return place_of(cluster, f"{key.namespace}/{key.pod}")
            case "namespace":
                return key.namespace or None
        return None


def read_by(text: str) -> GroupBy:
    """Read `namespace`, `workload`, `queue`, `model`, `node`, `pod`, `cluster` or `label:NAME`.

    Raises:
        ValueError: the text is none of these.
    """
    for kind in KINDS:
        if text == kind:
            return GroupBy(kind)
    label = text.removeprefix(_LABEL)
    if label == text or not label:
        raise ValueError(text)
    return GroupBy("label", label)


class GroupNames:
    """The names of rows' clusters and workloads.

    A workload is the one that the exporter recorded, else the one that the pod's name shows, else the pod itself. The
    form of a pod's name shows the kind of its controller, but a Rollout's pods have the form of a Deployment's. So if
    another row of the namespace recorded a workload of that name, its kind counts.
    """

    def __init__(self, rows: Iterable[tuple[RowKey, Mapping[str, str]]]) -> None:
        clusters: set[str] = set()
        kinds: dict[tuple[str, str], str] = {}
        for key, labels in rows:
            clusters.add(key.cluster)
            recorded = _recorded(labels)
            if recorded is None:
                continue
            name, kind = recorded
            workload = (key.namespace, name)
            is_of_one_kind = kinds.get(workload, kind) == kind
            kinds[workload] = kind if is_of_one_kind else ""
        self.has_clusters = len(clusters) > 1
        self._kinds: Mapping[tuple[str, str], str] = MappingProxyType(kinds)

    def cluster(self, key: RowKey) -> str:
        """The row's cluster if there are several clusters, else ""."""
        return key.cluster if self.has_clusters else ""

    def name_of(self, key: RowKey, labels: Mapping[str, str]) -> str | None:
        """A row's workload, such as `shop/Deployment/render`; if there are several clusters, the cluster comes first.

        None if nobody held the device.
        """
        if not key.pod:
            return None
        recorded = _recorded(labels)
        if recorded is not None:
            name, kind = recorded
        else:
            name, kind_by_name = workload_of_name(key.pod)
            kind = self._kinds.get((key.namespace, name), kind_by_name)
        parts = [part for part in (key.namespace, kind, name) if part]
        return place_of(self.cluster(key), "/".join(parts))


def workload_of_name(pod: str) -> tuple[str, str]:
    """The name and the kind of a pod's workload, from the form of the pod's name.

    The kind is "" if the form does not show it. If the name has none of the forms, the workload's name is the pod's.
    """
    for kind, form in _FORMS:
        match = form.fullmatch(pod)
        if match:
            return match[1], kind
    return pod, ""


def _recorded(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """The name and the kind of the workload that the exporter recorded; None if it recorded none."""
    name = labels.get("workload_name")
    if not name:
        return None
    return name, labels.get("workload_kind", "")
