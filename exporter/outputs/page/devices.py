"""The table of GPUs and MIG instances on the page, made of the objects of /container/metrics: a row for each.

page.js makes the same rows of the same objects: what is changed here is changed there, and a test compares the two.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from html import escape
from itertools import groupby, islice
from math import floor
from typing import Any, Final

from exporter.lenient import finite, mapping
from exporter.model.slices import Work
from exporter.model.states import (
    IN_HAND,
    DeviceState,
    idle_seconds,
    is_before,
    last_xid,
    rounded,
    state_of_device,
    stated,
    used_by,
)
from exporter.outputs.page.document import text

Object = Mapping[str, Any]
DeviceId = tuple[str, str, str]

_MIB_PER_GIB = 1024
# Watts, of a bar: the next one above all that is drawn by GPUs of a model.
_POWER_SCALES = (50, 75, 100, 150, 200, 300, 400, 500, 600, 700, 800, 1000, 1200, 1500, 2000, 3000)
_HOTTEST = 100  # °C, of a bar
_DEVICES_A_SLICE = 100
SHARED = (
    " Of a shared GPU every owner has a row, and its name has what it does in all. What is not measured by owner is as"
    " --sharing has it: the whole GPU's, unless it divides."
)
METRIC_TITLES = ("Utilisation", "Memory", "Power", "Temperature")
_TITLES = ("Pod", "Namespace", "Workload", *METRIC_TITLES)
UNKNOWN: Final = '<span class="none">unknown</span>'
# Of rows whose values were read before the device changed hands.
BEFORE: Final = ' <span class="badge before">before</span>'
# What stands in the place of the pod where none is named.
_WITHOUT_POD: Final[Mapping[DeviceState, str]] = {
    DeviceState.FREE: '<span class="none">free</span>',
    DeviceState.FAILING: '<span class="none">failing</span>',
    DeviceState.CUT: '<span class="none">cut into instances</span>',
    DeviceState.OUTSIDE: '<span class="badge idle">used around Kubernetes</span>',
    **dict.fromkeys(IN_HAND, '<span class="none">several owners, which --sharing device does not name</span>'),
}


@dataclass(frozen=True, slots=True)
class Scales:
    """What a full bar means: the watts by model, and the MiB of a whole GPU of a model where an unshared one tells."""

    watts: dict[str, int] = field(default_factory=dict)
    mib: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[Object]) -> "Scales":
        """Those for these objects."""
        scales = cls()
        for row in rows:
            model, watts = row["model_name"], row["power_usage"]
            if watts is not None:
                scale = next((scale for scale in _POWER_SCALES if scale >= watts), _POWER_SCALES[-1])
                scales.watts[model] = max(scale, scales.watts.get(model, 0))
            if row["entity"] == "gpu" and not row["gpu_shared"]:
                mib = _total_mib(row)
                if mib is not None:
                    scales.mib[model] = max(mib, scales.mib.get(model, 0))
        return scales

    def full_mib(self, row: Object) -> float | None:
        """How much memory the device has: of a shared one an object may hold a part only."""
        if row["gpu_shared"]:
            return self.mib.get(row["model_name"]) if row["entity"] == "gpu" else None
        return _total_mib(row)


def device_of(row: Object) -> DeviceId:
    """Which device an object is of."""
    return row["node_name"], row["device_uuid"] or row["device"], row.get("mig_instance_id", "")


def utilisation(row: Object) -> float | None:
    """Percent. A MIG instance has no utilisation of its own, but how long its engine was active says as much."""
    if row["gpu_utilization"] is not None:
        return float(row["gpu_utilization"])
    active = row["graphics_engine_active"]
    return None if active is None else float(active * 100)


def devices_table(rows: Sequence[Object], *, with_node: bool, note: str = "") -> Work[Sequence[str]]:
    """The table in texts, with a body for each device. `rows` are the objects in their order."""
    shared = SHARED if any(row["gpu_shared"] for row in rows) else ""
    scales = Scales.of(rows)
    titles = ("Node", "GPU", *_TITLES) if with_node else ("GPU", *_TITLES)
    head = "".join(f'<th scope="col" role="columnheader">{title}</th>' for title in titles)
    bodies = (
        f'<tbody role="rowgroup">{"".join(_device(list(of), scales, with_node=with_node))}</tbody>'
        for _, of in groupby(rows, device_of)
    )
    texts = []
    while some := "\n".join(islice(bodies, _DEVICES_A_SLICE)):
        texts.append(some)
        yield
    caption = f'GPUs and MIG instances, and who holds them{escape(note)}.<span id="shared">{escape(shared)}</span>'
    return (
        '<div class="wide" role="region" aria-labelledby="devices-caption" tabindex="0">',
        f'<table id="devices" role="table"><caption id="devices-caption">{caption}</caption>',
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>',
        *texts,
        "</table></div>",
    )


def _device(rows: Sequence[Object], scales: Scales, *, with_node: bool) -> Iterator[str]:
    """The rows of one device: the first has its name, which all of them share."""
    first, several = rows[0], len(rows) > 1
    span = f' rowspan="{len(rows)}"' if several else ""
    node = f'<td role="cell" data-label="Node"{span}>{text(first["node_name"])}</td>' if with_node else ""
    name = f'{node}<th scope="row" role="rowheader"{span}>{_name(first, len(rows))}</th>'
    for number, row in enumerate(rows):
        kind = f"{stated(row)}{' more' if number else ''}{' before' if is_before(row) else ''}"
        pod, *rest = _owner(row)
        others = used_by(row) if not number else ""
        cells = (f'{pod} <small class="users">{text(others)}</small>' if others else pod, *rest, *_metrics(row, scales))
        yield (
            f'<tr role="row" class="{kind}">{"" if number else name}'
            + "".join(
                f'<td role="cell" data-label="{title}">{cell}</td>' for title, cell in zip(_TITLES, cells, strict=True)
            )
            + "</tr>"
        )


def _name(row: Object, owners: int) -> str:
    number = row["device_id"] or row["device"]
    instance = row.get("mig_instance_id")
    what = f"GPU {number}" if number else "GPU"
    if row["entity"] == "mig":
        what = f"{what} / MIG {instance}" if instance else "MIG"
    badges = [row["mig_profile"]] if row.get("mig_profile") else []
    if owners > 1:
        badges.append(f"shared by {owners}")
    elif row["gpu_shared"]:
        badges.append("shared")
    return (
        f'<span class="name">{text(what)}</span>'
        + "".join(f' <span class="badge">{text(badge)}</span>' for badge in badges)
        + _health(row)
        + f' <small class="model">{text(row["model_name"])}</small>'
        + f' <small class="uuid">{text(row["device_uuid"])}</small>'
        + (f' <small class="whole">{whole}</small>' if (whole := _whole_device(row)) else "")
    )


def _health(row: Object) -> str:
    """What is wrong with the device, and what to do, and its last XID; "" where there is none."""
    health, reasons, (xid, is_why) = row.get("health", "ok"), row.get("health_reasons"), last_xid(row)
    why = "; ".join(map(str, reasons)) if isinstance(reasons, list) else ""
    summary = text(f"{health}: XID {xid}" if is_why else health)
    words = "" if health == "ok" else f' <details class="health"><summary>{summary}</summary>{text(why)}</details>'
    return words if is_why or not xid else f'{words} <small class="xid">last XID {xid}</small>'


def _whole_device(row: Object) -> str:
    """What a shared device does as a whole, whose rows may have its owners' parts; "" where it is not known."""
    own = mapping(row, "whole_device")
    percent, used, watts = (finite(own, name) for name in ("gpu_utilization", "framebuffer_used", "power_usage"))
    amounts = (
        "" if percent is None else f"{_whole(percent)} %",
        "" if used is None else f"{_gib(used)} GiB",
        "" if watts is None else f"{_whole(watts)} W",
    )
    return f"in all {', '.join(filter(None, amounts))}" if any(amounts) else ""


def _owner(row: Object) -> tuple[str, str, str]:
    """Pod and container, namespace, workload."""
    state = stated(row)
    if state is DeviceState.UNKNOWN:
        return f'<details class="why"><summary>not known</summary>{text(row.get("state_reason"))}</details>', "", ""
    if not row["pod"]:
        return _WITHOUT_POD[state], "", ""
    idle = ", ".join(filter(None, ("held but idle", rounded(idle_seconds(row)))))
    idle = f' <span class="badge idle">{idle}</span>' if state is DeviceState.IDLE else ""
    pod = f'<span class="pod">{text(row["pod"])}</span> <small>{text(row["container"])}</small>{idle}'
    workload = (
        f"{text(row['workload_name'])} <small>{text(row['workload_kind'])}</small>" if "workload_name" in row else ""
    )
    return pod, text(row["namespace"]), workload


def _metrics(row: Object, scales: Scales) -> Iterator[str]:
    if row["entity"] == "mig-parent" and not _has_metrics(row):
        yield from ("",) * len(METRIC_TITLES)
        return
    percent, watts, celsius = utilisation(row), row["power_usage"], row["temperature"]
    used, total = row["framebuffer_used"], scales.full_mib(row)
    yield _metric("" if percent is None else f"{_whole(percent)} %", percent, 100, BEFORE if is_before(row) else "")
    yield _metric("" if used is None else _memory(used, total), used, total)
    yield _metric("" if watts is None else f"{_whole(watts)} W", watts, scales.watts.get(row["model_name"]))
    yield _metric("" if celsius is None else f"{_whole(celsius)} °C", celsius, _HOTTEST)


def _has_metrics(row: Object) -> bool:
    return any(row[name] is not None for name in ("power_usage", "temperature", "framebuffer_used"))


def _metric(name: str, value: float | None, full: float | None, mark: str = "") -> str:
    """A number, its mark and its bar. The bar repeats the number, so screen readers leave it out."""
    if value is None:
        return UNKNOWN
    bar = f'<meter aria-hidden="true" max="{full:g}" value="{min(value, full):g}"></meter>' if full else ""
    return f'<span class="value">{name}</span>{mark}{bar}'


def _total_mib(row: Object) -> float | None:
    if row["framebuffer_total"] is not None:
        return float(row["framebuffer_total"])
    used, free = row["framebuffer_used"], row["framebuffer_free"]
    return None if used is None or free is None else float(used + free)


def _memory(used: float, total: float | None) -> str:
    of = f" <small>of {_gib(total)}</small>" if total else ""
    return f"{_gib(used)}{of} GiB"


def _gib(mib: float) -> str:
    return f"{floor(mib / _MIB_PER_GIB * 10 + 0.5) / 10:.1f}"


def _whole(value: float) -> int:
    """As JavaScript's Math.round does."""
    return floor(value + 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """GPUs and MIG instances; and of devices (a MIG instance, or a GPU that is not cut) how many are in each state.

    `held`, `free`, `failing`, `outside` and `unknown` add up to all devices. `idle` ones are held, and no holder does
    anything.
    """

    gpus: int = 0
    instances: int = 0
    held: int = 0
    idle: int = 0
    free: int = 0
    failing: int = 0
    outside: int = 0
    unknown: int = 0

    @classmethod
    def of(cls, rows: Iterable[Object]) -> "Figures":
        """Those for the objects of /container/metrics."""
        return cls.of_states((device_of(row), row["entity"], stated(row)) for row in rows)

    @classmethod
    def of_states(cls, objects: Iterable[tuple[DeviceId, str, DeviceState]]) -> "Figures":
        """Those for objects of which the device, its `entity` and the state are given."""
        gpus: set[tuple[str, str]] = set()
        instances: set[DeviceId] = set()
        states: dict[DeviceId, list[DeviceState]] = {}
        for device, entity, state in objects:
            states.setdefault(device, []).append(state)
            if entity == "mig":
                instances.add(device)
            # an instance whose GPU is unknown adds no GPU
            if not device[1].startswith("MIG-"):
                gpus.add(device[:2])
        devices = Counter(map(state_of_device, states.values()))
        return cls(
            gpus=len(gpus),
            instances=len(instances),
            held=sum(devices[state] for state in IN_HAND),
            idle=devices[DeviceState.IDLE],
            free=devices[DeviceState.FREE],
            failing=devices[DeviceState.FAILING],
            outside=devices[DeviceState.OUTSIDE],
            unknown=devices[DeviceState.UNKNOWN],
        )

    @classmethod
    def sum(cls, several: Iterable["Figures"]) -> "Figures":
        """Those of several nodes together."""
        added = [*several]
        return cls(**{name: sum(getattr(each, name) for each in added) for name in TITLES})


TITLES = {
    "gpus": "GPUs",
    "instances": "MIG instances",
    "held": "held",
    "idle": "held but idle",
    "free": "free",
    "failing": "failing, not held",
    "outside": "used around Kubernetes",
    "unknown": "unknown",
}
assert [*TITLES] == [field.name for field in fields(Figures)]  # noqa: S101 - each figure has its title


def summary(figures: Figures) -> str:
    """The figures, by the names that the script knows them by."""
    items = "".join(
        f'<div><dt>{title}</dt><dd id="figure-{name}">{getattr(figures, name)}</dd></div>'
        for name, title in TITLES.items()
    )
    return f'<dl id="figures">{items}</dl>'
