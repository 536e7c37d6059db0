"""What a report groups by: a row of the accounts → the name of its group. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from exporter.report.rows import Key

Kind = Literal["namespace", "workload", "label", "model", "node", "pod"]
KINDS: tuple[Kind, ...] = ("namespace", "workload", "model", "node", "pod")
_LABEL = "label:"
WORKLOAD_LABELS = ("workload_name", "workload_kind")
# kube-state-metrics' convention, which --labels.pod-labels keeps
_POD_LABEL_PREFIX = "label_"


@dataclass(frozen=True, slots=True)
class By:
    """What to group by. `label` is the pod's label, where it is by one."""

    kind: Kind
    label: str = ""

    def __str__(self) -> str:
        return f"{_LABEL}{self.label}" if self.label else self.kind

    @property
    def label_names(self) -> tuple[str, ...]:
        """Where a series may carry the pod's label: as the exporter adds it, else as it is called."""
        name = re.sub(r"[^a-zA-Z0-9_]", "_", self.label)
        return (_POD_LABEL_PREFIX + name, name) if self.label else ()

    @property
    def wanted(self) -> frozenset[str]:
        """The labels of series that names of groups are made of."""
        return frozenset((*WORKLOAD_LABELS, *self.label_names))

    def name_of(self, key: Key, labels: Mapping[str, str], model: str) -> str | None:
        """The group of a row; None where the row has none: nobody held it, or nobody knows."""
        match self.kind:
            case "model":
                return model or None
            case "node":
                return key.node or None
            case "workload":
                return workload_of(key, labels)
            case "label":
                return next((labels[name] for name in self.label_names if labels.get(name)), None)
            case "pod":
                return f"{key.namespace}/{key.pod}" if key.pod else None
            case "namespace":
                return key.namespace or None


def read_by(text: str) -> By:
    """`namespace`, `workload`, `model`, `node`, `pod` or `label:NAME`.

    Raises:
        ValueError: it is none of these.
    """
    for kind in KINDS:
        if text == kind:
            return By(kind)
    label = text.removeprefix(_LABEL)
    if label == text or not label:
        raise ValueError(text)
    return By("label", label)


def workload_of(key: Key, labels: Mapping[str, str]) -> str | None:
    """A row's workload, such as `shop/Deployment/render`; else its pod; None of what nobody held."""
    if not key.pod:
        return None
    name = labels.get("workload_name")
    kind = labels.get("workload_kind")
    return f"{key.namespace}/{kind}/{name}" if name and kind else f"{key.namespace}/{name or key.pod}"
