"""The row of a device and its holder: one object of /container/metrics, for those who make it and who read it. Pure.

/container/metrics, the page, `top`, `kubectl gpu`, the cluster role, KEDA's scaler and the autoscalers all work on
these rows. A device (a GPU or a MIG instance) has a row for each container that holds it. A device that nobody holds
has one row, without a container. docs/openapi.yaml describes the fields; their names are a contract.

To add a field of a device, add its row to dcgm/table.json (for a measurement of DCGM), its line to `DeviceRow`, and the
field to each output that shows it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from math import isfinite
from typing import Any, NamedTuple, get_type_hints

from exporter.lenient import AnyObject, Object, each_mapping, mapping, whole
from exporter.model.nothing import NOTHING
from exporter.model.states import AT_WORK_BYTES, BROKEN, IDLE_BELOW, DeviceState
from exporter.wording import granted_amounts

_LARGEST = 10**18  # nanoseconds of 31 years, the largest that a counter shows
_PERCENT = 100
_MOST_NAMED_USERS = 3
_MOST_COMMAND_CHARS = 60
_ID_CHARS = 12  # engines shorten a container's id to these


# A finite number of JSON, whole or not. None: not known, which is never 0.
Number = int | float | None
# The node, the GPU's UUID (or its name where it has none), and the MIG instance ("" for a GPU).
RowDevice = tuple[str, str, str]


class OwnUse(NamedTuple):
    """The use of the device by the container's own processes (NVML): bytes, a part of its time (0 to 1), a count."""

    memory_used_bytes: Number = None
    utilization_ratio: Number = None
    processes: Number = None


class WholeDevice(NamedTuple):
    """The page's values of a whole device, of which the row may have only a part. Units are those of `DeviceRow`."""

    gpu_utilization: Number = None
    graphics_engine_active: Number = None
    power_usage: Number = None
    framebuffer_total: Number = None
    framebuffer_used: Number = None
    framebuffer_free: Number = None


class DeviceUser(NamedTuple):
    """Somebody who uses the device and does not hold it: a pod, a container outside pods, or a process in neither."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    engine: str = ""
    id: str = ""
    command: str = ""
    pid: Number = None
    memory_used_bytes: Number = None
    utilization_ratio: Number = None
    processes: Number = None

    @property
    def name(self) -> str:
        """The pod as kubectl writes it, else the container's engine and the first part of its id, else the command."""
        if self.pod:
            return f"{self.namespace}/{self.pod}"
        if self.id:
            return f"{self.engine or 'container'} {self.id[:_ID_CHARS]}"
        return self.command[:_MOST_COMMAND_CHARS]

    def is_at_work(self, idle_below: float = IDLE_BELOW) -> bool:
        """Whether it does more on the device than keep a CUDA context open."""
        return (self.memory_used_bytes or 0) >= AT_WORK_BYTES or (self.utilization_ratio or 0) >= idle_below


class DeviceRow(NamedTuple):
    """A device and one container that holds it; without a container if nobody holds it.

    The measurements have the units that dcgm/table.json gives them (percent, MiB, W, °C, MHz, bytes, ratios of 0 to 1);
    None is a value that nobody knows. Moments are RFC 3339 in UTC with milliseconds, which sort as texts do. JSON
    leaves out the fields from `mig_profile` on where they are empty. The row is a tuple, since a frozen dataclass of so
    many fields takes five times as long to make.
    """

    node_name: str = ""
    model_name: str = ""
    device: str = ""
    device_id: str = ""  # the GPU's index
    device_uuid: str = ""
    entity: str = "gpu"  # gpu, mig, or mig-parent for a GPU that is cut into instances
    pod: str = ""
    container: str = ""
    namespace: str = ""
    gpu_shared: bool = False  # several containers hold the device
    sm_active: Number = None
    sm_occupancy: Number = None
    tensor_active: Number = None
    dram_active: Number = None
    pcie_tx_bytes: Number = None
    pcie_rx_bytes: Number = None
    nvlink_tx_bytes: Number = None
    nvlink_rx_bytes: Number = None
    graphics_engine_active: Number = None
    framebuffer_total: Number = None
    framebuffer_used: Number = None
    framebuffer_free: Number = None
    pcie_link_gen: Number = None
    pcie_link_width: Number = None
    temperature: Number = None
    memory_temperature: Number = None
    power_usage: Number = None
    gpu_utilization: Number = None
    int_pipe_active: Number = None
    fp16_pipe_active: Number = None
    fp32_pipe_active: Number = None
    fp64_pipe_active: Number = None
    clocks_event_reasons: Number = None
    xid_errors: Number = None
    power_violation: Number = None
    thermal_violation: Number = None
    sm_clock: Number = None
    mem_clock: Number = None
    fan_speed: Number = None
    last_xid: int | None = None
    timestamp: str | None = None
    read_at: str | None = None
    holder_since: str | None = None
    idle_since: str | None = None
    state: DeviceState = DeviceState.FREE
    mig_profile: str = ""
    mig_instance_id: str = ""
    workload_name: str = ""
    workload_kind: str = ""
    queue: str = ""  # the pod's, by its labels: a ClusterQueue, NAMESPACE/NAME of a LocalQueue, or KAI's
    pod_uid: str = ""
    pod_labels: Mapping[str, str] = NOTHING
    allocator: str = ""  # who granted the container a part of the device, and what: MiB, percent, and a part of 1
    requested_memory_mib: Number = None
    requested_cores_percent: Number = None
    requested_fraction: Number = None
    whole_device: WholeDevice | None = None
    measured: OwnUse | None = None
    cuda: AnyObject | None = None  # what its programs asked of CUDA, by the probe's names
    health: str = ""  # the verdict: ok, unknown, degraded, failing or gone
    health_reasons: tuple[str, ...] = ()
    health_message: str = ""
    suspected_hang: str = ""  # waiting_kernel or waiting_for_data, and what the job's devices show
    suspected_hang_message: str = ""
    used_by: tuple[DeviceUser, ...] = ()
    state_reason: str = ""
    unknown_fields: AnyObject = NOTHING  # of a newer exporter; `as_object` gives them back

    @property
    def row_device(self) -> RowDevice:
        """The row's device: equal for all rows of one device."""
        return self.node_name, self.device_uuid or self.device or self.device_id, self.mig_instance_id

    @property
    def pod_name(self) -> str:
        """Namespace and pod, as kubectl writes them."""
        return f"{self.namespace}/{self.pod}"

    @property
    def label(self) -> str:
        """What people call the device: 2, or 2/7 for MIG instance 7 of GPU 2."""
        gpu = self.device_id or self.device_uuid
        return f"{gpu}/{self.mig_instance_id}" if self.mig_instance_id else gpu

    @property
    def own_activity(self) -> float | None:
        """The activity of the container's own processes on the device by NVML, 0 to 1; None if not measured."""
        return self.measured.utilization_ratio if self.measured else None

    @property
    def own_memory_bytes(self) -> float | None:
        """The bytes that the container's own processes take by NVML; None if not measured."""
        return self.measured.memory_used_bytes if self.measured else None

    @property
    def granted(self) -> str:
        """What an allocator granted the container of the device: `10 GiB, 45 %`; "" if none says it."""
        amounts = (self.requested_memory_mib, self.requested_cores_percent, self.requested_fraction)
        return ", ".join(granted_amounts(*amounts)) if any(amounts) else ""

    @property
    def page_activity(self) -> float | None:
        """The device's activity by the page, 0 to 1: GR_ENGINE_ACTIVE, else GPU_UTIL, which MIG instances lack."""
        if self.graphics_engine_active is not None:
            return self.graphics_engine_active
        return None if self.gpu_utilization is None else self.gpu_utilization / _PERCENT

    @property
    def activity(self) -> float | None:
        """The holder's activity on the device, 0 to 1: by its own processes if they are measured, else by the page."""
        own = self.own_activity
        return self.page_activity if own is None else own

    @property
    def is_before(self) -> bool:
        """Whether the page's values are older than the last change of the device's holder."""
        if self.holder_since is None or self.read_at is None:
            return False
        return self.holder_since >= self.read_at

    @property
    def is_older(self) -> bool:
        """Whether the page's values contradict the state, which follows from what NVML measured of the holder later."""
        if self.own_activity is None or self.gpu_shared or self.page_activity is None:
            return False
        if self.state not in (DeviceState.IDLE, DeviceState.USED):
            return False
        return (self.page_activity < IDLE_BELOW) != (self.state is DeviceState.IDLE)

    @property
    def idle_seconds(self) -> int | None:
        """The seconds for which the holder had left the device idle when the row was made.

        None if it is in use, or not known.
        """
        if self.idle_since is None or self.timestamp is None:
            return None
        try:
            idle_for = datetime.fromisoformat(self.timestamp) - datetime.fromisoformat(self.idle_since)
        except (TypeError, ValueError):  # another program's text, or only one of the two has a zone
            return None
        return max(0, int(idle_for.total_seconds()))

    @property
    def is_xid_why(self) -> bool:
        """Whether the last XID is a reason of `health`."""
        return any(reason.startswith(f"Xid {self.last_xid} ") for reason in self.health_reasons)

    @property
    def users_in_words(self) -> str:
        """The users of the device that do not hold it, in words; "" for none."""
        return users_in_words(self.used_by)


def users_in_words(users: Iterable[DeviceUser]) -> str:
    """A sentence's end that names who uses a device and does not hold it; "" for nobody."""
    names = [*dict.fromkeys(user.name for user in users if user.name)]
    if not names:
        return ""
    if len(names) > _MOST_NAMED_USERS:
        rest = len(names) - _MOST_NAMED_USERS + 1
        names = [*names[: _MOST_NAMED_USERS - 1], f"{rest} others"]
    return f"used by {' and '.join(names)}, which {'does' if len(names) == 1 else 'do'} not hold it"


def state_of(row: DeviceRow, *, idle_below: float = IDLE_BELOW, why_unknown: str = "") -> DeviceState:
    """The state of the device for this holder, worked out of all fields of the row but `state` itself.

    Args:
        row: what is known of the device and its holder.
        idle_below: the activity (0 to 1) from which on a holder uses the device (--accounting.idle-below).
        why_unknown: the reason why it is not known who holds the device; "" if it is known.
    """
    if row.entity == "mig-parent":
        return DeviceState.CUT
    busy = None if row.is_before else row.activity
    # with --sharing device the one row of several holders names none of them
    if row.pod or row.gpu_shared:
        if busy is None:
            return DeviceState.HELD
        return DeviceState.IDLE if busy < idle_below else DeviceState.USED
    if why_unknown:
        return DeviceState.UNKNOWN
    if (busy or 0) >= idle_below or any(user.is_at_work(idle_below) for user in row.used_by):
        return DeviceState.OUTSIDE
    return DeviceState.FAILING if row.health in BROKEN else DeviceState.FREE


def in_its_state(row: DeviceRow, *, idle_below: float = IDLE_BELOW, why_unknown: str = "") -> DeviceRow:
    """The row with the state that `state_of` gives it, and with the reason if that state is `unknown`."""
    state = state_of(row, idle_below=idle_below, why_unknown=why_unknown)
    if state is DeviceState.UNKNOWN:
        return row._replace(state=state, state_reason=why_unknown)
    return row if state is row.state else row._replace(state=state)


# --- JSON -------------------------------------------------------------------------------------------------------------

_NAMES = DeviceRow._fields
# The names that every object has. An object lacks other names where their fields are empty.
ALWAYS = _NAMES[: _NAMES.index("mig_profile")]
_SOMETIMES = _NAMES[len(ALWAYS) :]


def as_object(row: DeviceRow) -> Object:
    """The row as an object of JSON. It includes the fields of a newer exporter that the row was read with."""
    made: Object = dict(zip(ALWAYS, row, strict=False))
    rest = zip(_SOMETIMES, row[len(ALWAYS) :], strict=True)
    made.update((name, value) for name, value in rest if value)
    for name in ("measured", "whole_device"):
        if name in made:
            made[name] = _part_object(made[name])
    if "health_reasons" in made:
        made["health_reasons"] = [*row.health_reasons]
    if "used_by" in made:
        made["used_by"] = [_part_object(user) for user in row.used_by]
    made.update(made.pop("unknown_fields", ()))
    return made


def _part_object(part: OwnUse | WholeDevice | DeviceUser) -> Object:
    """The known fields of such a part, as an object of JSON."""
    return {name: value for name, value in part._asdict().items() if value not in (None, "")}


def from_object(item: AnyObject) -> DeviceRow:
    """The row that an exporter of any version wrote.

    A field that is missing, or has another type than ours, counts as not known. If the object's state is missing, or
    this version does not know it, `state_of` gives the row its state. Fields that this version does not know are kept.
    """
    fields, others = _read(DeviceRow, item)
    if "last_xid" not in item:
        # an older exporter's object: it has only the last XID of the page
        fields["last_xid"] = whole(int(fields.get("xid_errors") or 0)) or None
    row = DeviceRow(**fields, unknown_fields=others) if others else DeviceRow(**fields)
    return row if row.state == item.get("state") else row._replace(state=state_of(row))


def from_objects(items: object, most: int) -> Sequence[DeviceRow]:
    """The rows of an answer that may be anything. At most `most` of its entries are looked at."""
    return [from_object(item) for item in each_mapping(items, most)]


def _read(kind: type[tuple[Any, ...]], item: AnyObject) -> tuple[Object, Object]:
    """The mapping's fields that `kind` has, where the types agree; and the fields that `kind` does not have."""
    fields: Object = {}
    others: Object = {}
    readers = _READERS[kind]
    for name, value in item.items():
        reader = readers.get(name)
        if reader is None:
            others[name] = value
        elif value is not None:
            value_read = reader(value)
            if value_read is not None:
                fields[name] = value_read
    return fields, others


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _number(value: object) -> Number:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # first the size: an int may be too large for a float
    return value if -_LARGEST < value < _LARGEST and isfinite(value) else None


def _state(value: object) -> DeviceState | None:
    return DeviceState(value) if isinstance(value, str) and value in _STATES else None


def _labels(value: object) -> Mapping[str, str] | None:
    return {name: text for name, text in mapping(value).items() if isinstance(text, str)} or None


def _reasons(value: object) -> tuple[str, ...] | None:
    return tuple(f"{reason}" for reason in value) if isinstance(value, list) else None


def _users(value: object) -> tuple[DeviceUser, ...]:
    return tuple(DeviceUser(**_read(DeviceUser, user)[0]) for user in each_mapping(value))


def _part(kind: type[tuple[Any, ...]], value: object) -> object:
    """The part of a row that has this type; None if none of its fields is known."""
    fields, _ = _read(kind, mapping(value))
    return kind(**fields) if fields else None


_STATES = frozenset(map(str, DeviceState))
_BY_TYPE: Mapping[Any, Callable[[object], Any]] = {
    str: _text,
    str | None: _text,
    bool: _truth,
    Number: _number,
    int | None: whole,
    DeviceState: _state,
    Mapping[str, str]: _labels,
    WholeDevice | None: partial(_part, WholeDevice),
    OwnUse | None: partial(_part, OwnUse),
    AnyObject | None: lambda value: mapping(value) or None,
    tuple[str, ...]: _reasons,
    tuple[DeviceUser, ...]: _users,
}
# For each type of tuple, the readers of its fields in a mapping, by the fields' types.
_READERS: Mapping[Any, Mapping[str, Callable[[object], Any]]] = {
    kind: {name: _BY_TYPE[of_type] for name, of_type in get_type_hints(kind).items() if name != "unknown_fields"}
    for kind in (OwnUse, WholeDevice, DeviceUser, DeviceRow)
}
FIELD_NAMES = _READERS[DeviceRow].keys()
