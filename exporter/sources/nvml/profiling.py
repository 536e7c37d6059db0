"""NVML's own profiling counters (GPM, since Hopper), as values of dcgm-exporter's profiling families.

They are told of the time between two samples of a device. DCGM takes its profiling fields from the same calls, on GPUs
that have them; older GPUs measure these for DCGM's profiling library alone.
"""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from exporter.model.devices import DeviceKey
from exporter.sources.nvml.failures import Failed
from exporter.sources.nvml.gpus import Gpu, optional
from exporter.sources.nvml.library import Library

_PROF = "DCGM_FI_PROF_"
# NVML_GPM_METRIC_…: percent
_RATIOS: Mapping[int, str] = {
    1: "GR_ENGINE_ACTIVE",
    2: "SM_ACTIVE",
    3: "SM_OCCUPANCY",
    4: "PIPE_INT_ACTIVE",
    5: "PIPE_TENSOR_ACTIVE",
    10: "DRAM_ACTIVE",
    11: "PIPE_FP64_ACTIVE",
    12: "PIPE_FP32_ACTIVE",
    13: "PIPE_FP16_ACTIVE",
}
# MiB a second, of the whole GPU
_RATES: Mapping[int, str] = {20: "PCIE_TX_BYTES", 21: "PCIE_RX_BYTES", 60: "NVLINK_RX_BYTES", 61: "NVLINK_TX_BYTES"}
_ALL = {**_RATIOS, **_RATES}
_MIB = 1024**2
_VERSION = 1  # NVML_GPM_METRICS_GET_VERSION
_PERCENT = 100


class Profiling:
    """Keeps one sample of each device, with which the next one is compared."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._last: dict[DeviceKey, Any] = {}

    def forget(self) -> None:
        """The library was loaded anew: what is kept was the old one's."""
        self._last = {}

    def lose(self, uuid: str) -> None:
        """A GPU is gone: if it comes back it counts anew."""
        self._free([device for device in self._last if device.uuid == uuid])

    def close(self) -> None:
        """Give back what is kept, while the library is open."""
        self._free(self._last.keys())

    def prepare(self, gpu: Gpu) -> bool:
        """Take the first samples of what is new. Returns whether there is any, which has no values yet.

        Raises:
            Failed: the GPU or the library is gone.
        """
        devices = _devices(gpu)
        self._free([device for device in self._last if device.uuid == gpu.known.uuid and device not in devices])
        new = [device for device in devices if device not in self._last]
        support = optional(self._library, "nvmlGpmQueryDeviceSupport", gpu.handle) if new else None
        if support is None or not support.isSupportedDevice:
            return False
        for device in new:
            sample = self._sample(device, gpu.handle)
            if sample is not None:
                self._last[device] = sample
        return any(device in self._last for device in new)

    def of_gpu(self, gpu: Gpu) -> dict[str, dict[str, str]]:
        """The values by family, by the GPU instance; "" is what is of the whole GPU.

        Raises:
            Failed: the GPU or the library is gone.
        """
        found = {}
        for device in _devices(gpu):
            before = self._last.get(device)
            sample = None if before is None else self._sample(device, gpu.handle)
            if sample is not None:
                metrics = _RATIOS if device.instance else _RATES if gpu.instances else _ALL
                found[device.instance] = self._between(before, sample, metrics)
                self._free([device])
                self._last[device] = sample
        return found

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
        told = optional(self._library, "nvmlGpmMetricsGet", asked)
        if told is None:
            return {}
        found = {}
        for place, (number, name) in enumerate(metrics.items()):
            metric = told.metrics[place]
            if metric.nvmlReturn == 0 and math.isfinite(metric.value) and metric.value >= 0:
                is_ratio = number in _RATIOS
                ratio = f"{min(metric.value / _PERCENT, 1.0):.6f}"
                found[_PROF + name] = ratio if is_ratio else str(round(metric.value * _MIB))
        return found

    def _free(self, devices: Iterable[DeviceKey]) -> None:
        for device in list(devices):
            sample = self._last.pop(device, None)
            if sample is not None:
                self._give_back(sample)

    def _give_back(self, sample: object) -> None:
        with suppress(Failed):
            self._library.call("nvmlGpmSampleFree", sample)


def _devices(gpu: Gpu) -> list[DeviceKey]:
    """The GPU and its instances."""
    instances = sorted({str(instance) for _, instance in gpu.instances})
    return [DeviceKey(uuid=gpu.known.uuid, instance=instance) for instance in ("", *instances)]
