"""Pods and containers, as the kubelet and Kubernetes name them.

Tests: tests/ownership/test_pods_of_names.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from exporter.model.nothing import nothing

# Kubernetes allows 256 KiB for all annotations of a pod. A device takes some 60 characters.
MOST_ANNOTATION_CHARS = 32 * 1024
# the end of an annotation that was cut, which no allocator writes
CUT = "\0"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Owner:
    """A container, as the kubelet names it: PodResources.namespace and .name, ContainerResources.name."""

    namespace: str
    pod: str
    container: str

    @property
    def name(self) -> str:
        """namespace/pod/container."""
        return f"{self.namespace}/{self.pod}/{self.container}"

    @property
    def pod_key(self) -> "PodName":
        """Namespace and name of its pod, by which mappings have pods."""
        return self.namespace, self.pod


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """The object that a pod belongs to: an entry of its metadata.ownerReferences."""

    api_version: str
    kind: str
    name: str
    uid: str
    is_controller: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """A device in a container's status: an entry of allocatedResourcesStatus (KEP-4680), and one of its resources.

    `resource` is a device plugin's resource, `claim:<claim>` or `claim:<claim>/<request>`. For a claim, `device_id` is
    a CDI name, or driver/pool/device if the device has no CDI name.
    """

    resource: str
    device_id: str
    health: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContainer:
    """A container of a pod's spec. `resources` are the extended resources (with a /) that its limits name."""

    name: str
    is_init: bool = False
    resources: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEnd:
    """The last end of a container: ContainerStateTerminated of its status, in `state` or, once it runs anew, lastState.

    `id` is the runtime's id of the container that ended: each start of a container has another one. `reason` is the
    kubelet's word: Error, Completed, OOMKilled and others. `at_seconds` is finishedAt, in whole seconds since 1970.
    `is_ordered`: by then somebody, or the kubelet, had deleted, evicted or preempted the pod.
    """

    id: str
    exit_code: int
    reason: str
    at_seconds: float
    is_ordered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodInfo:
    """The fields that are read of a Pod of core/v1: metadata, spec and status.

    `annotations` are those that some allocator writes. A text with more than `MOST_ANNOTATION_CHARS` is cut to as many,
    and ends with `CUT`, so that nobody takes it for whole. `containers` are the spec's init containers, then its
    containers, in their order. `container_ids`, `allocated` and `ends` are by container name. `created_at_seconds` is
    metadata.creationTimestamp, in seconds since 1970; the API server sets it, and the author of a pod cannot.
    `is_acknowledged`: the pod's kubelet knows the pod, since the kubelet itself reported it, or the status has fields
    that only a kubelet writes. `is_static`: the pod comes from a file on the node, so that its kubelet needs no API
    server for it.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = field(default_factory=nothing)
    owners: tuple[OwnerReference, ...] = ()
    containers: tuple[PodContainer, ...] = ()
    phase: str = ""
    ip: str = ""
    created_at_seconds: float | None = None
    container_ids: Mapping[str, str] = field(default_factory=nothing)
    allocated: Mapping[str, tuple[AllocatedDevice, ...]] = field(default_factory=nothing)
    ends: Mapping[str, ContainerEnd] = field(default_factory=nothing)
    is_acknowledged: bool = True
    is_static: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOfName:
    """A pod and the time in which it bears its name (namespace and name). A pod that is made anew bears the old name.

    `since` is when the source of pods learnt that the kubelet knows the pod (infinity: not yet). `until` is when the
    pod was gone (infinity: it is there), or since when nobody has heard of it. Both are in seconds of
    `time.monotonic`. `is_first`: no other pod of the name was known when this one came. `is_gone`: the source of pods
    has reported that it is gone. `doubted_since` is since when the kubelet itself has told nothing of the pod
    (infinity: it tells): its labels count as long as the kubelet may only be restarting, and what decides an owner does
    not.
    """

    pod: PodInfo
    since: float
    until: float
    is_first: bool
    is_gone: bool = False
    doubted_since: float = inf


PodName = tuple[str, str]  # namespace and name
PodsByName = Mapping[PodName, PodInfo]
PodsOfNames = Mapping[PodName, tuple[PodOfName, ...]]
