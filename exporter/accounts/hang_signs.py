"""Signs: the values of a device that tell a kernel that works from one that only waits.

Tests: tests/accounts/test_hang_signs.py, tests/accounts/test_hangs.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporter.accounts.device_columns import Columns, DeviceColumns
from exporter.dcgm.fields import FIELDS
from exporter.model.devices import DeviceKey
from exporter.model.nothing import NOTHING
from exporter.model.pages import JoinedPage
from exporter.model.slices import Work

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
# The fields of each column, and the number by which their values are divided.
_COLUMNS: Sequence[tuple[Sequence[str], float]] = (
    (["PROF_GR_ENGINE_ACTIVE"], 1.0),
    (["DEV_GPU_UTIL"], _PERCENT),
    (["DEV_POWER_USAGE"], 1.0),
    (["PROF_PIPE_TENSOR_ACTIVE"], 1.0),
    (["PROF_DRAM_ACTIVE"], 1.0),
    (["DEV_MEM_COPY_UTIL"], _PERCENT),
    ([f"PROF_PIPE_{pipe}_ACTIVE" for pipe in ("FP16", "FP32", "FP64", "INT")], 1.0),
    (["PROF_PCIE_TX_BYTES"], 1.0),
    (["PROF_PCIE_RX_BYTES"], 1.0),
    (["PROF_NVLINK_TX_BYTES"], 1.0),
    (["PROF_NVLINK_RX_BYTES"], 1.0),
)
_COLUMN_OF = {name: (number, per) for number, (names, per) in enumerate(_COLUMNS) for name in names}


def _families() -> Mapping[bytes, tuple[int, float]]:
    """By family: its column, and the factor that makes its unit the attribute's."""
    families: dict[bytes, tuple[int, float]] = {}
    for name, field in FIELDS.items():
        if field.name in _COLUMN_OF:
            column, per = _COLUMN_OF[field.name]
            families[name.encode()] = column, field.times / field.per / per
    return families


class SignsReader:
    """Reads pages."""

    def __init__(self) -> None:
        self._columns = DeviceColumns(_families())

    def read(self, joined: JoinedPage) -> Work[Signs]:
        """The signs of every device on the page. Rows of a virtual GPU are left out."""
        columns = yield from self._columns.read(joined)
        return {key: _signs(of_device) for key, of_device in columns.items()}


def _signs(columns: Columns) -> DeviceSigns:
    """What the columns say. A page may have a field under two names: the first value counts."""
    engine, utilization, power, tensor, dram, copies, pipes, *traffic = columns
    pcie_sent, pcie_received, nvlink_sent, nvlink_received = traffic
    return DeviceSigns(
        gr_engine=engine[0] if engine else None,
        utilization=utilization[0] if utilization else None,
        power=power[0] if power else None,
        tensor=tensor[0] if tensor else None,
        dram=dram[0] if dram else None,
        copies=copies[0] if copies else None,
        pipes=max(pipes) if pipes else None,
        pcie=_sum(pcie_sent, pcie_received),
        nvlink=_sum(nvlink_sent, nvlink_received),
    )


def _sum(sent: Sequence[float], received: Sequence[float]) -> float | None:
    """Both directions together; None if the page has neither."""
    return sum([*sent[:1], *received[:1]]) if sent or received else None
