"""NVML's own profiling counters (GPM, since Hopper), as values of dcgm-exporter's profiling families.

Each describes the time between two samples. DCGM makes the same calls; of older GPUs its own library alone gets them.
"""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from exporter.dcgm.fields import NVML
from exporter.dcgm.row import GPM_METRICS, Unit
from exporter.model.devices import DeviceKey
from exporter.sources.nvml.gpus import NvmlGpu, optional
from exporter.sources.nvml.library import Failed, Library

# The families by the number of the metric: percent, and MiB a second of the whole GPU
_RATIOS = {call.arguments[0]: row.family for call, row in NVML[GPM_METRICS] if row.unit is Unit.RATIO}
_RATES = {call.arguments[0]: row.family for call, row in NVML[GPM_METRICS] if row.unit is not Unit.RATIO}
_ALL = {**_RATIOS, **_RATES}
_MIB = 1024**2
_VERSION = 1  # NVML_GPM_METRICS_GET_VERSION
_PERCENT = 100


class Profiling:
    """Keeps one sample of each device, with which the next one is compared."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.forget()

    def forget(self) -> None:
        """The library was loaded again: the samples were the old one's."""
        self._last: dict[DeviceKey, Any] = {}

    def lose(self, uuid: str) -> None:
        """A GPU is gone: if it comes back it counts anew."""
        self._free([device for device in self._last if device.uuid == uuid])

    def close(self) -> None:
        """Give back what is kept, while the library is open."""
        self._free(self._last.keys())

    def prepare(self, gpu: NvmlGpu) -> bool:
        """Take the first samples of what is new. Returns whether there is any. Raises Failed: see `of_gpu`."""
        devices = _devices(gpu)
        self._free([device for device in self._last if device.uuid == gpu.in_inventory.uuid and device not in devices])
        new = [device for device in devices if device not in self._last]
        support = optional(self._library, "nvmlGpmQueryDeviceSupport", gpu.handle) if new else None
        if support is None or not support.isSupportedDevice:
            return False
        for device in new:
            sample = self._sample(device, gpu.handle)
            if sample is not None:
                self._last[device] = sample
        return any(device in self._last for device in new)

    def of_gpu(self, gpu: NvmlGpu) -> dict[str, dict[str, str]]:
        """The values by family, by GPU instance ("": the whole GPU). Raises Failed: the GPU or the library is gone."""
        ratios = {}
        for device in _devices(gpu):
            before = self._last.get(device)
            sample = None if before is None else self._sample(device, gpu.handle)
            if sample is not None:
                metrics = _RATIOS if device.instance else _RATES if gpu.instances else _ALL
                ratios[device.instance] = self._between(before, sample, metrics)
                self._free([device])
                self._last[device] = sample
        return ratios

    def _sample(self, device: DeviceKey, handle: object) -> Any | None:  # noqa: ANN401 - a pointer of the bindings
        sample = optional(self._library, "nvmlGpmSampleAlloc")
        if sample is None:
            return None
        try:
            if device.instance:
                return self._library.call("nvmlGpmMigSampleGet", handle, int(device.instance), sample)
            return self._library.call("nvmlGpmSampleGet", handle, sample)
        except Failed as failed:
            if failed.scope == "library":
                raise
            self._give_back(sample)
            if failed.scope == "gpu":
                raise
            return None

    def _between(self, before: object, now: object, metrics: Mapping[int, str]) -> dict[str, str]:
        asked = self._library.call("c_nvmlGpmMetricsGet_t")  # the struct, which only the bindings know
        asked.version, asked.numMetrics = _VERSION, len(metrics)
        asked.sample1, asked.sample2 = before, now
        for place, number in enumerate(metrics):
            asked.metrics[place].metricId = number
        answered = optional(self._library, GPM_METRICS, asked)
        if answered is None:
            return {}
        ratios = {}
        for place, (number, name) in enumerate(metrics.items()):
            metric = answered.metrics[place]
            if metric.nvmlReturn == 0 and math.isfinite(metric.value) and metric.value >= 0:
                is_ratio = number in _RATIOS
                ratio = f"{min(metric.value / _PERCENT, 1.0):.6f}"
                ratios[name] = ratio if is_ratio else str(round(metric.value * _MIB))
        return ratios

    def _free(self, devices: Iterable[DeviceKey]) -> None:
        for device in list(devices):
            sample = self._last.pop(device, None)
            if sample is not None:
                self._give_back(sample)

    def _give_back(self, sample: object) -> None:
        with suppress(Failed):
            self._library.call("nvmlGpmSampleFree", sample)


def _devices(gpu: NvmlGpu) -> list[DeviceKey]:
    instances = sorted({str(instance) for _, instance in gpu.instances})
    return [DeviceKey(uuid=gpu.in_inventory.uuid, instance=instance) for instance in ("", *instances)]
