"""The page of GPU samples that NVML fills in dcgm-exporter's place. The worker thread makes it.

Its labels and their order, the order of its families and its unit texts are those of dcgm-exporter from 4.8.3 on, the
last generation with the names that dashboards ask for. A value that a function does not support is left out, never 0. A
MIG GPU has a row for each instance and no row of its own, as in dcgm-exporter by default: the instances repeat all
values but memory.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from exporter.dcgm.fields import NVML
from exporter.dcgm.table import EVENTS, FIELD_VALUES, GPM_METRICS, LICENCES, MEMORY_INFO, DcgmField, NvmlCall, Unit
from exporter.dcgm.xids import OTHER_XID, XIDS
from exporter.exposition.families import Labels, render_labels, render_written
from exporter.model.devices import DeviceKey
from exporter.sources.nvml.gpus import Memory, NvmlGpu, optional
from exporter.sources.nvml.library import Failed, Library

_KIB = 1024
_MIB = 1024**2
_KIB_IN_MB = 1000  # as DCGM counts NVLink's
_MILLI = 1000
# NVML_VALUE_NOT_AVAILABLE in 32 and in 64 bits
_NOTHING = frozenset({0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
# drivers sometimes answer more, which means nothing
_MOST_PERCENT = 100
_MOST_CELSIUS = 200
_VGPU = 1  # NVML_GRID_LICENSE_FEATURE_CODE_VGPU
_ALL_LINKS = 0xFFFF_FFFF
# nvmlValueType_t, by its number
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def _functions() -> Mapping[NvmlCall, list[tuple[int | None, DcgmField]]]:
    """The calls, each with the places in its answer and the rows that they fill."""
    rows = defaultdict(list)
    for function, calls in NVML.items():
        if function not in {EVENTS, FIELD_VALUES, GPM_METRICS, LICENCES, MEMORY_INFO}:
            for call, row in calls:
                rows[call._replace(take=None)].append((call.take, row))
    return rows


_FUNCTIONS = _functions()
_NUMBERED = {call.arguments[0]: row for call, row in NVML[FIELD_VALUES] if len(call.arguments) == 1}
# of these a GPU counts each link, which is the scope
_OF_LINKS = {number: row for number, row in _NUMBERED.items() if row.name.startswith("DEV_NVLINK_ERROR_DL_")}
_LINKS = 18  # of Hopper
((_SENT, _RECEIVED),) = (call.arguments for call, _ in NVML[FIELD_VALUES] if len(call.arguments) > 1)


class NvlinkBytes(NamedTuple):
    """The sum of a GPU's bytes over all NVLinks up to a moment (seconds)."""

    kib: int
    at: float


def memory_values(memory: Memory) -> Mapping[str, str]:
    """The families of memory: whole MiB, rounded down as DCGM does."""
    sizes = ((row.family, memory[call.take or 0]) for call, row in NVML[MEMORY_INFO])
    return {family: str(size // _MIB) for family, size in sizes if size is not None}


def values_of(library: Library, handle: object) -> dict[str, str]:
    """A GPU's values that have a function each, by family, in its unit, as text. Raises Failed: as `optional` does."""
    values = _licence(optional(library, LICENCES, handle))
    for call, rows in _FUNCTIONS.items():
        answer = optional(library, call.function, handle, *call.arguments)
        if answer is None and call.older:
            answer = optional(library, call.older, handle, *call.arguments)
        if answer is not None:
            values.update(_values_in(answer, rows))
    return values


def _values_in(answer: Any, rows: Iterable[tuple[int | None, DcgmField]]) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - the bindings have no types
    for place, row in rows:
        number = answer if place is None else _at_place(answer, place)
        if number in _NOTHING or (row.unit is Unit.PERCENT and number > _MOST_PERCENT):
            continue
        if row.unit is Unit.WATTS:
            yield row.family, f"{number // _MILLI}.{number % _MILLI:03d}"
        else:
            yield row.family, str(number)


def _at_place(answer: Any, place: int) -> Any:  # noqa: ANN401 - the bindings have no types
    """The value at a place of an answer. The bindings answer with a number, a sequence or a struct."""
    members = getattr(answer, "_fields_", ())
    return getattr(answer, members[place][0]) if members else answer[place]


def throughput(before: NvlinkBytes | None, now: NvlinkBytes) -> str:
    """MB a second since the previous reading.

    0 for the first reading, as in DCGM, and after a restart of the driver.
    """
    if before is None or now.at <= before.at:
        return "0"
    return str(round(max(0, now.kib - before.kib) / _KIB_IN_MB / (now.at - before.at)))


def _licence(answered: Any) -> dict[str, str]:  # noqa: ANN401 - the bindings have no types
    """The family of the vGPU licence. If a GPU can have no licence, none is missing, and the value is 0, as in DCGM."""
    if answered is None:
        return {}
    features = answered.gridLicensableFeatures[: answered.licensableFeaturesCount]
    is_licensed = any(feature.featureCode == _VGPU and feature.featureState > 0 for feature in features)
    licensed = str(int(bool(answered.isGridLicenseSupported) and is_licensed))
    return {row.family: licensed for _, row in NVML[LICENCES]}


def _number(field: Any) -> int:  # noqa: ANN401 - the bindings have no types
    if field.valueType >= len(_MEMBERS):
        return 0
    return int(getattr(field.value, _MEMBERS[field.valueType]))


# The families by the number of the metric: percent, and MiB a second of the whole GPU
_RATIOS = {call.arguments[0]: row.family for call, row in NVML[GPM_METRICS] if row.unit is Unit.RATIO}
_RATES = {call.arguments[0]: row.family for call, row in NVML[GPM_METRICS] if row.unit is not Unit.RATIO}
_ALL = {**_RATIOS, **_RATES}
_VERSION = 1  # NVML_GPM_METRICS_GET_VERSION
_PERCENT = 100


class Profiling:
    """NVML's own profiling counters (GPM, since Hopper), as values of dcgm-exporter's profiling families.

    It keeps one sample of each device: a value describes the time between this sample and the next one. DCGM makes the
    same calls. On older GPUs only DCGM's own library gets these values.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self.forget()

    def forget(self) -> None:
        """Forget the samples, since the library was loaded again."""
        self._last: dict[DeviceKey, Any] = {}

    def lose(self, uuid: str) -> None:
        """A GPU is gone: if it comes back it counts anew."""
        self._free([device for device in self._last if device.uuid == uuid])

    def close(self) -> None:
        """Give back the kept samples, while the library is open."""
        self._free(self._last.keys())

    def prepare(self, gpu: NvmlGpu) -> bool:
        """Take the first samples of new devices. Returns whether there are any. Raises Failed: see `of_gpu`."""
        uuid = gpu.in_inventory.uuid
        devices = _devices(gpu)
        self._free([device for device in self._last if device.uuid == uuid and device not in devices])
        new = [device for device in devices if device not in self._last]
        if not new:
            return False
        support = optional(self._library, "nvmlGpmQueryDeviceSupport", gpu.handle)
        if support is None or not support.isSupportedDevice:
            return False
        for device in new:
            sample = self._sample(device, gpu.handle)
            if sample is not None:
                self._last[device] = sample
        return any(device in self._last for device in new)

    def of_gpu(self, gpu: NvmlGpu) -> dict[str, dict[str, str]]:
        """The values by family, by GPU instance ("": the whole GPU). Raises Failed: the GPU or the library is gone."""
        values = {}
        of_whole = _RATES if gpu.instances else _ALL
        for device in _devices(gpu):
            before = self._last.get(device)
            if before is None:
                continue
            sample = self._sample(device, gpu.handle)
            if sample is None:
                continue
            values[device.instance] = self._between(before, sample, _RATIOS if device.instance else of_whole)
            self._free([device])
            self._last[device] = sample
        return values

    def _sample(self, device: DeviceKey, handle: object) -> Any | None:  # noqa: ANN401 - a pointer of the bindings
        """A sample to be given back; None without counters. Raises Failed: the GPU or the library is gone."""
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
        """The values between two samples by family: ratios, and bytes a second. `metrics`: the families by number."""
        asked = self._library.call("c_nvmlGpmMetricsGet_t")  # the struct, which only the bindings know
        asked.version = _VERSION
        asked.numMetrics = len(metrics)
        asked.sample1 = before
        asked.sample2 = now
        for place, number in enumerate(metrics):
            asked.metrics[place].metricId = number
        answered = optional(self._library, GPM_METRICS, asked)
        if answered is None:
            return {}
        values = {}
        for place, (number, name) in enumerate(metrics.items()):
            metric = answered.metrics[place]
            is_valid = metric.nvmlReturn == 0 and math.isfinite(metric.value) and metric.value >= 0
            if not is_valid:
                continue
            if number in _RATIOS:
                values[name] = f"{min(metric.value / _PERCENT, 1.0):.6f}"
            else:
                values[name] = str(round(metric.value * _MIB))
        return values

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


_ALL_OF_LINKS = tuple((number, link) for number in _OF_LINKS for link in range(_LINKS))
_THROUGHPUT = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
FAMILIES: Mapping[str, DcgmField] = {row.family: row for calls in NVML.values() for _, row in calls}
((_, _XID_ERRORS),) = NVML[EVENTS]


class NvmlRow(NamedTuple):
    """A GPU or an instance of it, with its values by family; `xid` is None if the GPU does not report XIDs."""

    labels: Labels
    values: Mapping[str, str]
    xid: int | None


class PageMaker:
    """A maker of the rows of one GPU after another. `host` is the label `hostname`."""

    def __init__(self, library: Library, host: str) -> None:
        self._library = library
        self._host = host
        self.profiling = Profiling(library)
        self.forget()

    def forget(self) -> None:
        """Forget all values after the library was loaded again, since the driver may have changed."""
        self._driver: str | None = None
        # by UUID: address and model, which do not change while the library is open; "" if NVML does not know it
        self._fixed: dict[str, tuple[str, str]] = {}
        self._sent: dict[str, NvlinkBytes] = {}
        self._of_links: dict[str, tuple[tuple[int, int], ...]] = {}  # numbers and links, by UUID
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
        ends = self._ends()
        labels_of_parts: Mapping[str, Labels] = _labels_of_instances(gpu) or {"": ()}
        for instance, of_part in labels_of_parts.items():
            own: dict[str, str] = {}
            memory = memories.get(DeviceKey(uuid=uuid, instance=instance))
            if memory is not None:
                own.update(memory_values(memory))
            own.update(profiled.get(instance, {}))
            yield NvmlRow((*labels, *of_part, *ends), {**values, **own}, xids.get(uuid))

    @staticmethod
    def text(rows: Iterable[NvmlRow]) -> bytes:
        """The page of these rows; b"" for none. Families are sorted, and those without a sample are left out."""
        written = [(row, render_labels(row.labels)) for row in rows]
        families = []
        for name in sorted(FAMILIES):
            if name == _XID_ERRORS.family:
                samples = [_xid_sample(labels, row.xid) for row, labels in written if row.xid is not None]
            else:
                samples = [(labels, row.values[name].encode(), b"") for row, labels in written if name in row.values]
            families.append(render_written(name, FAMILIES[name].kind, FAMILIES[name].help, samples))
        return b"".join(families)

    def _labels(self, gpu: NvmlGpu) -> Labels:
        """The labels of a GPU, in dcgm-exporter's order. Address and model are asked for until NVML knows both."""
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
        """Numbered fields: memory's temperature, links' errors and bytes by `now`. Raises Failed: see `optional`."""
        uuid = gpu.in_inventory.uuid
        of_links = self._of_links.get(uuid, _ALL_OF_LINKS)
        wanted = (*_NUMBERED.keys() - _OF_LINKS.keys(), *of_links, (_SENT, _ALL_LINKS), (_RECEIVED, _ALL_LINKS))
        answered = optional(self._library, FIELD_VALUES, gpu.handle, wanted) or ()
        answers = {answer.fieldId: answer for answer in answered if answer.nvmlReturn == 0}
        values = self._sums_over_links(uuid, [answer for answer in answered if answer.fieldId in _OF_LINKS])
        for number, row in _NUMBERED.items():
            if number in _OF_LINKS:
                continue
            answer = answers.get(number)
            if answer is None:
                continue
            if row.unit is Unit.CELSIUS:
                # ignore the type of a temperature, as driver R545 calls it a double
                value = answer.value.uiVal
                is_wrong = value > _MOST_CELSIUS
            else:
                value = _number(answer)
                is_wrong = value in _NOTHING
            if not is_wrong:
                values[row.family] = str(value)
        if _SENT in answers and _RECEIVED in answers:
            kib = _number(answers[_SENT]) + _number(answers[_RECEIVED])
            moved = NvlinkBytes(kib, now)
            values[_THROUGHPUT] = throughput(self._sent.get(uuid), moved)
            self._sent[uuid] = moved
        return values

    def _sums_over_links(self, uuid: str, answers: Sequence[Any]) -> dict[str, str]:
        """The sums of a GPU's counters of single links by family. Those that it lacks are not asked for again."""
        supported = [answer for answer in answers if answer.nvmlReturn == 0 and _number(answer) not in _NOTHING]
        if answers:
            self._of_links.setdefault(uuid, tuple((answer.fieldId, answer.scopeId) for answer in supported))
        sums: Counter[str] = Counter()
        for answer in supported:
            sums[_OF_LINKS[answer.fieldId].family] += _number(answer)
        return {family: str(number) for family, number in sums.items()}


def _labels_of_instances(gpu: NvmlGpu) -> Mapping[str, Labels]:
    """The labels of each instance of a GPU that is cut, by the instance's number, in their order."""
    # if an instance has several compute instances, the first stands for it
    instances = {mig.instance_id: mig for mig in reversed(gpu.in_inventory.mig)}
    labels: dict[str, Labels] = {}
    for instance in sorted(instances, key=int):
        # a compute instance's profile begins with its own slices: 1c.3g.40gb is a part of a 3g.40gb
        profile = instances[instance].profile.rpartition("c.")[2]
        labels[instance] = (("GPU_I_PROFILE", profile), ("GPU_I_ID", instance))
    return labels


def _xid_sample(labels: bytes, xid: int) -> tuple[bytes, bytes, bytes]:
    meaning = render_labels((("err_code", str(xid)), ("err_msg", XIDS.get(xid, OTHER_XID).name)))
    return b"%b,%b" % (labels, meaning), b"%d" % xid, b""
