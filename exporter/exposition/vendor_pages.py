"""DCGM's families beside another vendor's: the same samples with the names, units and labels of DCGM. Pure.

They are added to a page as it comes in, and joined like all other samples. So outputs, accounts, `--sharing` and the
rules for Prometheus need to know only DCGM's names. A field that a vendor does not measure has no sample.

    body ──► samples of the families that the rules name ──► by device and family (_Samples)
                                                                │ units that are not the documented ones: a Trouble
                                                                ▼
                                               one value for each field of a device ──► behind the body

Three things show another unit than the documented one: the HELP or UNIT text names it, no accelerator has such a value,
or a device uses more memory than it has. Then the family has no values at all.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from exporter.dcgm.table import DcgmField, Unit
from exporter.dcgm.vendors import MOST, VendorFamily, base_of, unit_named
from exporter.errors import Trouble
from exporter.exposition.families import render_labels, render_number, unescape
from exporter.exposition.lines import SampleLine, read_line
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.wording import listed

USED = "DCGM_FI_DEV_FB_USED"
TOTAL = "DCGM_FI_DEV_FB_TOTAL"
# The numbers that exporters write for "not measured": the largest of C's integers. Negative numbers mean the same.
_NOT_MEASURED = frozenset({2.0**16 - 1, 2.0**31 - 1, 2.0**32 - 1, 2.0**63, 2.0**64})
_LEAST_BLANK = 2.0**31 - 1
# No working device is at 0 in these units: exporters write 0 if they cannot measure.
_NEVER_NOTHING = (Unit.CELSIUS, Unit.WATTS)
_LONGEST_NUMBER = 40
_LARGEST_EXPONENT = 300
_MOST_NAMED = 5
_SAMPLE = re.compile(rb"(.*\})[ \t]+([^ \t\r]+)((?:[ \t]+[0-9]+)?)[ \t\r]*")

# A label of DCGM's, and the labels that may have its value on a page, best first.
Naming = tuple[tuple[str, tuple[str, ...]], ...]
_Device = tuple[str, str]  # as DeviceKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """The rules of a rule file for a vendor's page. `owner_labels` go on unchanged."""

    families: tuple[VendorFamily, ...]
    naming: Naming
    owner_labels: frozenset[str]


class _VendorSeries(NamedTuple):
    """A series that a rule counts: its device, and the text of the labels that DCGM's sample gets."""

    family: VendorFamily
    name: str
    device: _Device
    labels: bytes
    owner: bytes
    is_part: bool


class _Value(NamedTuple):
    """A value as a fraction of whole numbers, in the unit of DCGM's field, and its timestamp with a blank before it."""

    numerator: int
    denominator: int
    timestamp: bytes = b""

    @property
    def number(self) -> float:
        return self.numerator / self.denominator


_Values = dict[tuple[bytes, bytes], _Value]


@dataclass(slots=True)
class _Samples:
    """The samples of one device that a rule counts: the device's own and its parts', each by labels and owner."""

    own: defaultdict[tuple[bytes, bytes], list[_Value]] = field(default_factory=lambda: defaultdict(list))
    parts: defaultdict[tuple[bytes, bytes], list[_Value]] = field(default_factory=lambda: defaultdict(list))
    names: set[str] = field(default_factory=set)

    def add(self, series: _VendorSeries, value: _Value) -> None:
        """Add a sample of this device."""
        self.names.add(series.name)
        of_series = self.parts if series.is_part else self.own
        of_series[series.labels, series.owner].append(value)

    def values(self, family: VendorFamily) -> _Values:
        """The device's own values or, if it has none, the values of its parts put together.

        None if a family is missing. Raises ValueError: the rule does not tell the device's samples apart.
        """
        if any(len(values) > 1 for values in self.own.values()):
            raise ValueError("its rule does not tell several samples of one device apart")
        if self.own:
            return {row: values[0] for row, values in self.own.items()}
        if len(self.names) <= len(family.plus):
            return {}
        return {row: put_together(parts, family.row.unit) for row, parts in self.parts.items()}


class _PageSamples:
    """The samples of a page that rules count, the owners that they came with, and the rules that must not count."""

    def __init__(self) -> None:
        self.by_family: defaultdict[VendorFamily, defaultdict[_Device, _Samples]]
        self.by_family = defaultdict(lambda: defaultdict(_Samples))
        self.refused: dict[VendorFamily, str] = {}
        self._owners: defaultdict[_Device, set[bytes]] = defaultdict(set)

    def add(self, series: _VendorSeries, text: bytes, timestamp: bytes) -> None:
        """Add a sample of this series, if the vendor has measured it."""
        value = _read_value(text, series.family, timestamp)
        if value is None:
            return
        if _is_beyond(value, series.family.row.unit):
            self.refused.setdefault(series.family, f"it has the value {text.decode()}")
        self.by_family[series.family][series.device].add(series, value)
        self._owners[series.device].add(series.owner)

    @property
    def owner_of(self) -> Mapping[_Device, bytes]:
        """The owner of each device that one container holds. All samples of the device are that container's."""
        owner_of: dict[_Device, bytes] = {}
        for device, owners in self._owners.items():
            named = owners - {b""}
            if len(named) == 1:
                owner_of[device] = named.pop()
        return owner_of


class VendorPages:
    """Adds DCGM's families to one vendor's pages. It remembers the series of the last page."""

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor
        self._families: defaultdict[bytes, list[VendorFamily]] = defaultdict(list)
        for family in vendor.families:
            for name in (family.family, *family.plus):
                self._families[name.encode()].append(family)
        self._series: Mapping[bytes, Sequence[_VendorSeries]] = {}

    def with_dcgm(self, body: bytes, odd: list[Trouble]) -> Work[bytes]:
        """The page with DCGM's families after its own, in slices. Troubles with its units go into `odd`."""
        samples = _PageSamples()
        series_of: dict[bytes, Sequence[_VendorSeries]] = {}
        for number, line in enumerate(body.split(b"\n"), start=1):
            if not number % ITEMS_A_SLICE:
                yield
            if line.startswith((b"# HELP ", b"# UNIT ")):
                self._refuse_named_otherwise(line, samples.refused)
            if line.partition(b"{")[0] not in self._families:
                continue
            sample = _SAMPLE.fullmatch(line)
            if sample is None:
                continue  # a sample without labels belongs to no device
            head, text, timestamp = sample.groups()
            # a series stays the same object from page to page, since reading a line takes ten times as long
            series_of[head] = self._series.get(head) or self._read_series(head)
            for series in series_of[head]:
                samples.add(series, text, timestamp)
        self._series = series_of
        owner_of = samples.owner_of
        pieces = [body if body.endswith(b"\n") else body + b"\n"]
        for row, by_device in self._fields(samples.by_family, samples.refused).items():
            yield
            pieces.append(_text(row, by_device, owner_of))
        odd += _troubles(samples.refused)
        return b"".join(pieces)

    def _refuse_named_otherwise(self, line: bytes, refused: dict[VendorFamily, str]) -> None:
        """Note the families for which this line, a HELP or UNIT, names another unit."""
        name, _, text = line[len(b"# HELP ") :].partition(b" ")
        for family in self._families.get(name, ()):
            word = unit_named(text.decode("utf-8", "replace"), family.named_in)
            if word:
                refused[family] = f"its HELP or UNIT names {word}"

    def _read_series(self, head: bytes) -> Sequence[_VendorSeries]:
        """A series for each rule that counts the sample; none if no label names a device."""
        line = read_line(head + b" 0")
        if not isinstance(line, SampleLine):
            return ()
        labels = {name.decode(): unescape(value) for name, value in line.labels if value}
        named = self._named(labels)
        gpu = named.get("UUID") or named.get("device") or named.get("gpu")
        if not gpu:
            return ()
        owner = tuple((name, value) for name, value in labels.items() if name in self._vendor.owner_labels)
        of_rules: list[_VendorSeries] = []
        for family in self._families[line.name]:
            if all(labels.get(label, "") in values for label, values in family.where):
                series = _VendorSeries(
                    family=family,
                    name=line.name.decode(),
                    device=(gpu, named.get("GPU_I_ID", "")),
                    labels=render_labels(tuple(named.items())),
                    owner=render_labels(owner),
                    is_part=bool(family.plus) or not labels.keys().isdisjoint(family.parts),
                )
                of_rules.append(series)
        return of_rules

    def _named(self, labels: Mapping[str, str]) -> dict[str, str]:
        """DCGM's labels of a sample with these labels, as far as they hold something."""
        named: dict[str, str] = {}
        for name, among in self._vendor.naming:
            values = [labels[label] for label in among if label in labels]
            if values and values[0]:
                named[name] = values[0]
        return named

    def _fields(
        self, samples: Mapping[VendorFamily, Mapping[_Device, _Samples]], refused: dict[VendorFamily, str]
    ) -> Mapping[DcgmField, Mapping[_Device, _Values]]:
        """The values of each field by device. If several rules give a field, the device's first rule counts."""
        by_rule: dict[VendorFamily, dict[_Device, _Values]] = {}
        for family, of_devices in samples.items():
            try:
                by_rule[family] = {device: of_device.values(family) for device, of_device in of_devices.items()}
            except ValueError as error:
                refused.setdefault(family, str(error))
        fields: defaultdict[DcgmField, dict[_Device, _Values]] = defaultdict(dict)
        sums: dict[_Device, dict[str, tuple[VendorFamily, float]]] = defaultdict(dict)
        for family in self._vendor.families:
            for device, values in by_rule.get(family, {}).items():
                if not values or device in fields[family.row]:
                    continue
                if family in refused:
                    fields[family.row][device] = {}  # no other rule stands in for refused values
                    continue
                fields[family.row][device] = values
                sums[device][family.field] = (family, sum(value.number for value in values.values()))
        for device, of_fields in sums.items():
            for family in _of_too_much_memory(of_fields):
                refused[family] = f"{device[0]} would use more memory than it has"
                fields.pop(family.row, None)
        return fields


def _of_too_much_memory(sums: Mapping[str, tuple[VendorFamily, float]]) -> Sequence[VendorFamily]:
    """The device's families by which it uses more memory than it has; none if the values agree."""
    used = sums.get(USED)
    total = sums.get(TOTAL)
    if used is None or total is None or used[1] <= total[1]:
        return ()
    return used[0], total[0]


def put_together(parts: Sequence[_Value], unit: Unit) -> _Value:
    """A device's value from its parts: the mean of ratios, the highest of temperatures and clocks, else the sum."""
    if base_of(unit) in (Unit.CELSIUS, Unit.HERTZ):
        return max(parts, key=lambda part: part.number)
    numerator = 0
    denominator = 1
    for part in parts:
        numerator = numerator * part.denominator + part.numerator * denominator
        denominator *= part.denominator
    if base_of(unit) is Unit.RATIO:
        denominator *= len(parts)
    return _Value(numerator, denominator, parts[0].timestamp)


def _read_value(text: bytes, family: VendorFamily, timestamp: bytes) -> _Value | None:
    """The exact value in the unit of DCGM's field; None if the vendor has not measured it."""
    try:
        number = float(text) if len(text) <= _LONGEST_NUMBER and b"_" not in text else -1.0
    except ValueError:
        return None
    if not isfinite(number) or number < 0:
        return None
    unit = family.measured_in
    row = family.row
    if not number:
        is_nothing = base_of(unit) not in _NEVER_NOTHING and row.family != TOTAL
        return _Value(0, 1, timestamp) if is_nothing else None
    mantissa, _, exponent = text.lower().partition(b"e")
    whole, _, fraction = mantissa.partition(b".")
    power = int(exponent or 0) - len(fraction)
    if abs(power) > _LARGEST_EXPONENT:
        return None
    digits = int(whole + fraction)
    times = unit.times * row.unit.per
    per = unit.per * row.unit.times
    value = _Value(digits * times * 10 ** max(power, 0), per * 10 ** max(-power, 0), timestamp)
    is_limit = number in _NOT_MEASURED and (number >= _LEAST_BLANK or _is_beyond(value, row.unit))
    return None if is_limit else value


def _is_beyond(value: _Value, unit: Unit) -> bool:
    """Whether no accelerator has such a value."""
    most = MOST.get(base_of(unit))
    return most is not None and value.number * unit.times / unit.per > most


def _text(row: DcgmField, by_device: Mapping[_Device, _Values], owner_of: Mapping[_Device, bytes]) -> bytes:
    """A field's family as text: its HELP and TYPE, and a sample for each row of each device."""
    name = row.family.encode()
    lines = [b"# HELP %b %b\n# TYPE %b %b\n" % (name, row.help.encode(), name, row.kind.encode())]
    for device, values in by_device.items():
        for (labels, own_owner), value in values.items():
            owner = own_owner or owner_of.get(device, b"")
            all_labels = b",".join(filter(None, (labels, owner)))
            lines.append(b"%b{%b} %b%b\n" % (name, all_labels, render_number(value.number), value.timestamp))
    return b"".join(lines)


def _troubles(refused: Mapping[VendorFamily, str]) -> Iterator[Trouble]:
    """What is wrong with the units of these families, in one; none if all are as documented."""
    odd = sorted({f"{family.family} (in {family.unit or 'numbers'}): {why}" for family, why in refused.items()})
    if odd:
        yield Trouble(
            "unit",
            f"values of families are left out, since they do not fit --device-rules: {listed(odd, _MOST_NAMED, '; ')}",
            "look at what the exporter's release says of their units, and bring `families` up to date",
        )
