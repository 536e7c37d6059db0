"""The memory of a GPU or MIG instance, as NVML tells it."""

from typing import NamedTuple

from exporter.sources.nvml.failures import Failed
from exporter.sources.nvml.gpus import optional
from exporter.sources.nvml.library import Library

_V2 = 0x0200_0028  # nvmlMemory_v2 of nvml.h: version 2 of a struct of 40 bytes


class Memory(NamedTuple):
    """In bytes. `reserved` is what the driver keeps for itself, and no part of `used`.

    Drivers before R510 do not tell it: there it is None, and a part of `used`.
    """

    total: int
    used: int
    free: int
    reserved: int | None


def memory_of(library: Library, handle: object) -> Memory | None:
    """The memory of a GPU or of the GPU instance that a MIG device is in; None where it is not told.

    Raises:
        Failed: it is more than this call's trouble.
    """
    try:
        told = library.call("nvmlDeviceGetMemoryInfo", handle, _V2)
    except Failed as failed:
        if failed.scope != "call":
            raise
        if not failed.is_lack:
            return None
    else:
        return Memory(told.total, told.used, told.free, told.reserved)
    old = optional(library, "nvmlDeviceGetMemoryInfo", handle)
    return Memory(old.total, old.used, old.free, None) if old else None
