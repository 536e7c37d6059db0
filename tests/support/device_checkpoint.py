"""The kubelet's device-manager checkpoint, as tests write it."""

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter._gen import deviceplugin_pb2 as messages


def alloc_resp(
    envs: Mapping[str, str] | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
    cdi: Sequence[str] = (),
    mounts: Sequence[str] = (),
    nodes: Sequence[str] = (),
) -> bytes:
    """A plugin's answer to Allocate, serialised. `mounts` are paths in the container, `nodes` paths on the host."""
    answer = messages.ContainerAllocateResponse(envs=envs or {}, annotations=annotations or {})
    for name in cdi:
        answer.cdi_devices.add(name=name)
    for path in mounts:
        answer.mounts.add(container_path=path, host_path="/dev/null")
    for path in nodes:
        answer.devices.add(container_path=path, host_path=path)
    body: bytes = answer.SerializeToString()
    return body


def entry(uid: str, container: str, resource: str, ids: Iterable[str], answer: bytes, *, is_old: bool = False) -> Any:
    """An entry of PodDeviceEntries; `is_old`: as before Kubernetes 1.20."""
    listed = sorted(ids)
    return {
        "PodUID": uid,
        "ContainerName": container,
        "ResourceName": resource,
        "DeviceIDs": listed if is_old else {"0": listed[:1], "1": listed[1:]},
        "AllocResp": base64.b64encode(answer).decode(),
    }


def checkpoint(*entries: Any, registered: Mapping[str, Sequence[str]] | None = None) -> bytes:
    """A checkpoint's file. Go writes an empty list as null."""
    data = {"PodDeviceEntries": list(entries) or None, "RegisteredDevices": registered or {}}
    return json.dumps({"Data": data, "Checksum": 1, "BootID": "b"}, separators=(",", ":")).encode()


def write(path: Path, *entries: Any) -> None:
    """Replace the file as the kubelet does, by a rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}")
    beside.write_bytes(checkpoint(*entries))
    os.replace(beside, path)  # noqa: PTH105 - atomic
