"""The parts of Kubernetes' objects that the exporter reads. A bundle has nothing else of them.

What an object has beside these stays on the node: commands, environment, volumes, images, conditions, managed fields
and whatever annotations other programs write. What reads the parts are sources/kubernetes/node_objects.py,
sources/kubelet/kubelet_pods.py, resource_claims.py and workloads.py; what they come to read is to be kept here, too.

Pods come as JSON of core/v1, or as protobuf's JSON of the kubelet's Pods API, which names most fields alike: only
times such as metadata.creationTimestamp are {"seconds": "1700000000"} there, and a quantity {"string": "1"}.

Pure.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from exporter.lenient import AnyObject, mapping, mappings, text

IsWanted = Callable[[str], bool]
_MOST_ITEMS = 10_000
_METADATA = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_TERMINATED = ("exitCode", "reason", "finishedAt", "containerID")
_OWNER = ("apiVersion", "kind", "name", "uid", "controller")
# by which the Pods API tells pods of files from those of the API server
_CONFIG_SOURCE = "kubernetes.io/config.source"


def pod_parts(pod: AnyObject, is_label: IsWanted, is_annotation: IsWanted) -> AnyObject:
    """The parts of a pod: names, owners, times, the wanted labels and annotations, containers, their devices and ends.

    Args:
        pod: a Pod of core/v1, in either form.
        is_label: whether a label is kept, by its name.
        is_annotation: whether an annotation is kept, by its name.
    """
    spec = mapping(pod, "spec")
    status = mapping(pod, "status")
    of_metadata = mapping(pod, "metadata")
    metadata = {
        **_metadata_parts(pod),
        "labels": _among(of_metadata.get("labels"), is_label),
        "annotations": _among(of_metadata.get("annotations"), lambda key: key == _CONFIG_SOURCE or is_annotation(key)),
    }
    return {
        "metadata": _filled(metadata),
        "spec": _filled({name: _containers(spec, name) for name in ("initContainers", "containers")}),
        "status": _filled(
            {
                **_fields(status, ("phase", "reason", "podIP", "startTime")),
                **{name: _statuses(status, name) for name in ("initContainerStatuses", "containerStatuses")},
            }
        ),
    }


def slice_parts(item: AnyObject) -> AnyObject:
    """The parts of a ResourceSlice: its driver, its pool, and the devices' attributes and taints."""
    spec = mapping(item, "spec")
    parts = {**_fields(spec, ("driver", "pool")), "devices": list(map(_device, mappings(spec, "devices", _MOST_ITEMS)))}
    return {"metadata": _metadata_parts(item), "spec": parts}


def single_parts(item: AnyObject) -> AnyObject:
    """The parts of an object that was asked for by its name: a claim, a controller, or the kinds of an API group."""
    if "resources" in item:
        kinds = mappings(item, "resources", _MOST_ITEMS)
        return {"resources": [_fields(kind, ("name", "kind")) for kind in kinds]}
    results = mappings(mapping(item, "status", "allocation", "devices"), "results", _MOST_ITEMS)
    devices = [_fields(result, ("request", "driver", "pool", "device", "adminAccess")) for result in results]
    parts = {**_fields(item, ("apiVersion", "kind")), "metadata": _metadata_parts(item)}
    return {**parts, "status": {"allocation": {"devices": {"results": devices}}}} if devices else parts


def checkpoint_parts(content: bytes) -> bytes:
    """The claims of a DRA driver's checkpoint with their devices. Content that is no JSON becomes the word `broken`."""
    try:
        checkpoint = json.loads(content)
    except (ValueError, RecursionError):
        return b"broken"
    parts = {}
    for version in ("v1", "v2"):
        claims = mapping(checkpoint, version, "preparedClaims")
        if claims:
            parts[version] = {"preparedClaims": {uid: single_parts(mapping(claim)) for uid, claim in claims.items()}}
    return json.dumps(parts).encode()


def _metadata_parts(item: AnyObject) -> AnyObject:
    metadata = mapping(item, "metadata")
    owners = [_fields(owner, _OWNER) for owner in mappings(metadata, "ownerReferences", _MOST_ITEMS)]
    return _filled({**_fields(metadata, _METADATA), "ownerReferences": owners})


def _containers(spec: AnyObject, name: str) -> Sequence[AnyObject]:
    """The names of containers, each with the extended resources of its limits."""
    containers = []
    for container in mappings(spec, name, _MOST_ITEMS):
        limits = _among(mapping(container, "resources").get("limits"), lambda resource: "/" in resource)
        parts = _fields(container, ("name",))
        containers.append({**parts, "resources": {"limits": limits}} if limits else parts)
    return containers


def _statuses(status: AnyObject, name: str) -> Sequence[AnyObject]:
    """The names and ids of containers, each with its devices, their health, and its last end."""
    statuses = []
    for container in mappings(status, name, _MOST_ITEMS):
        resources = [
            {
                **_fields(resource, ("name",)),
                "resources": [
                    _fields(device, ("resourceID", "health", "message"))
                    for device in mappings(resource, "resources", _MOST_ITEMS)
                ],
            }
            for resource in mappings(container, "allocatedResourcesStatus", _MOST_ITEMS)
        ]
        parts = {**_fields(container, ("name", "containerID")), **_ends(container)}
        statuses.append({**parts, "allocatedResourcesStatus": resources} if resources else parts)
    return statuses


def _ends(container: AnyObject) -> AnyObject:
    """How the container ended, in its state and in its last state; the state is left out while it runs."""
    ends = {}
    for name in ("state", "lastState"):
        terminated = _fields(mapping(container, name, "terminated"), _TERMINATED)
        if terminated:
            ends[name] = {"terminated": terminated}
    return ends


def _device(device: AnyObject) -> AnyObject:
    """A device of a slice. v1 has its parts in the device itself, v1beta1 in the device's field `basic`."""
    names = ("attributes", "taints")
    parts: dict[str, Any] = {**_fields(device, ("name",)), **_fields(device, names)}
    if "basic" in device:
        parts["basic"] = _fields(mapping(device, "basic"), names)
    return parts


def _fields(item: AnyObject, names: Sequence[str]) -> dict[str, Any]:
    return {name: item[name] for name in names if name in item}


def _among(texts: object, is_wanted: IsWanted) -> Mapping[str, Any]:
    return {key: value for key, value in mapping(texts).items() if is_wanted(str(key))}


def _filled(parts: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in parts.items() if value not in ("", [], {})}


def name_of(item: AnyObject) -> str:
    """What tells an object of a collection from the others: its uid or, without one, its name."""
    metadata = mapping(item, "metadata")
    return text(metadata, "uid") or text(metadata, "name")
