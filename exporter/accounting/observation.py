"""What one look says of the node's GPUs, in whole numbers: the page's samples as accounting reads them.

dcgm-exporter repeats what it knows of a whole GPU on the row of each MIG instance, so most is kept by GPU.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.accounting.amounts import units
from exporter.model.accounts import Gap
from exporter.model.pages import JoinedPage, Reading, Sampled
from exporter.model.slices import ITEMS_A_SLICE, Work, listed
from exporter.model.snapshot import KUBELET, Snapshot


@dataclass(slots=True)
class Seen:
    """What the samples of one GPU say; rows are by GPU_I_ID ("" for the GPU's own).

    `energy` is in microjoules (a counter), `power` in microwatts, `activity` in millionths; `xids` are the values of
    the last XID (0 for none), `xid_counts` and `xid_totals` dcgm-exporter's own counts (None where the page has none),
    `violations` are nanoseconds by reason, and `reasons` is NVML's bit mask.
    """

    energy: dict[str, int] = field(default_factory=dict)
    power: dict[str, int] = field(default_factory=dict)
    activity: dict[str, int] = field(default_factory=dict)
    utilization: dict[str, int] = field(default_factory=dict)
    xids: set[int] = field(default_factory=set)
    xid_counts: dict[int, int] | None = None
    xid_totals: dict[int, int] | None = None
    violations: dict[str, int] = field(default_factory=dict)
    reasons: int | None = None

    @property
    def has_xid_counts(self) -> bool:
        """Whether dcgm-exporter counts the GPU's XIDs."""
        return self.xid_counts is not None or self.xid_totals is not None

    def differs_from(self, before: "Seen") -> bool:
        """Whether it was read from the GPU later. The XIDs do not say so: some are told as they happen.

        A page that says nothing else is taken for a new one.
        """
        is_other = (
            self.energy != before.energy
            or self.power != before.power
            or self.activity != before.activity
            or self.utilization != before.utilization
            or self.violations != before.violations
            or self.reasons != before.reasons
        )
        return is_other or not (self.energy or self.power or self.activity or self.utilization or self.violations)

    def activity_of(self, instance: str) -> int | None:
        """GR_ENGINE_ACTIVE in millionths, else GPU_UTIL; None where the page has neither."""
        found = self.activity.get(instance)
        return self.utilization.get(instance) if found is None else found


class _Family(NamedTuple):
    """A field of `Seen`, the power of ten that makes its unit of the family's, and for a violation its reason."""

    field: str
    power: int
    reason: str = ""


_ENERGY, _POWER, _ACTIVITY, _UTILIZATION = "energy", "power", "activity", "utilization"
_VIOLATION, _REASONS, _XID, _XID_COUNT, _XID_TOTAL = "violations", "reasons", "xids", "xid_counts", "xid_totals"
# NVIDIA's XIDs have three digits at most: what has more, or is 0, is none
_XID_TEXT = re.compile(r"0*[1-9][0-9]{0,2}")
_MOST_XID = 999
_COUNTS = (_XID_COUNT, _XID_TOTAL)
_DEV = {
    "TOTAL_ENERGY_CONSUMPTION": _Family(_ENERGY, 3),  # mJ
    "GPU_ENERGY_JOULES_TOTAL": _Family(_ENERGY, 6),
    "POWER_USAGE": _Family(_POWER, 6),  # W
    "BOARD_POWER_WATTS": _Family(_POWER, 6),
    "GPU_UTIL": _Family(_UTILIZATION, 4),  # percent
    "GPU_UTIL_RATIO": _Family(_UTILIZATION, 6),
    "XID_ERRORS": _Family(_XID, 0),
    "XID_ERROR": _Family(_XID, 0),
    "CLOCKS_EVENT_REASONS": _Family(_REASONS, 0),
    "CLOCK_THROTTLE_REASONS": _Family(_REASONS, 0),
    "POWER_VIOLATION": _Family(_VIOLATION, 0, "power"),  # ns
    "THERMAL_VIOLATION": _Family(_VIOLATION, 0, "thermal"),
    "SYNC_BOOST_VIOLATION": _Family(_VIOLATION, 0, "sync_boost"),
    "BOARD_LIMIT_VIOLATION": _Family(_VIOLATION, 0, "board_limit"),
    "LOW_UTIL_VIOLATION": _Family(_VIOLATION, 0, "low_util"),
    "RELIABILITY_VIOLATION": _Family(_VIOLATION, 0, "reliability"),
    "GPU_POWER_THROTTLE_SECONDS_TOTAL": _Family(_VIOLATION, 9, "power"),
    "GPU_THERMAL_THROTTLE_SECONDS_TOTAL": _Family(_VIOLATION, 9, "thermal"),
}
_SHELL = {
    "dcgm_total_energy_consumption": _Family(_ENERGY, 3),
    "dcgm_power_usage": _Family(_POWER, 6),
    "dcgm_gpu_utilization": _Family(_UTILIZATION, 4),
    "dcgm_fi_prof_gr_engine_active": _Family(_ACTIVITY, 6),
    "dcgm_xid_errors": _Family(_XID, 0),
    **{
        f"dcgm_{name}_violation": _Family(_VIOLATION, 0, name)
        for name in ("power", "thermal", "sync_boost", "board_limit", "low_util", "reliability")
    },
}
_OF: Mapping[bytes, _Family] = {
    name.encode(): known
    for name, known in {
        **{f"DCGM_FI_DEV_{name}": known for name, known in _DEV.items()},
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _Family(_ACTIVITY, 6),
        "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": _Family(_ACTIVITY, 6),
        "DCGM_EXP_XID_ERRORS_COUNT": _Family(_XID_COUNT, 0),
        "DCGM_EXP_XID_ERRORS_TOTAL": _Family(_XID_TOTAL, 0),
        **_SHELL,
    }.items()
}
FAMILIES = frozenset(_OF)


def why_failed(snapshot: Snapshot) -> Gap | None:
    """What a look lacks that it cannot be counted without: the kubelet's word of now, or any page; None for nothing."""
    kubelet = snapshot.health.get(KUBELET)
    if kubelet is None or not kubelet.up:
        return "kubelet"
    return "page" if snapshot.joined is None else None


def is_away(snapshot: Snapshot) -> bool:
    """Whether a source of pages failed, one of several or all: the devices on its page were not seen."""
    return snapshot.joined is None or any(
        (health := snapshot.health.get(source)) is not None and health.up is False for source in snapshot.page_sources
    )


class _Table(NamedTuple):
    """The rows of one family of one GPU; of a count of errors, those of one XID."""

    uuid: str
    family: _Family
    xid: str


@dataclass(slots=True)
class _Rows:
    """Where the values of a table stand among a page's readings, and the GPU_I_ID that each is of."""

    places: list[int] = field(default_factory=list)
    instances: list[str] = field(default_factory=list)

    def amounts(self, readings: Sequence[Reading], power: int) -> dict[str, int]:
        """The values by GPU_I_ID, as far as they are amounts. Of two sources' rows the first one counts."""
        texts = [readings[place][1] for place in self.places]
        if texts.count(texts[0]) == len(texts):  # instances repeat the GPU's value, mostly
            amount = units(texts[0], power)
            return dict.fromkeys(self.instances, amount) if amount is not None else {}
        amounts: dict[str, int] = {}
        for instance, text in zip(self.instances, texts, strict=True):
            amount = units(text, power)
            if amount is not None:
                amounts.setdefault(instance, amount)
        return amounts


class PageReader:
    """Reads pages. What their series mean is worked out once, and again when a page has others."""

    def __init__(self) -> None:
        self._series: list[Sampled] = []
        self._tables: Mapping[_Table, _Rows] = {}

    def read(self, joined: JoinedPage) -> Work[Mapping[str, Seen]]:
        """What the page says, by the GPU's UUID (`Subject.key`). The rows of a virtual GPU's pods are left aside."""
        readings = yield from listed(joined.readings(FAMILIES))
        # they are the same objects as long as the page has the same series
        series = [each for each, _ in readings]
        if series != self._series:
            self._series, self._tables = series, (yield from _tables_of(series))
        found: dict[str, Seen] = {}
        for number, (table, rows) in enumerate(self._tables.items(), start=1):
            if not number % ITEMS_A_SLICE:
                yield
            amounts = rows.amounts(readings, table.family.power)
            if amounts:
                seen = found.get(table.uuid)
                if seen is None:
                    seen = found[table.uuid] = Seen()
                _put(seen, table, amounts)
        return found


def _tables_of(series: Sequence[Sampled]) -> Work[Mapping[_Table, _Rows]]:
    tables: defaultdict[_Table, _Rows] = defaultdict(_Rows)
    for place, each in enumerate(series):
        if place % ITEMS_A_SLICE == ITEMS_A_SLICE - 1:
            yield
        subject, family = each.subject, _OF[each.name]
        if subject.vgpu:
            continue
        key = subject.key
        rows = tables[_Table(key.uuid, family, subject.xid if family.field in _COUNTS else "")]
        rows.places.append(place)
        rows.instances.append(key.instance)
    return dict(tables)


def _put(seen: Seen, table: _Table, rows: dict[str, int]) -> None:
    """The rows of a table into their place. What is the whole GPU's is repeated on them."""
    match table.family.field:
        case "xids":
            seen.xids.update(amount if amount <= _MOST_XID else 0 for amount in rows.values())
        case "xid_counts" | "xid_totals" as name:
            counts = getattr(seen, name) or {}
            setattr(seen, name, counts)
            if _XID_TEXT.fullmatch(table.xid):
                counts[int(table.xid)] = max(rows.values())
        case "violations":
            seen.violations[table.family.reason] = max(rows.values())
        case "reasons":
            seen.reasons = max(rows.values())
        case name:
            # two names of one measurement are two tables
            other = getattr(seen, name)
            setattr(seen, name, {**rows, **other} if other else rows)
