"""The observation of a look: the page's samples by GPU, in whole numbers, as accounting reads them.

Tests: tests/accounts/test_observation.py, tests/accounts/test_any_page.py.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.dcgm.fields import FIELDS, LINK_COUNTERS
from exporter.dcgm.links import counter_name_of_row
from exporter.dividing.decimals import is_amount
from exporter.model.nothing import NOTHING
from exporter.model.pages import JoinedPage, Reading, Sampled
from exporter.model.slices import ITEMS_A_SLICE, Work, listed

_REASONS = "reasons"
LINKS = "links"
# kinds whose values mostly stay when dcgm-exporter has read the GPU again
_STANDING = frozenset({_REASONS, LINKS})


@dataclass(slots=True)
class XidSamples:
    """The XIDs of a GPU on a page: the values of the last XID (0: none), and dcgm-exporter's own counts.

    The counts are by XID; None if the page has none. `counts` cover a sliding window, `totals` the time since
    dcgm-exporter's start.
    """

    values: frozenset[int] = frozenset()
    counts: dict[int, int] | None = None
    totals: dict[int, int] | None = None

    @property
    def has_counts(self) -> bool:
        """Whether dcgm-exporter counts the GPU's XIDs."""
        return self.counts is not None or self.totals is not None


@dataclass(slots=True)
class GpuSamples:
    """The samples of one GPU: `rows` by kind, and within a kind by GPU_I_ID ("" for the GPU's own).

    `energy` is in microjoules (a counter), `power` in microwatts, `activity` and `utilization` in millionths. The rows
    of `violations` are nanoseconds by reason, `reasons` is NVML's bit mask, and `links` are the counters of links by
    `counter_name`.
    """

    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    xids: XidSamples = field(default_factory=XidSamples, init=False)

    def of(self, kind: str) -> Mapping[str, int]:
        """The rows of a kind; empty if the page has none."""
        return self.rows.get(kind, NOTHING)

    def differs_from(self, before: "GpuSamples") -> bool:
        """Whether dcgm-exporter has read the GPU again since. XIDs do not count, as some pages show them at once.

        If a page has no value that changes with each read, it always counts as read again.
        """
        return self.rows != before.rows or not self.rows.keys() - _STANDING

    def activity_of(self, instance: str) -> int | None:
        """GR_ENGINE_ACTIVE in millionths, else GPU_UTIL; None if the page has neither."""
        activity = self.of("activity").get(instance)
        return self.of("utilization").get(instance) if activity is None else activity


class _RowKind(NamedTuple):
    """A family's kind of rows, the power of ten that makes the kind's unit of its own, and what it counts.

    `counts` is a violation's reason, or a link's counter; `link` is the link, if the family's name says it.
    """

    kind: str
    power: int
    counts: str = ""
    link: str = ""


# NVIDIA's XIDs have at most three digits. A number with more digits, or 0, is no XID.
_XID_TEXT = re.compile(r"0*[1-9][0-9]{0,2}")
_MOST_XID = 999


def _families() -> Iterator[tuple[bytes, _RowKind]]:
    for name, dcgm_field in FIELDS.items():
        if dcgm_field.accounts is not None:
            quantity, power = dcgm_field.accounts
            is_violation = quantity == "violations"
            reason = dcgm_field.name.removeprefix("DEV_").removesuffix("_VIOLATION").lower() if is_violation else ""
            # some names of a field have a unit that is larger by a power of ten
            yield name.encode(), _RowKind(quantity, power + len(str(dcgm_field.times)) - 1, reason)
    for family, counter in LINK_COUNTERS.items():
        yield family, _RowKind(LINKS, 0, counter.counter, counter.link)


_OF: Mapping[bytes, _RowKind] = dict(_families())
FAMILIES = frozenset(_OF)
# Sign, digits before and after the point, exponent. Programs print floats with no more digits.
_NUMBER = re.compile(rb"([+-]?)([0-9]{0,20})(?:\.([0-9]{0,20}))?(?:[eE]([+-]?[0-9]{1,3}))?")
_MOST_DIGITS = 40
_MOST_ZEROS = 60
# DCGM's values for "not supported" are larger than this.
_USUAL = 2**31 - 16


def units(text: bytes, power: int) -> int | None:
    """The value in units of 10**-power, rounded down: b"112.5" with power 6 is 112500000.

    None if the text is no amount: NaN, infinities, negative numbers, DCGM's values for "not supported", and texts that
    no exporter prints (hexadecimal, or over 40 digits).
    """
    whole, _, fraction = text.partition(b".")
    if (whole + fraction).isdigit() and len(text) <= _MOST_DIGITS:
        digits = int(whole + fraction)
        zeros = power - len(fraction)
    else:
        digits, exponent = _with_exponent(text)
        zeros = power + exponent
        if digits <= 0 or abs(zeros) > _MOST_ZEROS:
            return None if digits else 0
    amount = digits * 10**zeros if zeros >= 0 else digits // 10**-zeros
    return amount if amount < _USUAL * 10**power or is_amount(text) else None


def _with_exponent(text: bytes) -> tuple[int, int]:
    """The digits and the power of ten of a number with a sign or an exponent.

    Digits of -1 for a negative or no number.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return -1, 0
    sign, whole, fraction, exponent = match.groups()
    fraction = fraction or b""
    digits = int(whole + fraction or b"-1")
    if digits > 0 and sign == b"-":
        digits = -1
    return digits, int(exponent or 0) - len(fraction)


class _Table(NamedTuple):
    """The key of one GPU's rows of one family and, if the family counts errors, of one XID or link."""

    uuid: str
    family: _RowKind
    label: str


@dataclass(slots=True)
class _SampleRows:
    """The places of a table's values among a page's readings, and the GPU_I_ID of each value."""

    places: list[int] = field(default_factory=list)
    instances: list[str] = field(default_factory=list)

    def amounts(self, readings: Sequence[Reading], power: int) -> dict[str, int]:
        """The values by GPU_I_ID, as far as they are amounts. If two sources have a row, the first row counts."""
        texts = [readings[place][1] for place in self.places]
        if texts.count(texts[0]) == len(texts):  # the usual case: instances repeat the GPU's value
            amount = units(texts[0], power)
            return dict.fromkeys(self.instances, amount) if amount is not None else {}
        amounts: dict[str, int] = {}
        for instance, text in zip(self.instances, texts, strict=True):
            amount = units(text, power)
            if amount is not None:
                amounts.setdefault(instance, amount)
        return amounts


class ObservationReader:
    """A reader of pages. It works out the meaning of their series once, and again when a page has other series."""

    def __init__(self) -> None:
        self._series: list[Sampled] = []
        self._tables: Mapping[_Table, _SampleRows] = {}

    def read(self, joined: JoinedPage) -> Work[Mapping[str, GpuSamples]]:
        """The page's samples, by the GPU's UUID (`Subject.key`). Rows of a virtual GPU's pods are left out."""
        readings = yield from listed(joined.readings(FAMILIES))
        # series are the same objects as long as the page has them
        series = [sampled for sampled, _ in readings]
        if series != self._series:
            tables = yield from _tables_of(series)
            # together, and last: what breaks off in between must not leave the tables of other series
            self._series = series
            self._tables = tables
        samples_by_gpu: dict[str, GpuSamples] = {}
        for number, (table, rows) in enumerate(self._tables.items(), start=1):
            if not number % ITEMS_A_SLICE:
                yield
            amounts = rows.amounts(readings, table.family.power)
            if amounts:
                samples = samples_by_gpu.get(table.uuid)
                if samples is None:
                    samples = samples_by_gpu[table.uuid] = GpuSamples()
                _put(samples, table, amounts)
        return samples_by_gpu


def _tables_of(series: Sequence[Sampled]) -> Work[Mapping[_Table, _SampleRows]]:
    """The places of the series that each GPU has of each family (and XID, or link)."""
    tables: defaultdict[_Table, _SampleRows] = defaultdict(_SampleRows)
    for place, sampled in enumerate(series):
        if place % ITEMS_A_SLICE == ITEMS_A_SLICE - 1:
            yield
        subject = sampled.subject
        family = _OF[sampled.name]
        if subject.vgpu:
            continue
        key = subject.key
        (label,) = sampled.own_labels or ("",)
        rows = tables[_Table(key.uuid, family, label)]
        rows.places.append(place)
        rows.instances.append(key.instance)
    return dict(tables)


def _put(samples: GpuSamples, table: _Table, rows: dict[str, int]) -> None:
    """Put the rows of a table into their place. Rows of values of the whole GPU repeat one value."""
    match table.family.kind:
        case "xids":
            samples.xids.values |= {amount if amount <= _MOST_XID else 0 for amount in rows.values()}
        case "xid_counts" | "xid_totals" as kind:
            name = kind.removeprefix("xid_")
            counts = getattr(samples.xids, name) or {}
            setattr(samples.xids, name, counts)
            if _XID_TEXT.fullmatch(table.label):
                counts[int(table.label)] = max(rows.values())
        case "violations":
            samples.rows.setdefault("violations", {})[table.family.counts] = max(rows.values())
        case "links":
            _put_link(samples, table, max(rows.values()))
        case "reasons":
            samples.rows[_REASONS] = {"": max(rows.values())}
        case kind:
            # two names of the same measurement give two tables
            other = samples.rows.get(kind)
            samples.rows[kind] = {**rows, **other} if other else rows


def _put_link(samples: GpuSamples, table: _Table, count: int) -> None:
    """Put a counter of links into its place. Two names of one counter may show it."""
    name = counter_name_of_row(table.family.counts, table.family.link, table.label)
    if not name:
        return
    counters = samples.rows.setdefault(LINKS, {})
    counters[name] = max(count, counters.get(name, 0))
