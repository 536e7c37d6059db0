"""What a device plugin gave a container, by its answer to the kubelet's Allocate, or by the environment made of that.

Plugins of allocators choose the devices themselves (allocators), and say in their answer which ones they gave, and how
much of each. The fields of ContainerAllocateResponse that tell it, by the plugins' own sources:

- envs NVIDIA_VISIBLE_DEVICES: UUIDs of GPUs or MIG instances, or numbers of GPUs (HAMi:
  pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go; Volcano's vGPU: pkg/plugin/vgpu/plugin.go; Volcano's
  own: volcano.sh/k8s-device-plugin, pkg/plugin/nvidia/server.go; gpushare: pkg/gpu/nvidia/allocate.go). It is only
  the path of the mounts below if NVIDIA's plugin lists devices by mounts; gpushare writes `no-gpu-has-8GiB-to-run` if
  it has not found the pod;
- cdi_devices, or annotations cdi.k8s.io/…: qualified names (k8s.device-plugin.nvidia.com/gpu=GPU-…), with HAMi's
  strategies cdi-cri and cdi-annotations;
- mounts /var/run/nvidia-container-devices/<uuid>, with its strategy volume-mounts;
- envs ALIYUN_COM_GPU_MEM_IDX: the number of gpushare's GPU (-1: none);
- envs ASCEND_VISIBLE_DEVICES: numbers of chips (Ascend: pkg/server/plugin.go; HAMi: internal/server/allocate.go). With
  ASCEND_RUNTIME_OPTIONS=VIRTUAL they are numbers of virtual devices, which name no chip;
- devices: /dev/nvidia<minor>, /dev/davinci<N> (Ascend without its own container runtime), /dev/dri/card<N> (Intel:
  cmd/gpu_plugin).

The part of a device: CUDA_DEVICE_MEMORY_LIMIT_<n> (`10240m`) of the n-th device and CUDA_DEVICE_SM_LIMIT of all (HAMi
and Volcano); ALIYUN_COM_GPU_MEM_CONTAINER of ALIYUN_COM_GPU_MEM_DEV, both in GiB or both in MiB.

Pure.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from exporter.model.device_ref import DeviceRef
from exporter.model.grants import Given, Grant
from exporter.model.nothing import nothing

NVIDIA_DEVICES = "NVIDIA_VISIBLE_DEVICES"
ASCEND_DEVICES = "ASCEND_VISIBLE_DEVICES"
GPUSHARE_INDEX = "ALIYUN_COM_GPU_MEM_IDX"
ENVS = frozenset(
    {
        NVIDIA_DEVICES,
        ASCEND_DEVICES,
        GPUSHARE_INDEX,
        "ASCEND_RUNTIME_OPTIONS",
        "ALIYUN_COM_GPU_MEM_CONTAINER",
        "ALIYUN_COM_GPU_MEM_DEV",
        "CUDA_DEVICE_SM_LIMIT",
        "CUDA_DEVICE_MEMORY_LIMIT",
    }
)
MEMORY_LIMIT = re.compile(r"CUDA_DEVICE_MEMORY_LIMIT(?:_[0-9]{1,4})?")
# the most devices of one container; a node has at most some dozens
MOST_DEVICES = 256
_MOUNTS = "/var/run/nvidia-container-devices/"
_CDI_ANNOTATION = "cdi.k8s.io/"
# a node with more MiB than this on each GPU counts GiB: no GPU has 1 TiB, and none less than 1 GiB
_LEAST_MIB_OF_GPU = 1024

_NVIDIA = re.compile(
    r"MIG-(?P<uuid>GPU-[^:/,\s]+)/(?P<instance>[0-9]+)/[0-9]+"
    r"|(?P<gpu>GPU-[^:/,\s]+)|(?P<mig>MIG-(?!GPU-)[^:/,\s]+)|(?P<index>[0-9]{1,4})"
)
_NUMBER = re.compile(r"(?P<index>[0-9]{1,4})")
_CDI_NAME = re.compile(r"[^=/]+/(?:gpu|mig)=(?P<device>.+)")
_NODE = re.compile(
    r"(?:/[^/]+)*/dev/(?:nvidia(?P<minor>[0-9]{1,4})|davinci(?P<index>[0-9]{1,4})|dri/(?P<device>card[0-9]{1,4}))"
)
_MIG_NODE = "/dev/nvidia-caps/"
_SIZE = re.compile(r"(?P<number>[0-9]{1,12})(?P<unit>[kKmMgG]?)")
_MIB = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "": 1 / 1024**2}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginAnswer:
    """The fields of a ContainerAllocateResponse that tell devices.

    `mounts` are paths in the container, `nodes` the device nodes' paths on the host.
    """

    envs: Mapping[str, str] = field(default_factory=nothing)
    annotations: Mapping[str, str] = field(default_factory=nothing)
    cdi_devices: Sequence[str] = ()
    mounts: Sequence[str] = ()
    nodes: Sequence[str] = ()


def matters(variable: str) -> bool:
    """Whether an environment variable tells devices or parts of devices."""
    return variable in ENVS or MEMORY_LIMIT.fullmatch(variable) is not None


def needed_of(answer: PluginAnswer) -> PluginAnswer:
    """Only what `read_answer` may read of an answer."""
    return PluginAnswer(
        envs={name: value for name, value in answer.envs.items() if matters(name)},
        annotations={key: names for key, names in answer.annotations.items() if key.startswith(_CDI_ANNOTATION)},
        cdi_devices=answer.cdi_devices,
        mounts=[path for path in answer.mounts if path.startswith(_MOUNTS)],
        nodes=[path for path in answer.nodes if _NODE.fullmatch(path) or _MIG_NODE in path],
    )


def read_answer(answer: PluginAnswer, allocator: str, source: str) -> Given | None:
    """The devices of an answer, by the first of its fields that names some; None if no field does.

    A device of which the container has several shares stands there once for each, if the answer says so. A field that
    has one entry that cannot be read does not count: the others would not be all of the container's devices.
    `allocator` names the grants.
    """
    envs = answer.envs
    for refs in (
        _of_envs(envs),
        _of_cdi(answer.cdi_devices),
        _of_cdi(_annotated(answer.annotations)),
        _of_mounts(answer.mounts),
        _of_list(envs.get(GPUSHARE_INDEX, ""), _NUMBER, GPUSHARE_INDEX),
        _of_nodes(answer.nodes),
    ):
        if refs:
            limits = _memory_limits(envs, len(refs))
            # HAMi names a device once, and gives the limit of each of its shares
            each = refs * len(limits) if len(refs) == 1 and limits else refs
            return Given(source=source, refs=tuple(each), grants=_grants(envs, limits, len(each), allocator))
    return None


def _of_envs(envs: Mapping[str, str]) -> list[DeviceRef]:
    refs = _of_list(envs.get(NVIDIA_DEVICES, ""), _NVIDIA, NVIDIA_DEVICES)
    if refs or "VIRTUAL" in envs.get("ASCEND_RUNTIME_OPTIONS", ""):
        return refs
    return _of_list(envs.get(ASCEND_DEVICES, ""), _NUMBER, ASCEND_DEVICES)


def _of_list(text: str, form: re.Pattern[str], of: str) -> list[DeviceRef]:
    """The devices of a list with commas; () if an entry has another form."""
    return _all(text.split(",") if text else (), lambda entry: _ref(form.fullmatch(entry.strip()), of))


def _of_cdi(names: Iterable[str]) -> list[DeviceRef]:
    """The devices of qualified names. Those of other classes (imex-channel, gds) are no GPUs."""
    devices = [match["device"] for match in map(_CDI_NAME.fullmatch, names) if match]
    return _all(devices, lambda device: _ref(_NVIDIA.fullmatch(device), "a CDI device"))


def _annotated(annotations: Mapping[str, str]) -> Iterable[str]:
    for key, names in sorted(annotations.items()):
        if key.startswith(_CDI_ANNOTATION):
            yield from names.split(",")


def _of_mounts(paths: Iterable[str]) -> list[DeviceRef]:
    """The devices of mounts of NVIDIA's runtime. Folders below its path (cdi, imex) are no devices."""
    names = [path.removeprefix(_MOUNTS) for path in paths if path.startswith(_MOUNTS)]
    devices = [name for name in names if "/" not in name]
    return _all(devices, lambda device: _ref(_NVIDIA.fullmatch(device), "a mount"))


def _of_nodes(paths: Sequence[str]) -> list[DeviceRef]:
    """The devices of device nodes. Other nodes (/dev/nvidiactl) belong to no device.

    A MIG instance has the node of its GPU, and others that say which instance it is: they name no device here.
    """
    if any(_MIG_NODE in path for path in paths):
        return []
    refs = [ref for ref in (_ref(_NODE.fullmatch(path), "a device node") for path in paths) if ref]
    return refs if len(refs) <= MOST_DEVICES else []


def _all(entries: Sequence[str], read: Callable[[str], DeviceRef | None]) -> list[DeviceRef]:
    """The devices of all entries; () if one cannot be read, or if there are too many."""
    if len(entries) > MOST_DEVICES:
        return []
    refs = [read(entry) for entry in entries]
    return [ref for ref in refs if ref] if all(refs) else []


def _ref(match: re.Match[str] | None, of: str) -> DeviceRef | None:
    if match is None:
        return None
    parts: dict[str, Any] = {name: text for name, text in match.groupdict().items() if text}
    if "gpu" in parts:
        parts["uuid"] = parts.pop("gpu")
    return DeviceRef(form=of, **parts)


def _grants(envs: Mapping[str, str], limits: Sequence[float], devices: int, allocator: str) -> tuple[Grant, ...]:
    """The part of each device; () if the answer says nothing, or not of which device it says something."""
    of_gpushare = _gpushare_mib(envs)
    if of_gpushare is not None:
        return (Grant(allocator=allocator, memory_mib=of_gpushare),) if devices == 1 else ()
    cores = _whole(envs.get("CUDA_DEVICE_SM_LIMIT", "")) or None  # 0: no limit
    if (limits and len(limits) != devices) or not (any(limits) or cores):
        return ()
    parts = limits or [0.0] * devices
    return tuple(Grant(allocator=allocator, memory_mib=part or None, cores_percent=cores) for part in parts)


def _memory_limits(envs: Mapping[str, str], devices: int) -> list[float]:
    """The limits of the devices' memory in MiB, in their order; 0 stands for no limit."""
    limits = []
    for number in range(MOST_DEVICES):
        text = envs.get(f"CUDA_DEVICE_MEMORY_LIMIT_{number}")
        if text is None:
            break
        limits.append(_mib(text))
    of_all = envs.get("CUDA_DEVICE_MEMORY_LIMIT")
    return [_mib(of_all)] * devices if of_all is not None and not limits else limits


def _gpushare_mib(envs: Mapping[str, str]) -> float | None:
    """The memory that gpushare gave, in MiB. It counts in GiB or in MiB, as the size of the GPU shows."""
    units = _whole(envs.get("ALIYUN_COM_GPU_MEM_CONTAINER", ""))
    of_gpu = _whole(envs.get("ALIYUN_COM_GPU_MEM_DEV", ""))
    if not units or not of_gpu:
        return None
    return units * 1024.0 if of_gpu < _LEAST_MIB_OF_GPU else float(units)


def _mib(text: str) -> float:
    match = _SIZE.fullmatch(text)
    return int(match["number"]) * _MIB[match["unit"].lower()] if match else 0.0


def _whole(text: str) -> int:
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else 0


def as_given_by(given: Given, allocator: str, *, is_share: bool) -> Given:
    """The same as given by this allocator; `is_share`: each device is a share of one."""
    return replace(
        given,
        refs=tuple(replace(ref, shared=is_share) for ref in given.refs),
        grants=tuple(replace(grant, allocator=allocator) for grant in given.grants),
    )
