"""The hardware of a simulated node: a board for each GPU, with the load of the pods that hold it, and its errors.

Physics run in real time, in steps of a second; life (the pods' time) runs `speed` times as fast. The state of a board
depends on the seed, on the time and on when pods came and went, never on who looked at it. A board is an H100 SXM.

A load, and power with it, holds until the next load, so energy is exactly power (whole mW) times time (whole ns), in
whole pJ. Temperature lags behind power. The reasons for lowered clocks are NVML's bits (nvml.h,
nvmlClocksEventReasons).

Tests: tests/simulator/test_machine.py, tests/simulator/test_failure.py.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.simulator.job_phases import WorkloadUse, chance, together, use
from exporter.simulator.parts import PROFILES, REPLICAS, Container, Pod, SimulatedGpu
from exporter.simulator.simulated_links import HOPPER, NvlinkHardware, SimulatedLinks

GPU_IDLE = 0x1
POWER_CAP = 0x4
SW_THERMAL = 0x20
HW_THERMAL = 0x40
THERMAL = SW_THERMAL | HW_THERMAL
LIMIT_MW = 700_000
PJ_PER_MJ = 1_000_000_000
_IDLE_MW = 70_000
_FULL_MW = 740_000  # a GPU's power at full activity without its limit, which is a little lower
_POLLING = 0.08  # of that: an H100 hung in a collective draws 100 to 150 W (NVIDIA/nccl issue 1550)
_MOST_MW = {0: LIMIT_MW, SW_THERMAL: 500_000, HW_THERMAL: 350_000}
_BOOST_MHZ = 1980
_IDLE_MHZ = 345
# the milliwatts that make a degree, and the seconds that 63 % of a change of temperature take
_MW_PER_DEGREE = 14_000.0
_LAG_SECONDS = 45.0
_MEMORY_MW_PER_DEGREE = 12_000.0
_MEMORY_LAG_SECONDS = 60.0
# above the first temperature the driver lowers the clocks, above the second the hardware, until it is below the third
_SLOWDOWN = 87.0
_HW_SLOWDOWN = 92.0
_COOL_AGAIN = 84.0
AIR_CELSIUS = 26.0

# The family of time that grows while a reason's bit is set. GPU_IDLE stands for low utilization.
VIOLATIONS = {"LOW_UTIL_VIOLATION": GPU_IDLE, "POWER_VIOLATION": POWER_CAP, "THERMAL_VIOLATION": THERMAL}
# the reasons' names in dcgm-exporter's DCGM_EXP_CLOCK_EVENTS_TOTAL
EVENTS = {"gpu_idle": GPU_IDLE, "power_cap": POWER_CAP, "sw_thermal": SW_THERMAL, "hw_thermal": HW_THERMAL}


@dataclass(slots=True, kw_only=True)
class Board:
    """The state of a GPU. `reasons` and `power_mw` hold since the last `load`.

    `energy_pj` and `violations_ns` never fall until the driver is reloaded. `events` counts how often a reason began.
    """

    activity: float = 0.0
    power_mw: int = _IDLE_MW
    energy_pj: int = 0
    celsius: float = AIR_CELSIUS + _IDLE_MW / _MW_PER_DEGREE
    memory_celsius: float = AIR_CELSIUS + 4 + _IDLE_MW / _MEMORY_MW_PER_DEGREE
    sm_clock: int = _IDLE_MHZ
    reasons: int = GPU_IDLE
    air: float = AIR_CELSIUS
    violations_ns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VIOLATIONS, 0))
    events: dict[str, int] = field(default_factory=lambda: dict.fromkeys(EVENTS, 0))

    def load(self, activity: float, air: float = AIR_CELSIUS, *, waits: float = 0.0) -> None:
        """Set the GPU's activity (0 to 1) and the temperature of its air (°C) from now on.

        In the part `waits` of its time, which is part of the activity, kernels only poll.
        """
        self.activity = activity
        self.air = air
        wanted = _IDLE_MW + round((_FULL_MW - _IDLE_MW) * (activity - waits * (1 - _POLLING)))
        thermal = self._thermal()
        self.power_mw = min(wanted, _MOST_MW[thermal])
        reasons = 0 if activity else GPU_IDLE
        slower = 1.0
        if self.power_mw < wanted:
            reasons = thermal or POWER_CAP
            # power grows with nearly the third power of the clock
            slower = ((self.power_mw - _IDLE_MW) / (wanted - _IDLE_MW)) ** 0.4
        for name, bit in EVENTS.items():
            self.events[name] += bool(reasons & bit & ~self.reasons)
        self.reasons = reasons
        self.sm_clock = round(_BOOST_MHZ * slower / 15) * 15 if activity else _IDLE_MHZ

    def spend(self, nanoseconds: int) -> None:
        """Let time pass under the present load."""
        self.energy_pj += self.power_mw * nanoseconds
        for name in self.violations_ns:
            self.violations_ns[name] = self.violation(name, nanoseconds)
        self._warm(nanoseconds / 1e9)

    def warm_up(self) -> None:
        """Make the GPU as warm as it gets under the present load."""
        self._warm(math.inf)

    def energy_mj(self, later_ns: int = 0) -> int:
        """The energy since the driver was loaded, in whole millijoules, `later_ns` after the last `spend`."""
        return (self.energy_pj + self.power_mw * later_ns) // PJ_PER_MJ

    def violation(self, name: str, later_ns: int = 0) -> int:
        """The nanoseconds of a family of VIOLATIONS, `later_ns` after the last `spend`."""
        return self.violations_ns[name] + (later_ns if self.reasons & VIOLATIONS[name] else 0)

    def reload(self) -> None:
        """Reload the driver: its counters begin at 0."""
        self.energy_pj = 0
        self.violations_ns = dict.fromkeys(VIOLATIONS, 0)

    def _warm(self, seconds: float) -> None:
        warmest = self.air + self.power_mw / _MW_PER_DEGREE
        self.celsius -= (warmest - self.celsius) * math.expm1(-seconds / _LAG_SECONDS)
        warmest = self.air + 4 + self.power_mw / _MEMORY_MW_PER_DEGREE
        self.memory_celsius -= (warmest - self.memory_celsius) * math.expm1(-seconds / _MEMORY_LAG_SECONDS)

    def _thermal(self) -> int:
        was_hot = self.reasons & THERMAL
        limit = _COOL_AGAIN if was_hot else _SLOWDOWN
        if self.celsius >= _HW_SLOWDOWN:
            return HW_THERMAL
        return SW_THERMAL if self.celsius >= limit else 0


TICK_NS = 1_000_000_000
_HOT_CELSIUS = 20.0  # a fan fails: a GPU's air is so much warmer for 2 of 5 minutes
_HOT_EVERY = 300
_HOT_FROM = 150
_HOT_UNTIL = 270
_OLDEST = 4 * 3600.0  # the largest age of the first pods, in seconds of life
# the XIDs of memory errors that DCGM counts as uncorrected, and that remap a row
ROW_XIDS = (48, 63, 94)


class Xid(NamedTuple):
    """An error that the driver reported, at a moment of the clock (nanoseconds).

    `process` had it, if any: the UID of its pod, and the device, as `RunningPod` names it.
    """

    at_ns: int
    xid: int
    process: tuple[str, str] = ("", "")


class RunningPod(NamedTuple):
    """A container's use of a device: the part of its memory (0 to 1), and the activity (0 to 1)."""

    device_id: str
    namespace: str
    pod: str
    container: str
    memory: float
    activity: float


class _SimulatedUse(NamedTuple):
    container: tuple[str, str, str]  # its pod's namespace and name, and its own
    seed: str
    workload: str
    born: float  # seconds of life
    part: float  # of the device's memory
    is_linked: bool  # the pod has several GPUs, which talk over NVLink
    pace: float  # no two devices of a pod are equally busy


class Machine:
    """The boards of `gpus` under the load of pods, and all `xids` by UUID. `clock` (nanoseconds) never goes back.

    `links` are the NVLinks by the GPU's UUID, and `nvlink` is of what generation they are.
    """

    nvlink: NvlinkHardware = HOPPER

    def __init__(self, *, seed: int, speed: float, clock: Callable[[], int]) -> None:
        self.gpus: Sequence[SimulatedGpu] = ()
        self.boards: dict[str, Board] = {}
        self.links: dict[str, SimulatedLinks] = {}
        self.xids: dict[str, list[Xid]] = {}
        self.started_ns = self._now = clock()
        self.seed = seed
        self._speed = speed
        self.clock = clock
        self._born: dict[tuple[str, str, str], float] = {}
        self._holders: dict[str, list[_SimulatedUse]] = {}
        self._uses: dict[str, WorkloadUse] = {}

    @property
    def seconds(self) -> float:
        """The seconds from the machine's start to the present step."""
        return (self._now - self.started_ns) / 1e9

    @property
    def life(self) -> float:
        """The pods' time from the machine's start to the present step, in seconds of life."""
        return self.seconds * self._speed

    def change(self, gpus: Sequence[SimulatedGpu], pods: Sequence[Pod]) -> None:
        """Let these pods hold these GPUs from now on. The time before is settled with the old pods."""
        is_first = not self.boards
        self._advance()
        self.gpus = gpus
        for gpu in gpus:
            if gpu.uuid not in self.boards:
                # weeks of work at some 300 W: a node is older than the programs that watch it
                before = int(3e11 * (1 + 4 * chance(self.seed, gpu.uuid))) * PJ_PER_MJ
                self.boards[gpu.uuid] = Board(energy_pj=before)
                self.links[gpu.uuid] = SimulatedLinks(gpu.uuid)
        self._hold(pods, is_first=is_first)
        self._load()
        if is_first:
            for board in self.boards.values():
                board.warm_up()

    def advance(self) -> int:
        """Bring the boards to the last full step. Returns the nanoseconds since then."""
        # a single look at the clock: values of a moment must not run ahead into the next step
        return self._advance(whole_steps=True) - self._now

    def use_of(self, device_id: str) -> WorkloadUse:
        """The present use of a GPU, by UUID, or of a MIG instance, by the kubelet's id."""
        return self._uses.get(device_id, WorkloadUse())

    def running(self) -> Iterator[RunningPod]:
        """Each container's present use of each of its devices, by UUID or by the kubelet's id."""
        life = self.life
        for device_id, holders in self._holders.items():
            for holder in holders:
                does = _of_holder(holder, life)
                memory = does.memory * holder.part
                yield RunningPod(device_id, *holder.container, memory=memory, activity=does.activity)

    def reload(self, uuid: str) -> None:
        """Reload the driver for a GPU: what it counts begins at 0."""
        self.boards[uuid].reload()
        self.links[uuid].loaded = self.seconds

    def add_xid(self, uuid: str, xid: int, process: tuple[str, str] = ("", "")) -> None:
        """Let the driver report an error of a GPU. For `process` see Xid."""
        self.xids.setdefault(uuid, []).append(Xid(self.clock(), xid, process))

    def _advance(self, *, whole_steps: bool = False) -> int:
        """Let time pass until now, or with `whole_steps` until the last full step. Returns the present time."""
        now = self.clock()
        step = self._next_step()
        while step <= now:
            self._spend(step)
            self._load()
            step = self._next_step()
        if not whole_steps and now > self._now:
            self._spend(now)
        return now

    def _next_step(self) -> int:
        return self._now + TICK_NS - (self._now - self.started_ns) % TICK_NS

    def _spend(self, until: int) -> None:
        for board in self.boards.values():
            board.spend(until - self._now)
        self._now = until

    def _load(self) -> None:
        """Put the present load of all holders on the boards. The air of one GPU is hot for a while."""
        life = self.life
        self._uses = {}
        for device_id, holders in self._holders.items():
            uses = [_of_holder(holder, life) for holder in holders]
            self._uses[device_id] = together(uses, [holder.part for holder in holders])
        seconds = int(self.seconds)
        hot = -1
        if _HOT_FROM <= seconds % _HOT_EVERY < _HOT_UNTIL:
            hot = int(chance(self.seed, "hot", seconds // _HOT_EVERY) * len(self.gpus))
        for number, gpu in enumerate(self.gpus):
            if gpu.instances:
                self._uses[gpu.uuid] = self._of_instances(gpu)
            air = AIR_CELSIUS + 3 * chance(self.seed, gpu.index)
            if number == hot:
                air += _HOT_CELSIUS
            of_gpu = self.use_of(gpu.uuid)
            self.boards[gpu.uuid].load(of_gpu.activity, air, waits=min(of_gpu.activity, of_gpu.waits))

    def _of_instances(self, gpu: SimulatedGpu) -> WorkloadUse:
        """The whole GPU's use: the sum of its instances' uses, weighted by their compute slices."""
        parts = []
        for mig in gpu.instances:
            part = PROFILES[mig.profile].slices / gpu.card.slices
            parts.append([ratio * part for ratio in self.use_of(mig.device_id)])
        return WorkloadUse(*map(sum, zip(*parts, strict=True)))._replace(memory=0.0, nvlink=0.0)

    def _hold(self, pods: Sequence[Pod], *, is_first: bool) -> None:
        """Note the holders of each device. A container that does not run holds its device without using it."""
        claimed = {device: uuid for gpu in self.gpus for device, uuid in gpu.ids_of_claims.items()}
        born = self._born
        self._born = {}
        self._holders = {}
        for pod in pods:
            for container in pod.running:
                shares = _shares_of(container, claimed)
                if not shares or not container.running or container.is_reservation:
                    continue
                key = (pod.namespace, pod.name, f"{pod.uid}/{container.name}")
                if pod.began is not None:
                    self._born[key] = pod.began
                elif key in born:
                    self._born[key] = born[key]
                else:
                    self._born[key] = self.life - (_OLDEST * chance(self.seed, key, "age") if is_first else 0.0)
                for device_id, size in shares.items():
                    self._add_holder(pod, container, key, device_id, size, is_linked=len(shares) > 1)

    def _add_holder(
        self,
        pod: Pod,
        container: Container,
        key: tuple[str, str, str],
        device_id: str,
        size: float,
        *,
        is_linked: bool,
    ) -> None:
        """Note that a container holds a device, or `size` quarters of it if `::` follows the GPU's UUID."""
        work, seed = pod.work or (pod.owner[1], f"{self.seed}/{'/'.join(key)}")
        uuid, is_share, _ = device_id.partition("::")
        holder = _SimulatedUse(
            container=(pod.namespace, pod.name, container.name),
            seed=seed,
            workload=work,
            born=self._born[key],
            part=size / REPLICAS if is_share else 1.0,
            is_linked=is_linked and not is_share,
            pace=0.96 + 0.04 * chance(self.seed, uuid),
        )
        self._holders.setdefault(uuid, []).append(holder)


def _shares_of(container: Container, claimed: dict[str, str]) -> dict[str, float]:
    """How much a container holds of each device; of a GPU's UUID with `::` in quarters."""
    if container.parts:
        return {f"{part.uuid}::": REPLICAS * min(1.0, part.of_memory) for part in container.parts}
    held = Counter(_devices_of(container, claimed))
    return {**(held | Counter(f"{uuid}::" for uuid in container.uses) if container.uses else held)}


def _devices_of(container: Container, claimed: dict[str, str]) -> Iterator[str]:
    """The ids of a container's devices. A share is its GPU's UUID with `::`, once for each share."""
    for device_id in container.chosen or [device_id for _, device_id in container.devices]:
        uuid, is_share, _ = device_id.partition("::")
        yield f"{uuid}{is_share}"
    for claim in container.claims:
        if claim.device in claimed:
            yield claimed[claim.device]


def _of_holder(holder: _SimulatedUse, life: float) -> WorkloadUse:
    use_now = use(holder.workload, holder.seed, life - holder.born, life)
    nvlink = use_now.nvlink if holder.is_linked else 0.0
    pace = 1.0 if use_now.waits else holder.pace
    return use_now._replace(activity=use_now.activity * pace, nvlink=nvlink)
