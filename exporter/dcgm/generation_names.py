"""The names and units of DCGM's fields in a generation: the table's fields, and fields of which only the name changed.

The latter are in DCGM's dictionary. It is read only if a setting asks for another generation's names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd

from exporter.dcgm.fields import FIELDS, Field
from exporter.dcgm.table import TABLE, DcgmField, Unit

OLDER = "4.8"
NEWER = "4.9"
# names of the shell version, whose samples lack most labels, so that nobody takes them for later samples
_SHELL = "dcgm_"
# dcgm-exporter's own list has these fields. Their names stay; only their samples' labels change.
_UNCHANGED = (
    *("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"),
    *("DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_GPU_HEALTH_STATUS", "DCGM_EXP_P2P_STATUS"),
)


@dataclass(frozen=True, slots=True)
class NewName:
    """The new name, TYPE and HELP text of a family; "" for a text that stays.

    Its values are multiplied by `times` / `per`.
    """

    name: str
    kind: str = ""
    help: str = ""
    times: int = 1
    per: int = 1


def renamed() -> Iterator[tuple[str, str]]:
    """The older and the newer whole name of each field whose name changed with DCGM 4.6.

    Both are names of one number (dcgm_fields.h), so values stay. A field that is in the table has the name and the unit
    that 4.9 gives it there.
    """
    from exporter.dcgm import dictionary  # noqa: PLC0415 - most nodes never read it

    book = dictionary.dictionary()
    for entry in book.entries.values():
        older = book.names(entry, dictionary.LAST_WITH_OLDER_NAMES)
        newer = book.names(entry, dictionary.LAST_WITH_ALIASES)
        if older and older[-1] != newer[-1]:
            yield dictionary.PREFIX + older[-1], dictionary.PREFIX + newer[-1]


def names_in(generation: str) -> Mapping[str, NewName]:
    """The families of DCGM's fields by their names on a page, as `generation` (OLDER or NEWER) has them.

    A family of this generation keeps its name and its values.
    """
    rows = {row.name: row for row in TABLE if row.kind != "label"}
    names = {
        name: _new_name(rows[field.name], generation, field)
        for name, field in FIELDS.items()
        if field.name in rows and not name.startswith(_SHELL)
    }
    for older, newer in renamed():
        if older not in FIELDS:
            names[older] = names[newer] = NewName(newer if generation == NEWER else older)
    return names | {name: NewName(name) for name in _UNCHANGED}


def label_names_in(*generations: str) -> Mapping[str, tuple[str, ...]]:
    """The labels that have other names in these generations, and these names. Any field may be a label.

    A page of both generations has both names on every sample, so that `older or newer` is one series in a query.
    """
    labels: dict[str, tuple[str, ...]] = {"Hostname": ("hostname",)}  # dcgm-exporter's name up to 4.8.2
    for pair in renamed():
        of_generation = dict(zip((OLDER, NEWER), pair, strict=True))
        names = tuple(of_generation[generation] for generation in generations)
        labels |= {label: names for label in pair if names != (label,)}
    return labels


def _new_name(row: DcgmField, generation: str, field: Field) -> NewName:
    name, unit = (row.newer_family, row.newer_unit) if generation == NEWER else (row.family, row.unit)
    # times / per of `field` convert a value to the row's first unit
    times = field.times * row.unit.times * unit.per
    per = field.per * row.unit.per * unit.times
    common = gcd(times, per)
    return NewName(name, row.kind, _help_in(unit, row), times // common, per // common)


def _help_in(unit: Unit, row: DcgmField) -> str:
    if unit is row.unit:
        return row.help
    text = row.help.rpartition(" (")[0]
    return f"{text} ({unit.symbol})." if unit is Unit.RATIO else f"{text} (in {unit.symbol})."
