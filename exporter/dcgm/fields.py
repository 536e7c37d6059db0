"""DCGM's fields by the names of their families; made of the table.

A family that is not in the table is copied to every owner, and has no JSON field.

Tests: tests/dcgm/test_table.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.dcgm.links import LABEL, LinkCounter, counter_of, families_of_one_link
from exporter.dcgm.table import COUNTERS_FILES, GROUPS, TABLE, Additive, DcgmField, NvmlCall, Unit
from exporter.model.health import HealthReason


@dataclass(frozen=True, slots=True)
class Field:
    """A field by one of its names. The JSON value is the sample's value * `times` / `per`.

    `json` "": JSON lacks the field. `name` is the name in the table's row.
    """

    json: str = ""
    times: int = 1
    per: int = 1
    additive: Additive | None = None
    of_gpu: bool = False
    name: str = ""
    accounts: tuple[str, int] | None = None
    otel: tuple[str, str, str] | None = None


def _names(row: DcgmField) -> Iterator[tuple[str, Unit]]:
    yield from ((name, row.unit) for name in (row.family, row.oldest, *row.also) if name)
    if row.name.startswith("PROF_"):
        yield f"dcgm_fi_{row.name.lower()}", row.unit
    if row.newer:
        yield from ((name, row.newer_unit) for name in (row.newer_family, *row.also_newer))


def _field(row: DcgmField, unit: Unit) -> Field:
    times = unit.times * row.unit.per
    per = unit.per * row.unit.times
    if times == per:
        times = per = 1
    return Field(row.json[0] if row.json else "", times, per, row.additive, row.of_gpu, row.name, row.accounts)


_BY_NAME = [(name, row, unit) for row in TABLE for name, unit in _names(row)]
FIELDS: Mapping[str, Field] = {name: _field(row, unit) for name, row, unit in _BY_NAME}
OTEL: Mapping[str, Field] = {
    name: Field(times=unit.times, per=unit.per, name=row.name, otel=row.otel)
    for row in sorted(TABLE, key=lambda row: row.name == "DEV_GPU_UTIL")  # MIG instances have only the activity
    for name, unit in _names(row)
    if row.otel
}
"""The fields for which OpenTelemetry has a metric, with the factor that gives its unit; the first field counts."""


class HealthRule(NamedTuple):
    """A rule for a GPU's health by a field (docs/health.md).

    It holds if the value is not 0, or has one of `bits`.
    """

    reason: HealthReason
    bits: int = 0


_FREE = "reset the GPU when it is free"
_REPLACE = "have the GPU replaced: ask the vendor of the node"
_AIR = "look at fans, airflow and the room; compare it with the node's other GPUs"
_POWER = "look at the node's power supply and its limits"
_RECOVER = HealthRule(HealthReason("nvlink-recovery", "a link of NVLink has to recover", _FREE, "degraded"), 1)
_FATAL = HealthReason(
    "nvlink-fatal", "a fatal error of NVLink", "reset the GPU; if it comes back, check the link", "failing"
)
_REMAPS = HealthReason("row-remap-pending", "a row of memory waits to be remapped", _FREE, "degraded")
_FAILED = HealthReason("row-remap-failed", "a row of memory could not be remapped", _REPLACE, "failing")
RULES: Mapping[str, tuple[HealthRule, ...]] = {
    "DEV_ECC_DBE_VOL_TOTAL": (HealthRule(HealthReason("ecc", "uncorrected errors of memory", _FREE, "degraded")),),
    "DEV_ROW_REMAP_PENDING": (HealthRule(_REMAPS),),
    "DEV_ROW_REMAP_FAILURE": (HealthRule(_FAILED),),
    "DEV_RETIRED_PENDING": (
        HealthRule(HealthReason("page-pending", "a memory page waits to be retired", _FREE, "degraded")),
    ),
    # dcgm_structs.h: 1 DCGM_GPU_NVLINK_ERROR_RECOVERY_REQUIRED, 2 …_FATAL
    "DEV_GPU_NVLINK_ERRORS": (_RECOVER, HealthRule(_FATAL, 2)),
    # nvml.h, nvmlClocksEventReason…; a power cap in software (0x4) is normal on GPUs
    "DEV_CLOCKS_EVENT_REASONS": (
        HealthRule(HealthReason("hot", "heat lowers its clocks", _AIR, "degraded"), 0x20 | 0x40),
        HealthRule(HealthReason("power", "the power brake lowers its clocks", _POWER, "degraded"), 0x80),
        HealthRule(
            HealthReason("slowdown", "the hardware has lowered its clocks to half or less", _POWER, "degraded"), 0x8
        ),
    ),
}
HEALTH = {name.encode(): RULES[row.name] for name, row, _ in _BY_NAME if row.name in RULES}
"""The fields that tell their GPU's health."""


def _link_counters() -> Iterator[tuple[bytes, LinkCounter]]:
    for name, row, _ in _BY_NAME:
        counter = counter_of(row.name)
        if counter is not None:
            yield name.encode(), counter
    for name, counter in families_of_one_link():
        yield name.encode(), counter


LINK_COUNTERS: Mapping[bytes, LinkCounter] = dict(_link_counters())
"""The counter of each family that counts errors of links, by the family's name on pages."""
METRICS = tuple(name for _, name in sorted((row.json[1], row.json[0]) for row in TABLE if row.json))
"""The JSON fields of /container/metrics, in their order there."""
ADDITIVE = {name: field.additive for name, field in FIELDS.items() if field.additive is not None}
OWN_LABELS = {name.encode(): row.labels for name, row, _ in _BY_NAME if row.labels}
"""The labels that tell a device's samples of the same family apart, by the family's name."""
OWN_LABELS.update(dict.fromkeys(LINK_COUNTERS, (LABEL,)))
OF_GPU = frozenset(name for name, field in FIELDS.items() if field.of_gpu)
ACTIVITY = frozenset(name for name, field in FIELDS.items() if field.json == "graphics_engine_active")


NVML: dict[str, list[tuple[NvmlCall, DcgmField]]] = {}
"""The rows of the fields that NVML knows, by the function that gives their values."""
for _row in TABLE:
    if _row.nvml is not None:
        NVML.setdefault(_row.nvml.function, []).append((_row.nvml, _row))


def counters_csv(names: tuple[str, ...] | None, exporter: str = COUNTERS_FILES[-1]) -> str:
    """A counters file of these fields, or daemonset.yaml's. An unknown field becomes a gauge, with its name as help.

    `exporter`, one of COUNTERS_FILES, is the oldest dcgm-exporter that must know every name of the whole list.
    """
    if names is None:
        return "".join(_part_of_file(heading, rows, exporter) for heading, rows in GROUPS)
    lines = {row.family: _line(row, row.family) for row in TABLE if row.is_in_file}
    return "".join(lines.get(name) or f"{name}, gauge, {name}.\n" for name in names)


def _part_of_file(heading: str, rows: Sequence[DcgmField], exporter: str) -> str:
    names = [(_name_for(row, exporter), row) for row in rows if row.is_in_file]
    lines = [_line(row, name) for name, row in names if name]
    return f"# {heading}\n{''.join(lines)}"


def _name_for(row: DcgmField, exporter: str) -> str:
    """The name that this dcgm-exporter has for the field; "" if it does not know the field."""
    is_known = not row.since or COUNTERS_FILES.index(row.since) <= COUNTERS_FILES.index(exporter)
    if is_known:
        return row.family
    return f"DCGM_FI_{row.before}" if row.before else ""


def _line(row: DcgmField, name: str) -> str:
    return f"{name}, {row.kind}, {row.help}\n"
