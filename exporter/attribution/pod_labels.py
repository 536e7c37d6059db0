"""Which labels samples gain from their owner's pod: its UID, and the pod labels that the user asks for.

A label `app.kubernetes.io/name` becomes `label_app_kubernetes_io_name`, as kube-state-metrics writes it. The prefix
keeps a tenant's label `job` or `instance` from taking the place of Prometheus' own.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from exporter.attribution.labels import POD_LABEL_PREFIX, UID_LABEL
from exporter.model.devices import AddedLabels
from exporter.model.pods import PodInfo

COLLISION, LIMIT = "collision", "limit"
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfPod:
    """What a pod's samples gain beside its names: its UID and its labels (label_…), as far as they are asked for."""

    uid: str = ""
    labels: AddedLabels = ()

    @property
    def added(self) -> AddedLabels:
        """Both as labels, pod_uid first."""
        return (((UID_LABEL, self.uid),) if self.uid else ()) + self.labels


NOTHING = OfPod()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLabelPolicy:
    """The flags about pod labels: `with_uid` is --labels.pod-uid, `patterns` are --labels.pod-labels (whole names).

    `limit` (--labels.pod-labels-limit) is the most labels of one pod that go out, the first ones by name.
    """

    with_uid: bool = False
    patterns: tuple[re.Pattern[str], ...] = ()
    limit: int = 32

    def labels_of(self, pod: PodInfo) -> tuple[OfPod, Mapping[str, int]]:
        """What a pod's samples gain, and the numbers of pod labels renamed (collision) and left out (limit).

        A number that would be 0 is not in the mapping.
        """
        wanted = sorted(name for name in pod.labels if any(pattern.fullmatch(name) for pattern in self.patterns))
        kept = wanted[: self.limit]
        names = _names(kept)
        added = tuple((names[name], pod.labels[name]) for name in kept)
        problems = {
            COLLISION: sum(names[name] != _sanitised(name) for name in kept),
            LIMIT: len(wanted) - len(kept),
        }
        of_pod = OfPod(uid=pod.uid if self.with_uid else "", labels=added)
        return of_pod, {reason: count for reason, count in problems.items() if count}


def _sanitised(name: str) -> str:
    """The Prometheus label name of a pod's label, as kube-state-metrics writes it; several may come out alike."""
    return POD_LABEL_PREFIX + _NOT_IN_A_NAME.sub("_", name)


def _names(labels: Sequence[str]) -> Mapping[str, str]:
    """A Prometheus label name for each of these, which are sorted; those that come out alike get _conflict1 and on."""
    counts = Counter(map(_sanitised, labels))
    taken = {name for name, count in counts.items() if count == 1}
    names = {}
    for label in labels:
        name = _sanitised(label)
        if counts[name] > 1:
            number = 1
            while f"{name}_conflict{number}" in taken:
                number += 1
            name = f"{name}_conflict{number}"
            taken.add(name)
        names[label] = name
    return MappingProxyType(names)
