"""Answers of the kubelet's List, v1 or v1alpha1, as assignments."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter._gen import podresources_v1_pb2 as v1
from exporter._gen import podresources_v1alpha1_pb2 as v1alpha1
from exporter.errors import Malformed
from exporter.model.devices import GPU_MANAGER_RESOURCES, Assignment, Claim, PodResources
from exporter.model.pods import Owner
from exporter.ownership.counted_ids import COUNTED, LEFT_OUT, counted, grouped
from exporter.ownership.owners import is_meant
from exporter.sources.kubelet.socket import POD_RESOURCES, parsed

# 16 GPUs with 48 shares each have 768
MOST_ASSIGNMENTS = 50_000
# outputs only explain these; some plugins hand out every MiB of a device by an id of its own
MOST_OUTSIDE = 1_000
_NAME_GPUS = "which resource has that many ids? Name with --resources those whose devices are GPUs"
_NOT_A_NODE = "no node runs that many: what answers on this socket (--kubelet.socket)?"

ListResponse = v1.ListPodResourcesResponse | v1alpha1.ListPodResourcesResponse
_Pod = v1.PodResources | v1alpha1.PodResources
_Container = v1.ContainerResources | v1alpha1.ContainerResources
RESPONSE_TYPES: dict[str, type[ListResponse]] = {
    "v1": v1.ListPodResourcesResponse,
    "v1alpha1": v1alpha1.ListPodResourcesResponse,
}


_COUNTING = GPU_MANAGER_RESOURCES | COUNTED | LEFT_OUT
# the counted ids of a container, by resource
_Counted = Mapping[str, Mapping[str, int]]
# a container's ids may take megabytes, an answer's tens of them
_COMPARED_WHOLE_BYTES = 1 << 18
Fingerprint = bytes | tuple[int, int]


def fingerprint(body: bytes) -> Fingerprint:
    """What is kept of bytes to know them again: they themselves or, of many, their number and hash."""
    return body if len(body) <= _COMPARED_WHOLE_BYTES else (len(body), hash(body))


class _Holding(NamedTuple):
    """A pod with something to read.

    Attributes:
        pod: the pod.
        containers: its containers that hold devices or claims.
        counted: the counted ids of each of these containers.
        wanted: the number of their devices that `--resources` means. All counted ids of a device are one.
    """

    pod: _Pod
    containers: Sequence[_Container]
    counted: Sequence[_Counted]
    wanted: int


class _PodAsRead(NamedTuple):
    """The memory of a pod: the numbers of its containers and devices, and the assignments made of them.

    `is_outside`: some of its devices are of resources that `--resources` leaves out.
    """

    containers: int
    wanted: int
    assignments: frozenset[Assignment]
    is_outside: bool


class ListReader:
    """A reader of answer after answer (serialised ListPodResourcesResponses), for one choice of `resources`.

    Every answer has its pods in another order, and most pods unchanged. Unchanged pods are not read again, and keep the
    same assignments, as objects. Without `claims` no assignment is a claim's.
    """

    def __init__(self, resources: Sequence[str] = ("*",), *, claims: bool = False) -> None:
        self._meant = _Meant(resources, claims=claims)
        self._pods: Mapping[tuple[str, Fingerprint], _PodAsRead] = {}  # by version and serialised pod

    def read(self, body: bytes, version: str = "v1") -> PodResources:
        """The assignments of an answer.

        A container has several `devices` entries of the same resource, one for each NUMA node or each device; they add
        up. Ids are counted before anything is made of them, since an answer may have millions.

        Raises Malformed: the bytes are no such message, or name too many devices.
        """
        wrong = f"the kubelet's answer is no {version} ListPodResourcesResponse"
        response = parsed(RESPONSE_TYPES[version](), body, wrong, POD_RESOURCES)
        # A pod without a name holds nothing. Kubernetes has no such pod, and on every page its labels would be the same
        # as nobody's: of two series with the same labels Prometheus keeps only the first (measured on 2.42).
        pods = {(version, fingerprint(pod.SerializeToString())): pod for pod in response.pod_resources if pod.name}
        before = self._pods
        new = {key: _holding(pod, self._meant) for key, pod in pods.items() if key not in before}
        as_before = [before[key] for key in pods.keys() - new.keys()]
        _refuse_too_many(
            sum(len(holding.containers) for holding in new.values()) + sum(pod.containers for pod in as_before),
            sum(holding.wanted for holding in new.values()) + sum(pod.wanted for pod in as_before),
        )
        self._pods = {key: before.get(key) or _read(new[key], self._meant) for key in pods}
        with_outside = [pods[key] for key, as_read in self._pods.items() if as_read.is_outside]
        return PodResources(
            assignments=frozenset().union(*(as_read.assignments for as_read in self._pods.values())),
            listed=frozenset([(pod.namespace, pod.name) for pod in response.pod_resources]),
            outside=_outside(with_outside, self._meant),
        )


def parse(body: bytes, version: str = "v1", *, resources: Sequence[str] = ("*",), claims: bool = False) -> PodResources:
    """A single answer, read by a `ListReader`."""
    return ListReader(resources, claims=claims).read(body, version)


def _refuse_too_many(containers: int, devices: int) -> None:
    """Raises Malformed: no node has so many containers with devices, or so many devices that they hold."""
    if containers > MOST_ASSIGNMENTS:
        message = f"more than {MOST_ASSIGNMENTS} containers hold devices"
        raise Malformed("oversize", message, remedy=_NOT_A_NODE)
    if devices > MOST_ASSIGNMENTS:
        message = f"the kubelet names {devices} devices, and at most {MOST_ASSIGNMENTS} are read"
        raise Malformed("oversize", message, remedy=_NAME_GPUS)


def _holding(pod: _Pod, meant: "_Meant") -> _Holding:
    containers = [container for container in pod.containers if container.devices or _dynamic(container)]
    counted = [_counted(container, meant) for container in containers]
    wanted = sum(len(ids) for of_container in counted for ids in of_container.values())
    for container in containers:
        for of_plugin in container.devices:
            resource = of_plugin.resource_name
            if resource not in COUNTED | LEFT_OUT and meant[resource, False]:
                wanted += len(of_plugin.device_ids)
        for driver in _drivers(container):
            if driver and meant[driver, True]:
                wanted += 1
    return _Holding(pod, containers, counted, wanted)


def _counted(container: _Container, meant: "_Meant") -> _Counted:
    """The ids of a container that count GiB or MiB, by resource.

    A resource may have several entries, and a GPU ids in several of them. So they are counted together.
    """
    ids: dict[str, set[str]] = {}
    for of_plugin in container.devices:
        if of_plugin.resource_name in COUNTED and meant[of_plugin.resource_name, False]:
            ids.setdefault(of_plugin.resource_name, set()).update(of_plugin.device_ids)
    return {resource: counted(of_resource) for resource, of_resource in ids.items()}


def _read(holding: _Holding, meant: "_Meant") -> _PodAsRead:
    """The assignments of a pod, and what tells whether it is to be read again."""
    assignments: set[Assignment] = set()
    for container, counted_ids in zip(holding.containers, holding.counted, strict=True):
        owner = Owner(namespace=holding.pod.namespace, pod=holding.pod.name, container=container.name)
        assignments.update(_of_plugins(owner, container, meant))
        for resource, ids in counted_ids.items():
            for device_id, count in ids.items():
                assignments.add(Assignment(owner=owner, resource=resource, device_id=device_id, count=count))
        assignments.update(_units(owner, container, meant))
        for claim in _claims(container):
            if meant[claim.driver, True]:
                assignments.add(Assignment(owner=owner, resource=claim.driver, device_id=claim.device_id, claim=claim))
    is_outside = any(
        _has_other_devices(container, meant) or _has_other_claims(container, meant) for container in holding.containers
    )
    return _PodAsRead(len(holding.containers), holding.wanted, frozenset(assignments), is_outside)


def _of_plugins(owner: Owner, container: _Container, meant: "_Meant") -> Iterator[Assignment]:
    """The assignments of a container from device plugins: one for each device id, but for counted ids and units."""
    for of_plugin in container.devices:
        resource = of_plugin.resource_name
        if meant[resource, False] and resource not in _COUNTING:
            for device_id in of_plugin.device_ids:
                yield Assignment(owner=owner, resource=resource, device_id=device_id)


def _has_other_devices(container: _Container, meant: "_Meant") -> bool:
    """Whether the container holds devices of resources that `--resources` leaves out."""
    names = {of_plugin.resource_name for of_plugin in container.devices}
    return not all(meant[name, False] for name in names - LEFT_OUT)


def _has_other_claims(container: _Container, meant: "_Meant") -> bool:
    """Whether the container has claims of drivers that `--resources` leaves out, or claims without a known driver."""
    return not all(driver and meant[driver, True] for driver in _drivers(container))


def _units(owner: Owner, container: _Container, meant: "_Meant") -> Iterator[Assignment]:
    """The assignments of a container in units of GPUs: one for each resource, whatever the number of its ids."""
    ids: dict[str, set[str]] = {}
    for device in container.devices:
        if device.resource_name in GPU_MANAGER_RESOURCES and meant[device.resource_name, False]:
            ids.setdefault(device.resource_name, set()).update(device.device_ids)
    for resource, of_resource in ids.items():
        if of_resource:
            yield Assignment(owner=owner, resource=resource, device_id=min(of_resource), units=len(of_resource))


class _Meant(dict[tuple[str, bool], bool]):
    """A memo: whether `--resources` means a resource, by its name and by whether it is a claim's driver."""

    def __init__(self, globs: Sequence[str], *, claims: bool) -> None:
        super().__init__()
        self._globs = globs
        self._claims = claims

    def __missing__(self, key: tuple[str, bool]) -> bool:
        resource, of_claim = key
        is_wanted = self._claims or not of_claim
        meant = is_wanted and is_meant(resource, self._globs, of_claim=of_claim)
        self[key] = meant
        return meant


def _outside(pods: Sequence[_Pod], meant: _Meant) -> tuple[Assignment, ...]:
    """The assignments of other resources: the first MOST_OUTSIDE, whatever the order of the answer."""
    outside: set[Assignment] = set()
    for namespace, pod, container, resource, device_id in heapq.nsmallest(MOST_OUTSIDE, _other_devices(pods, meant)):
        owner = Owner(namespace=namespace, pod=pod, container=container)
        outside.add(Assignment(owner=owner, resource=resource, device_id=device_id))
    for namespace, pod, container, claim in heapq.nsmallest(MOST_OUTSIDE, _other_claims(pods, meant)):
        owner = Owner(namespace=namespace, pod=pod, container=container)
        device_id = claim.device_id if claim.driver else ""
        outside.add(Assignment(owner=owner, resource=claim.driver, device_id=device_id, claim=claim))
    return tuple(sorted(outside, key=lambda assignment: assignment.order)[:MOST_OUTSIDE])


def _other_devices(pods: Iterable[_Pod], meant: _Meant) -> Iterator[tuple[str, str, str, str, str]]:
    """Namespace, pod, container, resource and id."""
    for pod in pods:
        for container in pod.containers:
            for of_plugin in container.devices:
                resource = of_plugin.resource_name
                if not meant[resource, False]:
                    for device_id in grouped(resource, set(of_plugin.device_ids)):
                        yield pod.namespace, pod.name, container.name, resource, device_id


def _other_claims(pods: Iterable[_Pod], meant: _Meant) -> Iterator[tuple[str, str, str, Claim]]:
    """Namespace, pod and container, with the claim."""
    for pod in pods:
        for container in pod.containers:
            if not _has_other_claims(container, meant):
                continue
            for claim in (*_claims(container), *_not_prepared(container)):
                if not (claim.driver and meant[claim.driver, True]):
                    yield pod.namespace, pod.name, container.name, claim


def _drivers(container: _Container) -> Iterator[str]:
    """The driver of each device of a container's claims; "" for a claim without one."""
    for dynamic in _dynamic(container):
        yield from [device.driver_name for device in dynamic.claim_resources] or ("",)


def _claims(container: _Container) -> Iterator[Claim]:
    for dynamic in _dynamic(container):
        for (driver, pool, device, share), cdi_names in _devices_of(dynamic).items():
            yield Claim(
                namespace=dynamic.claim_namespace,
                name=dynamic.claim_name,
                driver=driver,
                pool=pool,
                device=device,
                cdi_names=cdi_names,
                share=share,
            )


def _not_prepared(container: _Container) -> Iterator[Claim]:
    """Claims without a device and a driver in the kubelet's answer: no driver has prepared them here, or not yet."""
    for dynamic in _dynamic(container):
        if not dynamic.claim_resources:
            yield Claim(namespace=dynamic.claim_namespace, name=dynamic.claim_name, driver="", pool="", device="")


_Device = tuple[str, str, str, str]  # driver, pool, name and share


def _devices_of(dynamic: v1.DynamicResource) -> Mapping[_Device, tuple[str, ...]]:
    """The devices of a claim, each with its own CDI names.

    Each time that the kubelet has the claim prepared, it appends the names that the driver gives: for each of several
    pods that start on the claim together, and for the next pod after a restart. List has an entry for each of these
    times. An entry also has the CDI names of all entries before it (both measured on 1.36.2). So if an entry's list
    begins with another entry's list, only the names after that are its own. A device has the own names of all its
    entries.
    """
    entries: list[tuple[_Device, tuple[str, ...]]] = []
    for of_claim in dynamic.claim_resources:
        device = (of_claim.driver_name, of_claim.pool_name, of_claim.device_name, of_claim.share_id)
        entries.append((device, tuple(cdi.name for cdi in of_claim.cdi_devices)))
    lists = {names for _, names in entries}
    lengths = sorted({len(names) for names in lists}, reverse=True)
    own: dict[_Device, dict[str, None]] = {}
    for device, names in sorted(entries, key=lambda entry: len(entry[1])):
        lengths_before = (length for length in lengths if length < len(names) and names[:length] in lists)
        first_own = next(lengths_before, 0)
        own.setdefault(device, {}).update(dict.fromkeys(names[first_own:]))
    return {device: tuple(names) for device, names in own.items()}


def _dynamic(container: _Container) -> Sequence[v1.DynamicResource]:
    """ContainerResources.dynamic_resources; v1alpha1 has none."""
    return container.dynamic_resources if isinstance(container, v1.ContainerResources) else ()
