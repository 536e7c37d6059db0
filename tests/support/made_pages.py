"""Pages of a dcgm-exporter that are always the same: values follow from how busy a device is, and from the time."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from exporter.simulator.dcgm_pages import FAMILIES, NVLINK, SimulatedFamily, SimulatedRow
from exporter.simulator.parts import bus_id

Value = Callable[[float, float], float]
Owner = tuple[str, str, str]  # container, namespace and pod; with dcgm-exporter's -k
SECONDS = 3600.0
_DEV, _PROF = "DCGM_FI_DEV_", "DCGM_FI_PROF_"


def _between(low: float, high: float) -> Value:
    return lambda busy, _: low + (high - low) * busy


def _grows(per_second: float) -> Value:
    return lambda busy, seconds: seconds * per_second * (0.2 + busy)


# of others it is 0
_VALUES: dict[str, Value] = {
    _DEV + "SM_CLOCK": _between(345, 1980),
    _DEV + "MEM_CLOCK": _between(2619, 2619),
    _DEV + "MEMORY_TEMP": _between(38, 92),
    _DEV + "GPU_TEMP": _between(30, 78),
    _DEV + "POWER_USAGE": _between(70, 690),
    _DEV + "TOTAL_ENERGY_CONSUMPTION": _grows(400_000),
    _DEV + "GPU_UTIL": _between(0, 100),
    _DEV + "MEM_COPY_UTIL": _between(0, 70),
    _DEV + "FB_FREE": _between(81_000, 9_000),
    _DEV + "FB_USED": _between(0, 72_000),
    _DEV + "FB_RESERVED": _between(559, 559),
    NVLINK: _grows(120),
    _PROF + "GR_ENGINE_ACTIVE": _between(0, 1),
    _PROF + "PIPE_TENSOR_ACTIVE": _between(0, 0.7),
    _PROF + "DRAM_ACTIVE": _between(0, 0.8),
    _PROF + "PCIE_TX_BYTES": _between(200_000, 4_300_000_000),
    _PROF + "PCIE_RX_BYTES": _between(200_000, 2_600_000_000),
    _DEV + "LOW_UTIL_VIOLATION": _grows(3),
}
_LANE = re.compile(_PROF + r"NVLINK_L(?P<lane>[0-9]+)_(?P<direction>[TR]X)_BYTES")
_COPY = re.compile(r"_[0-9]$")  # see `copies`
_OF_WHOLE = {_DEV + name for name in ("GPU_UTIL", "MEM_COPY_UTIL", "ENC_UTIL", "DEC_UTIL")}


def value(name: str, busy: float, seconds: float = SECONDS) -> float:
    """The value of a family on a device that is so busy (0 to 1), so long after the start."""
    number = _LANE.fullmatch(name)
    if number:
        return (20_000_000 + 2 * int(number["lane"]) + (number["direction"] == "RX")) * busy
    return _VALUES.get(_COPY.sub("", name), _between(0, 0))(busy, seconds)


def made_row(
    index: int,
    uuid: str,
    busy: float,
    families: Iterable[SimulatedFamily] = FAMILIES,
    *,
    seconds: float = SECONDS,
    profile: str = "",
    instance_id: int | None = None,
    owner: Owner | None = None,
    vgpu: str = "",
    readings: dict[str, float] | None = None,
) -> SimulatedRow:
    """A device's row; with `readings` those are its values."""
    labels = tuple(zip(("container", "namespace", "pod"), owner, strict=True)) if owner else ()
    made = {
        family.name: value(family.name, busy, seconds)
        for family in families
        if instance_id is None or family.name not in _OF_WHOLE
    }
    return SimulatedRow(
        index=index,
        uuid=uuid,
        profile=profile,
        instance_id=instance_id,
        labels=(*labels, ("vgpu", vgpu)) if vgpu else labels,
        readings=made if readings is None else readings,
    )


def more_families(count: int) -> tuple[SimulatedFamily, ...]:
    """`count` families: the default ones and, beside them, profiling families, as a long counter file asks for."""
    names = (
        f"{_PROF}NVLINK_L{number // 2}_{'RX' if number % 2 else 'TX'}_BYTES" for number in range(count - len(FAMILIES))
    )
    extra = (SimulatedFamily(name=name, newer=name, help="Bytes over one NVLink lane a second.") for name in names)
    return (*FAMILIES, *extra)[:count]


def copies(families: Sequence[SimulatedFamily], times: int) -> list[SimulatedFamily]:
    """The families so many times more, by other names."""
    return [replace(family, name=f"{family.name}_{n}", newer="") for n in range(times) for family in families]


def link_rows(rows: Sequence[SimulatedRow], busy: Sequence[float], host_name: str = "gpu-node-1") -> str:
    """A row for an NvLink of each GPU, one for a CPU and one for an NvSwitch, as generation 3 writes them."""
    lines = ["# HELP DCGM_FI_PROF_NVLINK_TX_BYTES Bytes sent over an NvLink a second."]
    lines.append("# TYPE DCGM_FI_PROF_NVLINK_TX_BYTES gauge")
    for row, part in zip(rows, busy, strict=True):
        labels = (
            f'nvlink="0",gpu="{row.index}",gpu_uuid="{row.uuid}",pci_bus_id="{bus_id(row.index)}",'
            f'device="nvidia{row.index}",model_name="{row.model}",Hostname="{host_name}"'
        )
        lines.append(f"DCGM_FI_PROF_NVLINK_TX_BYTES{{{labels}}} {round(part * 1_000_000)}")
    for kind, name, number in (
        ("cpu", "DCGM_FI_DEV_CPU_UTIL_TOTAL", "0.25"),
        ("nvswitch", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", "41"),
    ):
        lines += (
            f"# HELP {name} Of the {kind}.",
            f"# TYPE {name} gauge",
            f'{name}{{{kind}="0",Hostname="{host_name}"}} {number}',
        )
    return "\n".join(lines) + "\n"
