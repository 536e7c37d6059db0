"""What `top` shows: devices, their owners, and the health of the exporter's sources.

Units: percent, MiB, W, °C, MHz. None is unknown, which is never 0. `answers` makes these of an exporter's answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from exporter.model.states import IN_HAND, DeviceState, counts_of

Role = Literal["node", "cluster"]
DeviceName = tuple[str, str, str]  # node, GPU, MIG instance


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
            **counts_of(device.state for device in self.devices),
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
