"""What is kept of objects and files: the exporter reads the same of it as of the whole, and nothing else is in it."""

import base64
import json
from typing import Any

import pytest

from exporter.bundle.collecting.needed_parts import checkpoint_parts, pod_parts, single_parts, slice_parts
from exporter.lenient import mapping
from exporter.ownership.admin_access import read_checkpoint, read_status
from exporter.ownership.inventories import read_spec
from exporter.ownership.workloads import read_owners
from exporter.sources.cdi import specs
from exporter.sources.kubelet import device_checkpoint
from exporter.sources.kubernetes.node_objects import read_pod, read_slice
from tests.support.device_checkpoint import alloc_resp, checkpoint, entry

SECRET = "hunter2"
WANTED = frozenset({"hami.io/vgpu-devices-allocated"})
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "train-0",
        "namespace": "ml",
        "uid": "u-1",
        "creationTimestamp": "2026-11-01T00:00:00Z",
        "generateName": SECRET,
        "labels": {"app": "train", "secret": SECRET},
        "annotations": {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,1000,10:;", "deploy.key": SECRET},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train", "uid": "u-2", "controller": True}
        ],
        "managedFields": [{"manager": SECRET}],
    },
    "spec": {
        "nodeName": "gpu-1",
        "initContainers": [{"name": "fetch", "image": SECRET}],
        "containers": [
            {
                "name": "main",
                "image": SECRET,
                "args": [SECRET],
                "env": [{"name": "TOKEN", "value": SECRET}],
                "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "9Gi"}, "requests": {"cpu": "1"}},
            }
        ],
        "volumes": [{"name": SECRET}],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "hostIP": "192.168.0.1",
        "startTime": "2026-11-01T00:00:02Z",
        "conditions": [{"message": SECRET}],
        "containerStatuses": [
            {
                "name": "main",
                "image": SECRET,
                "containerID": "containerd://c1",
                "state": {"running": {}},
                "lastState": {
                    "terminated": {
                        "message": SECRET,
                        "exitCode": 1,
                        "reason": "Error",
                        "finishedAt": "2026-11-01T00:01:00Z",
                        "containerID": "containerd://c0",
                    }
                },
                "allocatedResourcesStatus": [
                    {"name": "nvidia.com/gpu", "resources": [{"resourceID": "GPU-1", "health": "Unhealthy"}]}
                ],
            }
        ],
    },
}


def test_of_a_pod_the_same_is_read() -> None:
    parts = pod_parts(POD, {"app"}.__contains__, WANTED.__contains__)
    whole, kept = read_pod(POD, WANTED), read_pod(parts, WANTED)
    assert whole.labels == {"app": "train", "secret": SECRET}
    assert kept.labels == {"app": "train"}
    assert {**{name: getattr(whole, name) for name in whole.__slots__}, "labels": kept.labels} == {
        name: getattr(kept, name) for name in kept.__slots__
    }
    assert SECRET not in json.dumps(parts)


@pytest.mark.parametrize("is_old", [False, True])
def test_of_a_slice_the_same_is_read(is_old: bool) -> None:
    taint = {"effect": "NoExecute", "key": "gpu.nvidia.com/xid", "value": "79", "timeAdded": "2026-11-01T00:00:00Z"}
    inside = {
        "attributes": {"uuid": {"string": "GPU-1"}, "type": {"string": "gpu"}},
        "capacity": {"memory": {"value": SECRET}},
        "taints": [taint],
    }
    item = {
        "metadata": {"name": "slice-1", "annotations": {"x": SECRET}},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": SECRET,
            "pool": {"name": "gpu-1", "generation": 3, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "basic": inside} if is_old else {"name": "gpu-0", **inside}],
        },
    }
    parts = slice_parts(item)
    assert read_slice(parts) == read_slice(item)
    assert SECRET not in json.dumps(parts)


def test_of_single_objects_the_same_is_read() -> None:
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "gpu-1", "device": "gpu-0", "adminAccess": True}
    claim = {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "uid": "u-3", "annotations": {"x": SECRET}},
        "spec": {"devices": {"config": [{"opaque": {"parameters": SECRET}}]}},
        "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"name": SECRET}]},
    }
    parts = single_parts(claim)
    assert read_status(mapping(parts, "status")) == read_status(mapping(claim, "status"))
    assert mapping(parts, "metadata") == {"name": "c", "uid": "u-3"}
    owner = {"kind": "ReplicaSet", "metadata": POD["metadata"], "spec": {"template": SECRET}}
    parts_of_owner = single_parts(owner)
    owners = [read_owners(mapping(item, "metadata")["ownerReferences"]) for item in (parts_of_owner, owner)]
    assert owners[0] == owners[1]
    kinds = single_parts({"kind": "APIResourceList", "resources": [{"name": "pods", "kind": "Pod", "verbs": [SECRET]}]})
    assert kinds == {"resources": [{"name": "pods", "kind": "Pod"}]}
    assert SECRET not in json.dumps([parts, parts_of_owner, kinds])
    file = json.dumps({"checksum": 1, "v2": {"preparedClaims": {"u-3": claim}}}).encode()
    assert read_checkpoint(json.loads(checkpoint_parts(file))) == read_checkpoint(json.loads(file))
    assert SECRET.encode() not in checkpoint_parts(file)


SPEC = f"""
cdiVersion: 0.6.0
kind: nvidia.com/gpu
containerEdits:
  env: [TOKEN={SECRET}]
devices:
- name: GPU-8d116ece-1738-47d9-bd9c-172411e20b8f
  containerEdits:
    env: [TOKEN={SECRET}]
    deviceNodes: [{{path: /dev/nvidia3, hostPath: /dev/nvidia3}}, {{path: /dev/nvidia-caps/nvidia-cap7}}]
    mounts: [{{hostPath: /{SECRET}, containerPath: /x}}]
    hooks: [{{path: /{SECRET}}}]
"""


def test_of_a_cdi_spec_the_same_is_read() -> None:
    parts = specs.needed_parts(SPEC.encode())
    assert read_spec(json.loads(parts)) == read_spec(specs._parse(SPEC))
    assert read_spec(json.loads(parts))
    assert SECRET.encode() not in parts


def test_of_the_kubelets_checkpoint_the_same_is_read() -> None:
    answers = [
        alloc_resp({"NVIDIA_VISIBLE_DEVICES": "GPU-1", "CUDA_DEVICE_MEMORY_LIMIT_0": "10m", "TOKEN": SECRET}),
        alloc_resp(annotations={"cdi.k8s.io/x": "nvidia.com/gpu=GPU-2", "deploy.key": SECRET}),
        alloc_resp(cdi=["k8s.device-plugin.nvidia.com/gpu=GPU-3"]),
        alloc_resp(mounts=["/var/run/nvidia-container-devices/GPU-4", f"/{SECRET}"]),
        alloc_resp(nodes=["/dev/nvidia5", "/dev/nvidiactl"]),
        b"\xff",
    ]
    entries = [entry(f"uid-{n}", "main", "nvidia.com/gpu", [f"id-{n}"], answer) for n, answer in enumerate(answers)]
    file = checkpoint(*entries, registered={"nvidia.com/gpu": [SECRET]})
    parts = device_checkpoint.needed_parts(file)
    assert device_checkpoint.parse(parts) == device_checkpoint.parse(file)
    assert len(device_checkpoint.parse(parts)) == len(answers) - 1
    assert SECRET.encode() not in parts
    kept = [raw["AllocResp"] for raw in json.loads(parts)["Data"]["PodDeviceEntries"]]
    assert SECRET.encode() not in b"".join(base64.b64decode(f"{text}===") for text in kept)


@pytest.mark.parametrize(
    "content", [SECRET.encode(), b"{" + SECRET.encode(), b"\xff" + SECRET.encode(), b"[" * 100_000]
)
def test_nothing_is_kept_of_what_cannot_be_read(content: bytes) -> None:
    for reduce in (specs.needed_parts, device_checkpoint.needed_parts, checkpoint_parts):
        assert SECRET.encode() not in reduce(content)
        assert len(reduce(content)) < 100
