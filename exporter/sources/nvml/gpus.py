"""The GPUs of a node as NVML knows them, and the MIG instances that they are cut into."""

import math
import re
from dataclasses import dataclass, field
from typing import Any

from exporter.model.devices import InventoryGpu, MigInstance
from exporter.sources.nvml.failures import NOT_FOUND, Failed
from exporter.sources.nvml.library import Library
from exporter.sources.nvml.processes import Busy

_MIG_IS_ON = 1
_MOST_INSTANCES = 64
# NVML_GPU_INSTANCE_PROFILE_1_SLICE to _6_SLICE; those behind them have more media engines, and as many slices
_PROFILES = range(7)
_MIB, _GIB = 1024**2, 1024**3
# NVIDIA's own names of memory round up to eighths of a GPU's
_EIGHTHS = 8
# since R470 an instance is called "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
_PROFILE = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)$")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,90}")


@dataclass(slots=True, kw_only=True)
class Gpu:
    """A GPU that answers. `instances` are the handles of its MIG devices with their GPU instance ids."""

    handle: object
    known: InventoryGpu
    can_be_cut: bool
    is_cut: bool
    instances: list[tuple[object, int]]
    busy: Busy | None = field(default=None)


def read_gpu(library: Library, index: int) -> Gpu:
    """All of one GPU. Only its UUID has to be had.

    Raises:
        Failed: it cannot be asked.
    """
    handle = library.call("nvmlDeviceGetHandleByIndex", index)
    uuid = _uuid(library, handle)
    minor = optional(library, "nvmlDeviceGetMinorNumber", handle)
    mode = optional(library, "nvmlDeviceGetMigMode", handle)
    is_cut = bool(mode) and mode[0] == _MIG_IS_ON
    instances = _instances(library, handle) if is_cut else []
    return Gpu(
        handle=handle,
        known=InventoryGpu(
            uuid=uuid,
            index=str(index),
            device="" if minor is None else f"nvidia{minor}",
            mig=tuple(mig for _, mig in instances),
            slices=_slices(library, handle) if is_cut else None,
        ),
        can_be_cut=bool(mode),
        is_cut=is_cut,
        instances=[(mig_handle, int(mig.instance_id)) for mig_handle, mig in instances],
    )


def optional(library: Library, call: str, *arguments: object) -> Any:  # noqa: ANN401 - see Library.call
    """The answer, or None where this call alone fails.

    Raises:
        Failed: the GPU or the library is gone.
    """
    try:
        return library.call(call, *arguments)
    except Failed as failed:
        if failed.scope != "call":
            raise
        return None


def _instances(library: Library, handle: object) -> list[tuple[object, MigInstance]]:
    most = optional(library, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    memory = optional(library, "nvmlDeviceGetMemoryInfo", handle)
    found = []
    for number in range(min(most, _MOST_INSTANCES)):
        try:
            mig = library.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        except Failed as failed:
            if failed.code == NOT_FOUND:
                continue  # that place is empty
            raise
        instance = library.call("nvmlDeviceGetGpuInstanceId", mig)
        profile = _profile(library, mig, memory.total if memory else None)
        found.append((mig, MigInstance(uuid=_uuid(library, mig), instance_id=str(instance), profile=profile)))
    return found


def _slices(library: Library, handle: object) -> int | None:
    """The compute slices of the largest profile, which is the whole GPU."""
    profiles = [optional(library, "nvmlDeviceGetGpuInstanceProfileInfo", handle, number) for number in _PROFILES]
    return max((profile.sliceCount for profile in profiles if profile), default=None)


def _uuid(library: Library, handle: object) -> str:
    uuid: str = library.call("nvmlDeviceGetUUID", handle)
    if not _UUID.fullmatch(uuid):
        raise Failed("nvmlDeviceGetUUID", NOT_FOUND)
    return uuid


def _profile(library: Library, mig: object, total_bytes: int | None) -> str:
    """By the instance's name, else by its sizes; "" where neither is known."""
    named = _PROFILE.search(optional(library, "nvmlDeviceGetName", mig) or "")
    if named:
        return named.group(1)
    sizes = optional(library, "nvmlDeviceGetAttributes_v2", mig)
    if sizes is None or not total_bytes:
        return ""
    part = math.ceil(sizes.memorySizeMB * _MIB / total_bytes * _EIGHTHS) / _EIGHTHS
    gigabytes = round(part * math.ceil(total_bytes / _GIB))
    whole, compute = sizes.gpuInstanceSliceCount, sizes.computeInstanceSliceCount
    return f"{'' if compute == whole else f'{compute}c.'}{whole}g.{gigabytes}gb"
