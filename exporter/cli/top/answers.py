"""An exporter's answers → what is shown. Pure; the answers may be anything, also another version's.

/container/metrics has a row for each device and owner. In the rows of a shared device, `--sharing copy` repeats the
device's values, `split` divides the additive ones, and what is measured of an owner stands in its own row in both. The
node's mode is in /debug/mapping. The cluster role does not know it: there, rows that differ are taken as divided.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from exporter.cli.top.devices import Device, Holder, Process, Shown, Source
from exporter.cli.top.fields import Object, number, objects, section, text
from exporter.model.states import IN_HAND, DeviceState, is_before, state_of_device, stated

MOST_DEVICES = 50_000  # rows; a cluster of 5,000 nodes with 8 GPUs has 40,000
MOST_PROCESSES = 10_000
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """`sharing` is "" where nobody knows it; `owners` are the mapping's word, by device."""

    sharing: str
    owners: Mapping[tuple[str, str], Sequence[Object]]


def shown_of_node(url: str, mapping: Object, rows: object, trouble: str) -> Shown:
    """Of a node's exporter: /debug/mapping, and /container/metrics as JSON or the reason why there is none."""
    seen = [*objects(mapping.get("seen"), MOST_DEVICES)]
    rules = _Rules(
        sharing=text(section(section(mapping, "settings"), "sharing"), "value"),
        owners={_key(each): [*objects(each.get("owners"), MOST_DEVICES)] for each in seen},
    )
    return Shown(
        role="node",
        url=url,
        version=text(mapping, "version"),
        node=text(mapping, "node"),
        at=_latest(rows),
        devices=_devices(rows, rules),
        sources=_sources(section(mapping, "sources")),
        trouble=trouble,
    )


def shown_of_cluster(url: str, nodes: Object, rows: object, trouble: str) -> Shown:
    """Of the cluster role: /debug/nodes, and /container/metrics as JSON or the reason why there is none."""
    known = [*objects(nodes.get("nodes"), MOST_DEVICES)]
    which = section(nodes, "which_nodes")
    unknown = [_source("which nodes there are", which, up=False)] if text(which, "message") else []
    return Shown(
        role="cluster",
        url=url,
        version=text(nodes, "version"),
        at=_latest(rows),
        devices=_devices(rows, _Rules(sharing="", owners={})),
        sources=(*_sources(section(nodes, "sources")), *unknown),
        missing=[_source(text(each, "name"), each, up=False) for each in known if each.get("missing")],
        nodes=len(known),
        trouble=trouble,
    )


def processes_of(found: object) -> Sequence[Process]:
    """/processes as JSON."""
    return [_process(each) for each in objects(found, MOST_PROCESSES)]


def _process(of: Object) -> Process:
    container = section(of, "container")
    names = [text(container, name) for name in ("namespace", "pod")]
    instance, index = text(of, "mig_instance_id"), text(of, "device_id") or text(of, "device_uuid")[:8]
    ratio, memory = number(of, "sm_ratio"), number(of, "memory_bytes")
    kinds = of.get("kinds")
    return Process(
        node=text(of, "node_name"),
        device=f"{index}/{instance}" if instance else index,
        pid=int(number(of, "pid") or 0),
        user=text(of, "user"),
        utilization_percent=None if ratio is None else 100 * ratio,
        memory_used_mib=None if memory is None else memory / _MIB,
        kinds=",".join(kind for kind in kinds if isinstance(kind, str)) if isinstance(kinds, list) else "",
        owner="/".join(names) if all(names) else f"({text(of, 'reason') or 'unknown'})",
        command=text(of, "command"),
    )


def _sources(found: Object) -> Sequence[Source]:
    return [_source(name, each, up=each.get("up") is True) for name, each in found.items() if isinstance(each, dict)]


def _source(name: str, of: Object, *, up: bool) -> Source:
    return Source(name=name, up=up, reason=text(of, "reason"), message=text(of, "message"), remedy=text(of, "remedy"))


def _key(seen: Object) -> tuple[str, str]:
    return text(seen, "uuid") or text(seen, "gpu"), text(seen, "gpu_i_id")


def _latest(rows: object) -> str:
    return max((text(row, "timestamp") for row in objects(rows, MOST_DEVICES)), default="")


def _devices(rows: object, rules: _Rules) -> Sequence[Device]:
    found = [
        _device([*of_device], rules)
        for _, of_device in groupby(objects(rows, MOST_DEVICES), lambda row: [text(row, name) for name in _IDENTITY])
    ]
    return [*_with_parents(found, rules)]


_IDENTITY = ("node_name", "device_uuid", "device_id", "mig_instance_id")


def _device(rows: Sequence[Object], rules: _Rules) -> Device:
    first = rows[0]
    key = (text(first, "device_uuid") or text(first, "device_id"), text(first, "mig_instance_id"))
    owned = [row for row in rows if text(row, "pod")]
    # --sharing device has one row, without an owner, of a device that several share
    holders = [_holder(row, rules, alone=len(rows) == 1) for row in owned] or [
        Holder(namespace=text(owner, "namespace"), pod=text(owner, "pod"), container=text(owner, "container"))
        for owner in rules.owners.get(key, ())
    ]
    state = state_of_device(map(stated, rows))
    if holders and state not in IN_HAND:
        state = DeviceState.HELD
    utilization, activity = _utilization(rows), number(first, "graphics_engine_active")
    busy = utilization if activity is None else 100 * activity
    divided = _is_divided(rows, rules)
    used = _used(rows, divided=divided)
    total, free = (_whole(rows, f"framebuffer_{part}", divided=divided) for part in ("total", "free"))
    return Device(
        node=text(first, "node_name"),
        index=text(first, "device_id"),
        uuid=text(first, "device_uuid"),
        entity=text(first, "entity") or "gpu",
        instance=text(first, "mig_instance_id"),
        profile=text(first, "mig_profile"),
        model=text(first, "model_name"),
        state=state,
        is_before=all(map(is_before, rows)),
        why="shared by several" if state in IN_HAND and not holders else text(first, "state_reason"),
        shared=any(row.get("gpu_shared") is True for row in rows),
        utilization_percent=utilization if utilization is not None else busy,
        memory_used_mib=used,
        memory_total_mib=total if total is not None else _sum([used, free]),
        power_watts=_whole(rows, "power_usage", divided=divided),
        temperature_celsius=number(first, "temperature"),
        sm_clock_mhz=number(first, "sm_clock"),
        memory_activity_percent=_percent(first, "dram_active"),
        tensor_percent=_percent(first, "tensor_active"),
        xid=int(number(first, "xid_errors") or 0) or None,
        holders=tuple(holders),
    )


def _holder(row: Object, rules: _Rules, *, alone: bool) -> Holder:
    measured = section(row, "measured")
    ratio, memory = number(measured, "utilization_ratio"), number(measured, "memory_used_bytes")
    utilization = 100 * ratio if ratio is not None else None
    used = memory / _MIB if memory is not None else None
    if alone:
        utilization = number(row, "gpu_utilization") if utilization is None else utilization
    if used is None and (alone or rules.sharing == "split"):
        used = number(row, "framebuffer_used")
    return Holder(
        namespace=text(row, "namespace"),
        pod=text(row, "pod"),
        container=text(row, "container"),
        workload=text(row, "workload_name"),
        workload_kind=text(row, "workload_kind"),
        utilization_percent=utilization,
        memory_used_mib=used,
        measured=bool(measured),
        idle=not alone and stated(row) is DeviceState.IDLE,
    )


def _utilization(rows: Sequence[Object]) -> float | None:
    """Of the whole device: what a row that is not measured repeats, else what is measured of all owners."""
    copies = [row for row in rows if number(section(row, "measured"), "utilization_ratio") is None]
    if copies or len(rows) == 1:
        return max(_known(copies or rows, "gpu_utilization"), default=None)
    known = _known(rows, "gpu_utilization")
    return min(100.0, sum(known)) if known else None


def _is_divided(rows: Sequence[Object], rules: _Rules) -> bool:
    """Whether a device's rows have each a part of its power and memory."""
    if rules.sharing:
        return rules.sharing == "split"
    return any(len(set(_known(rows, name))) > 1 for name in ("power_usage", "framebuffer_free"))


def _whole(rows: Sequence[Object], name: str, *, divided: bool) -> float | None:
    """The whole device's amount of an additive field."""
    known = _known(rows, name)
    if not known:
        return None
    return sum(known) if divided else known[0]


def _used(rows: Sequence[Object], *, divided: bool) -> float | None:
    """The memory that is used of the whole device: a row with a measured amount has its owner's alone."""
    copies = [row for row in rows if number(section(row, "measured"), "memory_used_bytes") is None]
    if copies and not divided:
        return _whole(copies, "framebuffer_used", divided=False)
    return _whole(rows, "framebuffer_used", divided=True)


def _known(rows: Iterable[Object], name: str) -> Sequence[float]:
    return [value for row in rows if (value := number(row, name)) is not None]


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _percent(row: Object, name: str) -> float | None:
    ratio = number(row, name)
    return None if ratio is None else 100 * ratio


def _with_parents(devices: Iterable[Device], rules: _Rules) -> Iterator[Device]:
    """Before its instances the GPU that is cut, with what each instance repeats: power, temperature, the last XID."""
    for _, group in groupby(devices, lambda device: device.gpu):
        of_gpu = [*group]
        instances = [device for device in of_gpu if device.instance]
        if not instances:
            yield from of_gpu
            continue
        own = next((device for device in of_gpu if not device.instance), None)
        first = instances[0]
        blank = Device(node=first.node, index=first.index, uuid=first.uuid, entity="mig-parent", model=first.model)
        parent = own or blank
        temperatures = [device.temperature_celsius for device in of_gpu]
        powers = [each.power_watts for each in instances if each.power_watts is not None]
        is_divided = rules.sharing == "split" or len(set(powers)) > 1
        repeated = (sum(powers) if is_divided else powers[0]) if powers else None
        yield replace(
            parent,
            state=DeviceState.CUT,
            model=parent.model or first.model,
            instances=len(instances),
            power_watts=repeated if parent.power_watts is None else parent.power_watts,
            temperature_celsius=max((each for each in temperatures if each is not None), default=None),
            xid=next((device.xid for device in of_gpu if device.xid), None),
        )
        for each in instances:
            yield replace(each, power_watts=None, xid=None)
