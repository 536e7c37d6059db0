"""Resources of which a container has as many ids as it has GiB or MiB: their ids are counted, and not kept one by one.

A node with 8 GPUs of 80 GiB that counts MiB offers 655,360 ids of aliyun.com/gpu-mem. The ids of one GPU differ only in
their number behind `-_-` (gpushare-device-plugin, pkg/gpu/nvidia/nvidia.go). So the first id stands for all ids of its
GPU, in a container or on offer, together with their number. The ids of volcano.sh/vgpu-memory and -cores
(<uuid>-memory-<n>, <uuid>-core-<n>) come beside one of volcano.sh/vgpu-number, and only the annotation says what they
are a part of: they are left out.

Tests: tests/sources/kubelet/test_counted_ids.py.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from exporter.model.devices import Assignment
from exporter.model.grants import Grant

# those whose ids name a GPU, as long as the node has no other
COUNTED: Final = frozenset({"aliyun.com/gpu-mem"})
# those whose ids name nothing that another id of the container does not name
LEFT_OUT: Final = frozenset({"volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"})
_MOST_GIB = 2048  # of a GPU


def device_in(device_id: str) -> str:
    """The part of a counted id that names the GPU; the whole id if it has another form.

    An id of another form counts as a GPU of its own, so that no id is lost.
    """
    return device_id.rpartition("-_-")[0] or device_id


def counted(ids: AbstractSet[str]) -> Mapping[str, int]:
    """The number of ids of each GPU, by the least id of the GPU.

    It takes one step for each id, and keeps one id for each GPU: a container may have 80,000. The order of `ids`
    does not matter, so that the same ids give the same answer.
    """
    least: dict[str, str] = {}
    counts: dict[str, int] = {}
    for device_id in ids:
        device = device_in(device_id)
        if device not in counts:
            least[device] = device_id
            counts[device] = 1
            continue
        counts[device] += 1
        if device_id < least[device]:  # noqa: PLR1730 - min() takes twice the time
            least[device] = device_id
    return {least[device]: count for device, count in counts.items()}


def grouped(resource: str, ids: AbstractSet[str]) -> Mapping[str, int]:
    """The ids of a resource, each with the number of ids that it stands for.

    That number is 1, unless the resource counts GiB or MiB. A resource that is left out has no ids here.
    """
    if resource in COUNTED:
        return counted(ids)
    return {} if resource in LEFT_OUT else dict.fromkeys(ids, 1)


def granted(assignment: Assignment, offered: int) -> Grant | None:
    """What an allocator granted by an assignment, with the memory that its ids count; None without a word.

    `offered` is the number of ids of the device, in use or not; 0 if the kubelet does not say it. Nothing says whether
    an id is a GiB or a MiB, but no GPU has as many GiB as every GPU has MiB.
    """
    word = assignment.word
    if word is None:
        return None
    if assignment.resource not in COUNTED or word.grant.memory_mib is not None or not offered:
        return word.grant
    unit_mib = 1024 if offered <= _MOST_GIB else 1
    return replace(word.grant, memory_mib=float(assignment.count * unit_mib))
