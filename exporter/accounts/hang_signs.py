"""Signs: the values of a device that tell a kernel that works from one that only waits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from exporter.dcgm.fields import FIELDS
from exporter.dividing.decimals import is_amount
from exporter.model.devices import DeviceKey
from exporter.model.nothing import NOTHING
from exporter.model.pages import JoinedPage, Sampled
from exporter.model.slices import ITEMS_A_SLICE, Work, listed

_PERCENT = 100.0


@dataclass(slots=True, kw_only=True)
class DeviceSigns:
    """The values of one device on a page; None for those that the page lacks.

    Attributes:
        gr_engine: PROF_GR_ENGINE_ACTIVE, the mean over dcgm-exporter's interval (0 to 1).
        utilization: DEV_GPU_UTIL, the part of a second or less in which a kernel was resident (0 to 1).
        power: DEV_POWER_USAGE in W. On the row of a MIG instance it is the whole GPU's.
        tensor: PROF_PIPE_TENSOR_ACTIVE (0 to 1).
        dram: PROF_DRAM_ACTIVE (0 to 1).
        copies: DEV_MEM_COPY_UTIL, the part of the time in which memory was read or written (0 to 1).
        pipes: the largest of PROF_PIPE_FP16_ACTIVE, FP32, FP64 and INT (0 to 1).
        pcie: bytes per second over PCIe, in both directions.
        nvlink: bytes per second over NVLink, in both directions.
    """

    gr_engine: float | None = None
    utilization: float | None = None
    power: float | None = None
    tensor: float | None = None
    dram: float | None = None
    copies: float | None = None
    pipes: float | None = None
    pcie: float | None = None
    nvlink: float | None = None

    @property
    def activity(self) -> float | None:
        """The part of the time in which a kernel was resident; None if the page does not say it."""
        return self.utilization if self.gr_engine is None else self.gr_engine

    @property
    def memory(self) -> float | None:
        """The activity of the device's memory: by the profiling counter, else by the driver's utilisation."""
        return self.copies if self.dram is None else self.dram


Signs = Mapping[DeviceKey, DeviceSigns]
NO_SIGNS: Signs = NOTHING
_Put = Callable[[DeviceSigns, float], None]


def _first(name: str, per: float = 1.0) -> _Put:
    """Keeps the first value: a page may have a field under two names."""

    def put(signs: DeviceSigns, value: float) -> None:
        if getattr(signs, name) is None:
            setattr(signs, name, value / per)

    return put


def _pipe(signs: DeviceSigns, value: float) -> None:
    signs.pipes = max(signs.pipes or 0.0, value)


def _sum(name: str) -> _Put:
    def put(signs: DeviceSigns, value: float) -> None:
        setattr(signs, name, (getattr(signs, name) or 0.0) + value)

    return put


_PUTS: Mapping[str, _Put] = {
    "PROF_GR_ENGINE_ACTIVE": _first("gr_engine"),
    "DEV_GPU_UTIL": _first("utilization", _PERCENT),
    "DEV_POWER_USAGE": _first("power"),
    "PROF_PIPE_TENSOR_ACTIVE": _first("tensor"),
    "PROF_DRAM_ACTIVE": _first("dram"),
    "DEV_MEM_COPY_UTIL": _first("copies", _PERCENT),
    **dict.fromkeys([f"PROF_PIPE_{pipe}_ACTIVE" for pipe in ("FP16", "FP32", "FP64", "INT")], _pipe),
    **dict.fromkeys(("PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES"), _sum("pcie")),
    **dict.fromkeys(("PROF_NVLINK_TX_BYTES", "PROF_NVLINK_RX_BYTES"), _sum("nvlink")),
}
# By family: what keeps the value, and the factor of its unit.
_FAMILIES = {
    name.encode(): (_PUTS[field.name], field.times / field.per) for name, field in FIELDS.items() if field.name in _PUTS
}
FAMILIES_OF_SIGNS = frozenset(_FAMILIES)


class SignsReader:
    """Reads pages. It works out the place of each series once, and again when a page has other series."""

    def __init__(self) -> None:
        self._series: Sequence[Sampled] = ()
        self._places: Sequence[tuple[DeviceKey, _Put, float] | None] = ()

    def read(self, joined: JoinedPage) -> Work[Signs]:
        """The signs of every device on the page. Rows of a virtual GPU are left out."""
        readings = yield from listed(joined.readings(FAMILIES_OF_SIGNS))
        series = [sampled for sampled, _ in readings]
        if series != self._series:
            self._places = [_place(sampled) for sampled in series]
            self._series = series
        signs: dict[DeviceKey, DeviceSigns] = {}
        for number, ((_, text), place) in enumerate(zip(readings, self._places, strict=True), start=1):
            if not number % ITEMS_A_SLICE:
                yield
            if place is None or not is_amount(text):
                continue
            key, put, factor = place
            of_device = signs.get(key)
            if of_device is None:
                of_device = signs[key] = DeviceSigns()
            put(of_device, float(text) * factor)
        return signs


def _place(sampled: Sampled) -> tuple[DeviceKey, _Put, float] | None:
    subject = sampled.subject
    if subject.vgpu:
        return None
    put, factor = _FAMILIES[sampled.name]
    return subject.key, put, factor
