"""The families of each generation of DCGM by the names, units and label names of one of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from exporter.dcgm.fields import FIELDS, Field
from exporter.dcgm.table import TABLE, DcgmField, Unit

OLDER, NEWER = "4.8", "4.9"
_DRIVER_LABELS = {OLDER: "DCGM_FI_DRIVER_VERSION", NEWER: "DCGM_FI_SYSTEM_DRIVER_VERSION"}
# of the shell version, whose samples lack most labels; nobody takes them for those of a later one
_SHELL = "dcgm_"


@dataclass(frozen=True, slots=True)
class NewName:
    """What a family goes out as: its name, TYPE and HELP text. Its values are multiplied by `times` / `per`."""

    name: str
    kind: str
    help: str
    times: int = 1
    per: int = 1


def names_in(generation: str) -> Mapping[str, NewName]:
    """The families of DCGM's fields by their names on a page, as `generation` (OLDER or NEWER) has them.

    A family that is of this generation keeps its name and its values.
    """
    rows = {row.name: row for row in TABLE if row.kind != "label"}
    return {
        name: _new_name(rows[field.name], generation, field)
        for name, field in FIELDS.items()
        if field.name in rows and not name.startswith(_SHELL)
    }


def label_names_in(*generations: str) -> Mapping[str, tuple[str, ...]]:
    """The labels that have other names in these generations, and these names.

    A page of both has each on every sample: then `older or newer` is one series in a query, and not two.
    """
    drivers = tuple(_DRIVER_LABELS[generation] for generation in generations)
    others = {label: drivers for label in _DRIVER_LABELS.values() if drivers != (label,)}
    return {"Hostname": ("hostname",), **others}  # up to 4.8.2 it was written so


def _new_name(row: DcgmField, generation: str, field: Field) -> NewName:
    name, unit = (row.newer_family, row.newer_unit) if generation == NEWER else (row.family, row.unit)
    # field.times / field.per make the row's first unit of a value
    times, per = field.times * row.unit.times * unit.per, field.per * row.unit.per * unit.times
    common = gcd(times, per)
    return NewName(name, row.kind, _help_in(unit, row), times // common, per // common)


def _help_in(unit: Unit, row: DcgmField) -> str:
    if unit is row.unit:
        return row.help
    text = row.help.rpartition(" (")[0]
    return f"{text} ({unit.symbol})." if unit is Unit.RATIO else f"{text} (in {unit.symbol})."
