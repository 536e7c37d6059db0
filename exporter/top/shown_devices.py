"""Devices, owners and the health of sources as `top` shows them, made of an exporter's answers. Pure.

Units: percent, MiB, W, °C, MHz. None is unknown, which is never 0. The answers may be anything, also those of another
version.

/container/metrics has a row for each device and owner. dividing/figures.py decides which of its figures are the
device's and which are the owner's. /debug/mapping has the node's mode of sharing, which the cluster role does not know.

Tests: tests/top/test_parts.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

from exporter.dividing.figures import gigabytes_over_nvlink, is_older, of_cut_gpu, of_device, of_holder, repeated
from exporter.lenient import AnyObject, each_mapping, finite, mapping, mappings, text
from exporter.model.device_row import DeviceRow, DeviceUser, OwnUse, RowDevice
from exporter.model.states import IN_HAND, DeviceState, counts_of, state_of_device

Role = Literal["node", "cluster"]
MOST_DEVICES = 50_000  # rows; a cluster of 5,000 nodes with 8 GPUs has 40,000
MOST_PROCESSES = 10_000
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownHolder:
    """A container that holds a device, or that uses it without holding it (`holds` is False).

    Its use is None if nobody measures it by container. `outside` names a user that is in no pod. `idle_seconds` is the
    time for which the container has not used the device; None if it uses it, or if that is not known. `granted` is what
    an allocator granted it of the device, in words; "" if none says it.
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
    granted: str = ""
    holds: bool = True

    @property
    def name(self) -> str:
        """Namespace and pod in kubectl's form."""
        return self.outside or f"{self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDevice:
    """A GPU, a MIG instance, or a cut GPU (`mig-parent`), with the fields of `top --json`.

    `before` says that its figures were read before the present holder got it, and `older` that they were read before
    the facts of which `state` is made.
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
    fan_percent: float | None = None
    sm_clock_mhz: float | None = None
    dram_active_percent: float | None = None
    tensor_active_percent: float | None = None
    nvlink_gigabytes: float | None = None  # sent and received a second
    xid: int | None = None
    is_xid_why: bool = False  # whether `xid` is the reason of `health`
    health: str = ""  # the verdict, "" if there is none
    health_reason: str = ""  # the worst reason of the verdict, in words
    suspected_hang: str = ""  # what the device's job shows if it seems to hang, in words
    holders: Sequence[ShownHolder] = ()
    strangers: Sequence[ShownHolder] = ()

    @property
    def label(self) -> str:
        """The device's name for people: 2, or 2/7 for MIG instance 7 of GPU 2."""
        gpu = self.gpu or self.uuid[:8] or "?"
        return f"{gpu}/{self.mig_instance_id}" if self.mig_instance_id else gpu

    @property
    def idle(self) -> bool:
        """Whether the device is held, and no holder uses it."""
        return self.state is DeviceState.IDLE

    @property
    def held(self) -> str:
        """The state; but "held" for every device that a container holds, whatever is known of its use."""
        return "held" if self.state in IN_HAND else self.state

    @property
    def gpu_name(self) -> tuple[str, str]:
        """The name that all instances of one GPU share."""
        return (self.node, self.uuid or self.gpu)

    @property
    def name(self) -> RowDevice:
        """The name that no other device has."""
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
    """A process on a GPU, from /processes."""

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
class ShownExporter:
    """One reading of an exporter.

    `trouble` is the reason why it has no devices. `processes` is None if none were asked for. `of_pods_in` is the
    namespace whose pods have the devices; "" if all devices are here.
    """

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
    of_pods_in: str = ""

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of physical GPUs, of MIG instances, and of devices in each state.

        A device is a MIG instance, or a GPU that is not cut.
        """
        return {
            "gpus": len({device.gpu_name for device in self.devices}),
            "instances": sum(device.entity == "mig" for device in self.devices),
            **counts_of(device.state for device in self.devices),
        }

    @property
    def totals(self) -> Mapping[str, float | None]:
        """The mean utilization, and the sums of memory and power, over the devices that have them; None if none has."""
        devices = [device for device in self.devices if device.state is not DeviceState.CUT]
        percents = [device.utilization_percent for device in devices if device.utilization_percent is not None]
        memory = [device for device in devices if None not in (device.memory_used_mib, device.memory_total_mib)]
        watts = [device.power_watts for device in self.devices if device.power_watts is not None]
        return {
            "utilization_percent": sum(percents) / len(percents) if percents else None,
            "memory_used_mib": sum(device.memory_used_mib or 0 for device in memory) if memory else None,
            "memory_total_mib": sum(device.memory_total_mib or 0 for device in memory) if memory else None,
            "power_watts": sum(watts) if watts else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharingFacts:
    """The node's mode of sharing, "" if unknown, and the owners by device, both from /debug/mapping."""

    sharing: str
    owners: Mapping[tuple[str, str], Sequence[AnyObject]]


def shown_of(role: Role, url: str, about: AnyObject, rows: Sequence[DeviceRow], trouble: str) -> ShownExporter:
    """Make one reading of an exporter.

    Args:
        role: the role that answers.
        url: the exporter's name for people.
        about: the node's /debug/mapping, or the cluster role's /debug/nodes.
        rows: the rows of /container/metrics.
        trouble: the reason why there are no rows; "" if there are.
    """
    nodes = mappings(about, "nodes", MOST_DEVICES)
    which = mapping(about, "which_nodes")
    unknown = [_source("which nodes there are", which, up=False)] if text(which, "message") else []
    facts = _SharingFacts(
        sharing=text(mapping(about, "settings", "sharing"), "value"),
        owners={
            _key(device): mappings(device, "owners", MOST_DEVICES) for device in mappings(about, "seen", MOST_DEVICES)
        },
    )
    return ShownExporter(
        role=role,
        url=url,
        version=text(about, "version"),
        node=text(about, "node"),
        at=max((row.timestamp or "" for row in rows), default=""),
        devices=[*_devices(rows, facts)],
        sources=(*_sources(mapping(about, "sources")), *unknown),
        missing=[_source(text(node, "name"), node, up=False) for node in nodes if node.get("missing")],
        nodes=1 if role == "node" else len(nodes),
        trouble=trouble,
    )


def processes_of(answer: object) -> Sequence[ShownProcess]:
    """The processes in the JSON of /processes."""
    return [_process(item) for item in each_mapping(answer, MOST_PROCESSES)]


def _process(of: AnyObject) -> ShownProcess:
    """A process of /processes, read leniently: percent and MiB."""
    names = [text(mapping(of, "container"), name) for name in ("namespace", "pod")]
    instance = text(of, "mig_instance_id")
    index = text(of, "device_id") or text(of, "device_uuid")[:8]
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


def _devices(rows: Sequence[DeviceRow], facts: _SharingFacts) -> Iterator[ShownDevice]:
    for _, rows_of_gpu in groupby(rows, lambda row: row.row_device[:2]):
        by_instance = groupby(rows_of_gpu, lambda row: row.mig_instance_id)
        yield from _gpu({instance: [*of_instance] for instance, of_instance in by_instance}, facts)


def _gpu(rows: Mapping[str, Sequence[DeviceRow]], facts: _SharingFacts) -> Iterator[ShownDevice]:
    """A GPU that is not cut; or a cut one, followed by its instances.

    `rows` has the rows of the GPU itself, if any, under "", and those of each instance under its id.
    """
    own = rows.get("", ())
    instances = [rows_of_instance for name, rows_of_instance in rows.items() if name]
    if not instances:
        yield _device(own, facts)
        return
    shown = [_device(rows_of_instance, facts) for rows_of_instance in instances]
    yield _cut_gpu(own, instances, shown, facts)
    for device in shown:
        yield replace(device, xid=None, is_xid_why=False)


def _cut_gpu(
    own: Sequence[DeviceRow],
    instances: Sequence[Sequence[DeviceRow]],
    shown: Sequence[ShownDevice],
    facts: _SharingFacts,
) -> ShownDevice:
    """A cut GPU; `shown` are its instances."""
    of_instances = [of_device(rows, facts.sharing) for rows in instances]
    figures = of_cut_gpu(own[0] if own else None, [rows[0] for rows in instances], of_instances)
    first = shown[0]
    blank = ShownDevice(node=first.node, gpu=first.gpu, uuid=first.uuid, entity="mig-parent", model=first.model)
    parent = _device(own, facts) if own else blank
    return replace(
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


def _device(rows: Sequence[DeviceRow], facts: _SharingFacts) -> ShownDevice:
    """A device of the rows of all its holders. Their state is the one that matters most."""
    first = rows[0]
    holders = [_holder(row, is_alone=len(rows) == 1) for row in rows if row.pod]
    if not holders:
        # with --sharing device, a shared device has one row without an owner
        holders = [*map(_named, facts.owners.get(_device_key(first), ()))]
    state = _state_of(rows, is_held=bool(holders))
    figures = of_device(rows, facts.sharing)
    return ShownDevice(
        node=first.node_name,
        gpu=first.device_id,
        uuid=first.device_uuid,
        entity=first.entity or "gpu",
        mig_instance_id=first.mig_instance_id,
        mig_profile=first.mig_profile,
        model=first.model_name,
        state=state,
        before=all(row.is_before for row in rows),
        why="shared by several" if state in IN_HAND and not holders else first.state_reason,
        shared=any(row.gpu_shared for row in rows),
        older=is_older(rows),
        utilization_percent=figures.utilization_percent,
        memory_used_mib=figures.memory_used_mib,
        memory_total_mib=figures.memory_total_mib,
        power_watts=figures.power_watts,
        temperature_celsius=figures.temperature_celsius,
        fan_percent=first.fan_speed,
        sm_clock_mhz=first.sm_clock,
        dram_active_percent=_times(100, repeated(rows, "dram_active")),
        tensor_active_percent=_times(100, repeated(rows, "tensor_active")),
        nvlink_gigabytes=gigabytes_over_nvlink(rows),
        xid=first.last_xid,
        is_xid_why=first.is_xid_why,
        health=first.health,
        health_reason=first.health_reasons[0].partition(" -> ")[0] if first.health_reasons else "",
        suspected_hang=first.suspected_hang_message,
        holders=tuple(holders),
        strangers=[_stranger(user) for user in first.used_by],
    )


def _state_of(rows: Sequence[DeviceRow], *, is_held: bool) -> DeviceState:
    """The state of a device, of all its rows. One with holders is in somebody's hands, whatever its rows say."""
    state = state_of_device(row.state for row in rows)
    return DeviceState.HELD if is_held and state not in IN_HAND else state


def _device_key(row: DeviceRow) -> tuple[str, str]:
    return row.device_uuid or row.device_id, row.mig_instance_id


def _named(owner: AnyObject) -> ShownHolder:
    """A holder from an owner that /debug/mapping names."""
    return ShownHolder(namespace=text(owner, "namespace"), pod=text(owner, "pod"), container=text(owner, "container"))


def _stranger(user: DeviceUser) -> ShownHolder:
    return ShownHolder(
        namespace=user.namespace,
        pod=user.pod,
        container=user.container,
        outside="" if user.pod else user.name,
        utilization_percent=_times(100, user.utilization_ratio),
        memory_used_mib=_times(1 / _MIB, user.memory_used_bytes),
        measured=True,
        holds=False,
    )


def _holder(row: DeviceRow, *, is_alone: bool) -> ShownHolder:
    """The holder of a row. `is_alone`: nobody else holds the device, so that the device's figures are the holder's."""
    figures = of_holder(row, is_alone=is_alone)
    return ShownHolder(
        namespace=row.namespace,
        pod=row.pod,
        container=row.container,
        workload=row.workload_name,
        workload_kind=row.workload_kind,
        utilization_percent=figures.utilization_percent,
        memory_used_mib=figures.memory_used_mib,
        measured=row.measured not in (None, OwnUse()),
        idle=row.state is DeviceState.IDLE,
        idle_seconds=row.idle_seconds,
        granted=row.granted,
    )


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value
