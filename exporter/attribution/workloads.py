"""What a pod belongs to: the walk from a pod by way of its controllers to the one at the top.

Pure: what has to be asked for comes in as an answer (sources/kubernetes/workloads.py asks).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.model.pods import OwnerReference, PodInfo

# Controllers that users make: nothing above them is a workload's name. (A ReplicaSet has a Deployment or a Rollout of
# Argo above it, a Job a CronJob or a kind of somebody's own.)
_TOP = frozenset(
    {("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ("batch", "CronJob")}
    | {("argoproj.io", "Rollout")}
)
# A static pod is "controlled" by its node, which is no workload.
_NODE = ("", "Node")
MOST_STEPS = 8
# What Kubernetes takes for names of objects (RFC 1123), of groups, versions and kinds (apimachinery's validation). Who
# makes a pod writes its ownerReferences, and the API checks hardly more than that they are not empty.
_LABEL = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_MOST_SUBDOMAIN_CHARS = 253
_VERSION = re.compile("[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")


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
    """The owner that controls, as metadata.ownerReferences marks it; there is at most one.

    A reference that no object can have is none: what a pod says of itself must not choose what is asked of the API.
    """
    return next(
        (owner for owner in owners if owner.is_controller and _group_kind(owner) != _NODE and _can_be_an_object(owner)),
        None,
    )


def is_top(owner: OwnerReference) -> bool:
    """Whether nobody needs to be asked what is above it."""
    return _group_kind(owner) in _TOP


def workload(pod: PodInfo, top: OwnerReference | None, labels: Sequence[str]) -> Workload:
    """The workload of a pod under `top`; the first of `labels` (--workload.labels) that the pod has names it."""
    kind = top.kind if top else "Pod"
    named = next((pod.labels[label] for label in labels if pod.labels.get(label)), "")
    return Workload(named or (top.name if top else pod.name), kind)


def _can_be_an_object(owner: OwnerReference) -> bool:
    group, slash, version = owner.api_version.rpartition("/")
    return bool(
        is_object_name(owner.name)
        and (is_object_name(group) if slash else version == "v1")
        and _VERSION.fullmatch(version)
        and _KIND.fullmatch(owner.kind)
    )


def is_object_name(text: str) -> bool:
    """Whether it is a DNS subdomain name as RFC 1123 has it: names of objects and of API groups are."""
    return len(text) <= _MOST_SUBDOMAIN_CHARS and _SUBDOMAIN.fullmatch(text) is not None


def _group_kind(owner: OwnerReference) -> tuple[str, str]:
    group = owner.api_version.rpartition("/")[0]
    return group, owner.kind
