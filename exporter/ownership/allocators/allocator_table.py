"""Allocators: device plugins of a scheduler that chooses the GPU itself and writes its choice on the pod.

Such a plugin gives a container the GPU that its scheduler chose, whatever ids the kubelet picked. So an id is a
*token*: a share of some GPU of the node, mostly not of the GPU that the id names. A token names no device, unless the
node has only one GPU. These facts come from the allocators' own sources:

- HAMi (pkg/device-plugin/nvidiadevice/nvinternal/rm/devices.go): <uuid>-<n>. Whole MIG instances keep their own ids,
  which are true. It ends each device by `:` and each container by `;` (pkg/device/devices.go, EncodePodSingleDevice),
  counts init containers first since 2.9, and before only containers; its ancestor (4pd.io) separates containers by `;`;
- Volcano's vGPU (volcano-vgpu-device-plugin, pkg/plugin/server.go): <uuid>-<n>; volcano.sh/vgpu-memory and -cores
  count (<uuid>-memory-<n>, <uuid>-core-<n>). It separates containers by `;`, and has places only for containers that
  ask for a vGPU (volcano, pkg/scheduler/api/devices/util.go, ExtractResourceRequest);
- gpushare (gpushare-device-plugin, pkg/gpu/nvidia): <uuid>-_-<n>, one for each GiB or MiB.

A new allocator is a row of `ALLOCATORS`. A user's rule comes before all rows, so a user can say that ids name their own
devices.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final

from exporter.errors import Trouble
from exporter.ownership.allocators.said import Said
from exporter.ownership.allocators.separated import Separated

# reads an annotation. Raises Unreadable
Grammar = Callable[[str], Said]


class Scope(Enum):
    """The containers that the places of an annotation stand for."""

    CONTAINERS = "init containers and containers, or containers alone"
    HOLDERS = "the containers that ask for a device; or as CONTAINERS"
    POD = "one place for all containers that ask for a device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """An annotation in which an allocator writes its choice.

    Attributes:
        key: the annotation's name.
        grammar: what reads its text.
        resources: globs for the resources that it is about.
        scope: what its places stand for.
        is_of_one_container: with `Scope.POD`: it names the devices of a pod in which one container has devices.
        marker: the ids of `resources` are tokens only on pods with this annotation. "": `Allocator.tokens` says it.
    """

    key: str
    grammar: Grammar
    resources: tuple[str, ...] = ("*",)
    scope: Scope = Scope.CONTAINERS
    is_of_one_container: bool = False
    marker: str = ""

    def is_about(self, resource: str) -> bool:
        """Whether it says which devices of a resource a container has."""
        return any(fnmatchcase(resource, glob) for glob in self.resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """An allocator, the annotations with its choice in order of preference, and the ids that are its tokens.

    `tokens` are pairs of a glob for resources and a regular expression for ids, with groups as in device_ids.py. `hint`
    says when its ids name their own devices after all; "" if they never do.
    """

    name: str
    annotations: tuple[Annotation, ...] = ()
    tokens: tuple[tuple[str, str], ...] = ()
    hint: str = ""

    def said_in(self, resource: str, annotations: Mapping[str, str]) -> tuple[Annotation, Said] | None:
        """What a pod's annotations say of a resource's devices, and the one that counts; None if there is none.

        Raises Unreadable: that one cannot be read.
        """
        for annotation in self.annotations:
            text = annotations.get(annotation.key)
            if text is not None and annotation.is_about(resource):
                return annotation, annotation.grammar(text)
        return None

    @property
    def trouble(self) -> Trouble:
        """The reason why a token of this allocator has no device, and what to do."""
        keys = " or ".join(annotation.key for annotation in self.annotations if not annotation.marker)
        return Trouble(
            "",
            f"{self.name}'s scheduler chose the GPU and wrote it on the pod{keys and f' (the annotation {keys})'}; the"
            " kubelet's id does not say which",
            f"{self.hint}give the exporter one of: the kubelet's Pods API, a token with the right to read pods"
            " (--pods.source), the kubelet's folder with its checkpoint of devices, or NVML with hostPID (--nvml.mode),"
            " which shows the GPUs that processes use",
        )


_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_GPU = rf"(?:GPU-)?(?P<uuid>{_UUID})"
_MIG = rf"(?P<mig>MIG-{_UUID})"
_VGPU = re.compile(
    r"(?P<uuid>[^,\[\]]*)(?P<place>\[[^,\]]*\])?,[^,]*,(?P<memory_mib>-?[0-9]+),(?P<cores_percent>-?[0-9]+)(?:,.*)?"
)


def _of_resource(resource: str) -> tuple[tuple[str, str], ...]:
    """The `tokens` of a resource: all its ids that begin with a device's UUID."""
    return (resource, rf"{_GPU}(?P<share>.*)"), (resource, rf"{_MIG}(?P<share>.*)")


def _vgpus(allocator: str, *, ends: bool) -> Separated:
    """The grammar that HAMi, its ancestor and Volcano share: <uuid>,<type>,<MiB>,<percent>."""
    return Separated(
        allocator=allocator,
        device=_VGPU,
        shape="<uuid>,<type>,<MiB>,<percent of cores>",
        containers=";",
        ends=ends,
        devices=":",
        is_share=True,
    )


_GPUSHARE = Allocator(
    name="gpushare",
    annotations=(
        Annotation(
            key="ALIYUN_COM_GPU_MEM_IDX",
            grammar=Separated(
                allocator="gpushare",
                device=re.compile(r"(?P<index>[0-9]{1,4})"),
                shape="the number of a GPU",
                is_share=True,
            ),
            scope=Scope.POD,
        ),
    ),
    tokens=(*_of_resource("aliyun.com/gpu-mem"), ("*", rf"{_GPU}(?P<share>-_-[0-9]+)")),
)
_VOLCANO = Allocator(
    name="Volcano",
    annotations=(
        Annotation(
            key="volcano.sh/vgpu-ids-new",
            grammar=_vgpus("Volcano", ends=False),
            resources=("volcano.sh/vgpu-*",),
            scope=Scope.HOLDERS,
        ),
    ),
    tokens=_of_resource("volcano.sh/vgpu-*"),
)
_HAMI = Allocator(
    name="HAMi",
    annotations=(
        Annotation(key="hami.io/vgpu-devices-allocated", grammar=_vgpus("HAMi", ends=True)),
        Annotation(key="4pd.io/vgpu-ids-new", grammar=_vgpus("HAMi", ends=False)),
    ),
    tokens=(("*", rf"{_GPU}(?P<share>-[0-9]+)"), ("*", rf"{_MIG}(?P<share>-[0-9]+)")),
    hint="where HAMi aligns ids with its choice (enablegetpreferredallocation: true), a rule of --device-rules makes"
    " them count (docs/devices.md has it); else ",
)
# the first allocator counts whose resource and id fit
ALLOCATORS: Final[Mapping[str, Allocator]] = {allocator.name: allocator for allocator in (_GPUSHARE, _VOLCANO, _HAMI)}


def annotations_of(allocators: Iterable[Allocator]) -> frozenset[str]:
    """The names of all annotations that these allocators are read by."""
    return frozenset(
        key
        for allocator in allocators
        for annotation in allocator.annotations
        for key in (annotation.key, annotation.marker)
        if key
    )


# the annotations of the table's allocators, and of KAI Scheduler and Run:ai (gpu_groups.py)
ANNOTATIONS: Final = annotations_of(ALLOCATORS.values()) | {
    "scheduler.framework.gpushare.allocation",
    "gpu-fraction",
    "gpu-memory",
    "gpu-fraction-num-devices",
    "gpu-fraction-container-name",
    "run.ai/reserve_for_gpu_index",
}
