"""dcgm-exporter's page in the form and with the families of each of its generations. Pure: rows in, text out.

- 1: the shell version. It writes GPU by GPU, so families are interleaved; HELP and TYPE once, at GPU 0; the labels are
  gpu and uuid.
- 3: 2.x, 3.x, and 4.x up to 4.8.2. Integers as integers, other values with six decimals; label values not escaped.
- 4.8: 4.8.3 and later. Label hostname, families sorted, values as Go's %g prints them, label values escaped.
- 4.9: as 4.8, with the new names and units.

The families depend on the counters file, too. The shell version has no such file, but a list of its own.

- default: the file that comes with dcgm-exporter, 25 families. It types NVLINK_BANDWIDTH_TOTAL a gauge from 4.8.3 on,
  and a counter before. dcgm-exporter's pull request 658 says why a counter is wrong: DCGM makes a rate of it, in MB a
  second;
- full: the file that this project's daemonset.yaml gives to dcgm-exporter.

Tests: tests/simulator/test_node.py, tests/simulator/test_links.py.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pkgutil import get_data

from exporter.dcgm.table import TABLE, DcgmField, Unit
from exporter.simulator.parts import H100, bus_id
from exporter.simulator.readings import Labels, Reading
from exporter.simulator.simulated_links import NvlinkHardware

COUNTERS = ("default", "full")
NVLINK = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
_SHELL = "1"
_OLDER = "3"
_NEWEST = "4.9"
_OF_A_LINK = "What a link of NVLink counts."
_SAME = Fraction(1)
# dcgm-exporter itself counts these, since 4.8.3; an older version ends at a name that it does not know
_NEW = ("DCGM_EXP_CLOCK_EVENTS_TOTAL", "DCGM_EXP_XID_ERRORS_TOTAL")
# The fields of the default file, in its order and with its texts.
_DEFAULT: Mapping[str, str] = json.loads(get_data("exporter.dcgm", "default_counters.json") or b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFamily:
    """A family of dcgm-exporter.

    Attributes:
        name: its name up to 4.8.
        help: its HELP text.
        newer: its name in 4.9.
        factor: the value is multiplied by it in 4.9, for another unit.
        oldest: its name in the shell version (1.x); "" if that has no such family.
        kind: its TYPE.
        real: whether values have decimals.
        by_link: each value is a link's: its row begins with the label nvlink, and has other names of the GPU's labels.
    """

    name: str
    help: str
    newer: str = ""
    factor: Fraction = _SAME
    oldest: str = ""
    kind: str = "gauge"
    real: bool = False
    by_link: bool = False


def family_of(row: DcgmField) -> SimulatedFamily:
    """The family of a field, with the table's texts."""
    old = row.unit
    new = row.newer_unit
    return SimulatedFamily(
        name=row.family,
        help=row.help,
        newer=row.newer_family,
        factor=Fraction(old.times * new.per, old.per * new.times),
        oldest=row.oldest,
        kind=row.kind,
        real=old in {Unit.RATIO, Unit.WATTS},
    )


_ROWS = {row.name: row for row in TABLE}
_OF_NEWER = tuple(replace(family_of(_ROWS[name]), help=text) for name, text in _DEFAULT.items())
FAMILIES = tuple(replace(family, kind="counter") if family.name == NVLINK else family for family in _OF_NEWER)
"""The default file's up to 4.8.2."""
_FULL = tuple(family_of(row) for row in TABLE if row.is_in_file and row.kind != "label")
# The shell version writes these beside its families of the default file.
LOW_UTIL_VIOLATION = replace(family_of(_ROWS["DEV_LOW_UTIL_VIOLATION"]), help="Time throttled for low utilization.")
_OF_SHELL = (family_of(_ROWS["DEV_POWER_VIOLATION"]), family_of(_ROWS["DEV_THERMAL_VIOLATION"]), LOW_UTIL_VIOLATION)


def families_of(generation: str, counters: str = "default") -> tuple[SimulatedFamily, ...]:
    """The families of a generation with one of the COUNTERS."""
    if generation == _SHELL:
        return (*FAMILIES, *_OF_SHELL)
    if counters == "full":
        return tuple(family for family in _FULL if generation != _OLDER or family.name not in _NEW)
    return FAMILIES if generation == _OLDER else _OF_NEWER


def families_of_links(hardware: NvlinkHardware, generation: str) -> tuple[SimulatedFamily, ...]:
    """The families of links that a user may add to the counters file, but for the shell version's, which has none.

    Up to 4.8 NVML's counts have the link's number in their names, and 4.9 has rows of them (DCGM's dcgm_fields.cpp).
    """
    has_rows = generation == _NEWEST
    families = [
        SimulatedFamily(
            name=family.name or family.newer,
            help=_OF_A_LINK,
            newer=family.newer,
            kind="counter",
            by_link=family.has_rows,
        )
        for family in hardware.families()
        if family.has_rows == has_rows or (family.has_rows and family.name)
    ]
    of_pcie = (family_of(_ROWS[name]) for name in ("DEV_PCIE_MAX_LINK_GEN", "DEV_PCIE_MAX_LINK_WIDTH"))
    return (*families, *of_pcie) if generation != _SHELL else ()


GENERATIONS = ("1", "3", "4.8", "4.9")
DRIVER_VERSION = "580.105.08"
# Go's Prometheus client prints values with FormatFloat(x, 'g', -1, 64), which writes an exponent for numbers of 1e6 or
# more, and for numbers below 1e-4.
_GO_EXPONENT = 6
_GO_SMALLEST = -4


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRow:
    """A device of a page, which is a GPU or a MIG instance.

    Attributes:
        index: the GPU's index.
        uuid: the GPU's UUID.
        readings: the values by the families' older names. Without a value the device has no sample of the family.
        profile: the MIG instance's profile; "" for a GPU.
        instance_id: the MIG instance's GPU_I_ID; None for a GPU.
        labels: the labels after those that all rows have.
        model: the GPU's model.
    """

    index: int
    uuid: str
    readings: Mapping[str, Reading]
    profile: str = ""
    instance_id: int | None = None
    labels: Labels = ()
    model: str = H100.model


def page(rows: Sequence[SimulatedRow], families: Sequence[SimulatedFamily], *, generation: str, host_name: str) -> str:
    """The page of these rows."""
    if generation == "1":
        return _oldest(rows, families)
    new_names = generation == _NEWEST
    named = [(family.newer if new_names else family.name, family) for family in families]
    if generation != "3":
        named.sort()
    labelled = [(row, *_labels(row, generation, host_name)) for row in rows]
    lines: list[str] = []
    for name, family in named:
        factor = family.factor if new_names else _SAME
        samples = []
        for row, of_gpu, of_link in labelled:
            for own_labels, value in _values(family, row):
                number = _number(family, value, factor, generation)
                own = tuple(map(_label, own_labels))
                labels = (*own, of_link) if family.by_link else (of_gpu, *own)
                samples.append(f"{name}{{{','.join(labels)}}} {number}")
        if samples:
            lines += (f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}", *samples)
    return "\n".join(lines) + "\n"


def _oldest(rows: Sequence[SimulatedRow], families: Sequence[SimulatedFamily]) -> str:
    lines: list[str] = []
    for row in rows:
        for family in families:
            if not family.oldest or row.instance_id is not None:
                continue
            if row is rows[0]:
                lines += (f"# HELP {family.oldest} {family.help}", f"# TYPE {family.oldest} {family.kind}")
            for _, value in _values(family, row):
                number = _number(family, value, _SAME, "3")
                lines.append(f'{family.oldest}{{gpu="{row.index}",uuid="{row.uuid}"}} {number}')
    return "\n".join(lines) + "\n"


def _values(family: SimulatedFamily, row: SimulatedRow) -> Iterable[tuple[Labels, float]]:
    """The values of a family on a row (usually one), each with its labels beside the row's."""
    reading = row.readings.get(family.name, ())
    return [((), reading)] if isinstance(reading, int | float) else reading


def _labels(row: SimulatedRow, generation: str, host_name: str) -> tuple[str, str]:
    """The labels of a row of a GPU or an instance, and those after `nvlink` of a row of one of the GPU's links."""
    place = [("pci_bus_id", bus_id(row.index)), ("device", f"nvidia{row.index}")]
    version = "SYSTEM_DRIVER_VERSION" if generation == _NEWEST else "DRIVER_VERSION"
    host = ("Hostname" if generation == _OLDER else "hostname", host_name)
    last = [host, (f"DCGM_FI_{version}", DRIVER_VERSION)]
    cut = []
    if row.instance_id is not None:
        cut = [("GPU_I_PROFILE", row.profile), ("GPU_I_ID", str(row.instance_id))]
    index = ("gpu", str(row.index))
    of_gpu = [index, ("UUID", row.uuid), *place, ("modelName", row.model), *cut, *last, *row.labels]
    of_link = [index, ("gpu_uuid", row.uuid), *place, ("model_name", row.model), *last]
    return ",".join(map(_label, of_gpu)), ",".join(map(_label, of_link))


def _label(label: tuple[str, str]) -> str:
    # no text of a simulated node needs escaping, so all generations write the same labels
    return '{}="{}"'.format(*label)


def _number(family: SimulatedFamily, number: float, factor: Fraction, generation: str) -> str:
    if generation != "3":
        return go_g(number * factor if family.real else float(round(number) * factor))
    return f"{number:.6f}" if family.real else str(round(number))


def go_g(number: float) -> str:
    """A number as Go's %g prints it with the shortest precision: 4300000000 is 4.3e+09, 81000 is 81000."""
    shortest = Decimal(repr(float(number))).normalize()
    exponent = shortest.adjusted()
    if shortest and (exponent < _GO_SMALLEST or exponent >= _GO_EXPONENT):
        digits = "".join(map(str, shortest.as_tuple().digits))
        mantissa = digits[0] + ("." + digits[1:] if digits[1:] else "")
        return f"{'-' if number < 0 else ''}{mantissa}e{exponent:+03d}"
    return f"{shortest:f}"
