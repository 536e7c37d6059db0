"""What NVML tells of one GPU beside its processes, as values of dcgm-exporter's families.

What a function does not support is left out, never 0. As in dcgm-exporter, a cut GPU's instances repeat all but memory.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from exporter.dcgm.fields import NVML
from exporter.dcgm.table import EVENTS, FIELD_VALUES, GPM_METRICS, LICENCES, MEMORY_INFO, DcgmField, NvmlCall, Unit
from exporter.sources.nvml.gpus import optional
from exporter.sources.nvml.library import LACKS, Failed, Library

_V2 = 0x0200_0028  # nvmlMemory_v2 of nvml.h: version 2 of a struct of 40 bytes
_KIB, _MIB, _MB = 1024, 1024**2, 1_000_000
_MILLI = 1000
# NVML_VALUE_NOT_AVAILABLE in 32 and in 64 bits
_NOTHING = frozenset({0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
_MOST_PERCENT, _MOST_CELSIUS = 100, 200  # drivers sometimes answer more, which means nothing
_VGPU = 1  # NVML_GRID_LICENSE_FEATURE_CODE_VGPU
_ALL_LINKS = 0xFFFF_FFFF
# nvmlValueType_t, by its number
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def _functions() -> Mapping[NvmlCall, list[tuple[int | None, DcgmField]]]:
    """What is asked for one answer, with the places in the answer and the rows that they fill."""
    rows = defaultdict(list)
    for function, calls in NVML.items():
        if function not in {EVENTS, FIELD_VALUES, GPM_METRICS, LICENCES, MEMORY_INFO}:
            for call, row in calls:
                rows[call._replace(take=None)].append((call.take, row))
    return rows


_FUNCTIONS = _functions()
_NUMBERED = {call.arguments[0]: row for call, row in NVML[FIELD_VALUES] if len(call.arguments) == 1}
((_SENT, _RECEIVED),) = (call.arguments for call, _ in NVML[FIELD_VALUES] if len(call.arguments) > 1)


class Memory(NamedTuple):
    """In bytes. `reserved` is the driver's own and no part of `used`; before R510 it is None, and a part of `used`."""

    total: int
    used: int
    free: int
    reserved: int | None


class NvlinkBytes(NamedTuple):
    """What has gone over all NVLinks of a GPU until a moment (seconds)."""

    kib: int
    at: float


def memory_of(library: Library, handle: object) -> Memory | None:
    """The memory of a GPU, or of the GPU instance of a MIG device, if it is told. Raises Failed: as `optional` does."""
    try:
        info = library.call(MEMORY_INFO, handle, _V2)
    except Failed as failed:
        if failed.scope != "call":
            raise
        if failed.code not in LACKS:
            return None
    else:
        return Memory(info.total, info.used, info.free, info.reserved)
    old = optional(library, MEMORY_INFO, handle)
    return Memory(old.total, old.used, old.free, None) if old else None


def memory_values(memory: Memory) -> Mapping[str, str]:
    """The families of memory: whole MiB, rounded down as DCGM does."""
    sizes = ((row.family, memory[call.take or 0]) for call, row in NVML[MEMORY_INFO])
    return {family: str(size // _MIB) for family, size in sizes if size is not None}


def values_of(library: Library, handle: object) -> dict[str, str]:
    """A GPU's values by family, in its unit, as text: those of one function each. Raises Failed: as `optional` does."""
    values = _licence(optional(library, LICENCES, handle))
    for call, rows in _FUNCTIONS.items():
        answer = optional(library, call.function, handle, *call.arguments)
        if answer is None and call.older:
            answer = optional(library, call.older, handle, *call.arguments)
        if answer is not None:
            values.update(_values_in(answer, rows))
    return values


def _values_in(answer: Any, rows: Iterable[tuple[int | None, DcgmField]]) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - the bindings have no types
    # the bindings answer with a number, a sequence or a struct
    members = getattr(answer, "_fields_", ())
    for place, row in rows:
        number = answer if place is None else getattr(answer, members[place][0]) if members else answer[place]
        if number not in _NOTHING and (row.unit is not Unit.PERCENT or number <= _MOST_PERCENT):
            is_milli = row.unit is Unit.WATTS
            yield row.family, f"{number // _MILLI}.{number % _MILLI:03d}" if is_milli else str(number)


def fields_of(library: Library, handle: object, now: float) -> tuple[dict[str, str], NvlinkBytes | None]:
    """Numbered fields: memory's temperature, links' errors and bytes by `now`. Raises Failed: as `optional` does."""
    wanted = (*_NUMBERED, (_SENT, _ALL_LINKS), (_RECEIVED, _ALL_LINKS))
    answers = {each.fieldId: each for each in optional(library, FIELD_VALUES, handle, wanted) or ()}
    numbers = {number: _number(each) for number, each in answers.items() if each.nvmlReturn == 0}
    values = {}
    for number, row in _NUMBERED.items():
        if number in numbers:
            is_celsius = row.unit is Unit.CELSIUS
            # whatever the type of a temperature says: driver R545 calls it a double
            value = answers[number].value.uiVal if is_celsius else numbers[number]
            if value not in _NOTHING and not (is_celsius and value > _MOST_CELSIUS):
                values[row.family] = str(value)
    sent = NvlinkBytes(numbers[_SENT] + numbers[_RECEIVED], now) if _SENT in numbers and _RECEIVED in numbers else None
    return values, sent


def throughput(before: NvlinkBytes | None, now: NvlinkBytes) -> str:
    """MB a second since the reading before; 0 for the first one, as DCGM has it, and after a restart of the driver."""
    if before is None or now.at <= before.at:
        return "0"
    return str(round(max(0, now.kib - before.kib) * _KIB / _MB / (now.at - before.at)))


def _licence(answered: Any) -> dict[str, str]:  # noqa: ANN401 - the bindings have no types
    """Where no licence can be had none is missing: that is a 0, as DCGM has it."""
    if answered is None:
        return {}
    features = answered.gridLicensableFeatures[: answered.licensableFeaturesCount]
    is_licensed = any(each.featureCode == _VGPU and each.featureState > 0 for each in features)
    licensed = str(int(bool(answered.isGridLicenseSupported) and is_licensed))
    return {row.family: licensed for _, row in NVML[LICENCES]}


def _number(field: Any) -> int:  # noqa: ANN401 - the bindings have no types
    return int(getattr(field.value, _MEMBERS[field.valueType])) if field.valueType < len(_MEMBERS) else 0
