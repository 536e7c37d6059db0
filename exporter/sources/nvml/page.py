"""The page of GPU samples that NVML fills in dcgm-exporter's place. On the worker thread, like all that asks NVML.

Its labels and their order, the order of its families and its unit texts are dcgm-exporter's of 4.8.3 and later, the
last ones with the names that dashboards ask for. Of a GPU that is cut there is a row for each instance, and none of the
whole, as dcgm-exporter has it by default.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from exporter.dcgm.fields import NVML
from exporter.dcgm.table import EVENTS, GPM_METRICS, DcgmField, Unit
from exporter.dcgm.xids import OTHER_XID, XIDS
from exporter.exposition.families import Labels, render_labels, render_written
from exporter.model.devices import DeviceKey
from exporter.sources.nvml.gpus import NvmlGpu, optional
from exporter.sources.nvml.library import Failed, Library
from exporter.sources.nvml.values import Memory, NvlinkBytes, fields_of, memory_values, throughput, values_of

# The families by the number of the metric: percent, and MiB a second of the whole GPU
_RATIOS = {call.arguments[0]: row.family for call, row in NVML[GPM_METRICS] if row.unit is Unit.RATIO}
_RATES = {call.arguments[0]: row.family for call, row in NVML[GPM_METRICS] if row.unit is not Unit.RATIO}
_ALL = {**_RATIOS, **_RATES}
_MIB = 1024**2
_VERSION = 1  # NVML_GPM_METRICS_GET_VERSION
_PERCENT = 100


class Profiling:
    """NVML's own profiling counters (GPM, since Hopper), as values of dcgm-exporter's profiling families.

    It keeps one sample of each device: a value describes the time between that and the next one. DCGM makes the same
    calls; of older GPUs its own library alone gets these values.
    """

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


_THROUGHPUT = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
FAMILIES: Mapping[str, DcgmField] = {row.family: row for calls in NVML.values() for _, row in calls}
((_, _XID_ERRORS),) = NVML[EVENTS]


class NvmlRow(NamedTuple):
    """A GPU or an instance of it, with its values by family; `xid` is None if the GPU does not report XIDs."""

    labels: Labels
    values: Mapping[str, str]
    xid: int | None


class PageMaker:
    """Makes the rows of one GPU after the other; `host` is the label `hostname`."""

    def __init__(self, library: Library, host: str) -> None:
        self._library = library
        self._host = host
        self.profiling = Profiling(library)
        self.forget()

    def forget(self) -> None:
        """The library was loaded again: the driver may be another one."""
        self._driver: str | None = None
        # by UUID: address and model, which do not change while the library is open; "" where NVML does not know it
        self._fixed: dict[str, tuple[str, str]] = {}
        self._sent: dict[str, NvlinkBytes] = {}
        self.profiling.forget()

    def lose(self, uuid: str) -> None:
        """A GPU is gone: if it comes back it counts anew."""
        self._sent.pop(uuid, None)
        self.profiling.lose(uuid)

    def rows(
        self, gpu: NvmlGpu, memories: Mapping[DeviceKey, Memory], xids: Mapping[str, int], now: float
    ) -> Iterator[NvmlRow]:
        """The rows of a GPU, at `now`. Raises Failed: the GPU or the library is gone."""
        uuid = gpu.in_inventory.uuid
        labels = self._labels(gpu)
        profiled = self.profiling.of_gpu(gpu)
        values = {**values_of(self._library, gpu.handle), **self._fields(gpu, now), **profiled.get("", {})}
        instances = {mig.instance_id: mig for mig in reversed(gpu.in_inventory.mig)}
        ends = self._ends()
        # a compute instance's profile begins with its own slices: 1c.3g.40gb is a part of a 3g.40gb
        parts: dict[str, Labels] = {
            instance: (("GPU_I_PROFILE", mig.profile.rpartition("c.")[2]), ("GPU_I_ID", instance))
            for instance, mig in sorted(instances.items(), key=lambda each: int(each[0]))
        }
        for instance, which in (parts or {"": ()}).items():
            memory = memories.get(DeviceKey(uuid=uuid, instance=instance))
            own = {**(memory_values(memory) if memory else {}), **profiled.get(instance, {})}
            yield NvmlRow((*labels, *which, *ends), {**values, **own}, xids.get(uuid))

    @staticmethod
    def text(rows: Iterable[NvmlRow]) -> bytes:
        """The page of these rows; b"" for none. Families are sorted, and those without a sample are left out."""
        written = [(row, render_labels(row.labels)) for row in rows]
        families = []
        for name in sorted(FAMILIES):
            if name == _XID_ERRORS.family:
                samples = [
                    (b"%b,%b" % (labels, _meaning(row.xid)), b"%d" % row.xid, b"")
                    for row, labels in written
                    if row.xid is not None
                ]
            else:
                samples = [(labels, row.values[name].encode(), b"") for row, labels in written if name in row.values]
            families.append(render_written(name, FAMILIES[name].kind, FAMILIES[name].help, samples))
        return b"".join(families)

    def _labels(self, gpu: NvmlGpu) -> Labels:
        in_inventory = gpu.in_inventory
        fixed = self._fixed.get(in_inventory.uuid)
        if fixed is None:
            pci = optional(self._library, "nvmlDeviceGetPciInfo_v3", gpu.handle)
            model = optional(self._library, "nvmlDeviceGetName", gpu.handle)
            fixed = (pci.busId if pci else "", model or "")
            if all(fixed):
                self._fixed[in_inventory.uuid] = fixed
        return (
            ("gpu", in_inventory.index),
            ("UUID", in_inventory.uuid),
            ("pci_bus_id", fixed[0]),
            ("device", in_inventory.device or f"nvidia{in_inventory.index}"),
            ("modelName", fixed[1]),
        )

    def _ends(self) -> Labels:
        if self._driver is None:
            self._driver = optional(self._library, "nvmlSystemGetDriverVersion")
        return (("hostname", self._host), ("DCGM_FI_DRIVER_VERSION", self._driver or ""))

    def _fields(self, gpu: NvmlGpu, now: float) -> dict[str, str]:
        uuid = gpu.in_inventory.uuid
        fields, sent = fields_of(self._library, gpu.handle, now)
        if sent is not None:
            fields[_THROUGHPUT] = throughput(self._sent.get(uuid), sent)
            self._sent[uuid] = sent
        return fields


def _meaning(xid: int) -> bytes:
    return render_labels((("err_code", str(xid)), ("err_msg", XIDS.get(xid, OTHER_XID).name)))
