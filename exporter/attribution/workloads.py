"""What a pod belongs to: the walk from a pod by way of its controllers to the one at the top.

Pure: what has to be asked for comes in as an answer (sources/workloads.py asks).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.model import OwnerReference, PodInfo

# Controllers that users make: nothing above them is a workload's name. (A ReplicaSet has a Deployment or a Rollout of
# Argo above it, a Job a CronJob or a kind of somebody's own.)
_TOP = frozenset(
    {("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ("batch", "CronJob")}
    | {("argoproj.io", "Rollout")}
)
# A static pod is "controlled" by its node, which is no workload.
_NODE = ("", "Node")
MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload's name and kind."""

    name: str
    kind: str


def read_owners(listed: object) -> tuple[OwnerReference, ...]:
    """metadata.ownerReferences of an object as JSON; what is no reference is none."""
    return tuple(
        OwnerReference(
            api_version=str(owner.get("apiVersion", "")),
            kind=str(owner.get("kind", "")),
            name=str(owner.get("name", "")),
            uid=str(owner.get("uid", "")),
            is_controller=bool(owner.get("controller")),
        )
        for owner in (listed if isinstance(listed, list) else ())
        if isinstance(owner, Mapping)
    )


def controller(owners: Sequence[OwnerReference]) -> OwnerReference | None:
    """The owner that controls, as metadata.ownerReferences marks it; there is at most one."""
    return next((owner for owner in owners if owner.is_controller and _group_kind(owner) != _NODE), None)


def is_top(owner: OwnerReference) -> bool:
    """Whether nobody needs to be asked what is above it."""
    return _group_kind(owner) in _TOP


def workload(pod: PodInfo, top: OwnerReference | None, labels: Sequence[str]) -> Workload:
    """The workload of a pod under `top`; the first of `labels` (--workload.labels) that the pod has names it."""
    kind = top.kind if top else "Pod"
    named = next((pod.labels[label] for label in labels if pod.labels.get(label)), "")
    return Workload(named or (top.name if top else pod.name), kind)


def _group_kind(owner: OwnerReference) -> tuple[str, str]:
    group = owner.api_version.rpartition("/")[0]
    return group, owner.kind
