"""Pods and containers, as the kubelet and Kubernetes name them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Owner:
    """A container, as the kubelet names it: PodResources.namespace and .name, ContainerResources.name."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """What a pod belongs to: an entry of its metadata.ownerReferences."""

    api_version: str
    kind: str
    name: str
    uid: str
    is_controller: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PodInfo:
    """What is read of a Pod of core/v1: metadata and status. `container_ids` are by container name.

    `created_at_seconds` is metadata.creationTimestamp, in seconds since 1970. The API server sets it: whoever makes a
    pod cannot. `is_acknowledged` says that the pod's kubelet knows it: the kubelet itself told of it, or its status has
    what only a kubelet writes. `is_static` says that it comes from a file on the node: its kubelet needs no API server
    for it.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    owners: tuple[OwnerReference, ...] = ()
    phase: str = ""
    ip: str = ""
    created_at_seconds: float | None = None
    container_ids: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    is_acknowledged: bool = True
    is_static: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """A pod that bears a name (namespace and name), and for how long it has: pods made anew share one name in turn.

    `since` is when the source of pods knew that the kubelet knows the pod (infinity: not yet), `until` when the pod was
    gone (infinity: it is there), both in seconds of `time.monotonic`. `is_first` says that no other bearer of the name
    was known when this one came.
    """

    pod: PodInfo
    since: float
    until: float
    is_first: bool


Bearers = Mapping[tuple[str, str], tuple[Bearer, ...]]
