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
- gpushare (gpushare-device-plugin, pkg/gpu/nvidia): <uuid>-_-<n>, one for each GiB or MiB. The annotation has the
  number that the container gets as NVIDIA_VISIBLE_DEVICES;
- Ascend's device plugin with Volcano (ascend-device-plugin, pkg/common/device.go): Ascend910-<chip>, and
  Ascend910-2c-<vNPU>-<chip> for a vNPU. It writes for a pod, not for a container, what it gave (huawei.com/AscendReal)
  and what the kubelet picked (huawei.com/kltDev). Without Volcano it writes neither, and ids are true;
- Intel's GPU plugin with its resource manager, removed in 2025: cards of containers (not of init containers), by GPU
  Aware Scheduling (platform-aware-scheduling, gpuscheduler/scheduler.go);
- Koordinator: no device plugin; the devices of a pod by their minor numbers.

A new allocator is a row of `ALLOCATORS`. A user's rule comes before all rows, so a user can say that ids name their own
devices.

Tests: tests/ownership/test_words.py, tests/ownership/allocators/test_other_allocators.py.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from typing import Final

from exporter.errors import Trouble
from exporter.ownership.allocators.gpu_groups import GROUP_ANNOTATIONS
from exporter.ownership.allocators.json_words import (
    read_gpushare,
    read_koordinator,
    with_gpushare_cores,
    with_mig_instances,
)
from exporter.ownership.allocators.said import Said
from exporter.ownership.allocators.separated import Separated

# reads an annotation. Raises Unreadable
Grammar = Callable[[str], Said]
# adds what a further annotation says. Raises Unreadable
Addition = Callable[[Said, str], Said]


@lru_cache(maxsize=4096)
def _matches(resource: str, globs: tuple[str, ...]) -> bool:
    """Whether one of the globs matches. There are dozens of annotations, and a node may have 768 tokens."""
    return any(fnmatchcase(resource, glob) for glob in globs)


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
        markers: the ids of `resources` are tokens on pods with one of these annotations. (): `Allocator.tokens` says
            which ids are.
        is_usual: as long as a pod is not known, it is taken for one with a marker.
        counts_units: the ids of `resources` count units of devices, so that a device has many.
        also: further annotations that add to what this one says, each with the function that adds it.
    """

    key: str
    grammar: Grammar
    resources: tuple[str, ...] = ("*",)
    scope: Scope = Scope.CONTAINERS
    is_of_one_container: bool = False
    markers: tuple[str, ...] = ()
    is_usual: bool = False
    counts_units: bool = False
    also: tuple[tuple[str, Addition], ...] = ()

    def read(self, annotations: Mapping[str, str]) -> Said:
        """What it says on a pod that has it. Raises Unreadable: it cannot be read."""
        written = self.grammar(annotations[self.key])
        for key, add in self.also:
            if key in annotations:
                written = add(written, annotations[key])
        return written

    def is_marked(self, annotations: Iterable[str]) -> bool:
        """Whether ids are tokens on a pod with these annotations."""
        return not frozenset(self.markers).isdisjoint(annotations)

    def is_about(self, resource: str) -> bool:
        """Whether it says which devices of a resource a container has."""
        return _matches(resource, self.resources)


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

    @property
    def gives_without_kubelet(self) -> bool:
        """Whether it gives devices of which the kubelet hands out no id, so that the annotation alone tells of them."""
        return bool(self.annotations) and not self.tokens and not any(written.markers for written in self.annotations)

    def annotation_on(self, resource: str, annotations: Mapping[str, str]) -> Annotation | None:
        """The annotation that counts for a resource's devices, among those of a pod; None if there is none."""
        about = (annotation for annotation in self.annotations if annotation.is_about(resource))
        return next((annotation for annotation in about if annotation.key in annotations), None)

    def gives_tokens(self, resource: str, annotations: Mapping[str, str]) -> bool:
        """Whether the resource's ids are tokens on a pod with these annotations, or else name their own devices."""
        about = [annotation for annotation in self.annotations if annotation.is_about(resource)]
        return not about or any(not annotation.markers or annotation.is_marked(annotations) for annotation in about)

    def said_in(self, resource: str, annotations: Mapping[str, str]) -> tuple[Annotation, Said] | None:
        """What a pod's annotations say of a resource's devices, and the one that counts; None if there is none.

        Raises Unreadable: that one cannot be read.
        """
        annotation = self.annotation_on(resource, annotations)
        return None if annotation is None else (annotation, annotation.read(annotations))

    def counts_units(self, resource: str) -> bool:
        """Whether a resource's ids count units of devices, so that a device has many of them."""
        about = (annotation for annotation in self.annotations if annotation.is_about(resource))
        return any(annotation.counts_units for annotation in islice(about, 1))

    @property
    def not_written(self) -> Trouble:
        """The reason why a token has no device while its pod lacks the annotation."""
        return Trouble(
            "",
            f"{self.name}'s scheduler chose the GPU, and has not written on the pod yet which one ({self._keys})",
            "wait some seconds; if it stays so, does the source pods answer? If it does, look at the scheduler and the"
            f" device plugin of {self.name}",
        )

    @property
    def trouble(self) -> Trouble:
        """The reason why a token of this allocator has no device, and what to do."""
        keys = self._keys
        return Trouble(
            "",
            f"{self.name}'s scheduler chose the GPU and wrote it on the pod{keys and f' (the annotation {keys})'}; the"
            " kubelet's id does not say which",
            f"{self.hint}give the exporter one of: the kubelet's Pods API, a token with the right to read pods"
            " (--pods.source), the kubelet's folder with its checkpoint of devices, or NVML with hostPID (--nvml.mode),"
            " which shows the GPUs that processes use",
        )

    @property
    def _keys(self) -> str:
        """The annotations for people, without those for devices of other vendors."""
        without_marker = [annotation.key for annotation in self.annotations if not annotation.markers]
        of_all = [annotation.key for annotation in self.annotations]
        return " or ".join(dict.fromkeys(without_marker or of_all))


_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_GPU = rf"(?:GPU-)?(?P<uuid>{_UUID})"
_MIG = rf"(?P<mig>MIG-{_UUID})"
_VGPU = re.compile(
    r"(?P<uuid>(?!GPU-,|MIG-,)[^,\[\]]*)(?P<place>\[[^,\]]*\])?,"
    r"[^,]*,(?P<memory_mib>-?[0-9]+),(?P<cores_percent>-?[0-9]+)(?:,.*)?"
)


def _of_resource(resource: str) -> tuple[tuple[str, str], ...]:
    """The `tokens` of a resource: all its ids that begin with a device's UUID."""
    return (resource, rf"{_GPU}(?P<share>.*)"), (resource, rf"{_MIG}(?P<share>.*)")


def _vgpus(allocator: str, *, ends: bool | None) -> Separated:
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


def _of_hami(key: str, *resources: str) -> Annotation:
    """HAMi's annotation for devices of another vendor, whose plugin follows it."""
    return Annotation(key=key, grammar=_vgpus("HAMi", ends=True), resources=resources, markers=(key,))


_GPUSHARE = Allocator(
    name="gpushare",
    annotations=(
        Annotation(
            key="scheduler.framework.gpushare.allocation",
            grammar=read_gpushare,
            counts_units=True,
            also=(("gpushare.alibabacloud.com/core-percentage", with_gpushare_cores),),
        ),
        Annotation(
            key="ALIYUN_COM_GPU_MEM_IDX",
            grammar=Separated(
                allocator="gpushare",
                device=re.compile(r"(?P<index>[0-9]{1,4})"),
                shape="the number of a GPU",
                is_share=True,
            ),
            scope=Scope.POD,
            counts_units=True,
        ),
    ),
    tokens=(*_of_resource("aliyun.com/gpu-mem"), ("*", rf"{_GPU}(?P<share>-_-[0-9]+)")),
)
_OF_VOLCANO = Annotation(
    key="volcano.sh/vgpu-ids-new",
    grammar=_vgpus("Volcano", ends=None),
    resources=("volcano.sh/vgpu-number",),
    scope=Scope.HOLDERS,
)
_VOLCANO = Allocator(
    name="Volcano",
    annotations=(_OF_VOLCANO, replace(_OF_VOLCANO, resources=("volcano.sh/vgpu-*",), counts_units=True)),
    tokens=_of_resource("volcano.sh/vgpu-*"),
)
_HAMI = Allocator(
    name="HAMi",
    annotations=(
        # its resources as HAMi's chart names them (charts/hami/values.yaml and device-configmap.yaml)
        _of_hami("hami.io/dcu-devices-allocated", "hygon.com/dcu*"),
        _of_hami("hami.io/cambricon-mlu-devices-allocated", "cambricon.com/*mlu*"),
        *(
            _of_hami(f"hami.io/{chip}-devices-allocated", f"iluvatar.ai/{chip}-vgpu")
            for chip in ("MR-V100", "MR-V50", "BI-V150", "BI-V100")
        ),
        _of_hami("hami.io/iluvatar-vgpu-devices-allocated", "iluvatar.ai/*gpu"),
        _of_hami("hami.io/mthreads-vgpu-devices-allocated", "mthreads.com/vgpu"),
        _of_hami("hami.io/metax-sgpu-devices-allocated", "metax-tech.com/sgpu"),
        _of_hami("hami.io/metax-gpu-devices-allocated", "metax-tech.com/gpu"),
        _of_hami("hami.io/enflame-vgpu-devices-allocated", "enflame.com/vgcu", "enflame.com/drs-gcu"),
        _of_hami("hami.io/enflame-gcu-devices-allocated", "enflame.com/gcu"),
        _of_hami("hami.io/xpu-devices-allocated", "kunlunxin.com/vxpu"),
        _of_hami("hami.io/kunlun-allocated", "kunlunxin.com/xpu"),
        _of_hami("hami.io/Vastai-devices-allocated", "vastaitech.com/va"),
        _of_hami("hami.io/Biren-devices-allocated", "birentech.com/gpu"),
        *(
            _of_hami(f"hami.io/{chip}-devices-allocated", f"huawei.com/{chip}")
            for chip in (
                *("Ascend910A", "Ascend910B2", "Ascend910B3", "Ascend910B4-1", "Ascend910B4", "Ascend910C"),
                "Ascend310P",
            )
        ),
        Annotation(
            key="hami.io/vgpu-devices-allocated",
            grammar=_vgpus("HAMi", ends=True),
            also=(("hami.io/vgpu-mig-allocations", with_mig_instances),),
        ),
        Annotation(key="4pd.io/vgpu-ids-new", grammar=_vgpus("HAMi", ends=None)),
    ),
    tokens=(("*", rf"{_GPU}(?P<share>-[0-9]+)"), ("*", rf"{_MIG}(?P<share>-[0-9]+)")),
    hint="where HAMi aligns ids with its choice (enablegetpreferredallocation: true), --allocators.hami id makes them"
    " count; else ",
)
_OF_ASCEND = Annotation(
    key="huawei.com/AscendReal",
    grammar=Separated(
        allocator="Ascend",
        device=re.compile(r"(?:Ascend[0-9A-Za-z]*|npu|NPU)-(?:(?P<share>[0-9]+c[^-]*)-[0-9]+-)?(?P<index>[0-9]{1,4})"),
        shape="<model>-<chip>, or <model>-<cores>-<vNPU>-<chip>",
        devices=",",
    ),
    resources=("huawei.com/npu-core",),
    scope=Scope.POD,
    is_of_one_container=True,
    # Volcano's scheduler writes the second when it binds the pod, the device plugin the first when it gives the devices
    markers=("huawei.com/kltDev", "predicate-time"),
    is_usual=True,
    counts_units=True,
)
_ASCEND = Allocator(
    name="Ascend",
    annotations=(_OF_ASCEND, replace(_OF_ASCEND, resources=("huawei.com/*",), counts_units=False)),
)
_CARDS = Separated(
    allocator="GPU Aware Scheduling",
    device=re.compile(r"(?P<device>card[0-9]{1,4})(?::gt[0-9]+(?:\+gt[0-9]+)*)?"),
    shape="card<n>, or card<n>:gt<tile>",
    containers="|",
    devices=",",
    is_share=True,
)
_INTEL = Allocator(
    name="GPU Aware Scheduling",
    annotations=tuple(
        Annotation(key=key, grammar=_CARDS, resources=("gpu.intel.com/i915", "gpu.intel.com/xe"), markers=(key,))
        for key in ("gas-container-cards", "gas-container-tiles")
    ),
)
_KOORDINATOR = Allocator(
    name="Koordinator",
    annotations=(
        Annotation(
            key="scheduling.koordinator.sh/device-allocated",
            grammar=read_koordinator,
            # The scheduler takes a pod's nvidia.com/gpu, too, and its node has no plugin for it: see koordinator,
            # pkg/slo-controller/noderesource/plugins/gpudeviceresource.
            resources=("koordinator.sh/gpu*", "nvidia.com/gpu"),
            scope=Scope.POD,
            counts_units=True,
        ),
    ),
)
# the first allocator counts whose resource and id fit
ALLOCATORS: Final[Mapping[str, Allocator]] = {
    allocator.name: allocator for allocator in (_GPUSHARE, _VOLCANO, _HAMI, _ASCEND, _INTEL, _KOORDINATOR)
}


def marked(resource: str, annotations: Mapping[str, str], allocators: Iterable[Allocator]) -> Allocator | None:
    """The allocator whose tokens a resource's ids are on a pod with these annotations, whatever the ids look like."""
    for allocator in allocators:
        for annotation in allocator.annotations:
            if annotation.is_marked(annotations) and annotation.is_about(resource):
                return allocator
    return None


def usual(resource: str, allocators: Iterable[Allocator]) -> Allocator | None:
    """The allocator whose tokens a resource's ids are taken for as long as the pod is not known."""
    for allocator in allocators:
        if any(annotation.is_usual and annotation.is_about(resource) for annotation in allocator.annotations):
            return allocator
    return None


@lru_cache(maxsize=256)
def may_be_marked(resource: str) -> str:
    """The allocator of the table whose tokens a resource's ids are on pods with a mark; "" if there is none."""
    for allocator in ALLOCATORS.values():
        if any(annotation.markers and annotation.is_about(resource) for annotation in allocator.annotations):
            return allocator.name
    return ""


def named(allocator: str) -> Allocator:
    """The allocator of this name. Of a user's allocator only its name is known here."""
    return ALLOCATORS.get(allocator) or Allocator(name=allocator)


def annotations_of(allocators: Iterable[Allocator]) -> frozenset[str]:
    """The names of all annotations that these allocators are read by."""
    return frozenset(
        key
        for allocator in allocators
        for annotation in allocator.annotations
        for key in (annotation.key, *annotation.markers, *(key for key, _ in annotation.also))
    )


# the annotations of the table's allocators, and of KAI Scheduler and Run:ai
ANNOTATIONS: Final = annotations_of(ALLOCATORS.values()) | GROUP_ANNOTATIONS
