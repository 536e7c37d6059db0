"""Which labels a pod's samples gain from the pod itself: its UID and those of its labels that are asked for.

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
class PodLabelPolicy:
    """`with_uid` is --labels.pod-uid; `patterns` match whole label names (--labels.pod-labels).

    `limit` is the most labels that go out for a pod (--labels.pod-labels-limit), the first in the order of their names.
    """

    with_uid: bool = False
    patterns: tuple[re.Pattern[str], ...] = ()
    limit: int = 32

    def labels_of(self, pod: PodInfo) -> tuple[AddedLabels, Mapping[str, int]]:
        """What a pod's samples gain, and how many of its labels were renamed (collision) or left out (limit)."""
        wanted = sorted(name for name in pod.labels if any(pattern.fullmatch(name) for pattern in self.patterns))
        kept = wanted[: self.limit]
        names = _names(kept)
        added = tuple((names[name], pod.labels[name]) for name in kept)
        problems = {
            COLLISION: sum(names[name] != _sanitised(name) for name in kept),
            LIMIT: len(wanted) - len(kept),
        }
        uid = ((UID_LABEL, pod.uid),) if self.with_uid and pod.uid else ()
        return (*uid, *added), {reason: count for reason, count in problems.items() if count}


def _sanitised(name: str) -> str:
    return POD_LABEL_PREFIX + _NOT_IN_A_NAME.sub("_", name)


def _names(labels: Sequence[str]) -> Mapping[str, str]:
    """A label name each; those that come out alike get _conflict1, _conflict2, … in the order of the original names."""
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
