"""The rules by which another vendor's family becomes a field of DCGM: the lines under `families` of a rule file. Pure.

    families:
    - family: habanalabs_power_mW      # the vendor's name
      field: DCGM_FI_DEV_POWER_USAGE   # a field of the table, by its name up to DCGM 4.8
      unit: mW                         # the unit of the vendor's values

A family's HELP text often names a unit. If that is another unit than `unit`, the values are not taken.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from exporter.dcgm.table import TABLE, DcgmField, Unit
from exporter.reading import Invalid, by_key, closed, each, one_of, text

# On each line the units of one quantity, with the words for them in texts. Vendors write MB and mean MiB. None: values
# in this unit cannot be converted.
_QUANTITIES: tuple[Mapping[Unit | None, str], ...] = (
    {Unit.RATIO: "ratio fraction", Unit.PERCENT: "% percent percentage"},
    {
        Unit.BYTES: "bytes By",
        Unit.KIB: "KiB KB kB kilobytes",
        Unit.MIB: "MiB MB megabytes",
        Unit.GIB: "GiB GB gigabytes",
    },
    {Unit.WATTS: "W watts watt", Unit.MILLIWATTS: "mW milliwatts milliwatt milli-watts", None: "kW uW microwatts"},
    {
        Unit.JOULES: "J joules joule",
        Unit.MILLIJOULES: "mJ millijoules",
        Unit.MICROJOULES: "uJ µJ microjoules",
        None: "kWh Wh",
    },
    {Unit.HERTZ: "Hz hertz", Unit.MEGAHERTZ: "MHz Mhz megahertz", None: "kHz GHz"},
    {Unit.CELSIUS: "C °C Cel celsius", None: "F K fahrenheit kelvin mC millidegrees"},
    {
        Unit.BYTES_PER_SECOND: "bytes/s B/s",
        Unit.MEGABYTES_PER_SECOND: "MB/s",
        Unit.THOUSAND_KIB_PER_SECOND: "",
        None: "KB/s kB/s GB/s Mb/s",
    },
    {Unit.SECONDS: "s seconds", Unit.NANOSECONDS: "ns nanoseconds", None: "us ms microseconds milliseconds"},
    {Unit.NUMBER: ""},
)
_QUANTITY_OF = {unit: quantity for quantity in _QUANTITIES for unit in quantity if unit is not None}
_WORD = re.compile(r"%|[A-Za-zµ°]+(?:[-/][A-Za-z]+)?")
# units as people type them
_SYMBOLS = {Unit.RATIO: "ratio", Unit.CELSIUS: "C"}
_NO_VENDORS = (Unit.NUMBER, Unit.THOUSAND_KIB_PER_SECOND)
_UNITS = {_SYMBOLS.get(unit, unit.symbol): unit for unit in Unit if unit not in _NO_VENDORS}
_FIELDS = {row.family: row for row in TABLE if row.kind != "label"}
# The largest values of one accelerator, in the unit of DCGM 4.9: a larger value is in another unit. A processor's
# counters are read a moment after the time by which they are divided, so a ratio may be a little above 1.
MOST = {Unit.RATIO: 1.05, Unit.BYTES: 2.0**43, Unit.WATTS: 20_000.0, Unit.HERTZ: 1e10, Unit.CELSIUS: 150.0}


def base_of(unit: Unit) -> Unit:
    """The unit that DCGM 4.9 has for this quantity: the first unit of its line."""
    return next(iter(_QUANTITY_OF[unit])) or unit


@lru_cache(maxsize=1024)
def unit_named(help_text: str, unit: Unit) -> str:
    """The word of a text that names another unit of the same quantity; "" if it names this unit, or none."""
    unit_of = {word: named for named, words in _QUANTITY_OF[unit].items() for word in words.split()}
    words = (word if word in unit_of else word.lower() for word in _WORD.findall(help_text))
    named = [word for word in words if word in unit_of]
    return "" if unit in map(unit_of.get, named) else next(iter(named), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorFamily:
    """A line under `families`. If several lines give a field, the first line of which a device has samples counts.

    - `unit`: as in `_UNITS`; "" for a number. `help` is the one that HELP names, if that is wrong;
    - `plus`: families that add up to the value with this one; a device that lacks one of them has no value;
    - `where`: only samples with one of these values of each label count; "" is a sample without the label;
    - `parts`: labels that tell the samples of one device apart, such as a tile's number. A sample without all of them
      is the device's own, and counts alone. Otherwise parts are put together (`put_together`).
    """

    family: str
    field: str
    unit: str = ""
    help: str | None = None
    plus: tuple[str, ...] = ()
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()
    parts: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.family, self.field))  # hashed for every sample; further fields would only take time

    @property
    def row(self) -> DcgmField:
        """The field's row."""
        return _FIELDS[self.field]

    @property
    def measured_in(self) -> Unit:
        """The unit of the vendor's values."""
        return _UNITS.get(self.unit, Unit.NUMBER)

    @property
    def named_in(self) -> Unit:
        """The unit that HELP names, if it names a unit."""
        return _UNITS[self.help] if self.help else self.measured_in


_a_label = text(r"[a-zA-Z_][a-zA-Z0-9_]*", "a label's name", 100)
_a_name = text(r"[a-zA-Z_:][a-zA-Z0-9_:]*", "a family's name", 200)
_a_value = text(r"[^\n]*", "a label's value", 200)
_line = closed(
    VendorFamily,
    {"family": _a_name, "field": one_of(*_FIELDS)},
    {
        "unit": one_of(*_UNITS),
        "help": one_of(*_UNITS),
        "plus": each(_a_name, 16, once=True),
        "where": lambda value, path: tuple(by_key(_a_label, each(_a_value, 32, least=1), 8)(value, path).items()),
        "parts": each(_a_label, 8, once=True),
    },
)


def read_families(content: object) -> tuple[VendorFamily, ...]:
    """The lines under `families` of a rule file. Raises Invalid: a line cannot be used."""
    families: tuple[VendorFamily, ...] = each(_line, 256)(content, "families")
    for number, family in enumerate(families):
        if _QUANTITY_OF[family.measured_in] is not _QUANTITY_OF[family.row.unit]:
            unit = family.row.unit.symbol
            needed = f"is {f'in {unit}' if unit else 'a number'}; give its unit, or one like it"
            raise Invalid(f"families[{number}].unit", f"{family.field} {needed}")
    return families
