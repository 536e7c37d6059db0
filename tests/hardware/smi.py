"""What `nvidia-smi -q -x` says, by the names of the exporter's families and in their units.

Element names are those of the drivers 535 (nvsmi_device_v12.dtd) to 595 (v13), as in the documents of real H100, GB300,
L40S and T4 boards that NVIDIA/k8s-test-infra keeps. An element that is not there, or says N/A, is no value.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from xml.etree import ElementTree as ET

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_YES_NO = {"Yes": 1.0, "No": 0.0}
# nvml.h: nvmlClocksEventReason…; the names of the elements after clocks_event_reason_ (535: clocks_throttle_reason_)
_REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}
Read = Callable[[ET.Element], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiGpu:
    """A GPU. `labels` and `values` are by the names of the page; `memory_of` has MiB by pid, None if not known."""

    uuid: str
    serial: str
    labels: Mapping[str, str]
    values: Mapping[str, float]
    memory_of: Mapping[int, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiLog:
    """A whole document; `gpus` by UUID."""

    driver: str
    gpus: Mapping[str, SmiGpu]


def read_log(text: bytes) -> SmiLog:
    """Read a document. Raises ValueError: it is none, or is cut off."""
    try:
        root = ET.fromstring(text)  # noqa: S314 - the driver's own program wrote it
    except ET.ParseError as error:
        message = f"no XML of nvidia-smi: {error}"
        raise ValueError(message) from None
    driver = _text(root, "driver_version")
    gpus = [_gpu(element, driver) for element in root.iter("gpu")]
    return SmiLog(driver=driver, gpus={gpu.uuid: gpu for gpu in gpus})


def _gpu(element: ET.Element, driver: str) -> SmiGpu:
    values = {family: read(element) for family, read in FAMILIES.items()}
    labels = {
        "pci_bus_id": _said(element.get("id", "")),
        "modelName": _text(element, "product_name"),
        "device": f"nvidia{_text(element, 'minor_number')}",
        "DCGM_FI_DRIVER_VERSION": driver,
    }
    memory_of: dict[int, float | None] = {}
    for process in element.iterfind("processes/process_info"):
        memory_of[int(_text(process, "pid"))] = _number_in(_text(process, "used_memory"))
    return SmiGpu(
        uuid=_text(element, "uuid"),
        serial=_text(element, "serial"),
        labels=labels,
        values={family: value for family, value in values.items() if value is not None},
        memory_of=memory_of,
    )


def _text(element: ET.Element, path: str) -> str:
    """The text at a path; "" for none, and for N/A."""
    return _said((element.findtext(path) or "").strip())


def _said(text: str) -> str:
    return "" if text in {"N/A", "[N/A]"} else text


def _number_in(text: str) -> float | None:
    """The number at the beginning of a text such as "81559 MiB" or "16x"."""
    matched = _NUMBER.match(text)
    return float(matched.group()) if matched else None


def _first(*paths: str) -> Read:
    """The number at the first of these paths that has one."""

    def read(element: ET.Element) -> float | None:
        numbers = (_number_in(_text(element, path)) for path in paths)
        return next((number for number in numbers if number is not None), None)

    return read


def _sum(*paths: str) -> Read:
    """The sum of the numbers at these paths; None if there is none at all."""

    def read(element: ET.Element) -> float | None:
        numbers = [_number_in(_text(element, path)) for path in paths]
        there = [number for number in numbers if number is not None]
        return sum(there) if there else None

    return read


def _yes(path: str) -> Read:
    return lambda element: _YES_NO.get(_text(element, path))


def _times(read_one: Read, factor: float) -> Read:
    def read(element: ET.Element) -> float | None:
        number = read_one(element)
        return None if number is None else number * factor

    return read


def _reasons(element: ET.Element) -> float | None:
    """The bits of the reasons that are active."""
    for group, prefix in (
        ("clocks_event_reasons", "clocks_event_reason"),
        ("clocks_throttle_reasons", "clocks_throttle_reason"),
    ):
        of_group = element.find(group)
        if of_group is not None and len(of_group):
            active = [bit for name, bit in _REASONS.items() if _text(of_group, f"{prefix}_{name}") == "Active"]
            return float(sum(active))
    return None


def _ecc(*names: str) -> Read:
    return _sum(*(f"ecc_errors/volatile/{name}" for name in names))


def _event_time(name: str) -> Read:
    """Nanoseconds; the element has microseconds."""
    path = f"clocks_event_reasons_counters/clocks_event_reasons_counters_{name}"
    return _times(_first(path), 1000)


_POWER = "gpu_power_readings"
FAMILIES: Mapping[str, Read] = {
    "DCGM_FI_DEV_GPU_TEMP": _first("temperature/gpu_temp"),
    "DCGM_FI_DEV_MEMORY_TEMP": _first("temperature/memory_temp"),
    # From Ampere on nvmlDeviceGetPowerUsage is the mean of a second (nvml.h), which is the average here. T4 has none.
    "DCGM_FI_DEV_POWER_USAGE": _first(
        f"{_POWER}/average_power_draw",
        f"{_POWER}/instant_power_draw",
        f"{_POWER}/power_draw",
        "power_readings/power_draw",
    ),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": _first(
        f"{_POWER}/current_power_limit", f"{_POWER}/enforced_power_limit", "power_readings/enforced_power_limit"
    ),
    "DCGM_FI_DEV_SM_CLOCK": _first("clocks/sm_clock"),
    "DCGM_FI_DEV_MEM_CLOCK": _first("clocks/mem_clock"),
    "DCGM_FI_DEV_FB_TOTAL": _first("fb_memory_usage/total"),
    "DCGM_FI_DEV_FB_USED": _first("fb_memory_usage/used"),
    "DCGM_FI_DEV_FB_FREE": _first("fb_memory_usage/free"),
    "DCGM_FI_DEV_FB_RESERVED": _first("fb_memory_usage/reserved"),
    "DCGM_FI_DEV_GPU_UTIL": _first("utilization/gpu_util"),
    "DCGM_FI_DEV_MEM_COPY_UTIL": _first("utilization/memory_util"),
    "DCGM_FI_DEV_ENC_UTIL": _first("utilization/encoder_util"),
    "DCGM_FI_DEV_DEC_UTIL": _first("utilization/decoder_util"),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": _reasons,
    "DCGM_FI_DEV_POWER_VIOLATION": _event_time("sw_power_cap"),
    "DCGM_FI_DEV_SYNC_BOOST_VIOLATION": _event_time("sync_boost"),
    # T4 and older (Turing) have no SRAM parity of their own
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _ecc("sram_correctable", "dram_correctable"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _ecc(
        "sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable"
    ),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": _first("remapped_rows/remapped_row_corr"),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _first("remapped_rows/remapped_row_unc"),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": _yes("remapped_rows/remapped_row_pending"),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": _yes("remapped_rows/remapped_row_failure"),
    "DCGM_FI_DEV_RETIRED_PENDING": _yes("retired_pages/pending_retirement"),
    "DCGM_FI_DEV_PCIE_LINK_GEN": _first("pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": _first("pci/pci_gpu_link_info/link_widths/current_link_width"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": _first("pci/replay_counter"),
}


def of_driver(logs: Iterable[SmiLog]) -> str:
    """The driver's version; "" without a document."""
    return next((log.driver for log in logs if log.driver), "")
