"""The workload of a pod: the walk from the pod up its chain of controllers to the top.

Pure: sources/kubernetes/workloads.py asks the API for the controllers, and this module judges the answers.

Tests: tests/sources/kubernetes/test_workloads.py.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.lenient import each_mapping
from exporter.model.pods import OwnerReference, PodInfo

# Controllers that users make: the walk ends here. (It does not end at a ReplicaSet, which has a Deployment or Argo's
# Rollout above it, nor at a Job, which may have a CronJob or a custom kind above it.)
_TOP = frozenset(
    {("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ("batch", "CronJob")}
    | {("argoproj.io", "Rollout")}
)
# A static pod is "controlled" by its node, which is no workload.
_NODE = ("", "Node")
MOST_STEPS = 8
# The forms that Kubernetes allows for names of objects (RFC 1123), groups, versions and kinds (apimachinery's
# validation). The author of a pod writes its ownerReferences, and the API checks little more than that they are not
# empty.
_LABEL = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_MOST_SUBDOMAIN_CHARS = 253
_VERSION = re.compile("[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")


@dataclass(frozen=True, slots=True)
class Workload:
    """The name and the kind of a pod's workload, such as "render" and "Deployment"."""

    name: str
    kind: str


def read_owners(listed: object) -> tuple[OwnerReference, ...]:
    """The references in an object's metadata.ownerReferences, as parsed JSON; entries of another form are left out."""
    return tuple(
        OwnerReference(
            api_version=str(owner.get("apiVersion", "")),
            kind=str(owner.get("kind", "")),
            name=str(owner.get("name", "")),
            uid=str(owner.get("uid", "")),
            is_controller=bool(owner.get("controller")),
        )
        for owner in each_mapping(listed)
    )


def controller(owners: Sequence[OwnerReference]) -> OwnerReference | None:
    """The owner that is marked as the controller; None if there is none.

    A node does not count as a controller, and neither does a reference that no object can have: the author of a pod
    must not choose which path of the API the exporter asks for.
    """
    return next(
        (owner for owner in owners if owner.is_controller and _group_kind(owner) != _NODE and _can_be_an_object(owner)),
        None,
    )


def is_top(owner: OwnerReference) -> bool:
    """Whether the walk ends at this owner, so that nobody need ask the API for the controller above it."""
    return _group_kind(owner) in _TOP


def workload(pod: PodInfo, top: OwnerReference | None, labels: Sequence[str]) -> Workload:
    """A pod's workload: `top` or, without one, the pod; the first of `labels` that the pod has gives its name."""
    kind = top.kind if top else "Pod"
    named = next((pod.labels[label] for label in labels if pod.labels.get(label)), "")
    return Workload(named or (top.name if top else pod.name), kind)


def _can_be_an_object(owner: OwnerReference) -> bool:
    """Whether every part of a reference has a form that Kubernetes allows: its parts become a path of the API."""
    group, slash, version = owner.api_version.rpartition("/")
    return bool(
        is_object_name(owner.name)
        and (is_object_name(group) if slash else version == "v1")
        and _VERSION.fullmatch(version)
        and _KIND.fullmatch(owner.kind)
    )


def is_object_name(text: str) -> bool:
    """Whether `text` is a DNS subdomain (RFC 1123), as the names of objects and of API groups are."""
    return len(text) <= _MOST_SUBDOMAIN_CHARS and _SUBDOMAIN.fullmatch(text) is not None


def _group_kind(owner: OwnerReference) -> tuple[str, str]:
    return owner.api_version.rpartition("/")[0], owner.kind
