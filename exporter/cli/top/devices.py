"""What `top` shows, made of an exporter's answers: devices, their owners, and the health of its sources. Pure.

Units: percent, MiB, W, °C, MHz. None is unknown, which is never 0. The answers may be anything, also another version's.

/container/metrics has a row for each device and owner; figures.py says what of it is the device's and what the owner's.
The node's mode of sharing is in /debug/mapping. The cluster role does not know it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from exporter.dividing.figures import is_older, of_cut_gpu, of_device, of_holder, repeated
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

    `before`: it was read before it came into these hands; `older`: it was read before what `state` is made of.
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
    older: bool = False
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
        devices=[*_devices(rows, rules)],
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


def _devices(rows: object, rules: _Rules) -> Iterator[ShownDevice]:
    def gpu(row: AnyObject) -> Sequence[str]:
        return [text(row, "node_name"), text(row, "device_uuid") or text(row, "device_id")]

    for _, of_gpu in groupby(each_mapping(rows, MOST_DEVICES), gpu):
        by_instance = groupby(of_gpu, lambda row: text(row, "mig_instance_id"))
        yield from _gpu({instance: [*of_instance] for instance, of_instance in by_instance}, rules)


def _gpu(objects: Mapping[str, Sequence[AnyObject]], rules: _Rules) -> Iterator[ShownDevice]:
    """A GPU, or one that is cut (by its own objects, under "", or by those of its instances) before its instances."""
    own = objects.get("", ())
    instances = [of_instance for name, of_instance in objects.items() if name]
    if not instances:
        yield _device(own, rules)
        return
    shown = [_device(rows, rules) for rows in instances]
    of_instances = [of_device(rows, rules.sharing) for rows in instances]
    figures = of_cut_gpu(own[0] if own else {}, [rows[0] for rows in instances], of_instances)
    first = shown[0]
    blank = ShownDevice(node=first.node, gpu=first.gpu, uuid=first.uuid, entity="mig-parent", model=first.model)
    parent = _device(own, rules) if own else blank
    yield replace(
        parent,
        state=DeviceState.CUT,
        model=parent.model or first.model,
        mig_instances=len(instances),
        utilization_percent=figures.utilization_percent,
        memory_used_mib=figures.memory_used_mib,
        memory_total_mib=figures.memory_total_mib,
        power_watts=figures.power_watts,
        temperature_celsius=figures.temperature_celsius,
        xid=next((device.xid for device in (parent, *shown) if device.xid), None),
    )
    for device in shown:
        yield replace(device, xid=None, is_xid_why=False)


def _device(rows: Sequence[AnyObject], rules: _Rules) -> ShownDevice:
    first = rows[0]
    key = (text(first, "device_uuid") or text(first, "device_id"), text(first, "mig_instance_id"))
    owned = [row for row in rows if text(row, "pod")]
    # --sharing device has one row, without an owner, of a device that several share
    holders = [_holder(row, is_alone=len(rows) == 1) for row in owned] or [*map(_named, rules.owners.get(key, ()))]
    state = states.state_of_device(map(stated, rows))
    if holders and state not in IN_HAND:
        state = DeviceState.HELD
    figures = of_device(rows, rules.sharing)
    xid, is_xid_why = states.last_xid(first)
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
        older=len(rows) == 1 and is_older(first),
        utilization_percent=figures.utilization_percent,
        memory_used_mib=figures.memory_used_mib,
        memory_total_mib=figures.memory_total_mib,
        power_watts=figures.power_watts,
        temperature_celsius=figures.temperature_celsius,
        sm_clock_mhz=finite(first, "sm_clock"),
        dram_active_percent=_times(100, repeated(rows, "dram_active")),
        tensor_active_percent=_times(100, repeated(rows, "tensor_active")),
        xid=xid if "last_xid" in first else int(finite(first, "xid_errors") or 0) or None,  # older exporters have none
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


def _holder(row: AnyObject, *, is_alone: bool) -> ShownHolder:
    figures = of_holder(row, is_alone=is_alone)
    return replace(
        _named(row),
        workload=text(row, "workload_name"),
        workload_kind=text(row, "workload_kind"),
        utilization_percent=figures.utilization_percent,
        memory_used_mib=figures.memory_used_mib,
        measured=bool(mapping(row, "measured")),
        idle=stated(row) is DeviceState.IDLE,
        idle_seconds=states.idle_seconds(row),
    )


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value
