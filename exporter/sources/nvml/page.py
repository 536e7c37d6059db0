"""The page of GPU samples that NVML fills in dcgm-exporter's place. On the worker thread, like all that asks NVML.

Its labels and their order, the order of its families and its unit texts are dcgm-exporter's of 4.8.3 and later, the
last ones with the names that dashboards ask for. Of a GPU that is cut there is a row for each instance, and none of the
whole, as dcgm-exporter has it by default.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from exporter.dcgm.fields import NVML
from exporter.dcgm.row import EVENTS, DcgmField
from exporter.dcgm.xids import OTHER_XID, XIDS
from exporter.exposition.families import Labels, render_labels, render_written
from exporter.model.devices import DeviceKey
from exporter.sources.nvml.gpus import NvmlGpu, optional
from exporter.sources.nvml.library import Library
from exporter.sources.nvml.profiling import Profiling
from exporter.sources.nvml.values import Memory, NvlinkBytes, fields_of, memory_values, throughput, values_of

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
