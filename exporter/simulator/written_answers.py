"""The checkpoint of a simulated kubelet's device manager: which device ids it gave whom, and what plugins answered.

Its form is that of kubernetes' pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go. The answers are serialised
ContainerAllocateResponses (device plugin API v1beta1, api.proto), of which only the variables are here. The checksum is
made up: it is a hash of Go's own dump of the data.

Tests: tests/simulator/test_allocators.py.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.simulator.parts import Container, Pod, Slot

PATH = "device-plugins/kubelet_internal_checkpoint"  # below the kubelet's folder
_NO_NUMA_NODE = "-1"
_ENTRY = 0x0A  # field 1, which has a length
_VALUE = 0x12  # field 2, likewise
_MORE = 0x80


def write(kubelet: Path, pods: Iterable[Pod], offers: Iterable[Slot]) -> None:
    """Write the checkpoint below the kubelet's folder. It is renamed into place, as a kubelet does."""
    registered: defaultdict[str, list[str]] = defaultdict(list)
    for resource, device_id in offers:
        registered[resource].append(device_id)
    entries = [entry for pod in pods if not pod.has_ended for entry in _entries(pod)]
    data = {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}
    path = kubelet / PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_text(json.dumps({"Data": data, "Checksum": 3_876_540_210}, separators=(",", ":")))
    beside.rename(path)


def _entries(pod: Pod) -> Iterator[dict[str, Any]]:
    for container in (*pod.init_containers, *pod.containers):
        for resource, ids in _by_resource(container.devices).items():
            yield {
                "PodUID": pod.uid,
                "ContainerName": container.name,
                "ResourceName": resource,
                "DeviceIDs": {_NO_NUMA_NODE: ids},
                "AllocResp": base64.b64encode(response(_variables(container, resource, ids))).decode(),
            }


def _by_resource(devices: Sequence[Slot]) -> Mapping[str, list[str]]:
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for resource, device_id in devices:
        ids[resource].append(device_id)
    return ids


def _variables(container: Container, resource: str, ids: Sequence[str]) -> Mapping[str, str]:
    """The variables of a plugin's answer. NVIDIA's plugin names the devices, as those of its ids are true."""
    if not container.environment:
        return {"NVIDIA_VISIBLE_DEVICES": ",".join(device.partition("::")[0] for device in ids)}
    first = container.devices[0][0]
    # a plugin that only counts memory or cores answers with nothing
    return dict(container.environment) if resource == first else {}


def response(variables: Mapping[str, str]) -> bytes:
    """A serialised ContainerAllocateResponse with these variables (map<string, string> envs = 1)."""
    entries = (_field(_ENTRY, name.encode()) + _field(_VALUE, value.encode()) for name, value in variables.items())
    return b"".join(_field(_ENTRY, entry) for entry in entries)


def _field(tag: int, content: bytes) -> bytes:
    """A field of protobuf's wire format that has a length."""
    length = len(content)
    written = bytearray((tag,))
    while length >= _MORE:
        written.append(length % _MORE | _MORE)
        length //= _MORE
    written.append(length)
    return bytes(written) + content
