"""What is shown: the devices, their owners, and the health of what tells of them.

Units: percent, MiB, W, °C, MHz. None is unknown, which is never 0. `answers` makes these of an exporter's answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# What is known of who has a device: "unknown" where something hides the owner (the kubelet is silent, an odd id).
Held = Literal["held", "free", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A container that holds a device. What it uses of it is None where it has no part of its own."""

    namespace: str
    pod: str
    container: str
    workload: str = ""
    workload_kind: str = ""
    utilization_percent: float | None = None
    memory_used_mib: float | None = None
    measured: bool = False
    idle: bool = False

    @property
    def name(self) -> str:
        """Namespace and pod, as kubectl writes them."""
        return f"{self.namespace}/{self.pod}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU, a MIG instance, or a GPU that is cut into some (`mig-parent`)."""

    node: str
    index: str
    uuid: str
    entity: str = "gpu"
    instance: str = ""
    profile: str = ""
    model: str = ""
    held: Held = "free"
    why: str = ""
    shared: bool = False
    idle: bool = False
    instances: int = 0
    utilization_percent: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_mhz: float | None = None
    memory_activity_percent: float | None = None
    tensor_percent: float | None = None
    xid: int | None = None
    holders: Sequence[Holder] = ()

    @property
    def label(self) -> str:
        """What people call it: 2, or 2/7 for MIG instance 7 of GPU 2."""
        gpu = self.index or self.uuid[:8] or "?"
        return f"{gpu}/{self.instance}" if self.instance else gpu

    @property
    def gpu(self) -> tuple[str, str]:
        """What all instances of one GPU share."""
        return (self.node, self.uuid or self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source of the exporter, or a node that its cluster role asks."""

    name: str
    up: bool
    reason: str = ""
    message: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
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

    role: Literal["node", "cluster"]
    url: str
    version: str = ""
    node: str = ""
    at: str = ""
    devices: Sequence[Device] = ()
    sources: Sequence[Source] = ()
    missing: Sequence[Source] = ()
    nodes: int = 1
    trouble: str = ""
    processes: Sequence[Process] | None = None
    processes_trouble: str = ""

    @property
    def counts(self) -> Mapping[str, int]:
        """Physical GPUs: all, those that somebody holds (or a part of), and free ones; and idle devices."""
        gpus: dict[tuple[str, str], set[Held]] = {}
        for device in self.devices:
            states = gpus.setdefault(device.gpu, set())
            if device.entity != "mig-parent":
                states.add(device.held)
        return {
            "gpus": len(gpus),
            "held": sum("held" in states for states in gpus.values()),
            "idle": sum(device.idle for device in self.devices),
            "free": sum(bool(states) and states == {"free"} for states in gpus.values()),
        }

    @property
    def power_watts(self) -> float | None:
        """Of all GPUs that tell theirs; None where none does."""
        known = [device.power_watts for device in self.devices if device.power_watts is not None]
        return sum(known) if known else None
