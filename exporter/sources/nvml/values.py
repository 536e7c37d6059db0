"""What NVML tells of one GPU beside its processes, as values of dcgm-exporter's families.

Each call is asked by itself: what it does not support is left out, and never 0. Of a GPU that is cut dcgm-exporter
repeats all of this on each instance's row, but for the memory, which is the instance's own.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from exporter.sources.nvml.gpus import optional
from exporter.sources.nvml.library import Library
from exporter.sources.nvml.memory import Memory

_DEV = "DCGM_FI_DEV_"
_MIB = 1024**2
_MILLI = 1000
# NVML_VALUE_NOT_AVAILABLE in 32 and in 64 bits
_NOTHING = frozenset({0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
_MOST_PERCENT, _MOST_CELSIUS = 100, 200  # the driver sometimes tells rubbish: what is above says nothing
# arguments of nvml.h: nvmlClockType_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t, nvmlTemperatureSensors_t
_SM, _MEM = 1, 2
_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0
_OF_GPU = 0
_VGPU = 1  # NVML_GRID_LICENSE_FEATURE_CODE_VGPU
# nvmlPerfPolicyType_t
_VIOLATIONS = ("POWER", "THERMAL", "SYNC_BOOST", "BOARD_LIMIT", "LOW_UTIL", "RELIABILITY")
# NVML_FI_DEV_…: numbers of nvmlDeviceGetFieldValues, the throughput's of all links together
_MEMORY_TEMP, _SENT, _RECEIVED = 82, 138, 139
_ALL_LINKS = 0xFFFF_FFFF
_LINK_ERRORS = {38: "CRC_FLIT", 45: "CRC_DATA", 52: "REPLAY", 59: "RECOVERY"}
# nvmlValueType_t, by its number
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_KIB, _MB = 1024, 1_000_000

# One number, of one call.
_NUMBERS: Mapping[str, tuple[object, ...]] = {
    "SM_CLOCK": ("nvmlDeviceGetClockInfo", _SM),
    "MEM_CLOCK": ("nvmlDeviceGetClockInfo", _MEM),
    "TOTAL_ENERGY_CONSUMPTION": ("nvmlDeviceGetTotalEnergyConsumption",),
    "PCIE_REPLAY_COUNTER": ("nvmlDeviceGetPcieReplayCounter",),
    "PCIE_LINK_GEN": ("nvmlDeviceGetCurrPcieLinkGeneration",),
    "PCIE_LINK_WIDTH": ("nvmlDeviceGetCurrPcieLinkWidth",),
    "ECC_SBE_VOL_TOTAL": ("nvmlDeviceGetTotalEccErrors", _CORRECTED, _VOLATILE),
    "ECC_DBE_VOL_TOTAL": ("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE),
}
_MILLIWATTS = {"POWER_USAGE": "nvmlDeviceGetPowerUsage", "ENFORCED_POWER_LIMIT": "nvmlDeviceGetEnforcedPowerLimit"}
# Newer calls first: the second is what older drivers have.
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
_TEMPERATURES = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")


class Sent(NamedTuple):
    """What has gone over all NVLinks of a GPU until a moment (seconds)."""

    kib: int
    at: float


Ask = Callable[..., Any]


def values_of(library: Library, handle: object) -> dict[str, str]:
    """The values of a GPU by family, as text, in the family's unit; without memory, NVLink's throughput and XIDs.

    Raises:
        Failed: the GPU or the library is gone.
    """

    def ask(call: str, *arguments: object) -> Any:  # noqa: ANN401 - see Library.call
        return optional(library, call, handle, *arguments)

    found: dict[str, int | str | None] = {name: ask(*call) for name, call in _NUMBERS.items()}  # type: ignore[arg-type] # a name comes first
    for name, call in _MILLIWATTS.items():
        milliwatts = ask(call)
        found[name] = None if milliwatts in (None, *_NOTHING) else f"{milliwatts // _MILLI}.{milliwatts % _MILLI:03d}"
    found["GPU_TEMP"] = _first(ask, _TEMPERATURES, _OF_GPU)
    found["CLOCKS_EVENT_REASONS"] = _first(ask, _REASONS)
    for reason, policy in zip(_VIOLATIONS, range(len(_VIOLATIONS)), strict=True):
        lasted = ask("nvmlDeviceGetViolationStatus", policy)
        found[f"{reason}_VIOLATION"] = lasted.violationTime if lasted else None
    found.update(_utilisation(ask))
    found.update(_remapped_rows(ask))
    found.update(_licence(ask))
    return {_DEV + name: str(value) for name, value in found.items() if value is not None and value not in _NOTHING}


def fields_of(library: Library, handle: object, now: float) -> tuple[dict[str, str], Sent | None]:
    """What comes as numbered fields: the memory's temperature, errors of links, and what has gone over them by `now`.

    Raises:
        Failed: the GPU or the library is gone.
    """
    wanted = (_MEMORY_TEMP, *_LINK_ERRORS, (_SENT, _ALL_LINKS), (_RECEIVED, _ALL_LINKS))
    told = {each.fieldId: each for each in optional(library, "nvmlDeviceGetFieldValues", handle, wanted) or ()}
    known = {number: _number(each) for number, each in told.items() if each.nvmlReturn == 0}
    found = {f"{_DEV}NVLINK_{of}_ERROR_TOTAL": known[number] for number, of in _LINK_ERRORS.items() if number in known}
    if _MEMORY_TEMP in known and (celsius := told[_MEMORY_TEMP].value.uiVal) <= _MOST_CELSIUS:
        found[f"{_DEV}MEMORY_TEMP"] = celsius  # whatever its type says: driver R545 calls it a double
    sent = Sent(known[_SENT] + known[_RECEIVED], now) if _SENT in known and _RECEIVED in known else None
    return {name: str(value) for name, value in found.items() if value not in _NOTHING}, sent


def throughput(before: Sent | None, now: Sent) -> str:
    """MB a second since the reading before; 0 for the first one, as DCGM has it, and after a restart of the driver."""
    if before is None or now.at <= before.at:
        return "0"
    return str(round(max(0, now.kib - before.kib) * _KIB / _MB / (now.at - before.at)))


def of_memory(memory: Memory) -> Iterator[tuple[str, str]]:
    """The families of memory: whole MiB, rounded down as DCGM does."""
    for name, size in (("TOTAL", memory.total), ("USED", memory.used), ("FREE", memory.free)):
        yield f"{_DEV}FB_{name}", str(size // _MIB)
    if memory.reserved is not None:
        yield f"{_DEV}FB_RESERVED", str(memory.reserved // _MIB)


def _first(ask: Ask, calls: tuple[str, ...], *arguments: object) -> int | None:
    """What the first of these calls says that says anything."""
    for call in calls:
        found: int | None = ask(call, *arguments)
        if found is not None:
            return found
    return None


def _utilisation(ask: Ask) -> Iterator[tuple[str, int | None]]:
    rates, encoder, decoder = (
        ask(f"nvmlDeviceGet{of}") for of in ("UtilizationRates", "EncoderUtilization", "DecoderUtilization")
    )
    for name, percent in (
        ("GPU_UTIL", rates.gpu if rates else None),
        ("MEM_COPY_UTIL", rates.memory if rates else None),
        ("ENC_UTIL", encoder[0] if encoder else None),
        ("DEC_UTIL", decoder[0] if decoder else None),
    ):
        yield name, None if percent is None or percent > _MOST_PERCENT else percent


def _remapped_rows(ask: Ask) -> Iterator[tuple[str, int]]:
    names = ("CORRECTABLE_REMAPPED_ROWS", "UNCORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_PENDING", "ROW_REMAP_FAILURE")
    yield from zip(names, ask("nvmlDeviceGetRemappedRows") or (), strict=False)


def _licence(ask: Ask) -> Iterator[tuple[str, int]]:
    """Where no licence can be had none is missing: that is a 0, as DCGM has it."""
    told = ask("nvmlDeviceGetGridLicensableFeatures")
    if told is None:
        return
    features = told.gridLicensableFeatures[: told.licensableFeaturesCount] if told.isGridLicenseSupported else ()
    yield "VGPU_LICENSE_STATUS", int(any(each.featureCode == _VGPU and each.featureState > 0 for each in features))


def _number(field: Any) -> int:  # noqa: ANN401 - the bindings have no types
    return int(getattr(field.value, _MEMBERS[field.valueType])) if field.valueType < len(_MEMBERS) else 0
