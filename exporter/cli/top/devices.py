"""What `top` shows, made of an exporter's answers: devices, their owners, and the health of its sources. Pure.

Units: percent, MiB, W, °C, MHz. None is unknown, which is never 0. The answers may be anything, also another version's.

/container/metrics has a row for each device and owner. The rows of a shared device have its own values beside their
own (`whole_device`), of which some are missing where exporters are older, or a Prometheus server is asked. Then
`--sharing copy` repeats the device's values, `split` divides the additive ones, and what is measured of an owner stands
in its own row in both. The node's mode is in /debug/mapping. The cluster role does not know it: there, rows that differ
are taken as divided.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from exporter.lenient import AnyObject, each_mapping, finite, mapping, mappings, text
from exporter.model import states
from exporter.model.states import IN_HAND, DeviceState, stated

Role = Literal["node", "cluster"]
DeviceName = tuple[str, str, str]  # node, GPU, MIG instance
MOST_DEVICES = 50_000  # rows; a cluster of 5,000 nodes with 8 GPUs has 40,000
MOST_PROCESSES = 10_000
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownHolder:
    """A container that holds a device, or uses it without holding it (`holds`).

    Its use is None where nobody measures it by container. `outside` names who is in no pod. For `idle_seconds` it has
    not used the device; None where it does, or that is not known.
    """

    namespace: str = ""
    pod: str = ""
    container: str = ""
    outside: str = ""
    workload: str = ""
    workload_kind: str = ""
    utilization_percent: float | None = None
    memory_used_mib: float | None = None
    measured: bool = False
    idle: bool = False
    idle_seconds: int | None = None
    holds: bool = True

    @property
    def name(self) -> str:
        """Namespace and pod, as kubectl writes them."""
        return self.outside or f"{self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDevice:
    """A GPU, a MIG instance, or a cut GPU (`mig-parent`): the fields of `top --json`.

    `before`: it was read before it came into these hands.
    """

    node: str
    gpu: str
    uuid: str
    entity: str = "gpu"
    mig_instance_id: str = ""
    mig_profile: str = ""
    model: str = ""
    state: DeviceState = DeviceState.FREE
    before: bool = False
    why: str = ""
    shared: bool = False
    mig_instances: int = 0
    utilization_percent: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_mhz: float | None = None
    dram_active_percent: float | None = None
    tensor_active_percent: float | None = None
    xid: int | None = None
    is_xid_why: bool = False  # of `health`
    health: str = ""  # the verdict, "" where nobody gives one
    holders: Sequence[ShownHolder] = ()
    strangers: Sequence[ShownHolder] = ()

    @property
    def label(self) -> str:
        """What people call it: 2, or 2/7 for MIG instance 7 of GPU 2."""
        gpu = self.gpu or self.uuid[:8] or "?"
        return f"{gpu}/{self.mig_instance_id}" if self.mig_instance_id else gpu

    @property
    def idle(self) -> bool:
        """Whether it is held, and no holder uses it."""
        return self.state is DeviceState.IDLE

    @property
    def held(self) -> str:
        """The state, but that it says "held" of each that a container holds, whatever is known of its use."""
        return "held" if self.state in IN_HAND else self.state

    @property
    def gpu_name(self) -> tuple[str, str]:
        """What all instances of one GPU share."""
        return (self.node, self.uuid or self.gpu)

    @property
    def name(self) -> DeviceName:
        """What no other device shares."""
        return (*self.gpu_name, self.mig_instance_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSource:
    """A source of the exporter, or a node that its cluster role asks."""

    name: str
    up: bool
    reason: str = ""
    message: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownProcess:
    """A process on a GPU, as /processes tells of it."""

    node: str
    device: str
    pid: int
    user: str
    utilization_percent: float | None
    memory_used_mib: float | None
    kinds: str
    owner: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One reading of an exporter. `trouble` is why it has no devices, `processes` None where none were asked for."""

    role: Role
    url: str
    version: str = ""
    node: str = ""
    at: str = ""
    devices: Sequence[ShownDevice] = ()
    sources: Sequence[ShownSource] = ()
    missing: Sequence[ShownSource] = ()
    nodes: int = 1
    trouble: str = ""
    processes: Sequence[ShownProcess] | None = None
    processes_trouble: str = ""

    @property
    def counts(self) -> Mapping[str, int]:
        """Physical GPUs; and of devices (a MIG instance, or a GPU that is not cut) how many are in each state."""
        return {
            "gpus": len({device.gpu_name for device in self.devices}),
            "instances": sum(device.entity == "mig" for device in self.devices),
            **states.counts_of(device.state for device in self.devices),
        }

    @property
    def totals(self) -> Mapping[str, float | None]:
        """Mean utilization, memory and power of all that tell theirs; None where none does."""
        devices = [device for device in self.devices if device.state is not DeviceState.CUT]
        percents = [each.utilization_percent for each in devices if each.utilization_percent is not None]
        memory = [each for each in devices if None not in (each.memory_used_mib, each.memory_total_mib)]
        watts = [device.power_watts for device in self.devices if device.power_watts is not None]
        return {
            "utilization_percent": sum(percents) / len(percents) if percents else None,
            "memory_used_mib": sum(each.memory_used_mib or 0 for each in memory) if memory else None,
            "memory_total_mib": sum(each.memory_total_mib or 0 for each in memory) if memory else None,
            "power_watts": sum(watts) if watts else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """`sharing` is "" where nobody knows it; `owners` are the mapping's word, by device."""

    sharing: str
    owners: Mapping[tuple[str, str], Sequence[AnyObject]]


def shown_of(role: Role, url: str, about: AnyObject, rows: object, trouble: str) -> Shown:
    """Of an exporter: /debug/mapping of a node or /debug/nodes of the cluster role, and /container/metrics as JSON.

    `trouble` is the reason why there is none of the latter.
    """
    nodes, which = mappings(about, "nodes", MOST_DEVICES), mapping(about, "which_nodes")
    unknown = [_source("which nodes there are", which, up=False)] if text(which, "message") else []
    rules = _Rules(
        sharing=text(mapping(about, "settings", "sharing"), "value"),
        owners={_key(each): mappings(each, "owners", MOST_DEVICES) for each in mappings(about, "seen", MOST_DEVICES)},
    )
    return Shown(
        role=role,
        url=url,
        version=text(about, "version"),
        node=text(about, "node"),
        at=max((text(row, "timestamp") for row in each_mapping(rows, MOST_DEVICES)), default=""),
        devices=_devices(rows, rules),
        sources=(*_sources(mapping(about, "sources")), *unknown),
        missing=[_source(text(each, "name"), each, up=False) for each in nodes if each.get("missing")],
        nodes=1 if role == "node" else len(nodes),
        trouble=trouble,
    )


def processes_of(answer: object) -> Sequence[ShownProcess]:
    """/processes as JSON."""
    return [_process(each) for each in each_mapping(answer, MOST_PROCESSES)]


def _process(of: AnyObject) -> ShownProcess:
    names = [text(mapping(of, "container"), name) for name in ("namespace", "pod")]
    instance, index = text(of, "mig_instance_id"), text(of, "device_id") or text(of, "device_uuid")[:8]
    kinds = of.get("kinds")
    return ShownProcess(
        node=text(of, "node_name"),
        device=f"{index}/{instance}" if instance else index,
        pid=int(finite(of, "pid") or 0),
        user=text(of, "user"),
        utilization_percent=_times(100, finite(of, "sm_ratio")),
        memory_used_mib=_times(1 / _MIB, finite(of, "memory_bytes")),
        kinds=",".join(kind for kind in kinds if isinstance(kind, str)) if isinstance(kinds, list) else "",
        owner=_owner_of_process(names, text(of, "reason")),
        command=text(of, "command"),
    )


def _owner_of_process(names: Sequence[str], reason: str) -> str:
    if not all(names):
        return f"({reason or 'unknown'})"
    return f"{'/'.join(names)}, which does not hold it" if reason == "not_assigned" else "/".join(names)


def _sources(answer: AnyObject) -> Sequence[ShownSource]:
    return [_source(name, each, up=each.get("up") is True) for name, each in answer.items() if isinstance(each, dict)]


def _source(name: str, of: AnyObject, *, up: bool) -> ShownSource:
    return ShownSource(
        name=name, up=up, reason=text(of, "reason"), message=text(of, "message"), remedy=text(of, "remedy")
    )


def _key(seen: AnyObject) -> tuple[str, str]:
    return text(seen, "uuid") or text(seen, "gpu"), text(seen, "gpu_i_id")


def _devices(rows: object, rules: _Rules) -> Sequence[ShownDevice]:
    def identity(row: AnyObject) -> Sequence[str]:
        return [text(row, name) for name in ("node_name", "device_uuid", "device_id", "mig_instance_id")]

    by_device = groupby(each_mapping(rows, MOST_DEVICES), identity)
    return [*_with_parents([_device([*of_device], rules) for _, of_device in by_device], rules)]


def _device(rows: Sequence[AnyObject], rules: _Rules) -> ShownDevice:
    first = rows[0]
    key = (text(first, "device_uuid") or text(first, "device_id"), text(first, "mig_instance_id"))
    owned = [row for row in rows if text(row, "pod")]
    # --sharing device has one row, without an owner, of a device that several share
    holders = [_holder(row, rules, alone=len(rows) == 1) for row in owned] or [*map(_named, rules.owners.get(key, ()))]
    state = states.state_of_device(map(stated, rows))
    if holders and state not in IN_HAND:
        state = DeviceState.HELD
    utilization = _utilization(rows)
    divided = _is_divided(rows, rules)
    used = _used(rows, divided=divided)
    xid, is_xid_why = states.last_xid(first)
    total, free = (_whole(rows, f"framebuffer_{part}", divided=divided) for part in ("total", "free"))
    return ShownDevice(
        node=text(first, "node_name"),
        gpu=text(first, "device_id"),
        uuid=text(first, "device_uuid"),
        entity=text(first, "entity") or "gpu",
        mig_instance_id=text(first, "mig_instance_id"),
        mig_profile=text(first, "mig_profile"),
        model=text(first, "model_name"),
        state=state,
        before=all(map(states.is_before, rows)),
        why="shared by several" if state in IN_HAND and not holders else text(first, "state_reason"),
        shared=any(row.get("gpu_shared") is True for row in rows),
        utilization_percent=_times(100, finite(first, "graphics_engine_active"))
        if utilization is None
        else utilization,
        memory_used_mib=used,
        memory_total_mib=total if total is not None else _sum([used, free]),
        power_watts=_whole(rows, "power_usage", divided=divided),
        temperature_celsius=finite(first, "temperature"),
        sm_clock_mhz=finite(first, "sm_clock"),
        dram_active_percent=_times(100, finite(first, "dram_active")),
        tensor_active_percent=_times(100, finite(first, "tensor_active")),
        xid=xid or int(finite(first, "xid_errors") or 0) or None,
        is_xid_why=is_xid_why,
        health=text(first, "health"),
        holders=tuple(holders),
        strangers=[_stranger(each) for each in states.users(first)],
    )


def _named(of: AnyObject) -> ShownHolder:
    return ShownHolder(namespace=text(of, "namespace"), pod=text(of, "pod"), container=text(of, "container"))


def _stranger(user: AnyObject) -> ShownHolder:
    return replace(
        _named(user),
        outside="" if text(user, "pod") else states.user_name(user),
        utilization_percent=_times(100, finite(user, "utilization_ratio")),
        memory_used_mib=_times(1 / _MIB, finite(user, "memory_used_bytes")),
        measured=True,
        holds=False,
    )


def _holder(row: AnyObject, rules: _Rules, *, alone: bool) -> ShownHolder:
    measured = mapping(row, "measured")
    utilization = _times(100, finite(measured, "utilization_ratio"))
    used = _times(1 / _MIB, finite(measured, "memory_used_bytes"))
    if alone:
        utilization = finite(row, "gpu_utilization") if utilization is None else utilization
    if used is None and (alone or rules.sharing == "split"):
        used = finite(row, "framebuffer_used")
    return replace(
        _named(row),
        workload=text(row, "workload_name"),
        workload_kind=text(row, "workload_kind"),
        utilization_percent=utilization,
        memory_used_mib=used,
        measured=bool(measured),
        idle=not alone and stated(row) is DeviceState.IDLE,
        idle_seconds=states.idle_seconds(row),
    )


def _utilization(rows: Sequence[AnyObject]) -> float | None:
    """Of the whole device: its own, or what a row that is not measured repeats, else what is measured of all owners."""
    own = _of_whole_device(rows, "gpu_utilization")
    if own is not None:
        return own
    copies = [row for row in rows if finite(mapping(row, "measured"), "utilization_ratio") is None]
    if copies or len(rows) == 1:
        return max(_numbers(copies or rows, "gpu_utilization"), default=None)
    percents = _numbers(rows, "gpu_utilization")
    return min(100.0, sum(percents)) if percents else None


def _of_whole_device(rows: Sequence[AnyObject], name: str) -> float | None:
    return finite(mapping(rows[0], "whole_device"), name)


def _is_divided(rows: Sequence[AnyObject], rules: _Rules) -> bool:
    """Whether a device's rows have each a part of its power and memory."""
    if rules.sharing:
        return rules.sharing == "split"
    return any(len(set(_numbers(rows, name))) > 1 for name in ("power_usage", "framebuffer_free"))


def _whole(rows: Sequence[AnyObject], name: str, *, divided: bool) -> float | None:
    """The whole device's amount of an additive field."""
    own = _of_whole_device(rows, name)
    if own is not None:
        return own
    numbers = _numbers(rows, name)
    if not numbers:
        return None
    return sum(numbers) if divided else numbers[0]


def _used(rows: Sequence[AnyObject], *, divided: bool) -> float | None:
    """The memory that is used of the whole device: a row with a measured amount has its owner's alone."""
    copies = [row for row in rows if finite(mapping(row, "measured"), "memory_used_bytes") is None and not divided]
    return _whole(copies or rows, "framebuffer_used", divided=not copies)


def _numbers(rows: Iterable[AnyObject], name: str) -> Sequence[float]:
    return [value for row in rows if (value := finite(row, name)) is not None]


def _sum(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value


def _with_parents(devices: Iterable[ShownDevice], rules: _Rules) -> Iterator[ShownDevice]:
    """Before its instances the GPU that is cut, with what each instance repeats: power, temperature, the last XID."""
    for _, group in groupby(devices, lambda device: device.gpu_name):
        of_gpu = [*group]
        instances = [device for device in of_gpu if device.mig_instance_id]
        if not instances:
            yield from of_gpu
            continue
        own = next((device for device in of_gpu if not device.mig_instance_id), None)
        first = instances[0]
        blank = ShownDevice(node=first.node, gpu=first.gpu, uuid=first.uuid, entity="mig-parent", model=first.model)
        parent = own or blank
        temperatures = [device.temperature_celsius for device in of_gpu]
        powers = [each.power_watts for each in instances if each.power_watts is not None]
        is_divided = rules.sharing == "split" or len(set(powers)) > 1
        repeated = (sum(powers) if is_divided else powers[0]) if powers else None
        yield replace(
            parent,
            state=DeviceState.CUT,
            model=parent.model or first.model,
            mig_instances=len(instances),
            power_watts=repeated if parent.power_watts is None else parent.power_watts,
            temperature_celsius=max((each for each in temperatures if each is not None), default=None),
            xid=next((device.xid for device in of_gpu if device.xid), None),
        )
        for each in instances:
            yield replace(each, power_watts=None, xid=None, is_xid_why=False)
